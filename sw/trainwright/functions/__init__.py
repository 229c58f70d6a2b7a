"""Element-wise functions of networks: ``leaky_relu``, ``tanh``, and how to add one.

A function is one record in ``library.py``: a kernel for its values, a kernel for its gradient, and
the same mathematics in torch. Networks, PyTorch models, gradients and programs take it from there.
docs/guide/element-wise-functions.md adds one step by step.
"""

from trainwright.functions.record import (
    ElementKernel,
    Function,
    FunctionError,
    entries,
    function_names,
    function_of,
    register,
)

__all__ = [
    "ElementKernel",
    "Function",
    "FunctionError",
    "entries",
    "function_names",
    "function_of",
    "register",
]

"""Functions of networks that are no contractions: kernels of the library and of users.

``trainwright.kernel`` registers a Python function of integers, with its gradient. Networks, PyTorch
models, gradients and programs take it from there; ``library.py`` and ``groups.py`` are written with
it. docs/guide/your-own-kernel.md adds one step by step.
"""

from trainwright.functions.record import (
    AXES,
    Definition,
    Function,
    FunctionError,
    FunctionKernel,
    Scale,
    Scaling,
)
from trainwright.functions.registry import (
    definition_of,
    entries,
    function_names,
    function_of,
    kernel,
    read_kernels,
)
from trainwright.functions.scalars import scalars_of

__all__ = [
    "AXES",
    "Definition",
    "Function",
    "FunctionError",
    "FunctionKernel",
    "Scale",
    "Scaling",
    "definition_of",
    "entries",
    "function_names",
    "function_of",
    "kernel",
    "read_kernels",
    "scalars_of",
]

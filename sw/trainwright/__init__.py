"""trainwright: train tensor-train networks on an FPGA accelerator.

This layer says what is computed, bit by bit: number formats, tensor trains, the compiler,
the golden model, the trainer, the driver interface and the command line. It never imports
Amaranth; higher layers (a simulated accelerator, a board) register with it through the entry points
`trainwright.backends` and `trainwright.commands`.

Users of PyTorch need the names of this package: ``compile`` and ``from_torch``, the layers in
``trainwright.nn``, their arguments and errors. A name is imported when it is first used.

>>> import torch, trainwright, trainwright.nn as tnn
>>> model = torch.nn.Sequential(tnn.TTLinear(64, 32), torch.nn.ReLU(), tnn.TTLinear(32, 10))
>>> model = trainwright.compile(model, backend="golden", batch=64)
>>> model(torch.rand(100, 64)).shape
torch.Size([100, 10])
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainwright import nn
    from trainwright.accelerator import AcceleratorError
    from trainwright.compiler import CompileError
    from trainwright.functions import kernel
    from trainwright.network import NetworkError, Widths
    from trainwright.nn import from_torch, to_torch
    from trainwright.offload import CompiledModule, compile
    from trainwright.parameters import AcceleratorParameters

__version__ = "0.1.0.dev0"

_PLACES = {
    "AcceleratorError": "accelerator",
    "AcceleratorParameters": "parameters",
    "CompileError": "compiler",
    "CompiledModule": "offload",
    "NetworkError": "network",
    "Widths": "network",
    "compile": "offload",
    "from_torch": "nn",
    "kernel": "functions",
    "to_torch": "nn",
}

__all__ = [
    "AcceleratorError",
    "AcceleratorParameters",
    "CompileError",
    "CompiledModule",
    "NetworkError",
    "Widths",
    "compile",
    "from_torch",
    "kernel",
    "nn",
    "to_torch",
]


def __getattr__(name: str) -> Any:
    if name == "nn":
        return import_module("trainwright.nn")
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"trainwright.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

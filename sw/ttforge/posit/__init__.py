"""Posit arithmetic, correctly rounded, for PyTorch (``docs/posit.md``).

``PositTensor`` is a torch tensor every operation on which is rounded; ``convert`` makes a module's
parameters into them. ``add`` to ``matmul`` are on integer tensors of codes, the format last;
``ttforge.posit.grid`` and ``ttforge.posit.products`` have the same on float tensors on the grid.
"""

from ttforge.posit.accumulation import accumulation, get_accumulation, set_accumulation
from ttforge.posit.codes import add, div, dot, fma, matmul, mul, sqrt, sub
from ttforge.posit.conversion import convert
from ttforge.posit.files import load_file, save_file
from ttforge.posit.format import PositError, PositFormat
from ttforge.posit.modules import Mixed
from ttforge.posit.operators import UncoveredError
from ttforge.posit.rounding import decode, encode, round_to
from ttforge.posit.tensor import PositTensor

__all__ = [
    "Mixed",
    "PositError",
    "PositFormat",
    "PositTensor",
    "UncoveredError",
    "accumulation",
    "add",
    "convert",
    "decode",
    "div",
    "dot",
    "encode",
    "fma",
    "get_accumulation",
    "load_file",
    "matmul",
    "mul",
    "round_to",
    "save_file",
    "set_accumulation",
    "sqrt",
    "sub",
]

"""Posit arithmetic, correctly rounded, for PyTorch (``docs/reference/posit.md``).

``PositTensor`` is a torch tensor on which every operation is rounded; ``convert`` makes posits of a
module's parameters. ``add`` to ``matmul`` take integer tensors of codes, with the format last;
``trainwright.posit.grid`` and ``trainwright.posit.products`` offer the same operations on float
tensors on the grid.
"""

from trainwright.posit.accumulation import accumulation, get_accumulation, set_accumulation
from trainwright.posit.codes import add, div, dot, fma, matmul, mul, sqrt, sub
from trainwright.posit.conversion import convert
from trainwright.posit.files import load_file, save_file
from trainwright.posit.format import PositError, PositFormat
from trainwright.posit.modules import Mixed
from trainwright.posit.operators import UncoveredError
from trainwright.posit.rounding import decode, encode, round_to
from trainwright.posit.tensor import PositTensor

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

"""Posit arithmetic, correctly rounded, for PyTorch (``docs/posit.md``).

Operations here are on integer tensors of codes, the format last. ``ttforge.posit.grid`` and
``ttforge.posit.products`` have the same on float tensors that live on the grid (``round_to``).
"""

from ttforge.posit.codes import add, convert, div, dot, fma, matmul, mul, sqrt, sub
from ttforge.posit.format import PositError, PositFormat
from ttforge.posit.rounding import decode, encode, round_to

__all__ = [
    "PositError",
    "PositFormat",
    "add",
    "convert",
    "decode",
    "div",
    "dot",
    "encode",
    "fma",
    "matmul",
    "mul",
    "round_to",
    "sqrt",
    "sub",
]

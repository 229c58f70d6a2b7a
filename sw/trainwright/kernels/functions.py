"""Tables of the vector engine's functions: exp2, reciprocal, reciprocal root, log2, GELU's factors.

``trainwright.kernels.library`` computes the functions by these tables. Each error bound is one that
``tests/sw/test_onchip_functions.py`` finds over *all* inputs of a table (32,768 to 65,536).
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import mpmath
import numpy as np
import numpy.typing as npt

from trainwright.kernels.tables import ENTRIES, FunctionTable, make_table

Words = npt.NDArray[np.int64]

EXP2_UNIT = 15
"""A result of exp2 is in units of 2^-15, a scratchpad word."""
MANTISSA = 16
"""Bits of a normalised mantissa, its leading one included."""
ROOT_UNIT = 17
"""Results of reciprocals and reciprocal roots have 17 bits below the point."""
GELU_END = 4
"""Argument from which GELU is x, and below whose negative it is 0."""

EXP2_ERROR = 0.84
"""Most that exp2 is wrong, in units of its result; 1 for v = 0, where it saturates."""
RECIPROCAL_ERROR = 2**-14.77
"""Most that a reciprocal is wrong for arguments of at most MANTISSA bits, relative."""
ROOT_ERROR = 2**-15.6
"""Most that a reciprocal root is wrong for arguments of at most MANTISSA bits, relative."""
LOG2_ERROR = 2**-14.77
"""Most that log2 is wrong for arguments of at most MANTISSA bits."""
TRUNCATION_ERROR = 2**-15
"""Relative error, always downwards, of cutting a longer argument's mantissa to MANTISSA bits. It
adds as much to the error of a reciprocal, half of it to a root's, and 1.4427 of it to log2's."""


@cache
def exp2_table() -> FunctionTable:
    """Tabulate 2^-x for x in [0, 1)."""
    return make_table(lambda x: mpmath.power(2, -x), [(0, 1)], base_width=17)


@cache
def reciprocal_table() -> FunctionTable:
    """Tabulate 1 / x for x in [1, 2)."""
    return make_table(lambda x: 1 / x, [(1, 2)], base_width=17)


@cache
def root_table() -> FunctionTable:
    """Tabulate 1 / sqrt(x) for x in [1, 2), and in the second slot for x in [2, 4)."""
    return make_table(lambda x: 1 / mpmath.sqrt(x), [(1, 2), (2, 4)], base_width=17)


@cache
def log2_table() -> FunctionTable:
    """Tabulate log2(x) for x in [1, 2); the slope at 1 takes a bit of the base below the point."""
    return make_table(lambda x: mpmath.log(x, 2), [(1, 2)], base_width=16)


def _of_signed_words(function: Callable[[Any], Any], base_width: int) -> FunctionTable:
    """Tabulate a function that goes from 0 at -4 to 1 at 4.

    The index is a word of 16 bits in units of 2^-13. Negative words have the highest bit, and so
    they find the upper half of the table.
    """
    return make_table(
        function,
        [(0, GELU_END), (-GELU_END, 0)],
        base_width=base_width,
        entries=ENTRIES // 2,
        limits={-GELU_END: 0, GELU_END: 1},
    )


@cache
def normal_table() -> FunctionTable:
    """Tabulate the share of the normal distribution below x, by which GELU multiplies x."""
    return _of_signed_words(mpmath.ncdf, 15)


@cache
def gelu_slope_table() -> FunctionTable:
    """Tabulate the derivative of GELU; its steps are twice as steep as those of its factor."""
    return _of_signed_words(lambda x: mpmath.ncdf(x) + x * mpmath.npdf(x), 14)

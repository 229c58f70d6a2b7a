"""Memory of component tensors: the kernel is asked for large pages under those that fill some.

A product with a vector reads every component once; of a matrix of 20 MB much of its time went into
finding 5,000 pages of 4 KiB.
"""

import ctypes
import math
import sys
from functools import cache
from typing import Any

import torch
from torch import Tensor

LARGE_PAGE = 1 << 21
LEAST = 2 * LARGE_PAGE
"""Bytes from which a tensor asks for large pages."""
_MADV_HUGEPAGE = 14


def planes(shape: tuple[int, ...], nc: int, like: Tensor) -> Tensor:
    """Components (nc, *shape) not yet written, of the type and on the device of ``like``."""
    made = torch.empty((nc, *shape), dtype=like.dtype, device=like.device)
    if nc * math.prod(shape) * like.itemsize >= LEAST and made.device.type == "cpu":
        _advise(made)
    return made


def empty(shape: tuple[int, ...], nc: int, like: Tensor) -> Tensor:
    """The same as (*shape, nc): each component contiguous by itself."""
    return planes(shape, nc, like).movedim(0, -1)


@cache
def _madvise() -> Any:
    """The function of the C library, ``None`` where large pages are not asked for in this way."""
    if not sys.platform.startswith("linux"):
        return None
    function = ctypes.CDLL(None).madvise
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return function


def _advise(x: Tensor) -> None:
    """Asks for the pages that lie in x as a whole; a kernel without large pages says no."""
    advise = _madvise()
    if advise is not None:
        begin = -(-x.data_ptr() // LARGE_PAGE) * LARGE_PAGE
        end = (x.data_ptr() + x.nbytes) // LARGE_PAGE * LARGE_PAGE
        if end > begin:
            advise(begin, end - begin, _MADV_HUGEPAGE)

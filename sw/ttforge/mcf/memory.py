"""Large pages under tensors that are made to be kept.

A product with a vector reads every component once, and much of its time with a matrix of 20 MB went
into finding 5,000 pages of 4 KiB. Results of operations stay where torch's allocator puts them.
"""

import ctypes
import sys
from functools import cache
from typing import Any

from torch import Tensor

LARGE_PAGE = 1 << 21
LEAST = 2 * LARGE_PAGE
"""Bytes from which a tensor is moved."""
_MADV_COLLAPSE = 25


def in_large_pages(x: Tensor) -> Tensor:
    """x, its memory moved into pages of 2 MiB by the kernel, at the same address.

    Nothing happens to small tensors, to those of other devices, and where the kernel does not know
    of this (Linux before 6.1) or has no large pages left.
    """
    memory = x.untyped_storage()
    if x.device.type == "cpu" and memory.nbytes() >= LEAST and (madvise := _madvise()):
        begin = -(-memory.data_ptr() // LARGE_PAGE) * LARGE_PAGE
        end = (memory.data_ptr() + memory.nbytes()) // LARGE_PAGE * LARGE_PAGE
        madvise(begin, end - begin, _MADV_COLLAPSE)
    return x


@cache
def _madvise() -> Any:
    """The function of the C library, ``None`` where there is none."""
    if not sys.platform.startswith("linux"):
        return None
    function = ctypes.CDLL(None).madvise
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return function

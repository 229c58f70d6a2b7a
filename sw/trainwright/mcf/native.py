"""The C kernels of multi-component floats (``kernels/``), built for each type and count.

``usable`` says whether they can take tensors; every caller has a torch path with the same bits.
"""

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainwright.support.native import load

_SOURCE = Path(__file__).parent / "kernels" / "mcf.c"
MOST = 4
"""Components that kernels are built for: they are unrolled."""


def usable(x: Tensor, nc: int) -> bool:
    """Whether there are kernels for tensors like x of nc components."""
    return usable_for(x, x.dtype, nc)


def usable_for(x: Tensor, dtype: torch.dtype, nc: int) -> bool:
    """The same of another type than that of x."""
    return x.device.type == "cpu" and 2 <= nc <= MOST and _library(dtype, nc) is not None


def _library(dtype: torch.dtype, nc: int) -> ctypes.CDLL | None:
    options = _options(dtype, nc)
    return None if options is None else load(_SOURCE, *options)


@cache
def _options(dtype: torch.dtype, nc: int) -> tuple[str, ...] | None:
    """Of the compiler; ``None`` for types without kernels."""
    known = {torch.float32: (f"-DNC={nc}",), torch.float64: (f"-DNC={nc}", "-DDOUBLE")}
    return known.get(dtype)


@cache
def _function(name: str, dtype: torch.dtype, nc: int) -> Any:
    library = _library(dtype, nc)
    assert library is not None, "usable() was not asked"
    function = library[name]
    function.restype = None
    return function


def _call(name: str, dtype: torch.dtype, nc: int, *arguments: Tensor | int) -> None:
    """Tensors go as pointers, integers as int64: both are ``c_int64``, of 64 bits."""
    function = _function(name, dtype, nc)
    if function.argtypes is None:
        function.argtypes = [ctypes.c_int64] * len(arguments)
    function(*[x.data_ptr() if isinstance(x, Tensor) else x for x in arguments])


def empty(shape: tuple[int, ...], nc: int, like: Tensor) -> Tensor:
    """Components (*shape, nc), each of them contiguous by itself."""
    return torch.empty((nc, *shape), dtype=like.dtype, device=like.device).movedim(0, -1)


def _planes(x: Tensor, shape: torch.Size) -> tuple[Tensor, int, int]:
    """Components broadcast to ``shape``, elements from one component to the next, and the step."""
    lead = x[..., 0]
    if lead.numel() == 1 and lead.shape != shape:
        return x, x.stride(-1), 0
    if lead.shape != shape:
        x = x.expand(*shape, x.shape[-1])
        lead = x[..., 0]
    if not lead.is_contiguous():
        x = x.movedim(-1, 0).contiguous().movedim(0, -1)
    return x, x.stride(-1), 1


def binary(operation: str, x: Tensor, y: Tensor) -> Tensor:
    """``add``, ``mul`` or ``div`` of components (..., n), shapes broadcast."""
    nc = max(x.shape[-1], y.shape[-1])
    if operation != "div" and x.shape[-1] < y.shape[-1]:
        x, y = y, x
    shape = x.shape[:-1]
    if y.shape[:-1] != shape:
        shape = torch.broadcast_shapes(shape, y.shape[:-1])
    name = operation
    if y.shape[-1] < nc:
        name = f"{operation}_plain"
    elif x.shape[-1] < nc:
        name = f"plain_{operation}"
    out = empty(shape, nc, x)
    a, b = _planes(x, shape), _planes(y, shape)
    _call(f"mcf_{name}", x.dtype, nc, *a, *b, out, out[..., 0].numel())
    return out


def join(x: Tensor) -> Tensor:
    """``carriers.join`` of two or three float32 components."""
    shape, nc = x.shape[:-1], x.shape[-1]
    out = torch.empty(shape, dtype=torch.float64)
    x, plane, _ = _planes(x, shape)
    _call("mcf_join", x.dtype, nc, x, plane, out, out.numel())
    return out


def parted(z: Tensor, nc: int) -> Tensor:
    """``carriers.parted`` into two or three float32 components."""
    z = z.contiguous()
    out = torch.empty((nc, *z.shape), dtype=torch.float32).movedim(0, -1)
    _call("mcf_part", torch.float32, nc, z, out, z.numel())
    return out


def mv(x: Tensor, v: Tensor, *, by_component: bool) -> Tensor:
    """``products.carried_mv``: float32 components (rows, columns, nc) by float64 (columns)."""
    rows, columns, nc = x.shape
    across, along, plane = x.stride()
    if (across, along) != (columns, 1):
        x, plane, _ = _planes(x, x.shape[:-1])
    out = torch.empty_strided((rows, nc), (1, rows), dtype=x.dtype)
    name = "mcf_mv_components" if by_component else "mcf_mv_joined"
    _call(name, x.dtype, nc, x, plane, v.contiguous(), out, rows, columns)
    return out


def product(x: Tensor, y: Tensor) -> Tensor:
    """``products.sequential``: components (m, k, n) times (k, n, n'), one of n, n' may be 1."""
    nc = max(x.shape[-1], y.shape[-1])
    (m, k), n = x.shape[:2], y.shape[1]
    across = n < m
    if across:
        x = x.transpose(0, 1)
    out = torch.zeros((nc, n, m) if across else (nc, m, n), dtype=x.dtype).movedim(0, -1)
    x, plane_x, _ = _planes(x, x.shape[:-1])
    y, plane_y, _ = _planes(y, y.shape[:-1])
    name = "both" if x.shape[-1] == y.shape[-1] else "first" if y.shape[-1] == 1 else "second"
    sizes = (m, k, n, int(across))
    _call(f"mcf_product_{name}", x.dtype, nc, x, plane_x, y, plane_y, out, m * n, *sizes)
    return out.transpose(0, 1) if across else out

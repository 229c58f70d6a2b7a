"""ctypes calls of the C kernels of multi-component floats, built per type and component count.

``usable`` says whether the kernels accept given tensors; every caller has a torch path with the
same bits.
"""

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainwright.support.graphs import addresses
from trainwright.support.native import load

_SOURCE = Path(__file__).parent / "kernels" / "mcf.c"
LANES = 16
"""Parallel partial sums in products with a vector, as in ``kernels/products.h``."""
MOST = 4
"""Maximum components that kernels are built for; their loops over components are unrolled."""


def usable(x: Tensor, nc: int) -> bool:
    """Return whether kernels exist for nc components in the type and on the device of ``x``."""
    return usable_for(x, x.dtype, nc)


def usable_for(x: Tensor, dtype: torch.dtype, nc: int) -> bool:
    """Return whether kernels exist for nc components of ``dtype`` on the device of ``x``."""
    return x.device.type == "cpu" and 2 <= nc <= MOST and _library(dtype, nc) is not None


def _library(dtype: torch.dtype, nc: int) -> ctypes.CDLL | None:
    options = _options(dtype, nc)
    return None if options is None else load(_SOURCE, *options)


@cache
def _options(dtype: torch.dtype, nc: int) -> tuple[str, ...] | None:
    """Return the compiler options; ``None`` for types without kernels."""
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
    """Call a kernel, passing tensors as pointers and integers as int64, both 64-bit ``c_int64``."""
    function = _function(name, dtype, nc)
    if function.argtypes is None:
        function.argtypes = [ctypes.c_int64] * len(arguments)
    function(*addresses(arguments))


def empty(shape: tuple[int, ...], nc: int, like: Tensor) -> Tensor:
    """Allocate components (*shape, nc), each component contiguous."""
    return torch.empty((nc, *shape), dtype=like.dtype, device=like.device).movedim(0, -1)


def _planes(x: Tensor, shape: torch.Size) -> tuple[Tensor, int, int]:
    """Broadcast components to ``shape``; return them, the plane stride and the element step."""
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
    """Apply ``add``, ``mul`` or ``div`` to components (..., n), shapes broadcast."""
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
    count = out[..., 0].numel()
    _call(f"mcf_{name}", x.dtype, nc, *a, *b, out, count, count)
    return out


def fused(code: list[int], operands: list[Tensor], shape: torch.Size, nc: int) -> Tensor:
    """Evaluate an expression of operands (..., n) that broadcast to ``shape`` (``mcf.fused``)."""
    planes = [_planes(x, shape) for x in operands]
    given = [each for x, plane, step in planes for each in (x.data_ptr(), plane, step)]
    out = empty(shape, nc, operands[0])
    steps, places = (torch.tensor(numbers, dtype=torch.int64) for numbers in (code, given))
    count = out[..., 0].numel()
    _call("mcf_fused", out.dtype, nc, steps, len(code) // 3, places, len(planes), out, count)
    return out


def join(x: Tensor) -> Tensor:
    """Sum two or three float32 components like ``carriers.join``."""
    shape, nc = x.shape[:-1], x.shape[-1]
    out = torch.empty(shape, dtype=torch.float64)
    x, plane, _ = _planes(x, shape)
    _call("mcf_join", x.dtype, nc, x, plane, out, out.numel())
    return out


def parted(z: Tensor, nc: int) -> Tensor:
    """Split into two or three float32 components like ``carriers.parted``."""
    z = z.contiguous()
    out = torch.empty((nc, *z.shape), dtype=torch.float32).movedim(0, -1)
    _call("mcf_part", torch.float32, nc, z, out, z.numel())
    return out


def mv(x: Tensor, v: Tensor, *, by_component: bool) -> Tensor:
    """Multiply components (rows, columns, nc) by float64 (columns): ``products.carried_mv``."""
    rows, columns, nc = x.shape
    across, along, plane = x.stride()
    if (across, along) != (columns, 1):
        x, plane, _ = _planes(x, x.shape[:-1])
    out = torch.empty_strided((rows, nc), (1, rows), dtype=x.dtype)
    name = "mcf_mv_components" if by_component else "mcf_mv_joined"
    _call(name, x.dtype, nc, x, plane, v.contiguous(), out, rows, columns)
    return out


def vector_product(x: Tensor, v: Tensor) -> Tensor:
    """Multiply components (rows, columns, n) by (columns, n') like ``products.vector_product``."""
    rows, columns, n = x.shape
    nc = max(n, v.shape[-1])
    x, plane, _ = _planes(x, x.shape[:-1])
    factor = torch.zeros(v.shape[-1], columns + LANES, dtype=torch.float64)
    factor[:, :columns] = v.movedim(-1, 0)
    out = torch.empty((nc, rows), dtype=x.dtype).movedim(0, -1)
    name = "both" if n == v.shape[-1] else "first" if v.shape[-1] == 1 else "second"
    _call(f"mcf_vector_{name}", x.dtype, nc, x, plane, factor, columns + LANES, out, rows, columns)
    return out


def product(x: Tensor, y: Tensor) -> Tensor:
    """Multiply components (m, k, n) by (k, p, n') like ``products.sequential``."""
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

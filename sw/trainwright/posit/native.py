"""The C kernels of posits (``kernels/``), built once for float and once for double.

``usable`` says whether they can take tensors; every caller has a torch path with the same bits.
"""

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from trainwright.posit.format import PositFormat
from trainwright.support.native import load

_SOURCE = Path(__file__).parent / "kernels" / "posit.c"
Operation = Literal["add", "sub", "mul", "div"]
_ACROSS = 32
"""``ACROSS`` of the kernels: what lines of patches are filled up to."""


def usable(*tensors: Tensor, dtype: torch.dtype | None = None) -> bool:
    """Whether the kernels for ``dtype``, or that of the first, can take these tensors.

    They can on the CPU, where there is a compiler.
    """
    on_cpu = all(t.device.type == "cpu" for t in tensors)
    return on_cpu and _library(dtype or tensors[0].dtype) is not None


def _library(dtype: torch.dtype) -> ctypes.CDLL | None:
    return load(_SOURCE, *(["-DDOUBLE"] if dtype is torch.float64 else []))


@cache
def _function(name: str, dtype: torch.dtype, pointers: tuple[bool, ...]):
    library = _library(dtype)
    assert library is not None, "usable() was not asked"
    function = library[name]
    function.argtypes = [ctypes.c_void_p if pointer else ctypes.c_int64 for pointer in pointers]
    function.restype = ctypes.c_int64
    return function


def _call(name: str, dtype: torch.dtype, *arguments: Tensor | int | None) -> int:
    """Tensors go as pointers, integers as int64. What comes back has a meaning for few."""
    function = _function(name, dtype, tuple(not isinstance(x, int) for x in arguments))
    return function(*[x.data_ptr() if isinstance(x, Tensor) else x for x in arguments])


def round_to(x: Tensor, fmt: PositFormat) -> Tensor:
    """``round_bits``, in the type of ``x``."""
    x = x.contiguous()
    out = torch.empty_like(x)
    _call("posit_round", x.dtype, x, out, x.numel(), fmt.n, fmt.es)
    return out


def broadcast(*shapes: Sequence[int]) -> torch.Size:
    """``torch.broadcast_shapes``, which brings a compiler along. Raises ``RuntimeError``."""
    found = [1] * max(map(len, shapes))
    for shape in shapes:
        for place, side in enumerate(shape, len(found) - len(shape)):
            if side != 1 and found[place] not in (1, side):
                raise RuntimeError(
                    f"shapes do not broadcast: {', '.join(str(tuple(s)) for s in shapes)}"
                )
            found[place] = side if found[place] == 1 else found[place]
    return torch.Size(found)


def _common(*operands: Tensor) -> torch.Size:
    """The shape that they broadcast to; asking torch costs more than small operations."""
    shape = operands[0].shape
    if all(x.shape == shape for x in operands):
        return shape
    return broadcast(*(x.shape for x in operands))


def _operand(x: Tensor, shape: torch.Size) -> tuple[Tensor, int]:
    """Contiguous elements, and the step between them: 0 where one stands for all."""
    if x.shape == shape:
        return x.contiguous(), 1
    return (x, 0) if x.numel() == 1 else (x.expand(shape).contiguous(), 1)


def binary(operation: Operation, x: Tensor, y: Tensor, fmt: PositFormat) -> Tensor:
    """x operation y in their type, then rounded; shapes broadcast."""
    shape = _common(x, y)
    out = torch.empty(shape, dtype=x.dtype)
    (x, step_x), (y, step_y) = _operand(x, shape), _operand(y, shape)
    name = f"posit_{operation}"
    _call(name, x.dtype, x, step_x, y, step_y, out, out.numel(), fmt.n, fmt.es)
    return out


def to_odd(operation: str, fmt: PositFormat, *operands: Tensor) -> Tensor:
    """``mul``, ``div``, ``sqrt`` or ``fma`` in double, rounded to odd and then to the format."""
    shape = _common(*operands)
    out = torch.empty(shape, dtype=torch.float64)
    if operation == "sqrt":
        passed = [operands[0].contiguous()]
    else:
        passed = [part for x in operands for part in _operand(x, shape)]
    _call(f"posit_odd_{operation}", torch.float64, *passed, out, out.numel(), fmt.n, fmt.es)
    return out


def encode(values: Tensor, fmt: PositFormat) -> Tensor:
    """Codes of values that are on the grid, float32 only if it is the carrier."""
    values = values.contiguous()
    out = torch.empty(values.shape, dtype=torch.int64)
    _call("posit_encode", values.dtype, values, out, out.numel(), fmt.n, fmt.es)
    return out


def decode(codes: Tensor, fmt: PositFormat, dtype: torch.dtype) -> Tensor | None:
    """Values of int64 codes, in float64 or the carrier; ``None`` if the format lacks one."""
    codes = codes.contiguous()
    out = torch.empty(codes.shape, dtype=dtype)
    bad = _call("posit_decode", dtype, codes, out, out.numel(), fmt.n, fmt.es)
    return None if bad else out


def binary_codes(
    operation: Operation, a: Tensor, b: Tensor, fmt: PositFormat, dtype: torch.dtype
) -> Tensor | None:
    """``binary`` on int64 codes, through ``dtype``; ``None`` if the format lacks one of them."""
    shape = _common(a, b)
    out = torch.empty(shape, dtype=torch.int64)
    (a, step_a), (b, step_b) = _operand(a, shape), _operand(b, shape)
    name = f"posit_codes_{operation}"
    bad = _call(name, dtype, a, step_a, b, step_b, out, out.numel(), fmt.n, fmt.es)
    return None if bad else out


def _batched(x: Tensor, batch: torch.Size) -> tuple[Tensor, int]:
    """Contiguous matrices, and the elements between them: 0 where one stands for all."""
    if x.dim() == 2 or x.shape[:-2].numel() == 1:
        return x.contiguous(), 0
    return x.expand(*batch, *x.shape[-2:]).contiguous(), x.shape[-2] * x.shape[-1]


def sequential(a: Tensor, b: Tensor, total: Tensor, fmt: PositFormat, *, to_odd: bool) -> None:
    """Adds a b to ``total`` (..., M, N), contiguous, every operation rounded, in order of k.

    ``to_odd``: products in double, through rounding to odd.
    """
    batch = total.shape[:-2]
    (a, step_a), (b, step_b) = _batched(a, batch), _batched(b, batch)
    sizes = (batch.numel(), a.shape[-2], a.shape[-1], b.shape[-1])
    _call(
        "posit_sequential", a.dtype, a, step_a, b, step_b, total, *sizes, int(to_odd), fmt.n, fmt.es
    )


def decide(a: Tensor, b: Tensor, start: Tensor | None, total: Tensor, fmt: PositFormat) -> None:
    """Rounds ``total``, start + a b in float64, as if it were exact. All float64, in place."""
    batch = total.shape[:-2]
    (a, step_a), (b, step_b) = _batched(a, batch), _batched(b, batch)
    sizes = (batch.numel(), a.shape[-2], a.shape[-1], b.shape[-1])
    length = torch.empty(sizes[1] + sizes[3], dtype=torch.float64)
    least = torch.empty(sizes[1] + sizes[3], dtype=torch.int64)
    start = None if start is None else start.contiguous()
    _call(
        "posit_decide", a.dtype, a, step_a, b, step_b, start, total, *sizes, length, least,
        fmt.n, fmt.es,
    )  # fmt: skip


class Window(NamedTuple):
    """What a kernel passes over: pairs (vertical, horizontal).

    ``before``: zeros above and on the left, lines left out if below 0; ``out``: places.
    """

    kernel: tuple[int, int]
    stride: tuple[int, int]
    before: tuple[int, int]
    dilation: tuple[int, int]
    out: tuple[int, int]


def _shape(x: Tensor, window: Window, groups: int) -> Tensor:
    """The C structure ``window``."""
    sizes = (x.shape[1] // groups, x.shape[2], x.shape[3])
    return torch.tensor([*sizes, *(side for pair in window for side in pair)], dtype=torch.int64)


def lines(x: Tensor, window: Window, groups: int) -> Tensor:
    """The patches of x (B, C, H, W), a line each: (G, B L, C / G kh kw)."""
    depth = x.shape[1] // groups * window.kernel[0] * window.kernel[1]
    out = x.new_empty(groups, x.shape[0] * window.out[0] * window.out[1], depth)
    shape = _shape(x, window, groups)
    _call("posit_lines", x.dtype, x.contiguous(), out, shape, x.shape[0], groups)
    return out


def convolve_sequential(
    x: Tensor, rows: Tensor, total: Tensor, window: Window, fmt: PositFormat, *, to_odd: bool
) -> None:
    """Adds rows (G, M, K) times the patches of x (B, C, H, W) to ``total`` (B, G, M, L)."""
    groups, m, depth = rows.shape
    scratch = x.new_empty(depth * total.shape[-1])
    _call(
        "posit_convolve_sequential", x.dtype, x.contiguous(), rows.contiguous(), total, scratch,
        _shape(x, window, groups), x.shape[0], groups, m, int(to_odd), fmt.n, fmt.es,
    )  # fmt: skip


def convolve_quire(
    x: Tensor,
    rows: Tensor,
    start: Tensor | None,
    window: Window,
    shape: tuple[int, ...],
    fmt: PositFormat,
) -> Tensor:
    """start + rows times the patches of x, of ``shape``, exact and rounded once. All float64."""
    groups, m, depth = rows.shape
    out = x.new_zeros(shape) if start is None else start.clone()
    scratch = x.new_zeros(depth * -(-shape[-1] // _ACROSS) * _ACROSS)
    length = x.new_empty(m + shape[-1])
    least = torch.empty(m + shape[-1], dtype=torch.int64)
    _call(
        "posit_convolve_quire", x.dtype, x.contiguous(), rows.contiguous(), start, out, scratch,
        length, least, _shape(x, window, groups), x.shape[0], groups, m, fmt.n, fmt.es,
    )  # fmt: skip
    return out

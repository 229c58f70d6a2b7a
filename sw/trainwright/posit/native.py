"""ctypes calls of the C kernels of posits (``kernels/``), built once for float and once for double.

``usable`` says whether the kernels accept given tensors; every caller has a torch path with the
same bits.
"""

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from trainwright.posit.exactness import carrier
from trainwright.posit.format import PositFormat
from trainwright.support.graphs import addresses
from trainwright.support.native import load

_SOURCE = Path(__file__).parent / "kernels" / "posit.c"
Operation = Literal["add", "sub", "mul", "div"]
_ACROSS = 32
"""Columns that patch lines are padded to; equals ``ACROSS`` of the kernels."""


def usable(*tensors: Tensor, dtype: torch.dtype | None = None) -> bool:
    """Return whether the kernels for ``dtype``, or the first tensor's type, accept these tensors.

    They accept CPU tensors, and only where a C compiler is found.
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
    """Call a kernel with tensors as pointers and integers as int64.

    The result is a count of codes outside the format for ``decode`` and ``codes``; others return 0.
    """
    function = _function(name, dtype, tuple(not isinstance(x, int) for x in arguments))
    return function(*addresses(arguments))


def round_to(x: Tensor, fmt: PositFormat) -> Tensor:
    """Round like ``rounding.round_bits``, in the type of ``x``."""
    x = x.contiguous()
    out = torch.empty_like(x)
    _call("posit_round", x.dtype, x, out, x.numel(), fmt.n, fmt.es)
    return out


def broadcast(*shapes: Sequence[int]) -> torch.Size:
    """Broadcast shapes like ``torch.broadcast_shapes``, whose import loads torch's compiler.

    Raises ``RuntimeError`` for shapes that do not broadcast.
    """
    sides = [1] * max(map(len, shapes))
    for shape in shapes:
        for place, side in enumerate(shape, len(sides) - len(shape)):
            if side != 1 and sides[place] not in (1, side):
                raise RuntimeError(
                    f"shapes do not broadcast: {', '.join(str(tuple(s)) for s in shapes)}"
                )
            sides[place] = side if sides[place] == 1 else sides[place]
    return torch.Size(sides)


def _common(*operands: Tensor) -> torch.Size:
    """Return the shape that the operands broadcast to.

    Equal shapes skip torch: its broadcast costs more than a small operation.
    """
    shape = operands[0].shape
    if all(x.shape == shape for x in operands):
        return shape
    return broadcast(*(x.shape for x in operands))


def _operand(x: Tensor, shape: torch.Size) -> tuple[Tensor, int]:
    """Return contiguous elements and their stride: 0 where a single element stands for all."""
    if x.shape == shape:
        return x.contiguous(), 1
    return (x, 0) if x.numel() == 1 else (x.expand(shape).contiguous(), 1)


def binary(operation: Operation, x: Tensor, y: Tensor, fmt: PositFormat) -> Tensor:
    """Apply an operation in the tensors' type, then round; shapes broadcast."""
    shape = _common(x, y)
    out = torch.empty(shape, dtype=x.dtype)
    (x, step_x), (y, step_y) = _operand(x, shape), _operand(y, shape)
    name = f"posit_{operation}"
    _call(name, x.dtype, x, step_x, y, step_y, out, out.numel(), fmt.n, fmt.es)
    return out


def to_odd(operation: str, fmt: PositFormat, *operands: Tensor) -> Tensor:
    """Compute an operation of ``odd`` in double, rounded to odd, then round to the format."""
    shape = _common(*operands)
    out = torch.empty(shape, dtype=torch.float64)
    if operation == "sqrt":
        passed = [operands[0].contiguous()]
    else:
        passed = [part for x in operands for part in _operand(x, shape)]
    _call(f"posit_odd_{operation}", torch.float64, *passed, out, out.numel(), fmt.n, fmt.es)
    return out


def encode(values: Tensor, fmt: PositFormat) -> Tensor:
    """Return codes of values on the grid; float32 values only if it is the carrier."""
    values = values.contiguous()
    out = torch.empty(values.shape, dtype=torch.int64)
    _call("posit_encode", values.dtype, values, out, out.numel(), fmt.n, fmt.es)
    return out


def decode(codes: Tensor, fmt: PositFormat, dtype: torch.dtype) -> Tensor | None:
    """Return values of int64 codes in ``dtype``; ``None`` if a code is outside the format.

    ``dtype`` is float64 or the carrier.
    """
    codes = codes.contiguous()
    out = torch.empty(codes.shape, dtype=dtype)
    bad = _call("posit_decode", dtype, codes, out, out.numel(), fmt.n, fmt.es)
    return None if bad else out


def binary_codes(
    operation: Operation, a: Tensor, b: Tensor, fmt: PositFormat, dtype: torch.dtype
) -> Tensor | None:
    """Apply ``binary`` to int64 codes through ``dtype``; ``None`` for a code outside the format."""
    shape = _common(a, b)
    out = torch.empty(shape, dtype=torch.int64)
    (a, step_a), (b, step_b) = _operand(a, shape), _operand(b, shape)
    name = f"posit_codes_{operation}"
    bad = _call(name, dtype, a, step_a, b, step_b, out, out.numel(), fmt.n, fmt.es)
    return None if bad else out


def _batched(x: Tensor, batch: torch.Size) -> tuple[Tensor, int]:
    """Return contiguous matrices and the elements between them: 0 where one matrix serves all."""
    if x.dim() == 2 or x.shape[:-2].numel() == 1:
        return x.contiguous(), 0
    return x.expand(*batch, *x.shape[-2:]).contiguous(), x.shape[-2] * x.shape[-1]


def sequential(a: Tensor, b: Tensor, total: Tensor, fmt: PositFormat, *, to_odd: bool) -> None:
    """Add a b to the contiguous ``total`` (..., M, N), rounding every operation, in order of k.

    ``to_odd``: compute products in double, rounded to odd first.
    """
    batch = total.shape[:-2]
    (a, step_a), (b, step_b) = _batched(a, batch), _batched(b, batch)
    sizes = (batch.numel(), a.shape[-2], a.shape[-1], b.shape[-1])
    _call(
        "posit_sequential", a.dtype, a, step_a, b, step_b, total, *sizes, int(to_odd), fmt.n, fmt.es
    )


def decide(a: Tensor, b: Tensor, start: Tensor | None, total: Tensor, fmt: PositFormat) -> Tensor:
    """Round ``total``, start + a b, as if it were exact, and return it in the carrier type.

    All operands are float64. ``total`` may be overwritten if the carrier is float64.
    """
    total = total.contiguous()  # torch gives a sum the memory order of a transposed start
    batch = total.shape[:-2]
    (a, step_a), (b, step_b) = _batched(a, batch), _batched(b, batch)
    sizes = (batch.numel(), a.shape[-2], a.shape[-1], b.shape[-1])
    length = torch.empty(sizes[1] + sizes[3], dtype=torch.float64)
    least = torch.empty(sizes[1] + sizes[3], dtype=torch.int64)
    start = None if start is None else start.contiguous()
    out = _narrow(total, fmt)
    _call(
        "posit_decide", a.dtype, a, step_a, b, step_b, start, total, out, *sizes, length, least,
        fmt.n, fmt.es,
    )  # fmt: skip
    return total if out is None else out


def _narrow(total: Tensor, fmt: PositFormat) -> Tensor | None:
    """Return a float32 tensor for rounded sums if it is the carrier."""
    kind = carrier(fmt)
    return torch.empty(total.shape, dtype=kind) if kind is torch.float32 else None


class KernelWindow(NamedTuple):
    """Geometry of a convolution kernel over an image: pairs (vertical, horizontal).

    ``before``: zeros above and on the left, or lines skipped if negative; ``out``: output
    positions.
    """

    kernel: tuple[int, int]
    stride: tuple[int, int]
    before: tuple[int, int]
    dilation: tuple[int, int]
    out: tuple[int, int]


def _shape(x: Tensor, window: KernelWindow, groups: int) -> Tensor:
    """Pack image and window sizes like the C structure ``window``."""
    sizes = (x.shape[1] // groups, x.shape[2], x.shape[3])
    return torch.tensor([*sizes, *(side for pair in window for side in pair)], dtype=torch.int64)


def lines(x: Tensor, window: KernelWindow, groups: int) -> Tensor:
    """Unfold x (B, C, H, W) to one line per patch: (G, B L, C / G kh kw)."""
    depth = x.shape[1] // groups * window.kernel[0] * window.kernel[1]
    out = x.new_empty(groups, x.shape[0] * window.out[0] * window.out[1], depth)
    shape = _shape(x, window, groups)
    _call("posit_lines", x.dtype, x.contiguous(), out, shape, x.shape[0], groups)
    return out


def convolve_sequential(
    x: Tensor, rows: Tensor, total: Tensor, window: KernelWindow, fmt: PositFormat, *, to_odd: bool
) -> None:
    """Add rows (G, M, K) times the patches of x (B, C, H, W) to ``total`` (B, G, M, L)."""
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
    window: KernelWindow,
    shape: tuple[int, ...],
    fmt: PositFormat,
) -> Tensor:
    """Return start + rows times the patches of x, exact and rounded once, in the carrier type."""
    groups, m, depth = rows.shape
    total = x.new_zeros(shape) if start is None else start.clone()
    out = _narrow(total, fmt)
    scratch = x.new_zeros(depth * -(-shape[-1] // _ACROSS) * _ACROSS)
    length = x.new_empty(m + shape[-1])
    least = torch.empty(m + shape[-1], dtype=torch.int64)
    _call(
        "posit_convolve_quire", x.dtype, x.contiguous(), rows.contiguous(), start, total, out,
        scratch, length, least, _shape(x, window, groups), x.shape[0], groups, m, fmt.n, fmt.es,
    )  # fmt: skip
    return total if out is None else out

"""What each compute descriptor does, in exact integers, for all iterations of a loop at once.

Operands are float tensors that hold integers. A contraction is one matrix product: the levels of
the loop nest that move both operands (and are not summed) are batch dimensions, the levels that
move the first operand alone are its rows or columns, those that move the second alone the rows of
the other factor. Float32 is used where no sum can pass 2^24, float64 (2^53) elsewhere, so every
result is exact.
"""

from dataclasses import dataclass
from math import prod

import torch

from ttforge.fixed.requantise import requantise_float
from ttforge.golden.scratchpad import Scratchpad
from ttforge.parameters import AcceleratorParameters
from ttforge.program.descriptors import Compute
from ttforge.program.encoding import ProgramError
from ttforge.program.fields import Operation


@dataclass(frozen=True)
class Axis:
    """One dimension of a strided view: its size and the address step of each operand."""

    size: int
    x: int = 0
    g: int = 0
    z: int = 0


@dataclass(frozen=True)
class Bases:
    """Resolved addresses: the value in the first iteration and the step of each further one."""

    x: int
    g: int
    z: int
    x_step: int = 0
    g_step: int = 0
    z_step: int = 0


@dataclass(frozen=True)
class Result:
    """What a descriptor wrote: statistics, and its rows in order when they are traced."""

    total: int
    saturations: int
    addresses: torch.Tensor | None = None
    rows: torch.Tensor | None = None


def _span(axes: list[Axis], name: str) -> tuple[int, int]:
    """Least and greatest offset over the axes."""
    reach = [(axis.size - 1) * getattr(axis, name) for axis in axes]
    return sum(min(r, 0) for r in reach), sum(max(r, 0) for r in reach)


def _view(
    pad: Scratchpad, base: int, step: int, n: int, axes: list[Axis], name: str, words: int = 0
) -> torch.Tensor:
    """Strided view (n, *axes, lanes) of the scratchpad; ``words`` > 0: in groups of words."""
    unit = words or pad.lanes
    per_row = pad.lanes // unit
    low, high = _span(axes, name)
    low, high = base + low + min(0, step * (n - 1)), base + high + max(0, step * (n - 1))
    rows, first = pad.read(low // per_row, high // per_row + 1)
    strides = [getattr(axis, name) * unit for axis in axes]
    if any(stride < 0 for stride in strides) or step < 0:
        raise ProgramError(f"operand {name}: negative strides are not supported")
    batch = rows.stride(0) if rows.shape[0] == n and n > 1 else step * unit
    if rows.shape[0] > 1 and step:
        raise ProgramError(f"operand {name}: moves over rows written in the same loop")
    return rows.as_strided(
        (n if batch else 1, *(axis.size for axis in axes), unit),
        (batch, *strides, 1),
        (base - first * per_row) * unit,
    )


def _tile_axis(d: Compute, rows: int, last: bool) -> Axis:
    """The tile level and the rows of a tile as one axis, rows not written left out."""
    level = d.levels[d.tile_level]
    x, z = d.x_row_stride, d.z_row_stride
    if level.count > 1 and level.x and not last:
        raise ProgramError(f"{d.tensor}: the tile level of {d.operation.name} moves over x")
    if level.count > 1 and (level.z != rows * z or (last and level.x != rows * x)):
        raise ProgramError(f"{d.tensor}: tile level and row stride do not form one axis")
    return Axis((level.count - 1) * rows + d.last_rows, x if last else 0, 0, z)


def _split(d: Compute) -> tuple[list[Axis], list[Axis], list[Axis], list[Axis]]:
    """Outer levels but the tile level: both operands move; x above / below the sum; g alone."""
    reduce_stride = max((level.x for level in d.reduction if level.count > 1), default=1)
    both, above, below, second = [], [], [], []
    for index, level in enumerate(d.outer):
        if index == d.tile_level or level.count == 1:
            continue
        axis = Axis(level.count, level.x, level.g, level.z)
        if level.x and level.g:
            both.append(axis)
        elif level.g:
            second.append(axis)
        elif abs(level.x) < abs(reduce_stride):
            below.append(axis)
        else:
            above.append(axis)
    return both, above, below, second


def _exact(width_bits: int, terms: int) -> torch.dtype:
    """The float type in which a sum of ``terms`` products of ``width_bits`` bits is exact."""
    return torch.float32 if terms << width_bits <= 1 << 24 else torch.float64


def _sizes(axes: list[Axis]) -> list[int]:
    return [axis.size for axis in axes]


def _pe1(
    d: Compute, at: Bases, n: int, pad: Scratchpad, store: torch.Tensor, p: AcceleratorParameters
) -> tuple[torch.Tensor, list[Axis]]:
    both, above, below, second = _split(d)
    reduction = [Axis(level.count, level.x, level.g) for level in d.reduction]
    tile = _tile_axis(d, p.pe1_rows, last=True)
    rows = [*above, *below, tile]
    terms = prod(_sizes(reduction)) * p.lanes
    dtype = _exact(p.word_width + p.factor_width - 2, terms)
    x = _view(pad, at.x, at.x_step, n, [*both, *rows, *reduction], "x").to(dtype)
    batch = prod(_sizes(both))
    x = x.reshape(x.shape[0], batch, prod(_sizes(rows)), terms)
    lane = Axis(p.lanes, g=1)
    axes = [*both, *second, lane, *reduction]
    g = _store_view(store, at, axes).to(dtype)  # (both, second, lane, reduction, k)
    g = g.reshape(1, batch, prod(_sizes(second)) * p.lanes, terms)
    z = x @ g.transpose(-1, -2)
    return z, [*both, *rows, *second]


def _store_view(store: torch.Tensor, at: Bases, axes: list[Axis]) -> torch.Tensor:
    low, high = _span(axes, "g")
    if at.g_step or low or not 0 <= at.g <= at.g + high < store.shape[0]:
        raise ProgramError(
            f"factor store entries {at.g} to {at.g + high} of {store.shape[0]}, "
            f"step {at.g_step}: not supported"
        )
    width = store.shape[1]
    return store.as_strided(
        (*_sizes(axes), width), (*(axis.g * width for axis in axes), 1), at.g * width
    )


def _pe2(
    d: Compute, at: Bases, n: int, pad: Scratchpad, store: torch.Tensor, p: AcceleratorParameters
) -> tuple[torch.Tensor, list[Axis]]:
    both, above, below, second = _split(d)
    reduction = [Axis(level.count, level.x, level.g) for level in d.reduction]
    tile_level = d.levels[d.tile_level]
    tile = _tile_axis(d, p.pe2_rows, last=False)
    terms = prod(_sizes(reduction))
    outer = d.operation is Operation.PE3
    width = p.word_width if outer else p.factor_width
    dtype = _exact(p.word_width + width - 2, terms)
    x = _view(pad, at.x, at.x_step, n, [*both, *above, *reduction, *below], "x").to(dtype)
    batch, columns = prod(_sizes(both)), prod(_sizes(below)) * p.lanes
    x = x.reshape(x.shape[0], batch, prod(_sizes(above)), terms, columns)
    axes = [*both, *second, Axis(tile_level.count, g=tile_level.g), *reduction]
    if outer:
        g = _view(pad, at.g, at.g_step, n, axes, "g", p.pe2_rows)
    else:
        g = _store_view(store, at, axes)[None]
    k = len(both) + len(second)  # (n, both, second, tile, reduction, r) -> r beside tile
    g = g.movedim(-1, k + 2).to(dtype)
    g = g.reshape(g.shape[0], batch, 1, prod(_sizes(second)), -1, terms)[..., : tile.size, :]
    g = g.reshape(g.shape[0], batch, 1, prod(_sizes(second)) * tile.size, terms)
    z = g @ x
    return z, [*both, *above, *second, tile, *below]


def _elementwise(d: Compute, at: Bases, n: int, pad: Scratchpad) -> tuple[torch.Tensor, list[Axis]]:
    axes = [Axis(level.count, level.x, level.g, level.z) for level in d.levels]
    x = _view(pad, at.x, at.x_step, n, axes, "x").to(torch.float64)
    g = _view(pad, at.g, at.g_step, n, axes, "g").to(torch.float64)
    if d.operation is Operation.MASK:
        return torch.where(g > 0, x, 0.0), axes
    z = x * (1 << d.x_shift) + g * (1 << d.g_shift)
    return z.clamp_min_(0.0) if d.relu else z, axes


def _write(pad: Scratchpad, at: Bases, n: int, z: torch.Tensor, axes: list[Axis]) -> None:
    """Put (n, *axes, lanes) where the strides of z say."""
    low, high = _span(axes, "z")
    if low < 0 or at.z_step:
        raise ProgramError("results move between iterations: execute them one by one")
    count = high + 1
    order = sorted(range(len(axes)), key=lambda i: -axes[i].z)
    z = z.reshape(z.shape[0], *_sizes(axes), pad.lanes)
    z = z.permute(0, *(i + 1 for i in order), len(axes) + 1)
    ordered, dense = [axes[i] for i in order], 1
    for axis in reversed(ordered):
        if axis.size > 1 and axis.z != dense:
            break
        dense *= axis.size
    if dense == count:
        rows = z.to(torch.float32).reshape(z.shape[0], count, pad.lanes)
    else:  # gaps: keep what lies between
        old, first = pad.read(at.z, at.z + count)
        offset = at.z - first
        rows = old[:, offset : offset + count].expand(z.shape[0], -1, -1).clone()
        strides = (rows.stride(0), *(axis.z * pad.lanes for axis in ordered), 1)
        rows.as_strided(z.shape, strides).copy_(z)
    pad.write(at.z, rows)


def _trace(pad: Scratchpad, d: Compute, at: Bases, tile_rows: int) -> tuple[torch.Tensor, ...]:
    """Addresses and rows (n, count, lanes) in the order in which the engine writes them."""
    address = torch.tensor([at.z])
    written = torch.tensor([True])
    for index, level in enumerate(d.outer):
        steps = torch.arange(level.count)
        address = (address[:, None] + steps * level.z).flatten()
        last = steps == level.count - 1 if index == d.tile_level else torch.zeros_like(steps) > 0
        written = (written[:, None] & ~last).flatten()
    rows = torch.arange(tile_rows)
    address = address[:, None] + rows * d.z_row_stride
    keep = (~written[:, None] & (rows < d.last_rows)) | written[:, None]
    address = address[keep]
    data, first = pad.read(int(address.min()), int(address.max()) + 1)
    return address, data[:, address - first]


def compute(
    d: Compute,
    at: Bases,
    n: int,
    pad: Scratchpad,
    stores: dict[Operation, torch.Tensor],
    p: AcceleratorParameters,
    *,
    trace: bool = False,
) -> Result:
    """Execute ``d`` in ``n`` iterations on scratchpad ``pad``; exact.

    ``stores``: the factor stores of PE1 (entries, lanes) and PE2 (entries, pe2_rows).
    """
    if d.operation is Operation.PE1:
        z, axes = _pe1(d, at, n, pad, stores[Operation.PE1], p)
        rows = p.pe1_rows
    elif d.operation in (Operation.PE2, Operation.PE3):
        z, axes = _pe2(d, at, n, pad, stores[Operation.PE2], p)
        rows = p.pe2_rows
    else:
        z, axes = _elementwise(d, at, n, pad)
        rows = 1
    repeat = n // z.shape[0]  # the same in every iteration: counted in each
    q, total, saturations = requantise_float(z, d.shift, d.out_width)
    _write(pad, at, n, q, axes)
    traced: tuple[torch.Tensor | None, ...] = (None, None)
    if trace:
        address, data = _trace(pad, d, at, rows)
        traced = address, data.expand(n, -1, -1)
    return Result(total * repeat, saturations * repeat, *traced)

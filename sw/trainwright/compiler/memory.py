"""Where things lie: buffers in external memory, rows in the scratchpad, entries in the stores."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np
import numpy.typing as npt
import torch

from trainwright.compiler.digits import cut, joined
from trainwright.compiler.errors import DoesNotFitError
from trainwright.compiler.limits import Limit, refuse_memory
from trainwright.parameters import AcceleratorParameters

Bytes = npt.NDArray[np.uint8]

BEAT = 64
"""Bytes of a beat of the widest port."""


@dataclass(frozen=True)
class Buffer:
    """A tensor in external memory: row-major, its last dimension padded to a multiple of lanes.

    ``shape`` is the logical shape, ``padded`` the stored last dimension in elements.
    """

    name: str
    address: int
    shape: tuple[int, ...]
    padded: int
    element_bytes: int
    order: tuple[int, ...] = ()
    """Where each dimension of ``shape`` comes from, if the host has them in another order."""
    repeat: int = 1
    """Times that the host's values are repeated along a last dimension of their own."""
    digits: int = 1
    """Rows of bytes that a row is cut into (``trainwright.compiler.digits``); ``element_bytes``."""
    lanes: int = 0
    """Values of a row."""

    @property
    def size(self) -> int:
        """Bytes."""
        return prod(self.shape[:-1]) * self.padded * self.element_bytes

    def pack(self, values: torch.Tensor) -> Bytes:
        """The bytes of the host's integers, zero padded."""
        kind = np.int8 if self.element_bytes == 1 else "<i2"
        if self.repeat > 1:
            values = values[..., None].expand(*values.shape, self.repeat)
        data = values.permute(self.order) if self.order else values
        data = data.reshape(*data.shape[:-1], -1).numpy().astype(kind)
        if data.ndim != len(self.shape):
            data = data.reshape(self.shape)
        stored = (*self.shape[:-1], self.padded)
        if stored != data.shape:
            whole = np.zeros(stored, data.dtype)
            whole[tuple(slice(size) for size in data.shape)] = data
            data = whole
        if self.digits > 1:
            rows = torch.from_numpy(data.astype(np.int64)).reshape(-1, self.lanes)
            data = torch.stack(cut(rows, self.digits), 1).numpy().astype(np.int8)
        return np.ascontiguousarray(data).view(np.uint8).ravel()

    def unpack(self, data: Bytes) -> torch.Tensor:
        """The host's int64 integers from all bytes, padding removed."""
        kind = np.int8 if self.element_bytes == 1 else "<i2"
        if self.digits > 1:
            rows = torch.from_numpy(data.view(np.int8).reshape(-1, self.digits, self.lanes).copy())
            values = joined(rows.to(torch.int64)).numpy()
        else:
            values = data.view(kind)
        values = values.reshape(*self.shape[:-1], self.padded)
        found = torch.from_numpy(values[..., : self.shape[-1]].astype(np.int64))
        inverse = sorted(range(len(self.order)), key=self.order.__getitem__)
        return found.permute(inverse) if inverse else found

    @property
    def stop(self) -> int:
        return self.address + self.size

    @property
    def row_bytes(self) -> int:
        """Bytes of one index of the first dimension."""
        return self.size // self.shape[0]


@dataclass
class MemoryMap:
    """External memory, filled from address 0 upwards; every buffer starts at a beat of any port."""

    lanes: int
    by_digits: bool = False
    """Whether elements of several bytes are cut into digits."""
    top: int = 0
    buffers: dict[str, Buffer] = field(default_factory=dict)

    def add(
        self,
        name: str,
        shape: tuple[int, ...],
        element_bytes: int,
        *,
        order: tuple[int, ...] = (),
        repeat: int = 1,
    ) -> Buffer:
        """A new buffer; its last dimension is padded to a multiple of the lanes."""
        assert name not in self.buffers, name
        padded = -(-shape[-1] // self.lanes) * self.lanes
        digits = element_bytes if self.by_digits else 1
        buffer = Buffer(
            name, self.top, shape, padded, element_bytes, order, repeat, digits, self.lanes
        )
        self.buffers[name] = buffer
        self.top += -(-buffer.size // BEAT) * BEAT
        return buffer

    def add_bytes(self, name: str, size: int) -> Buffer:
        """A new buffer of bytes."""
        buffer = Buffer(name, self.top, (size,), size, 1)
        self.buffers[name] = buffer
        self.top += -(-size // BEAT) * BEAT
        return buffer


@dataclass(frozen=True)
class Region:
    """``count`` rows (or entries) of a local memory from ``start``."""

    name: str
    start: int
    count: int

    @property
    def stop(self) -> int:
        return self.start + self.count


class LocalMemory:
    """First-fit allocator of a local memory, from the bottom or from the top."""

    def __init__(self, limit: Limit, p: AcceleratorParameters, *, align: int = 1):
        self.limit = limit
        self.parameters = p
        self.size = limit.available(p)
        self.align = align
        self._used: list[Region] = []
        self._avoided: tuple[Region, ...] = ()
        self.peak = 0
        """Most rows or entries in use at once so far."""

    def _gaps(self) -> list[tuple[int, int]]:
        gaps, stop = [], 0
        for region in sorted((*self._used, *self._avoided), key=lambda r: r.start):
            gaps.append((stop, max(stop, region.start)))
            stop = max(stop, region.stop)
        return [*gaps, (stop, self.size)]

    def avoid(self, regions: Sequence[Region]) -> None:
        """Allocate nothing there, until told of others; they may be in use."""
        self._avoided = tuple(regions)

    def allocate(
        self, name: str, count: int, *, top: bool = False, within: range | None = None
    ) -> Region:
        """Rows for ``name``; ``within`` a range if they fit there, else anywhere.

        Raises ``DoesNotFitError`` when no gap is large enough.
        """
        count = -(-count // self.align) * self.align
        gaps = self._gaps()
        if within is not None:
            inside = [(max(a, within.start), min(b, within.stop)) for a, b in gaps]
            gaps = [gap for gap in inside if gap[1] - gap[0] >= count] or gaps
        for start, stop in reversed(gaps) if top else gaps:
            if stop - start >= count:
                region = Region(name, stop - count if top else start, count)
                self._used.append(region)
                self.peak = max(self.peak, sum(used.count for used in self._used))
                return region
        used = sum(region.count for region in self._used)
        refuse_memory(self.limit, self.parameters, name, count, used, self.largest_gap)

    def free(self, region: Region) -> None:
        """Give a region back."""
        self._used.remove(region)

    def clear(self) -> None:
        """Give everything back."""
        self._used.clear()

    def free_rows(self, within: range) -> int:
        """Rows or entries of a range that are not allocated."""
        inside = ((max(a, within.start), min(b, within.stop)) for a, b in self._gaps())
        return sum(max(0, stop - start) for start, stop in inside)

    def has_room(self, counts: Sequence[int]) -> bool:
        """Whether regions of so many rows or entries fit, one after the other."""
        regions: list[Region] = []
        try:
            for count in counts:
                regions.append(self.allocate("", count))
        except DoesNotFitError:
            return False
        finally:
            for region in regions:
                self.free(region)
        return True

    @property
    def largest_gap(self) -> int:
        """Rows of the largest free gap."""
        return max(stop - start for start, stop in self._gaps())


def largest_divisor(value: int, limit: int) -> int:
    """Largest divisor of ``value`` that is at most ``limit``; 0 where ``limit`` < 1."""
    return next((n for n in range(min(value, limit), 0, -1) if value % n == 0), 0)

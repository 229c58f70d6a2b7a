"""Lay out buffers in external memory and rows in the scratchpad.

``MemoryMap`` fills external memory upwards; ``LocalMemory`` allocates rows for programs of ``chip``
(``schedule.place`` does so for searched programs).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from trainwright.compiler.base.errors import DoesNotFitError
from trainwright.compiler.base.limits import SCRATCHPAD
from trainwright.parameters import AcceleratorParameters

if TYPE_CHECKING:
    import torch

Bytes = npt.NDArray[np.uint8]

ALIGNMENT = 64
"""Bytes of a beat of the widest port."""


@dataclass(frozen=True)
class Buffer:
    """Tensor in external memory, row-major."""

    name: str
    address: int
    shape: tuple[int, ...]
    element_bytes: int
    layer: int = -1
    """Number of a factor's layer, from 0; -1 where the buffer holds no factor."""
    index: int = -1
    """Number of a factor in its layer, from 0."""

    @property
    def is_factor(self) -> bool:
        return self.layer >= 0

    @property
    def size(self) -> int:
        """Bytes of the buffer."""
        return prod(self.shape) * self.element_bytes

    @property
    def taken(self) -> int:
        """Bytes of external memory from this buffer to the next."""
        return -(-self.size // ALIGNMENT) * ALIGNMENT

    @property
    def dtype(self) -> npt.DTypeLike:
        """Type of a word for numpy."""
        return np.int8 if self.element_bytes == 1 else "<i2"

    def pack(self, values: "torch.Tensor") -> Bytes:
        """Return the bytes of the host's integers."""
        return np.ascontiguousarray(values.numpy().astype(self.dtype)).view(np.uint8).ravel()

    def unpack(self, data: Bytes) -> "torch.Tensor":
        """Return the host's int64 integers from all bytes."""
        import torch  # 1.6 s, which `plan` and `listing` do without

        return torch.from_numpy(data.view(self.dtype).reshape(self.shape).astype(np.int64))

    @property
    def stop(self) -> int:
        return self.address + self.size


@dataclass
class MemoryMap:
    """External memory, filled from address 0 upwards; every buffer starts at a beat of any port."""

    top: int = 0
    buffers: dict[str, Buffer] = field(default_factory=dict)

    def add(self, name: str, shape: tuple[int, ...], element_bytes: int = 1) -> Buffer:
        """Add a buffer."""
        assert name not in self.buffers, name
        buffer = Buffer(name, self.top, shape, element_bytes)
        self.buffers[name] = buffer
        self.top += buffer.taken
        return buffer


def gaps(taken: Iterable[tuple[int, int]], stop: int) -> list[tuple[int, int]]:
    """Return the rows before ``stop`` between those ``taken``, which may overlap; some are none."""
    free, start = [], 0
    for low, high in sorted(taken):
        free.append((start, max(start, low)))
        start = max(start, high)
    return [*free, (start, stop)]


@dataclass(frozen=True)
class Region:
    """``count`` rows of the scratchpad from ``start``."""

    name: str
    start: int
    count: int

    @property
    def stop(self) -> int:
        return self.start + self.count


class LocalMemory:
    """First-fit allocator of the scratchpad."""

    def __init__(self, p: AcceleratorParameters):
        self.parameters = p
        self._used: list[Region] = []
        self._avoided: tuple[Region, ...] = ()

    def _gaps(self) -> list[tuple[int, int]]:
        taken = [(region.start, region.stop) for region in (*self._used, *self._avoided)]
        return gaps(taken, self.parameters.scratchpad_rows)

    def avoid(self, regions: Sequence[Region]) -> None:
        """Allocate nothing in these regions until others are given; they may be in use."""
        self._avoided = tuple(regions)

    def allocate(
        self, name: str, count: int, *, top: bool = False, within: range | None = None
    ) -> Region:
        """Allocate ``count`` rows, the first free ones or with ``top`` the last ones.

        They lie ``within`` a range if it has room, else anywhere. Raises ``DoesNotFitError`` when
        no gap is large enough.
        """
        free = self._gaps()
        if within is not None:
            # A bank that is full is no error: rows elsewhere are slower, and still right.
            inside = [(max(a, within.start), min(b, within.stop)) for a, b in free]
            free = [gap for gap in inside if gap[1] - gap[0] >= count] or free
        # First fit. Programs of the loop have few regions with nested lives, so gaps stay large.
        for start, stop in reversed(free) if top else free:
            if stop - start >= count:
                region = Region(name, stop - count if top else start, count)
                self._used.append(region)
                return region
        used, rows = sum(region.count for region in self._used), self.parameters.scratchpad_rows
        reason = f"{name} needs {count} {SCRATCHPAD.what}, there are {rows}"
        if used:
            reason += f", {used} of them in use and at most {self.largest_gap} free in one piece"
        raise SCRATCHPAD.misfit(reason, count + used, self.parameters)

    def free(self, region: Region) -> None:
        """Give a region back."""
        self._used.remove(region)

    def has_room(self, counts: Sequence[int]) -> bool:
        """Return whether regions of ``counts`` rows fit together, allocated in that order."""
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
    """Return the largest divisor of ``value`` that is at most ``limit``; 0 where ``limit`` < 1."""
    return next((n for n in range(min(value, limit), 0, -1) if value % n == 0), 0)

"""Tensors in the scratchpad, by named axes: what the contractions of the plans are written in.

An axis is a letter or a word; ``"s/"`` is axis s in rows of ``lanes`` words, so that a tensor with
axes ("j", "s/") has j and s, s along the lanes. Addresses are linear in every index.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from trainwright.compiler.memory import Region


@dataclass(frozen=True)
class Axis:
    """One index of a tensor: its size, and the rows from one value to the next."""

    name: str
    size: int
    stride: int


@dataclass(frozen=True)
class Block:
    """A tensor, or a part of one: the row of its first element, and its axes, outermost first."""

    base: int
    axes: tuple[Axis, ...]

    @classmethod
    def dense(cls, region: Region, **sizes: int) -> "Block":
        """The tensor that fills ``region`` in row-major order; ``s_`` stands for axis "s/"."""
        named = [(name.replace("_", "/"), size) for name, size in sizes.items()]
        assert prod(size for _, size in named) <= region.count, (region, named)
        axes, stride = [], 1
        for name, size in reversed(named):
            axes.append(Axis(name, size, stride))
            stride *= size
        return cls(region.start, tuple(reversed(axes)))

    def axis(self, name: str) -> Axis:
        """An axis by its name."""
        return next(axis for axis in self.axes if axis.name == name)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the axes, outermost first."""
        return tuple(axis.name for axis in self.axes)

    def size(self, name: str) -> int:
        """Size of an axis."""
        return self.axis(name).size

    def stride(self, name: str) -> int:
        """Rows from one value of an axis to the next; 0 where there is no such axis."""
        return next((axis.stride for axis in self.axes if axis.name == name), 0)

    def part(self, name: str, start: int, count: int) -> "Block":
        """``count`` values of an axis from ``start``."""
        old = self.axis(name)
        assert 0 <= start <= start + count <= old.size, (name, start, count, old)
        new = Axis(name, count, old.stride)
        return self._replaced(old, (new,), self.base + start * old.stride)

    def at(self, name: str, index: int) -> "Block":
        """One value of an axis, which goes."""
        old = self.axis(name)
        assert 0 <= index < old.size, (name, index, old)
        return self._replaced(old, (), self.base + index * old.stride)

    def split(self, name: str, parts: Iterable[tuple[str, int]]) -> "Block":
        """An axis as several, outermost first, of the sizes given."""
        old, new = self.axis(name), []
        stride = old.stride
        for part, size in reversed(list(parts)):
            new.append(Axis(part, size, stride))
            stride *= size
        assert stride == old.stride * old.size, (name, parts)
        return self._replaced(old, tuple(reversed(new)), self.base)

    def joined(self, first: str, second: str, name: str) -> "Block":
        """Two axes as one; ``second`` must run inside ``first`` without a gap."""
        outer, inner = self.axis(first), self.axis(second)
        assert outer.stride == inner.size * inner.stride, (outer, inner)
        new = Axis(name, outer.size * inner.size, inner.stride)
        return self._replaced(inner, (), self.base)._replaced(outer, (new,), self.base)

    def renamed(self, **names: str) -> "Block":
        """The same tensor with axes of other names; ``s_`` stands for axis "s/" on both sides."""
        new = {old.replace("_", "/"): name.replace("_", "/") for old, name in names.items()}
        axes = (Axis(new.get(axis.name, axis.name), axis.size, axis.stride) for axis in self.axes)
        return Block(self.base, tuple(axes))

    def _replaced(self, old: Axis, new: tuple[Axis, ...], base: int) -> "Block":
        at = self.axes.index(old)
        return Block(base, (*self.axes[:at], *new, *self.axes[at + 1 :]))

"""Windows of tensors: the rows of their source, zeros around and between them, read by two axes.

A window is no data of its own. Its source lies in a piece with rows of zeros where positions and
offsets meet no value; two axes then step through the rows of one, each with a stride of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from trainwright.compiler.forms.layout import Ranges
from trainwright.graph.ir import Graph, Slide, Unfold


@dataclass(frozen=True)
class Halo:
    """Places along an axis of a source that some positions and all offsets reach.

    Value n of the source is at place n * spread.
    """

    slide: Slide
    size: int
    """Values of the source."""
    position: int
    """The first position."""
    low: int
    """The first place."""
    high: int
    """The one after the last."""

    @property
    def plain(self) -> bool:
        """Whether there are no zeros: the places are values."""
        return self.slide.spread == 1 and self.low >= 0 and self.high <= self.size

    @property
    def values(self) -> tuple[int, int]:
        """The values of the source at these places: first, and the one after the last."""
        spread = self.slide.spread
        first, last = -(-self.low // spread), (self.high - 1) // spread
        return max(first, 0), min(last + 1, self.size)

    def first(self, start: int) -> int:
        """Places from ``start`` to that of the first position and offset."""
        return self.slide.first + self.position * self.slide.stride - start


def halo(graph: Graph, slide: Slide, positions: tuple[int, int] | None = None) -> Halo:
    """The places of one axis, for some ``positions`` or all."""
    first, stop = positions or (0, graph.sizes[slide.position])
    ends = [
        p * slide.stride + k * slide.step + slide.first
        for p in (first, stop - 1)
        for k in (0, graph.sizes[slide.offset] - 1)
    ]
    return Halo(slide, graph.sizes[slide.axis], first, min(ends), max(ends) + 1)


def halos(graph: Graph, window: Unfold, ranges: Ranges | None = None) -> dict[str, Halo]:
    """The places of each axis of the source that is read by two, for positions in ``ranges``."""
    ranges = ranges or {}
    return {slide.axis: halo(graph, slide, ranges.get(slide.position)) for slide in window.slides}


def is_plain(graph: Graph, window: Unfold) -> bool:
    """Whether the source needs no zeros."""
    return all(one.plain for one in halos(graph, window).values())


def slid(graph: Graph, name: str) -> frozenset[str]:
    """The positions and offsets of a window; of another tensor none."""
    window = graph.windows.get(name)
    if window is None:
        return frozenset()
    return frozenset(a for slide in window.slides for a in (slide.position, slide.offset))


def share(graph: Graph, window: Unfold, chunks: Mapping[str, int]) -> float:
    """Places of a slice, ``chunks`` values of some axes, for each value of the whole source."""
    ranges = {axis: (0, count) for axis, count in chunks.items()}
    found = 1.0
    for axis, one in halos(graph, window, ranges).items():
        found *= (one.high - one.low) / graph.sizes[axis]
    for axis in set(graph.tensors[window.x].axes) & set(chunks):
        found *= chunks[axis] / graph.sizes[axis]
    return found


def steps(
    of: Mapping[str, Halo], strides: Mapping[str, int], starts: Mapping[str, int]
) -> tuple[dict[str, int], int]:
    """Rows from one value of each axis of a window to the next, and those before its first.

    The source's axes have ``strides``, from places ``starts`` on.
    """
    found, first = {axis: rows for axis, rows in strides.items() if axis not in of}, 0
    for axis, one in of.items():
        found[one.slide.position] = strides[axis] * one.slide.stride
        found[one.slide.offset] = strides[axis] * one.slide.step
        first += one.first(starts[axis]) * strides[axis]
    return found, first


def spread(of: Mapping[str, Halo], strides: Mapping[str, int]) -> tuple[dict[str, int], int]:
    """Those of the source's own values, from the first that is read on."""
    found, first = dict(strides), 0
    for axis, one in of.items():
        found[axis] = strides[axis] * one.slide.spread
        first += (one.values[0] * one.slide.spread - one.low) * strides[axis]
    return found, first

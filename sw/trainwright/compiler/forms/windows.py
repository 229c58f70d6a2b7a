"""Read windows of a tensor: rows of their source, zeros around and between them, by two axes.

A window is no data of its own. Its source lies in a piece with rows of zeros where positions and
offsets meet no value; two axes then step through the rows of one axis, each with its own stride.
``tile.pieces`` builds such pieces.
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
    """Values of the source along the axis."""
    position: int
    """First position."""
    low: int
    """First place."""
    high: int
    """Place after the last."""

    @property
    def plain(self) -> bool:
        """Whether there are no zeros: every place is a value."""
        return self.slide.spread == 1 and self.low >= 0 and self.high <= self.size

    @property
    def values(self) -> tuple[int, int]:
        """Values of the source at these places: the first, and the one after the last."""
        spread = self.slide.spread
        # With a spread only every ``spread``-th place is a value; the rest are zeros between them.
        first, last = -(-self.low // spread), (self.high - 1) // spread
        return max(first, 0), min(last + 1, self.size)

    def first(self, start: int) -> int:
        """Return the places from ``start`` to the place of the first position and offset."""
        return self.slide.first + self.position * self.slide.stride - start


def halo(graph: Graph, slide: Slide, positions: tuple[int, int] | None = None) -> Halo:
    """Return the places of one axis, for some ``positions`` or all."""
    first, stop = positions or (0, graph.sizes[slide.position])
    # Steps may be negative (gradients run backwards), so all four corners are looked at.
    ends = [
        p * slide.stride + k * slide.step + slide.first
        for p in (first, stop - 1)
        for k in (0, graph.sizes[slide.offset] - 1)
    ]
    return Halo(slide, graph.sizes[slide.axis], first, min(ends), max(ends) + 1)


def halos(graph: Graph, window: Unfold, ranges: Ranges | None = None) -> dict[str, Halo]:
    """Return the places of each axis of the source that two axes read, in ``ranges``."""
    ranges = ranges or {}
    return {slide.axis: halo(graph, slide, ranges.get(slide.position)) for slide in window.slides}


def is_plain(graph: Graph, window: Unfold) -> bool:
    """Return whether the source needs no zeros."""
    return all(halo.plain for halo in halos(graph, window).values())


def slid(graph: Graph, name: str) -> frozenset[str]:
    """Return the positions and offsets of a window; nothing for another tensor."""
    window = graph.windows.get(name)
    if window is None:
        return frozenset()
    return frozenset(a for slide in window.slides for a in (slide.position, slide.offset))


def share(graph: Graph, window: Unfold, chunks: Mapping[str, int]) -> float:
    """Return the places of a slice per value of the source; ``chunks`` gives its sizes."""
    ranges = {axis: (0, count) for axis, count in chunks.items()}
    places = 1.0
    for axis, halo in halos(graph, window, ranges).items():
        places *= (halo.high - halo.low) / graph.sizes[axis]
    for axis in set(graph.tensors[window.x].axes) & set(chunks):
        places *= chunks[axis] / graph.sizes[axis]
    return places


def steps(
    halos: Mapping[str, Halo], strides: Mapping[str, int], starts: Mapping[str, int]
) -> tuple[dict[str, int], int]:
    """Return the rows between values of each axis of a window, and before the first value.

    The source's axes have ``strides``, from places ``starts`` on.
    """
    stepped, first = {axis: rows for axis, rows in strides.items() if axis not in halos}, 0
    for axis, halo in halos.items():
        # Both axes walk the same rows: position p and offset k meet at p * stride + k * step.
        stepped[halo.slide.position] = strides[axis] * halo.slide.stride
        stepped[halo.slide.offset] = strides[axis] * halo.slide.step
        first += halo.first(starts[axis]) * strides[axis]
    return stepped, first


def spread(halos: Mapping[str, Halo], strides: Mapping[str, int]) -> tuple[dict[str, int], int]:
    """Return the rows between values of each axis of the source, and before the first value."""
    stepped, first = dict(strides), 0
    for axis, halo in halos.items():
        stepped[axis] = strides[axis] * halo.slide.spread
        first += (halo.values[0] * halo.slide.spread - halo.low) * strides[axis]
    return stepped, first

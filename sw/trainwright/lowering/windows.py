"""Windows of tensors: the rows of their source, zeros around and between them, read by two axes.

A window is no data of its own. Its source lies in a piece with rows of zeros where positions and
offsets meet no value; two axes then step through the rows of one, each with a stride of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from trainwright.graph.ir import Graph, Slide, Window


@dataclass(frozen=True)
class Halo:
    """Places along an axis of a source: those that positions and offsets reach, and its values."""

    slide: Slide
    low: int
    """The first, where the first value of the source is 0."""
    high: int
    """The one after the last."""
    plain: bool
    """Whether there are no zeros: the places are the values."""


def halo(graph: Graph, slide: Slide) -> Halo:
    """The places of one axis."""
    positions, offsets = graph.sizes[slide.position], graph.sizes[slide.offset]
    values = (graph.sizes[slide.axis] - 1) * slide.spread
    ends = [
        p * slide.stride + k * slide.step + slide.first
        for p in (0, positions - 1)
        for k in (0, offsets - 1)
    ]
    low, high = min(0, *ends), max(values, *ends) + 1
    plain = slide.spread == 1 and (low, high) == (0, graph.sizes[slide.axis])
    return Halo(slide, low, high, plain)


def halos(graph: Graph, window: Window) -> dict[str, Halo]:
    """The places of each axis of the source that is read by two."""
    return {slide.axis: halo(graph, slide) for slide in window.slides}


def is_plain(graph: Graph, window: Window) -> bool:
    """Whether the source needs no zeros."""
    return all(one.plain for one in halos(graph, window).values())


def slid(graph: Graph, name: str) -> frozenset[str]:
    """The positions and offsets of a window; of another tensor none."""
    window = graph.windows.get(name)
    if window is None:
        return frozenset()
    return frozenset(a for slide in window.slides for a in (slide.position, slide.offset))


def places(graph: Graph, window: Window) -> int:
    """Values of the source, zeros among them."""
    found = {axis: one.high - one.low for axis, one in halos(graph, window).items()}
    return prod(found.get(axis, graph.sizes[axis]) for axis in graph.tensors[window.x].axes)


def steps(of: Mapping[str, Halo], strides: Mapping[str, int]) -> tuple[dict[str, int], int]:
    """Rows from one value of each axis of a window to the next, and those before its first, in
    rows with ``strides`` of the source's axes and places from ``low``."""
    found, first = {axis: rows for axis, rows in strides.items() if axis not in of}, 0
    for axis, one in of.items():
        found[one.slide.position] = strides[axis] * one.slide.stride
        found[one.slide.offset] = strides[axis] * one.slide.step
        first += (one.slide.first - one.low) * strides[axis]
    return found, first


def spread(of: Mapping[str, Halo], strides: Mapping[str, int]) -> tuple[dict[str, int], int]:
    """Those of the source's own values."""
    found, first = dict(strides), 0
    for axis, one in of.items():
        found[axis] = strides[axis] * one.slide.spread
        first -= one.low * strides[axis]
    return found, first

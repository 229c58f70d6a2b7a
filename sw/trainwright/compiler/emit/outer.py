"""Pack the host's arrays into rows of lanes in external memory, and unpack them.

``Packing`` follows the layout of a piece, digits and padding included, so that a load of whole rows
brings a tensor as the arrays read it.
"""

from dataclasses import replace
from functools import cached_property
from math import prod

import numpy as np
import numpy.typing as npt

from trainwright.compiler.base.digits import cut
from trainwright.compiler.forms.calls import External
from trainwright.compiler.forms.layout import Piece, Storage
from trainwright.graph.ir import Graph
from trainwright.program.descriptors import DIGIT_WIDTH

Bytes = npt.NDArray[np.uint8]


class Packing:
    """Map between an array with the axes of its tensor and the bytes of its buffer."""

    def __init__(self, graph: Graph, outer: External, lanes: int):
        self.graph, self.outer, self.lanes = graph, outer, lanes
        axes = (
            graph.tensors[outer.tensor].axes if outer.tensor in graph.tensors else ("row", "lane")
        )
        sizes = dict(graph.sizes) | {"row": lanes, "lane": lanes}
        sizes |= {axis: hi - lo for axis, (lo, hi) in outer.ranges.items()}
        layout = outer.layout
        self.axes = axes
        every = (*layout.rows, *layout.lanes)
        self.counts = {axis: sizes[axis] for axis in every}
        self.piece = Piece(
            outer.tensor, layout, self.counts, {}, lanes, Storage("", 0), digits=outer.digits
        )
        self.rows = self.piece.rows
        self.size = self.rows * lanes * outer.element_bytes

    def of_each(self, axis: str) -> "Packing":
        """Return the packing of the tensor with one axis outermost and whole."""
        outer, layout = self.outer, self.outer.layout
        rows = (axis, *(a for a in layout.rows if a != axis))
        ranges = {a: span for a, span in outer.ranges.items() if a != axis}
        moved = replace(outer, layout=replace(layout, rows=rows), ranges=ranges)
        return Packing(self.graph, moved, self.lanes)

    @property
    def _kind(self) -> npt.DTypeLike:
        return np.int8 if self.outer.element_bytes == 1 else np.dtype("<i2")

    @cached_property
    def _order(self) -> tuple[str, ...]:
        """Axes of the layout, in the order of the buffer's words."""
        return (*self.outer.layout.rows, *self.outer.layout.lanes)

    @cached_property
    def _whole(self) -> tuple[slice, ...]:
        """Part of the tensor that the buffer holds, as a slice along each axis."""
        ranges = self.outer.ranges
        return tuple(slice(*ranges[a]) if a in ranges else slice(None) for a in self.axes)

    @cached_property
    def _missing(self) -> tuple[str, ...]:
        """Axes of the layout that the tensor lacks: its values are repeated along them."""
        return tuple(a for a in self._order if a not in self.axes)

    @cached_property
    def _arranged(self) -> tuple[int, ...]:
        """Permutation to the layout's order from the tensor's axes followed by ``_missing``."""
        axes = (*self.axes, *self._missing)
        return tuple(axes.index(a) for a in self._order)

    @cached_property
    def _shape(self) -> tuple[int, ...]:
        return tuple(self.counts[a] for a in self._order)

    @cached_property
    def _strides(self) -> tuple[int, ...]:
        """Bytes from one value of each axis of the layout to the next, for one digit."""
        rows = [self.piece.strides[axis] * self.lanes for axis in self.outer.layout.rows]
        along = [self.counts[a] for a in self.outer.layout.lanes]
        words = (*rows, *(prod(along[n + 1 :]) for n in range(len(along))))
        return tuple(step * self.outer.element_bytes for step in words)

    @property
    def strides(self) -> dict[str, int]:
        """Bytes from one value to the next along each axis, for one digit."""
        return dict(zip(self._order, self._strides, strict=True))

    def _view(self, words: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        """Return the words of a buffer by the axes of the layout, for tensors of one digit."""
        return np.ndarray(self._shape, words.dtype, words, strides=self._strides)

    @cached_property
    def _places(self) -> npt.NDArray[np.int64]:
        """Index of every value's first digit among the buffer's words, in the layout's order."""
        place = np.zeros((), np.int64)
        for axis in self.outer.layout.rows:
            step = np.arange(self.counts[axis]) * (self.piece.strides[axis] * self.lanes)
            place = place[..., None] + step
        row, lane = np.divmod(
            np.arange(prod(self.counts[a] for a in self.outer.layout.lanes)), self.lanes
        )
        # A row of lanes takes ``digits`` rows of the buffer: its first digits, then the others.
        flat = row * (self.lanes * self.outer.digits) + lane
        return (place[..., None] + flat).reshape(self._shape)

    def pack(self, values: npt.NDArray[np.generic]) -> Bytes:
        """Return the bytes of a whole integer array with the axes of the tensor.

        Values are repeated along axes of the layout that the tensor lacks.
        """
        values, missing = values[self._whole], self._missing
        if missing:
            values = np.broadcast_to(
                values.reshape(*values.shape, *[1] * len(missing)),
                (*values.shape, *(self.counts[a] for a in missing)),
            )
        arranged = values.transpose(self._arranged)
        data = np.zeros(self.rows * self.lanes, self._kind)
        if self.outer.digits == 1:
            # One strided copy is enough: words are only placed one by one where rows of other
            # digits lie between them.
            self._view(data)[...] = arranged
            return data.view(np.uint8)
        places = self._places.ravel()
        for n, digit in enumerate(cut(arranged.ravel().astype(np.int64), self.outer.digits)):
            data[places + n * self.lanes] = digit
        return data.view(np.uint8)

    def unpack(self, data: Bytes) -> npt.NDArray[np.int64]:
        """Return the array from all bytes of its buffer."""
        words = data.view(self._kind)
        back = [self._order.index(a) for a in self.axes]
        if self.outer.digits == 1:
            return self._view(words).transpose(back).astype(np.int64)
        values = words[self._places].astype(np.int64)
        for n in range(1, self.outer.digits):
            # Highest digit first, as in Horner's scheme; only the first is signed.
            values = (values << DIGIT_WIDTH) + words[self._places + n * self.lanes]
        return values.transpose(back)


def constant(name: str, lanes: int) -> npt.NDArray[np.int64] | None:
    """Return the values of a constant, ``identity`` or ``zeros``; ``None`` for other names."""
    if name == "identity":
        return np.eye(lanes, dtype=np.int64)
    if name == "zeros":
        return np.zeros((lanes, lanes), np.int64)
    return None

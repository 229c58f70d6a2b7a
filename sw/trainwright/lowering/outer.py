"""Tensors in outer memory: from the host's arrays to rows of lanes, and back."""

from math import prod

import numpy as np
import numpy.typing as npt

from trainwright.compiler.digits import cut
from trainwright.graph.ir import Graph
from trainwright.lowering.calls import External
from trainwright.lowering.layout import Piece, Storage
from trainwright.program.descriptors import DIGIT_WIDTH

Bytes = npt.NDArray[np.uint8]


class Packing:
    """How an array with the axes of its tensor lies in a buffer."""

    def __init__(self, graph: Graph, outer: External, lanes: int):
        self.outer, self.lanes = outer, lanes
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
            outer.tensor, layout, self.counts, {}, lanes, Storage("", 0, 0), digits=outer.digits
        )
        self.rows = self.piece.rows
        self.size = self.rows * lanes * outer.element_bytes

    @property
    def _kind(self) -> npt.DTypeLike:
        return np.int8 if self.outer.element_bytes == 1 else np.dtype("<i2")

    def _places(self) -> npt.NDArray[np.int64]:
        """The place among the words of the buffer of every value, of its first digit, axes in the
        layout's order."""
        place = np.zeros((), np.int64)
        for axis in self.outer.layout.rows:
            step = np.arange(self.counts[axis]) * (self.piece.strides[axis] * self.lanes)
            place = place[..., None] + step
        row, lane = np.divmod(
            np.arange(prod(self.counts[a] for a in self.outer.layout.lanes)), self.lanes
        )
        flat = row * (self.lanes * self.outer.digits) + lane
        return (place[..., None] + flat).reshape([self.counts[a] for a in self._order])

    @property
    def _order(self) -> tuple[str, ...]:
        return (*self.outer.layout.rows, *self.outer.layout.lanes)

    def pack(self, values: npt.NDArray[np.generic]) -> Bytes:
        """The bytes of an integer array with the axes of the tensor, whole.

        Axes of the layout that the tensor has not repeat its values.
        """
        ranges = self.outer.ranges
        values = values[tuple(slice(*ranges[a]) if a in ranges else slice(None) for a in self.axes)]
        missing = [a for a in self._order if a not in self.axes]
        values = np.broadcast_to(
            values.reshape(*values.shape, *[1] * len(missing)),
            (*values.shape, *(self.counts[a] for a in missing)),
        )
        axes = (*self.axes, *missing)
        arranged = values.transpose([axes.index(a) for a in self._order])
        data, places = np.zeros(self.rows * self.lanes, self._kind), self._places().ravel()
        for n, digit in enumerate(cut(arranged.ravel().astype(np.int64), self.outer.digits)):
            data[places + n * self.lanes] = digit
        return data.view(np.uint8)

    def unpack(self, data: Bytes) -> npt.NDArray[np.int64]:
        """The array, from all bytes of its buffer."""
        words, places = data.view(self._kind).astype(np.int64), self._places()
        values = words[places]
        for n in range(1, self.outer.digits):
            values = (values << DIGIT_WIDTH) + words[places + n * self.lanes]
        return values.transpose([self._order.index(a) for a in self.axes])


def constant(name: str, lanes: int) -> npt.NDArray[np.int64] | None:
    """The values of a constant: ``identity`` or ``zeros``; ``None`` for other names."""
    if name == "identity":
        return np.eye(lanes, dtype=np.int64)
    if name == "zeros":
        return np.zeros((lanes, lanes), np.int64)
    return None

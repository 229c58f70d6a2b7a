"""Tensors in external memory, in rows of lanes: packed from the host's arrays and unpacked.

Rows follow the layout of a piece, digits and padding included, so that a load of whole rows brings
a tensor as the arrays read it.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import numpy as np
import numpy.typing as npt

from trainwright.compiler.base.digits import cut
from trainwright.compiler.forms.layout import ROW, Axes, Layout, Piece, Ranges, counts_of
from trainwright.graph.ir import Graph, Tensor
from trainwright.program.descriptors import DIGIT_WIDTH

Bytes = npt.NDArray[np.uint8]


def word_bytes(tensor: Tensor) -> int:
    """Return the bytes of an element, or of one of its digits, in external memory."""
    return 1 if tensor.format.width <= 8 or tensor.digits > 1 else 2


@dataclass(frozen=True, eq=False)
class External:
    """Tensor in external memory, whole or in part: a program reads it, or stores it, as it lies."""

    piece: Piece
    """Rows of lanes in external memory."""
    axes: Axes
    """Axes of the host's array."""
    shape: tuple[int, ...]
    """Sizes of the whole tensor's axes."""
    element_bytes: int
    view_of: str = ""
    """Tensor that this one is a view of; empty if it is none."""
    reloadable: bool = False
    """Whether each reader may load the tensor anew, in its own order of rows, also padded."""

    @classmethod
    def of(
        cls, graph: Graph, name: str, layout: Layout, ranges: Ranges, lanes: int, digits: int = 1
    ) -> "External":
        """Describe ``ranges`` of a tensor in a layout, each row of values as rows of ``digits``."""
        counts = counts_of((*layout.rows, *layout.lanes), graph.sizes, ranges)
        piece = Piece.new(name, layout, counts, ranges, lanes, digits=digits)
        tensor = graph.tensors[name]
        return cls(piece, tensor.axes, graph.shape(name), word_bytes(tensor))

    @classmethod
    def constant(cls, name: str, lanes: int) -> "External":
        """Describe a constant of as many rows as lanes."""
        piece = Piece.new(name, ROW, {"row": lanes, "lane": lanes}, {}, lanes)
        return cls(piece, ("row", "lane"), (lanes, lanes), 1)

    @cached_property
    def name(self) -> str:
        """Name of the buffer: one for each tensor, layout and range."""
        if self.layout == ROW:
            return self.tensor
        cut = "".join(f"[{a}:{lo}:{hi}]" for a, (lo, hi) in sorted(self.ranges.items()))
        cut += f" in {self.piece.digits} digits" if self.piece.digits > 1 else ""
        return f"{self.tensor}: {self.layout.text}{cut}"

    @property
    def tensor(self) -> str:
        """Name of the tensor."""
        return self.piece.tensor

    @property
    def layout(self) -> Layout:
        """Layout of its rows."""
        return self.piece.layout

    @property
    def ranges(self) -> Ranges:
        """Ranges of the axes that are cut."""
        return self.piece.ranges

    @property
    def size(self) -> int:
        """Bytes of the buffer."""
        return self.piece.rows * self.piece.width * self.element_bytes

    def serves(self, lanes: Axes | None, ranges: Ranges) -> bool:
        """Return whether these values lie here, with ``lanes`` along the lanes (None: any)."""
        # A part serves only readers that keep within its values: no command reads from two layouts.
        return lanes in (None, self.layout.lanes) and self.piece.covers(ranges)

    def of_each(self, axis: str) -> "External":
        """Return the tensor with one axis outermost and whole."""
        rows = (axis, *(a for a in self.layout.rows if a != axis))
        piece = replace(
            self.piece,
            layout=replace(self.layout, rows=rows),
            counts={**self.piece.counts, axis: self.shape[self.axes.index(axis)]},
            ranges={a: span for a, span in self.ranges.items() if a != axis},
        )
        return replace(self, piece=piece)

    @property
    def _dtype(self) -> npt.DTypeLike:
        return np.int8 if self.element_bytes == 1 else np.dtype("<i2")

    @cached_property
    def _order(self) -> tuple[str, ...]:
        """Axes of the layout, in the order of the buffer's words."""
        return (*self.layout.rows, *self.layout.lanes)

    @cached_property
    def slices(self) -> tuple[slice, ...]:
        """Part of the tensor that the buffer holds, as a slice along each axis."""
        return tuple(slice(*self.ranges.get(a, (None,))) for a in self.axes)

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
        return tuple(self.piece.counts[a] for a in self._order)

    @cached_property
    def _strides(self) -> tuple[int, ...]:
        """Bytes from one value of each axis of the layout to the next, for one digit."""
        rows = [self.piece.strides[axis] * self.piece.width for axis in self.layout.rows]
        along = [self.piece.counts[a] for a in self.layout.lanes]
        words = (*rows, *(prod(along[n + 1 :]) for n in range(len(along))))
        return tuple(step * self.element_bytes for step in words)

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
        for axis in self.layout.rows:
            words = self.piece.strides[axis] * self.piece.width
            place = place[..., None] + np.arange(self.piece.counts[axis]) * words
        row, lane = np.divmod(
            np.arange(prod(self.piece.counts[a] for a in self.layout.lanes)), self.piece.width
        )
        # A row of lanes takes ``digits`` rows of the buffer: its first digits, then the others.
        flat = row * (self.piece.width * self.piece.digits) + lane
        return (place[..., None] + flat).reshape(self._shape)

    def pack(self, values: npt.NDArray[np.generic]) -> Bytes:
        """Return the bytes of a whole integer array with the axes of the tensor.

        Values are repeated along axes of the layout that the tensor lacks.
        """
        values, missing = values[self.slices], self._missing
        if missing:
            values = np.broadcast_to(
                values.reshape(*values.shape, *[1] * len(missing)),
                (*values.shape, *(self.piece.counts[a] for a in missing)),
            )
        arranged = values.transpose(self._arranged)
        data = np.zeros(self.piece.rows * self.piece.width, self._dtype)
        if self.piece.digits == 1:
            # One strided copy is enough: words are only placed one by one where rows of other
            # digits lie between them.
            self._view(data)[...] = arranged
            return data.view(np.uint8)
        places = self._places.ravel()
        for n, digit in enumerate(cut(arranged.ravel().astype(np.int64), self.piece.digits)):
            data[places + n * self.piece.width] = digit
        return data.view(np.uint8)

    def unpack(self, data: Bytes) -> npt.NDArray[np.int64]:
        """Return the array from all bytes of its buffer."""
        words = data.view(self._dtype)
        back = [self._order.index(a) for a in self.axes]
        if self.piece.digits == 1:
            return self._view(words).transpose(back).astype(np.int64)
        values = words[self._places].astype(np.int64)
        for n in range(1, self.piece.digits):
            # Highest digit first, as in Horner's scheme; only the first is signed.
            values = (values << DIGIT_WIDTH) + words[self._places + n * self.piece.width]
        return values.transpose(back)


Sources = tuple[External, ...]
"""Layouts in which a tensor lies, of all values or of a part each; none: the compiler chooses."""


def constant(name: str, lanes: int) -> npt.NDArray[np.int64] | None:
    """Return the values of a constant, ``identity`` or ``zeros``; ``None`` for other names."""
    if name == "identity":
        return np.eye(lanes, dtype=np.int64)
    if name == "zeros":
        return np.zeros((lanes, lanes), np.int64)
    return None

"""Conversion of external memory's beats to rows."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import enum, stream, wiring
from amaranth.lib.wiring import In, Out

from trainwright.parameters import AcceleratorParameters

BYTE_BITS = 8


class Shape(enum.Enum, shape=2):
    """Output of the gearbox: one item per beat, or one per two beats.

    One-hot, because its decoding starts long paths.
    """

    BEAT = 0
    """The beat unchanged."""
    BYTES = 1
    """A beat of bytes, each sign-extended to a word."""
    PAIR = 2
    """Two beats, the first in the low half."""


def item_width(parameters: AcceleratorParameters) -> int:
    """Return the bits of an item: a row, or two beats where a target takes two."""
    return parameters.data_width * parameters.word_width // BYTE_BITS


def row_shape(parameters: AcceleratorParameters) -> tuple[Shape, Shape]:
    """Return the shapes of rows whose elements have one byte, and two bytes, outside."""
    narrow = parameters.word_width == BYTE_BITS
    return (Shape.BEAT, Shape.BEAT) if narrow else (Shape.BYTES, Shape.PAIR)


class Gearbox(wiring.Component):
    """Converter of beats to items of at most a row; ``o`` follows ``i`` in the same cycle.

    Accepts a beat per cycle. ``shape`` may change between items only.
    """

    def __init__(self, parameters: AcceleratorParameters):
        self.parameters = parameters
        super().__init__(
            {
                "shape": In(Shape),
                "i": In(stream.Signature(parameters.data_width)),
                "o": Out(stream.Signature(item_width(parameters))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        beat, width = self.i.payload, self.parameters.word_width
        m.d.comb += [
            self.o.valid.eq(self.i.valid),
            self.o.payload.eq(beat),
            self.i.ready.eq(self.o.ready),
        ]
        if width == BYTE_BITS:
            return m
        first = Signal.like(beat)  # the first beat of a pair
        is_second = Signal()
        with m.Switch(self.shape.as_value()):
            with m.Case("-1"):  # BYTES
                words = [beat.word_select(n, BYTE_BITS) for n in range(self.parameters.lanes)]
                m.d.comb += self.o.payload.eq(Cat(_extended(word, width) for word in words))
            with m.Case("1-"):  # PAIR
                m.d.comb += self.o.payload.eq(Cat(first, beat))
                with m.If(~is_second):
                    m.d.comb += [self.o.valid.eq(0), self.i.ready.eq(1)]
                    with m.If(self.i.valid):
                        m.d.sync += [first.eq(beat), is_second.eq(1)]
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += is_second.eq(0)
        return m


def _extended(word, width: int):
    return Cat(word, word[-1].replicate(width - len(word)))

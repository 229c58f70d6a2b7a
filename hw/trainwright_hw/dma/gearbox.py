"""From beats of external memory to rows and entries."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import enum, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from trainwright.parameters import AcceleratorParameters
from trainwright.program.fields import Target

BYTE_BITS = 8
SHAPE_BITS = 4


class Shape(enum.Enum, shape=SHAPE_BITS):
    """What leaves the gearbox: one item for one beat, for two, or several for one.

    A bit each: what looks at it begins long paths.
    """

    BEAT = 0
    """The beat as it is."""
    BYTES = 1
    """A beat of bytes, each sign-extended to a word."""
    PAIR = 2
    """Two beats, the first in the low half."""
    PE1_ENTRIES = 4
    """The entries of PE1's store in a beat, one after the other, in the low bits."""
    PE2_ENTRIES = 8
    """The entries of PE2's store in a beat, likewise."""


def entry_shape(parameters: AcceleratorParameters, target: Target) -> Shape:
    """The shape that fits a factor store."""
    rows, shape = {
        Target.PE1_STORE: (parameters.lanes, Shape.PE1_ENTRIES),
        Target.PE2_STORE: (parameters.pe2_rows, Shape.PE2_ENTRIES),
    }[target]
    bits = rows * parameters.factor_storage_width
    return Shape.PAIR if bits > parameters.data_width else shape


def items_shift(parameters: AcceleratorParameters, shape: Shape) -> int:
    """Logarithm of the items a beat gives; -1 for two beats an item."""
    if shape == Shape.PAIR:
        return -1
    rows = {Shape.PE1_ENTRIES: parameters.lanes, Shape.PE2_ENTRIES: parameters.pe2_rows}.get(shape)
    if rows is None:
        return 0
    bits = rows * parameters.factor_storage_width
    return max(0, exact_log2(parameters.data_width) - exact_log2(bits))


def item_width(parameters: AcceleratorParameters) -> int:
    """Bits of an item: a row, or two beats where something takes them."""
    return parameters.data_width * parameters.word_width // BYTE_BITS


def row_shape(parameters: AcceleratorParameters) -> tuple[Shape, Shape]:
    """The shapes of rows whose elements have a byte outside, and two."""
    narrow = parameters.word_width == BYTE_BITS
    return (Shape.BEAT, Shape.BEAT) if narrow else (Shape.BYTES, Shape.PAIR)


class Gearbox(wiring.Component):
    """Turns beats into items of at most a row, in no time: ``o`` follows ``i`` in the same cycle.

    At most one item a cycle; one a beat where ``shape`` gives one, and a beat a cycle where it
    takes two. ``shape`` may change between items only.
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
        beat = self.i.payload
        first = Signal.like(beat)  # the first beat of a pair
        phase = Signal(exact_log2(self.parameters.lanes))  # item of the beat, beat of the pair
        final = Signal()  # this item is the last of the beat
        m.d.comb += [
            final.eq(1),
            self.o.valid.eq(self.i.valid),
            self.o.payload.eq(beat),
            self.i.ready.eq(self.o.ready & final),
        ]
        with m.Switch(self.shape.as_value()):
            if Shape.BYTES in row_shape(self.parameters):
                with m.Case(_bit(Shape.BYTES)):
                    words = [beat.word_select(n, BYTE_BITS) for n in range(self.parameters.lanes)]
                    width = self.parameters.word_width
                    m.d.comb += self.o.payload.eq(Cat(_extended(word, width) for word in words))
            if len(self.o.payload) > len(beat):
                with m.Case(_bit(Shape.PAIR)):
                    m.d.comb += self.o.payload.eq(Cat(first, beat))
                    with m.If(~phase[0]):
                        m.d.comb += [self.o.valid.eq(0), self.i.ready.eq(1)]
                        with m.If(self.i.valid):
                            m.d.sync += [first.eq(beat), phase.eq(1)]
            for shape in (Shape.PE1_ENTRIES, Shape.PE2_ENTRIES):
                if shift := items_shift(self.parameters, shape):
                    with m.Case(_bit(shape)):
                        bits = self.parameters.data_width >> shift
                        m.d.comb += final.eq(phase[:shift].all())
                        m.d.comb += self.o.payload.eq(beat.word_select(phase[:shift], bits))
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += phase.eq(phase + 1)
            with m.If(final):
                m.d.sync += phase.eq(0)
        return m


def _bit(shape: Shape) -> str:
    """The pattern of a shape's own bit."""
    return f"{shape.value:0{SHAPE_BITS}b}".replace("0", "-")


def _extended(word, width: int):
    return Cat(word, word[-1].replicate(width - len(word)))

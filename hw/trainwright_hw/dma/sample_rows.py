"""Scratchpad side of SAMPLES: addresses of rows, and expansion of pixels to words."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from trainwright.parameters import AcceleratorParameters
from trainwright.program.fields import COUNT_WIDTH, LOCAL_WIDTH
from trainwright_hw.control.engine_ports import TRANSFER_LAYOUT
from trainwright_hw.dma.gearbox import BYTE_BITS, item_width
from trainwright_hw.dma.sample_addresses import samples_view
from trainwright_hw.stream.skid_buffer import SkidBuffer

NIBBLE_BITS = 4
PLACE = data.StructLayout({"row": LOCAL_WIDTH, "targets": 1})


class SampleRows(wiring.Component):
    """Generator of the rows of each sample, first of pixels, then of targets; one per cycle.

    Members: ``start`` begins the ``command``, which must not change until its last row was taken;
    ``address``, a stream of rows from the next cycle on; ``targets``, whether that row is for
    targets.
    """

    def __init__(self):
        super().__init__(
            {
                "start": In(1),
                "command": In(TRANSFER_LAYOUT),
                "address": Out(stream.Signature(LOCAL_WIDTH)),
                "targets": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.skid = skid = SkidBuffer(PLACE)
        row, targets = skid.i.payload.row, skid.i.payload.targets
        d = samples_view(self.command)
        rows, left = Signal(COUNT_WIDTH + 1), Signal(COUNT_WIDTH + 1)
        samples = Signal(COUNT_WIDTH)
        first, target, following = (
            Signal(LOCAL_WIDTH, name=name) for name in ("first", "target", "following")
        )
        m.d.comb += [
            # The last beat of a record has its targets. Every other beat has the pixels of one row,
            # or of two rows where a pixel has 4 bits.
            rows.eq(Mux(d.pixel_bytes[0], d.record_beats - 1, (d.record_beats - 1) << 1)),
            following.eq(first + d.local_step),
            self.address.valid.eq(skid.o.valid),
            self.address.payload.eq(skid.o.payload.row),
            self.targets.eq(skid.o.payload.targets),
            skid.o.ready.eq(self.address.ready),
        ]
        with m.If(self.start):
            m.d.sync += [
                skid.i.valid.eq(1),
                row.eq(d.local),
                targets.eq(0),
                first.eq(d.local),
                target.eq(d.targets),
                left.eq(rows),
                samples.eq(d.samples),
            ]
        with m.Elif(skid.i.valid & skid.i.ready):
            # The targets of all samples are adjacent, apart from the inputs, so that descriptors
            # can read either as one operand.
            with m.If(targets):
                m.d.sync += [
                    row.eq(following),
                    skid.i.valid.eq(samples != 1),
                    targets.eq(0),
                    first.eq(following),
                    target.eq(target + 1),
                    left.eq(rows),
                    samples.eq(samples - 1),
                ]
            with m.Else():
                m.d.sync += [row.eq(row + 1), left.eq(left - 1)]
                with m.If(left == 1):
                    m.d.sync += [row.eq(target), targets.eq(1)]
        return m


class Pixels(wiring.Component):
    """Combinational expander of pixels to words (``trainwright.onchip.samples.expanded``).

    Members: ``command``; ``i``, a stream of beats; ``o``, a stream of rows, two per beat if pixels
    have 4 bits. A word repeats its pixel's bits, and keeps the highest ``input_bits`` of them.
    """

    def __init__(self, parameters: AcceleratorParameters):
        self.parameters = parameters
        super().__init__(
            {
                "command": In(TRANSFER_LAYOUT),
                "i": In(stream.Signature(parameters.data_width)),
                "o": Out(stream.Signature(item_width(parameters))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        p, d = self.parameters, samples_view(self.command)
        beat, width = self.i.payload, p.word_width
        upper, final = Signal(), Signal()  # at the beat's second row; at its last row
        kept = Signal(width)  # mask of an input's bits
        by = Signal(3)  # rotation that brings the kept bits down
        m.d.comb += [
            final.eq(d.pixel_bytes[0] | upper),
            self.o.valid.eq(self.i.valid),
            self.i.ready.eq(self.o.ready & final),
            # Repeating the bits of a pixel maps the greatest pixel to the greatest input: for
            # pixels of 4 bits and inputs of 8, a multiplication by 255/15.
            by.eq(-d.input_bits),
            kept.eq((1 << d.input_bits) - 1),
        ]
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += upper.eq(~final)
        half = beat.word_select(upper, p.data_width // 2)
        words = []
        for lane in range(p.lanes):
            nibble = half.word_select(lane, NIBBLE_BITS)
            byte = Signal(BYTE_BITS, name=f"byte_{lane}")
            turned = Signal(BYTE_BITS, name=f"turned_{lane}")
            m.d.comb += [
                byte.eq(
                    Mux(d.pixel_bytes[0], beat.word_select(lane, BYTE_BITS), Cat(nibble, nibble))
                ),
                turned.eq(Cat(byte, byte) >> by),
            ]
            words.append(Cat(turned, turned)[:width] & kept)
        m.d.comb += self.o.payload.eq(Cat(words))
        return m

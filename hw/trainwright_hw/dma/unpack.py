"""The inner side of the LOAD engine: from beats to writes of its targets."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from trainwright.parameters import AcceleratorParameters
from trainwright.program.fields import LOCAL_WIDTH, Operation, Target
from trainwright_hw.control.engine_ports import TRANSFER_LAYOUT
from trainwright_hw.control.program_memory import ProgramWritePort
from trainwright_hw.dma.gearbox import (
    Gearbox,
    Shape,
    entry_shape,
    item_width,
    items_shift,
    row_shape,
)
from trainwright_hw.dma.sample_rows import Pixels, SampleRows
from trainwright_hw.dma.transfer import LocalRuns
from trainwright_hw.storage.ports import FactorWritePort, WritePort, banks_asked
from trainwright_hw.stream.registered_queue import RegisteredQueue

TARGETS = {
    Target.SCRATCHPAD: "scratchpad",
    Target.PE1_STORE: "pe1_store",
    Target.PE2_STORE: "pe2_store",
    Target.PROGRAM: "program",
}
"""Member of each target's write port."""


def target_ports(parameters: AcceleratorParameters) -> dict:
    """Write ports of the targets, as members."""
    return {
        "scratchpad": Out(WritePort(parameters)),
        "pe1_store": Out(FactorWritePort(parameters, parameters.lanes)),
        "pe2_store": Out(FactorWritePort(parameters, parameters.pe2_rows)),
        "program": Out(ProgramWritePort(parameters)),
    }


WRITES = 4
"""Writes at the output and behind it."""


class Unpack(wiring.Component):
    """Writes the beats of each command to its target, command after command.

    Members: ``command``, a stream of transfers; ``beats``, a stream of their data; the write ports
    of the targets; ``busy``, from the cycle after a command was taken to its last write;
    ``starved``, high while a write waits for beats; ``blocked``, while one waits for its target.
    """

    def __init__(self, parameters: AcceleratorParameters):
        self.parameters = parameters
        self._item_bits = item_width(parameters)
        # where an item goes
        self._place = data.StructLayout(
            {"banks": parameters.scratchpad_banks, "target": Target, "address": LOCAL_WIDTH}
        )
        super().__init__(
            {
                "command": In(stream.Signature(TRANSFER_LAYOUT)),
                "beats": In(stream.Signature(parameters.data_width)),
                **target_ports(parameters),
                "busy": Out(1),
                "starved": Out(1),
                "blocked": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.locals = locals_ = LocalRuns()
        m.submodules.gearbox = gearbox = Gearbox(self.parameters)
        held = Signal(TRANSFER_LAYOUT)
        fresh = Signal()
        # The write at the output, and some behind it: so that what comes before does not hang on
        # the scratchpad's arbiters in the same cycle. The item follows its address by a cycle.
        # The contents go a cycle later, and so say for both whether there is credit.
        m.submodules.writes = writes = RegisteredQueue(
            width=self._place.size,
            depth=WRITES,
            counted=True,
            flags=self.parameters.scratchpad_banks,
        )
        m.submodules.contents = contents = RegisteredQueue(
            width=self._item_bits, depth=WRITES, counted=True
        )
        valid, ready = writes.r_rdy, writes.r_en
        load, taken = Signal(), Signal()
        m.d.comb += [
            self.command.ready.eq(~fresh & ~locals_.busy),
            locals_.command.eq(held),
            locals_.start.eq(fresh),
            gearbox.i.payload.eq(self.beats.payload),
            gearbox.i.valid.eq(self.beats.valid & locals_.address.valid),
            self.beats.ready.eq(gearbox.i.ready & locals_.address.valid),
            gearbox.o.ready.eq(contents.w_rdy),
            load.eq(gearbox.o.valid & gearbox.o.ready),
            locals_.address.ready.eq(load),
            self.busy.eq(fresh | locals_.busy | valid | taken),
            self.starved.eq(locals_.address.valid & ~self.beats.valid),
            self.blocked.eq(valid & ~ready),
        ]
        m.d.sync += fresh.eq(0)
        with m.If(self.command.ready):
            m.d.sync += held.eq(self.command.payload)
        with m.If(self.command.valid & self.command.ready):
            m.d.sync += fresh.eq(1)
        self._shape(m, held, gearbox.shape, locals_.items)
        to_scratchpad = held.target == Target.SCRATCHPAD
        address, item = locals_.address.payload, gearbox.o.payload
        if self.parameters.sample_loads:
            address, item = self._samples(
                m, held, fresh, locals_, gearbox, contents, load, taken, valid
            )
        head, earlier = data.View(self._place, writes.r_data), Signal(self._place, reset_less=True)
        m.d.sync += [taken.eq(valid & ready), earlier.eq(head)]
        m.d.comb += [
            writes.w_en.eq(load),
            writes.w_data.eq(
                Cat(banks_asked(self.parameters, to_scratchpad, address), held.target, address)
            ),
            contents.w_en.eq(load),
            contents.w_data.eq(item),
            contents.r_en.eq(taken),
            ready.eq((head.target != Target.SCRATCHPAD) | self.scratchpad.request.ready),
            self.scratchpad.request.valid.eq(valid & (head.target == Target.SCRATCHPAD)),
            self.scratchpad.request.payload.eq(head.address),
            self.scratchpad.banks.eq(head.banks),
        ]
        self._write(m, taken, earlier, contents.r_data)
        return m

    def _samples(self, m: Module, held, fresh, locals_, gearbox, contents, load, taken, valid):
        """SAMPLES beside the rest: address and contents of an item.

        Targets go through the gearbox; beats of pixels do not."""
        m.submodules.rows = rows = SampleRows()
        m.submodules.pixels = pixels = Pixels(self.parameters)
        its, of_pixels, there = Signal(), Signal(), Signal()
        m.d.comb += [
            its.eq(held.operation == Operation.SAMPLES),
            of_pixels.eq(rows.address.valid & ~rows.targets),
            there.eq(locals_.address.valid | rows.address.valid),
            rows.command.eq(held),
            rows.start.eq(fresh & its),
            locals_.start.eq(fresh & ~its),
            rows.address.ready.eq(load),
            pixels.command.eq(held),
            pixels.i.payload.eq(self.beats.payload),
            pixels.i.valid.eq(self.beats.valid & of_pixels),
            pixels.o.ready.eq(contents.w_rdy),
            gearbox.i.valid.eq(self.beats.valid & there & ~of_pixels),
            self.beats.ready.eq(Mux(of_pixels, pixels.i.ready, gearbox.i.ready & there)),
            load.eq(Mux(of_pixels, pixels.o.valid, gearbox.o.valid) & contents.w_rdy),
            self.command.ready.eq(~fresh & ~locals_.busy & ~rows.address.valid),
            self.busy.eq(fresh | locals_.busy | rows.address.valid | valid | taken),
            self.starved.eq(there & ~self.beats.valid),
        ]
        address = Mux(its, rows.address.payload, locals_.address.payload)
        return address, Mux(of_pixels, pixels.o.payload, gearbox.o.payload)

    def _shape(self, m: Module, held, shape, items) -> None:
        """How the present command's beats become items, and how many a run has.

        Both a cycle after the command is held: as soon as they are looked at.
        """

        def choose(value: Shape):
            shift = items_shift(self.parameters, value)
            count = held.beats << shift if shift >= 0 else held.beats >> -shift
            return [shape.eq(value), items.eq(count)]

        with m.Switch(held.target):
            with m.Case(Target.SCRATCHPAD):
                bytes_, pairs = row_shape(self.parameters)
                its = held.element_bytes == 1
                if self.parameters.sample_loads:  # targets of a sample
                    its |= held.operation == Operation.SAMPLES
                with m.If(its):
                    m.d.sync += choose(bytes_)
                with m.Else():
                    m.d.sync += choose(pairs)
            for target in (Target.PE1_STORE, Target.PE2_STORE):
                with m.Case(target):
                    m.d.sync += choose(entry_shape(self.parameters, target))
            with m.Case(Target.PROGRAM):
                m.d.sync += choose(Shape.BEAT)

    def _write(self, m: Module, taken, earlier, item) -> None:
        """What was taken a cycle ago goes to its target."""
        stored = self.parameters.factor_storage_width
        kept = self.parameters.factor_width
        m.d.comb += [
            self.scratchpad.row.eq(item),
            self.program.request.payload.beat.eq(item[: self.parameters.data_width]),
        ]
        for store in (self.pe1_store, self.pe2_store):
            entry = store.request.payload.entry
            m.d.comb += [
                entry[n].eq(item[n * stored : n * stored + kept]) for n in range(len(entry))
            ]
        for number, member in TARGETS.items():
            if number != Target.SCRATCHPAD:
                request = getattr(self, member).request
                m.d.comb += [
                    request.valid.eq(taken & (earlier.target == number)),
                    request.payload.address.eq(earlier.address),
                ]

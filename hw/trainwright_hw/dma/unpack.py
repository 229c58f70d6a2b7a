"""Scratchpad side of the LOAD engine: writes of beats to their targets."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from trainwright.parameters import AcceleratorParameters
from trainwright.program.fields import LOCAL_WIDTH, Operation, Target
from trainwright_hw.control.engine_ports import TRANSFER_LAYOUT
from trainwright_hw.control.program_memory import ProgramWritePort
from trainwright_hw.dma.gearbox import Gearbox, Shape, item_width, row_shape
from trainwright_hw.dma.sample_rows import Pixels, SampleRows
from trainwright_hw.dma.transfer import LocalRuns
from trainwright_hw.storage.ports import WritePort, banks_asked
from trainwright_hw.stream.registered_queue import RegisteredQueue


def target_ports(parameters: AcceleratorParameters) -> dict:
    """Return the targets' write ports as members."""
    return {
        "scratchpad": Out(WritePort(parameters)),
        "program": Out(ProgramWritePort(parameters)),
    }


WRITES = 4
"""Writes that may be under way at a time, which is the depth of both queues.

A write that nothing delays takes four cycles, so four places allow one new write per cycle.
"""


class Unpack(wiring.Component):
    """Writer of each command's beats to its target, command after command.

    Members: ``command``, a stream of transfers; ``beats``, a stream of their data; the write ports
    of the targets; ``busy``, from the cycle after a command was taken to its last write;
    ``starved``, high while a write waits for beats; ``blocked``, while a write waits for its
    target.
    """

    def __init__(self, parameters: AcceleratorParameters):
        self.parameters = parameters
        self._item_bits = item_width(parameters)
        # destination of an item
        self._place = data.StructLayout(
            {"banks": parameters.scratchpad_banks, "of_program": 1, "address": LOCAL_WIDTH}
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

        # --- beats become items, each with the address of its row ---------------------------------

        held = Signal(TRANSFER_LAYOUT)
        fresh = Signal()
        # Queues decouple the beats from the scratchpad's arbiters, whose answer is late. An item
        # follows its address by a cycle, and its contents leave a cycle after the grant. Credit
        # for both queues is counted here, where writes begin, because the contents, a row wide,
        # may be placed far away on the device.
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
        room = self._credit(m, load, taken)
        m.d.comb += [
            self.command.ready.eq(~fresh & ~locals_.busy),
            locals_.command.eq(held),
            locals_.start.eq(fresh),
            gearbox.i.payload.eq(self.beats.payload),
            gearbox.i.valid.eq(self.beats.valid & locals_.address.valid),
            self.beats.ready.eq(gearbox.i.ready & locals_.address.valid),
            gearbox.o.ready.eq(room),
            load.eq(gearbox.o.valid & gearbox.o.ready),
            locals_.address.ready.eq(load),
            self.starved.eq(locals_.address.valid & ~self.beats.valid),
            self.blocked.eq(valid & ~ready),
        ]
        m.d.sync += fresh.eq(0)
        with m.If(self.command.ready):
            m.d.sync += held.eq(self.command.payload)
        with m.If(self.command.valid & self.command.ready):
            m.d.sync += fresh.eq(1)
        self._shape(m, held, gearbox.shape, locals_.items)

        # --- items wait for the scratchpad, or for the program memory -----------------------------

        of_program = held.target == Target.PROGRAM
        address, item, busy = locals_.address.payload, gearbox.o.payload, locals_.busy
        if self.parameters.sample_loads:
            address, item, busy = self._samples(m, held, fresh, locals_, gearbox, room, load)
        asked = Cat(banks_asked(self.parameters, ~of_program, address), of_program, address)
        placed = load
        if self.parameters.sample_loads:  # a register, because SAMPLES lengthens the path
            placed, place = Signal(), Signal(self._place.size, name="place", reset_less=True)
            m.d.sync += [placed.eq(load), place.eq(asked)]
            asked, busy = place, busy | placed
        head, earlier = data.View(self._place, writes.r_data), Signal(self._place, reset_less=True)
        m.d.sync += [taken.eq(valid & ready), earlier.eq(head)]
        m.d.comb += [
            self.busy.eq(fresh | busy | valid | taken),
            writes.w_en.eq(placed),
            writes.w_data.eq(asked),
            contents.w_en.eq(load),
            contents.w_data.eq(item),
            contents.r_en.eq(taken),
        ]
        self._write(m, head, earlier, contents.r_data, valid=valid, ready=ready, taken=taken)
        return m

    def _write(self, m: Module, head, earlier, item, *, valid, ready, taken) -> None:
        """Ask for the row of the first item, and write the one that was granted a cycle ago."""
        m.d.comb += [
            ready.eq(head.of_program | self.scratchpad.request.ready),
            self.scratchpad.request.valid.eq(valid & ~head.of_program),
            self.scratchpad.request.payload.eq(head.address),
            self.scratchpad.banks.eq(head.banks),
            self.scratchpad.row.eq(item),
            self.program.request.valid.eq(taken & earlier.of_program),
            self.program.request.payload.address.eq(earlier.address),
            self.program.request.payload.beat.eq(item),
        ]

    def _credit(self, m: Module, begun, ended) -> Signal:
        """Return whether another write may begin."""
        # Bit n is set if more than n writes may begin: only bit 0 is read, and it is a register.
        left = Signal(WRITES, init=-1)
        with m.If(begun ^ ended):
            m.d.sync += left.eq(Mux(begun, left >> 1, Cat(1, left)))
        return left[0]

    def _samples(self, m: Module, held, fresh, locals_, gearbox, room, load):
        """Add SAMPLES: return an item's address and contents, and whether more items follow.

        Targets pass through the gearbox; beats of pixels bypass it.
        """
        m.submodules.rows = rows = SampleRows()
        m.submodules.pixels = pixels = Pixels(self.parameters)
        is_samples, of_pixels, waiting = Signal(), Signal(), Signal(name="there")
        m.d.comb += [
            is_samples.eq(held.operation == Operation.SAMPLES),
            of_pixels.eq(rows.address.valid & ~rows.targets),
            waiting.eq(locals_.address.valid | rows.address.valid),
            rows.command.eq(held),
            rows.start.eq(fresh & is_samples),
            locals_.start.eq(fresh & ~is_samples),
            rows.address.ready.eq(load),
            pixels.command.eq(held),
            pixels.i.payload.eq(self.beats.payload),
            pixels.i.valid.eq(self.beats.valid & of_pixels),
            pixels.o.ready.eq(room),
            gearbox.i.valid.eq(self.beats.valid & waiting & ~of_pixels),
            self.beats.ready.eq(Mux(of_pixels, pixels.i.ready, gearbox.i.ready & waiting)),
            load.eq(Mux(of_pixels, pixels.o.valid, gearbox.o.valid) & room),
            self.command.ready.eq(~fresh & ~locals_.busy & ~rows.address.valid),
            self.starved.eq(waiting & ~self.beats.valid),
        ]
        address = Mux(is_samples, rows.address.payload, locals_.address.payload)
        item = Mux(of_pixels, pixels.o.payload, gearbox.o.payload)
        return address, item, locals_.busy | rows.address.valid

    def _shape(self, m: Module, held, shape, items) -> None:
        """Choose how the command's beats become items, and how many items a run has.

        Both follow the held command by a cycle, which is when they are first used.
        """

        def choose(value: Shape):
            return [shape.eq(value), items.eq(held.beats >> (value == Shape.PAIR))]

        bytes_, pairs = row_shape(self.parameters)
        of_bytes = held.element_bytes == 1
        if self.parameters.sample_loads:  # targets of a sample
            of_bytes |= held.operation == Operation.SAMPLES
        with m.If(held.target == Target.PROGRAM):
            m.d.sync += choose(Shape.BEAT)
        with m.Elif(of_bytes):
            m.d.sync += choose(bytes_)
        with m.Else():
            m.d.sync += choose(pairs)

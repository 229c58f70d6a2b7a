"""Sums of |q|, saturations and underflows of each statistics slot."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from trainwright.parameters import AcceleratorParameters
from trainwright_hw.control.engine_ports import (
    StatisticsPort,
    TakenSum,
    slot_width,
    totals_layout,
)
from trainwright_hw.stream.round_robin import RoundRobin


class StatisticsSlots(wiring.Component):
    """Accumulator of statistics items of several engines, in numbered slots.

    Totals wrap at the widths of ``totals_layout``. Adding an item takes three cycles. ``clear``
    marks every slot as untouched in one cycle; a slot's first item starts from zero. Slot bits
    above the depth are ignored.

    Members: ``ports``, an array of ``engines`` item streams; ``clear``; ``busy``, while an item is
    being added; ``read`` with ``slot``, held until ``read_done``, in which cycle ``totals`` is
    valid. With an exponent file there is ``taken``, by which SCALES accesses slots between items.
    """

    def __init__(self, parameters: AcceleratorParameters, *, engines: int = 2):
        self.parameters = parameters
        self._layout = totals_layout(parameters)
        super().__init__(
            {
                "ports": In(StatisticsPort(parameters)).array(engines),
                "clear": In(1),
                "busy": Out(1),
                "read": In(1),
                "slot": In(slot_width(parameters)),
                "read_done": Out(1),
                "totals": Out(self._layout),
                **({"taken": In(TakenSum())} if parameters.exponents else {}),
            }
        )

    def elaborate(self, platform):
        m = Module()
        depth = self.parameters.statistics_depth
        # LUT memory: a block RAM answers too late in the cycle for the adder behind it
        attrs = {"ram_style": "distributed"}
        m.submodules.memory = memory = Memory(shape=self._layout, depth=depth, init=[], attrs=attrs)
        m.submodules.arbiter = arbiter = RoundRobin(len(self.ports))
        reader, writer = memory.read_port(), memory.write_port()
        touched = Signal(depth)
        item = Signal.like(self.ports[0].item.payload)
        slot = Signal(exact_log2(depth))  # of the item, or of the host's read
        known = Signal()  # the slot was written since the last clear
        # the sum is written a cycle after it was computed
        added, write = Signal(self._layout, reset_less=True), Signal()
        m.d.comb += [
            reader.addr.eq(slot),
            writer.addr.eq(slot),  # stable until the write is done
            writer.data.eq(added),
            writer.en.eq(write),
        ]
        m.d.sync += [
            write.eq(0),
            *(added[name].eq(self.totals[name] + item[name]) for name in self._layout.members),
        ]
        with m.If(known):
            m.d.comb += self.totals.eq(reader.data)
        with m.FSM():
            with m.State("IDLE"):
                if self.parameters.exponents:
                    with m.If(self.taken.take):
                        # the sum is set to 0 (`zero`); counts are written back with 0 added
                        counts = [name for name in self._layout.members if name != "sum"]
                        m.d.sync += [slot.eq(self.taken.slot), *(item[n].eq(0) for n in counts)]
                        m.next = "TAKE"
                with m.If(self.read):
                    m.d.sync += slot.eq(self.slot)
                    m.next = "LOOK-UP"
                for number, port in enumerate(self.ports):
                    m.d.comb += arbiter.requests[number].eq(port.item.valid)
                    m.d.comb += port.item.ready.eq(arbiter.grant[number])
                    with m.If(arbiter.grant[number]):
                        m.d.sync += [item.eq(port.item.payload), slot.eq(port.item.payload.slot)]
                        m.next = "READ"
            with m.State("READ"):
                m.d.comb += [reader.en.eq(1), self.busy.eq(1)]
                m.d.sync += known.eq(touched.bit_select(slot, 1))
                m.next = "ADD"
            with m.State("ADD"):
                m.d.comb += self.busy.eq(1)
                m.d.sync += [write.eq(1), touched.eq(touched | (1 << slot))]
                m.next = "IDLE"
            with m.State("LOOK-UP"):
                m.d.comb += reader.en.eq(1)
                m.d.sync += known.eq(touched.bit_select(slot, 1))
                m.next = "ANSWER"
            with m.State("ANSWER"):
                m.d.comb += self.read_done.eq(1)
                m.next = "IDLE"
            if self.parameters.exponents:
                self._give(m, reader, slot, known, touched, added, write)
        with m.If(self.clear):
            m.d.sync += touched.eq(0)
        return m

    def _give(self, m: Module, reader, slot, known, touched, added, write) -> None:
        """Add the states in which SCALES owns a slot."""
        taken = self.taken
        m.d.comb += taken.total.eq(self.totals.sum)
        with m.State("TAKE"):
            m.d.comb += reader.en.eq(1)
            m.d.sync += known.eq(touched.bit_select(slot, 1))
            m.next = "TAKEN"
        with m.State("TAKEN"):
            m.d.comb += taken.there.eq(1)
            with m.If(taken.zero):
                m.d.sync += [write.eq(1), added.sum.eq(0)]
            with m.If(taken.zero | ~taken.take):
                m.next = "IDLE"

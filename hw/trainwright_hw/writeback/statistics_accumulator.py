"""Sum of magnitudes, saturations and underflows of each command's results."""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from trainwright.parameters import AcceleratorParameters
from trainwright_hw.arith.format import LaneFormat
from trainwright_hw.control.command_contexts import COMMANDS
from trainwright_hw.control.engine_ports import StatisticsPort, slot_width, totals_layout
from trainwright_hw.stream.delay_line import delay_line
from trainwright_hw.writeback.ports import KINDS
from trainwright_hw.writeback.row_sums import RowSums, row_flags

STAGES = 4
"""Cycles from a row to the totals: magnitudes; sums of four lanes; sum of the row; total."""


class StatisticsAccumulator(wiring.Component):
    """Accumulator of |q|, saturations and underflows over each command of both kinds of arrays.

    A cycle of ``valid`` counts the words and flags of a row of ``kind``. In the last row of a
    command (``final``) ``slot`` is read too; the command's item is at ``port`` five or more cycles
    later, and the kind's next command starts from zero. Items queue up: there must be no more
    than ``COMMANDS`` commands of a kind whose item was not taken. ``taken``: an item of that
    kind is taken in this cycle. ``arithmetic`` defines the magnitude of a word, and whether there
    are underflows: members ``underflow`` and a field of the item.
    """

    def __init__(self, parameters: AcceleratorParameters, *, arithmetic: LaneFormat):
        lanes = parameters.lanes
        self._parameters = parameters
        self._arithmetic = arithmetic
        self._totals = totals_layout(parameters)
        super().__init__(
            {
                "valid": In(1),
                "kind": In(1),
                "final": In(1),
                "slot": In(slot_width(parameters)),
                "word": In(signed(parameters.result_width)).array(lanes),
                **{flag: In(1).array(lanes) for flag in row_flags(arithmetic).values()},
                "port": Out(StatisticsPort(parameters)),
                "taken": Out(1).array(len(KINDS)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        flags = Cat(self.valid, self.valid & self.final, self.kind)
        # Sums take STAGES cycles; what decides about them takes the same way.
        valid, final, kind = delay_line(m, flags, STAGES, "flags", reset_less=False)[-1]
        slot = delay_line(m, self.slot, STAGES, "slot")[-1]
        m.submodules.row = counted = RowSums(self._parameters, arithmetic=self._arithmetic)
        for name in ("word", *counted.flags.values()):
            m.d.comb += Cat(*getattr(counted, name)).eq(Cat(*getattr(self, name)))
        row = {name: getattr(counted, name) for name in ("sum", *counted.flags)}
        sums = self._totals
        so_far = [Signal(sums, name=f"so_far_{number}") for number in range(len(KINDS))]
        before, now = Signal(sums), Signal(sums)
        m.d.comb += [
            # Rows of both kinds pass one adder in turn: their totals are separate registers.
            before.eq(Mux(kind, so_far[1].as_value(), so_far[0].as_value())),
            *(now[name].eq(before[name] + of_row) for name, of_row in row.items()),
        ]
        for number, total in enumerate(so_far):
            with m.If(valid & (kind == number)):
                m.d.sync += total.eq(now)
                # The total of the command that ends goes out with its last row, and the next one
                # starts at 0 in the same cycle.
                with m.If(final):
                    m.d.sync += total.eq(0)
        self._offer(m, final, kind, slot, now)
        return m

    def _offer(self, m: Module, complete, kind, slot, sums) -> None:
        """Queue items for the host."""
        item = self.port.item
        # The kind is kept with the item, as slots do not tell whose command it was.
        m.submodules.items = items = SyncFIFO(
            # Room for every command that may be unfinished: an item is never refused.
            width=1 + len(item.payload.as_value()),
            depth=len(KINDS) * COMMANDS,
        )
        payload, owner = items.r_data[:-1], items.r_data[-1]
        done = data.View(item.payload.shape(), items.w_data[:-1])
        m.d.comb += [
            items.w_en.eq(complete),
            items.w_data[-1].eq(kind),
            done.slot.eq(slot),
            *(done[name].eq(sums[name]) for name in self._totals.members),
            item.valid.eq(items.r_rdy),
            item.payload.as_value().eq(payload),
            items.r_en.eq(item.ready),
            *(
                taken.eq(item.valid & item.ready & (owner == number))
                for number, taken in enumerate(self.taken)
            ),
        ]

"""Sum of magnitudes and count of saturations of the results of each command."""

import itertools

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from trainwright_hw.arith.requantiser import WORD_WIDTH
from trainwright_hw.control.command_contexts import COMMANDS
from trainwright_hw.control.engine_ports import SATURATIONS_WIDTH, SUM_WIDTH, StatisticsPort

SLOT_WIDTH = 8


class StatisticsAccumulator(wiring.Component):
    """Sum of |q| and count of saturations over each command.

    In a cycle of ``valid`` the words and flags of the lanes marked in ``enable`` are counted. In
    the last one of a command (``final``) ``slot`` is read too; the command's item is at ``port``
    five cycles later or more, and the next command's sums start from zero. Items queue up: there
    must be no more than ``COMMANDS`` commands whose item was not taken.
    """

    def __init__(self, *, lanes: int):
        self._lanes = lanes
        super().__init__(
            {
                "valid": In(1),
                "final": In(1),
                "slot": In(SLOT_WIDTH),
                "enable": In(lanes),
                "word": In(signed(WORD_WIDTH)).array(lanes),
                "saturated": In(1).array(lanes),
                "port": Out(StatisticsPort()),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        # Cycle 1: magnitudes. Cycle 2: sums of four lanes. Cycle 3: sum of the row. Cycle 4: total.
        valid = [self.valid, *(Signal(name=f"valid_{stage}") for stage in (1, 2, 3))]
        final = [self.final, *(Signal(name=f"final_{stage}") for stage in (1, 2, 3))]
        for stages in (valid, final):
            m.d.sync += [later.eq(earlier) for earlier, later in itertools.pairwise(stages)]
        magnitudes, flags = self._magnitudes(m)

        quarters, counts = [], []
        for start in range(0, self._lanes, 4):
            quarter = Signal(WORD_WIDTH + 2, name=f"quarter_{start}", reset_less=True)
            count = Signal(3, name=f"count_{start}", reset_less=True)
            m.d.sync += [
                quarter.eq(sum(magnitudes[start : start + 4])),
                count.eq(sum(flags[start : start + 4])),
            ]
            quarters.append(quarter)
            counts.append(count)
        row_sum = Signal(WORD_WIDTH + 4)
        row_count = Signal(range(self._lanes + 1))
        m.d.sync += [row_sum.eq(sum(quarters)), row_count.eq(sum(counts))]

        sums = data.StructLayout({"sum": SUM_WIDTH, "saturations": SATURATIONS_WIDTH})
        so_far, now = Signal(sums), Signal(sums)
        m.d.comb += [
            now.sum.eq(so_far.sum + row_sum),
            now.saturations.eq(so_far.saturations + row_count),
        ]
        with m.If(valid[3]):
            m.d.sync += so_far.eq(now)
            with m.If(final[3]):
                m.d.sync += so_far.eq(0)
        slots = self._slots(m)
        self._offer(m, valid[3] & final[3], slots, now)
        return m

    def _slots(self, m: Module) -> Signal:
        """The slot of the command whose final row is in the last stage."""
        slots = [self.slot, *(Signal(SLOT_WIDTH, name=f"slot_{stage}") for stage in (1, 2, 3))]
        with m.If(self.valid & self.final):
            m.d.sync += slots[1].eq(slots[0])
        m.d.sync += [later.eq(earlier) for earlier, later in itertools.pairwise(slots[1:])]
        return slots[-1]

    def _offer(self, m: Module, complete, slot, sums) -> None:
        """Items on their way to the host."""
        item = self.port.item
        m.submodules.items = items = SyncFIFO(width=len(item.payload.as_value()), depth=COMMANDS)
        done = data.View(item.payload.shape(), items.w_data)
        m.d.comb += [
            items.w_en.eq(complete),
            done.slot.eq(slot),
            done.sum.eq(sums.sum),
            done.saturations.eq(sums.saturations),
            item.valid.eq(items.r_rdy),
            item.payload.as_value().eq(items.r_data),
            items.r_en.eq(item.ready),
        ]

    def _magnitudes(self, m: Module) -> tuple[list[Signal], list[Signal]]:
        magnitudes, flags = [], []
        for lane in range(self._lanes):
            word = self.word[lane]
            magnitude = Signal(
                WORD_WIDTH, name=f"magnitude_{lane}", reset_less=True
            )  # |-2^15| needs 16 bits
            flag = Signal(name=f"flag_{lane}", reset_less=True)
            m.d.sync += [
                magnitude.eq(Mux(self.enable[lane], Mux(word[-1], -word, word), 0)),
                flag.eq(self.enable[lane] & self.saturated[lane]),
            ]
            magnitudes.append(magnitude)
            flags.append(flag)
        return magnitudes, flags

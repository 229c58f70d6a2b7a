"""Sum of magnitudes and count of saturations of the results of each command."""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from trainwright_hw.arith.requantiser import WORD_WIDTH
from trainwright_hw.control.command_contexts import COMMANDS
from trainwright_hw.control.engine_ports import SATURATIONS_WIDTH, SUM_WIDTH, StatisticsPort
from trainwright_hw.stream.delay_line import delay_line

SLOT_WIDTH = 8
ENGINES = 2
STAGES = 4
"""Cycles from a row to the totals: magnitudes; sums of four lanes; sum of the row; total."""


class StatisticsAccumulator(wiring.Component):
    """Sum of |q| and count of saturations over each command of two engines.

    In a cycle of ``valid`` the words and flags of a row of ``engine`` are counted. In the last one
    of a command (``final``) ``slot`` is read too; the command's item is at ``port`` five cycles
    later or more, and the engine's next command's sums start from zero. Items queue up: there must
    be no more than ``COMMANDS`` commands of an engine whose item was not taken. ``taken``: an item
    of that engine is, in this cycle.
    """

    def __init__(self, *, lanes: int):
        self._lanes = lanes
        super().__init__(
            {
                "valid": In(1),
                "engine": In(1),
                "final": In(1),
                "slot": In(SLOT_WIDTH),
                "word": In(signed(WORD_WIDTH)).array(lanes),
                "saturated": In(1).array(lanes),
                "port": Out(StatisticsPort()),
                "taken": Out(1).array(ENGINES),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        flags = Cat(self.valid, self.valid & self.final, self.engine)
        valid, final, engine = delay_line(m, flags, STAGES, "flags", reset_less=False)[-1]
        slot = delay_line(m, self.slot, STAGES, "slot")[-1]
        magnitudes, saturated = self._magnitudes(m)

        quarters, counts = [], []
        for start in range(0, self._lanes, 4):
            quarter = Signal(WORD_WIDTH + 2, name=f"quarter_{start}", reset_less=True)
            count = Signal(3, name=f"count_{start}", reset_less=True)
            m.d.sync += [
                quarter.eq(sum(magnitudes[start : start + 4])),
                count.eq(sum(saturated[start : start + 4])),
            ]
            quarters.append(quarter)
            counts.append(count)
        row_sum = Signal(WORD_WIDTH + 4)
        row_count = Signal(range(self._lanes + 1))
        m.d.sync += [row_sum.eq(sum(quarters)), row_count.eq(sum(counts))]

        sums = data.StructLayout({"sum": SUM_WIDTH, "saturations": SATURATIONS_WIDTH})
        so_far = [Signal(sums, name=f"so_far_{number}") for number in range(ENGINES)]
        before, now = Signal(sums), Signal(sums)
        m.d.comb += [
            before.eq(Mux(engine, so_far[1].as_value(), so_far[0].as_value())),
            now.sum.eq(before.sum + row_sum),
            now.saturations.eq(before.saturations + row_count),
        ]
        for number, total in enumerate(so_far):
            with m.If(valid & (engine == number)):
                m.d.sync += total.eq(now)
                with m.If(final):
                    m.d.sync += total.eq(0)
        self._offer(m, final, engine, slot, now)
        return m

    def _offer(self, m: Module, complete, engine, slot, sums) -> None:
        """Items on their way to the host."""
        item = self.port.item
        m.submodules.items = items = SyncFIFO(
            width=1 + len(item.payload.as_value()), depth=ENGINES * COMMANDS
        )
        payload, of = items.r_data[:-1], items.r_data[-1]
        done = data.View(item.payload.shape(), items.w_data[:-1])
        m.d.comb += [
            items.w_en.eq(complete),
            items.w_data[-1].eq(engine),
            done.slot.eq(slot),
            done.sum.eq(sums.sum),
            done.saturations.eq(sums.saturations),
            item.valid.eq(items.r_rdy),
            item.payload.as_value().eq(payload),
            items.r_en.eq(item.ready),
            *(
                taken.eq(item.valid & item.ready & (of == number))
                for number, taken in enumerate(self.taken)
            ),
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
                magnitude.eq(Mux(word[-1], -word, word)),
                flag.eq(self.saturated[lane]),
            ]
            magnitudes.append(magnitude)
            flags.append(flag)
        return magnitudes, flags

"""Begin an update: read the step's entry of the schedule from its table in memory.

The schedule has rates and shifts for ranges of steps. Counters in memory say where the run is;
every step reads the entry, counts, and writes the counters back, so that one program serves all
steps.
"""

from trainwright.compiler.chip.memory import SCHEDULE
from trainwright.compiler.chip.passes import Bank, Passes
from trainwright.kernels import Register, VectorPass, lower
from trainwright.onchip import prior
from trainwright.onchip import schedule as by
from trainwright.program.vector import THREADS, Stream

ENTRY = "entry of the schedule"
"""Name of the passes that read the table, for people."""


class Schedule:
    """Schedule in the scratchpad; memory has ``onchip.schedule.schedule_words``."""

    def __init__(self, work: Passes, table: by.RateTable) -> None:
        """Load the table."""
        self._work, self._table = work, table
        self._rows = work.load(SCHEDULE, bank=Bank.COLUMNS).start

    def rates(self) -> None:
        """Put rate and shift of this step into registers of every thread, and count the step.

        Afterwards position and number in memory belong to the next step.
        """
        table = self._table
        self._counted(
            lower(by.advance_kernel, steps=table.steps, entries=len(table.entries)),
            {by.POSITION_IN: by.POSITION, by.NUMBER_IN: by.NUMBER},
            (by.POSITION_OUT, by.NUMBER_OUT), "counters of the schedule",
        )  # fmt: skip
        self._choose((by.RATES, by.SHIFTS), (by.RATE, by.RATE_SHIFT))

    def look(self, interval: int) -> None:
        """Put the steps since the last look at the columns into a register; 0 in a step that looks.

        Afterwards memory holds the count of the next step.
        """
        self._counted(
            lower(prior.look_kernel, interval=interval), {prior.COUNTER_IN: by.LOOK},
            (prior.COUNTER_OUT,), "looks at the columns",
        )  # fmt: skip

    def _counted(
        self, kernel: VectorPass, counters: dict[str, int], written: tuple[str, ...], tensor: str
    ) -> None:
        """Run a kernel on rows of counters, and store each counter that it writes."""
        work = self._work
        after = [work.rows(SCHEDULE, THREADS, Bank.FACTORS).start for _ in written]
        streams = {name: Stream(self._rows + row) for name, row in counters.items()}
        # Each of the eight threads writes a row of its own, all equal; the first one is stored.
        streams |= {name: Stream(row, 0, 1) for name, row in zip(written, after, strict=True)}
        work.run(kernel, streams, tensor=tensor)
        for first, row in zip(after, counters.values(), strict=True):
            work.store(SCHEDULE, first, 1, first=row)

    def weights(self) -> None:
        """Put the prior's weight and its exponent into registers."""
        registers = prior.WEIGHT, prior.WEIGHT_EXPONENT
        self._work.run(lower(prior.clear_kernel, registers=registers), tensor=ENTRY)
        self._choose((by.WEIGHTS, by.WEIGHT_EXPONENTS), registers)

    def _choose(self, chosen: tuple[int, int], registers: tuple[Register, Register]) -> None:
        """Put this step's entry of two columns of the table into registers that are 0."""
        columns = {by.NUMBERS_IN: by.NUMBERS, by.FIRST: chosen[0], by.SECOND: chosen[1]}
        lanes = self._work.p.lanes
        streams = {n: Stream(self._rows + by.row_of(c, lanes), 1) for n, c in columns.items()}
        # Two passes: every lane compares its number with the entry's and keeps its word, then the
        # sum over the lanes brings the word to all of them. There is no other way to index a row by
        # a value.
        streams[by.PRESENT] = Stream(self._rows + by.NUMBER)
        choose = lower(by.choose_kernel, registers=registers)
        self._work.run(choose, streams, outer=by.ENTRIES // lanes, tensor=ENTRY)
        self._work.run(lower(by.spread_kernel, registers=registers), tensor=ENTRY)

"""The begin of an update: the step's entry of the schedule, from its table in memory."""

from collections.abc import Sequence

from trainwright.compiler.chip.memory import SCHEDULE
from trainwright.compiler.chip.passes import Bank, Passes
from trainwright.onchip import cut_pass, prior_pass
from trainwright.onchip import schedule_pass as by
from trainwright.onchip.rates import RateTable
from trainwright.program.vector import THREADS, Instruction, Stream, Vector


def mask(*streams: int) -> int:
    """Of a pass's streams."""
    return sum(1 << stream for stream in streams)


def rows_pass(
    work: Passes, code: Sequence[Instruction], streams: Sequence[Stream] = (), *, reads: int = 0,
    writes: int = 0, outer: int = 1, inner: int = THREADS, constants: tuple[int, ...] = (),
    tensor: str,
) -> None:  # fmt: skip
    """A pass without random bits; by default a row a thread."""
    d = Vector(
        entry=0, length=1, outer=outer, inner=inner, streams=tuple(streams), reads=reads,
        writes=writes, constants=constants, tensor=tensor,
    )  # fmt: skip
    work.run(tuple(code), d)


_WEIGHTS = prior_pass.WEIGHT, prior_pass.WEIGHT_EXPONENT


class Schedule:
    """The schedule in the scratchpad, in memory ``onchip.schedule_pass.schedule_words``."""

    def __init__(self, work: Passes, table: RateTable, *, deferred: bool = False) -> None:
        """By counters of their own where the parts of the update are ``deferred``."""
        self._work, self._table = work, table
        own, others = (by.POSITION, by.NUMBER), (by.DEFERRED_POSITION, by.DEFERRED_NUMBER)
        self._position, self._number = others if deferred else own
        self._rows = work.load(SCHEDULE, to=work.rows(SCHEDULE, by.ROWS, Bank.COLUMNS)).start

    def rates(self) -> None:
        """Rate and shift of this step to registers of every thread, position and number in memory
        to those of the next.
        """
        work = self._work
        after = [work.rows(SCHEDULE, THREADS, Bank.FACTORS).start for _ in range(2)]
        counters = (self._rows + self._position, self._rows + self._number)
        rows_pass(
            work, by.advance_code(),
            (*map(Stream, counters), *(Stream(first, 0, 1) for first in after)),
            reads=mask(by.READ_POSITION, by.READ_NUMBER),
            writes=mask(by.WRITE_POSITION, by.WRITE_NUMBER),
            constants=by.advance_constants(self._table), tensor="counters of the schedule",
        )  # fmt: skip
        for first, number in zip(after, (self._position, self._number), strict=True):
            work.store(SCHEDULE, first, 1, first=number)
        self._choose((by.RATES, by.RATE), (by.SHIFTS, by.RATE_SHIFT))

    def look(self, interval: int) -> None:
        """Steps since the last look at the columns to a register of ``onchip.cut_pass``, 0 where
        this step looks; in memory those of the next step.
        """
        work = self._work
        after = work.rows(SCHEDULE, THREADS, Bank.FACTORS).start
        rows_pass(
            work, cut_pass.look_code(), (Stream(self._rows + by.LOOK), Stream(after, 0, 1)),
            reads=mask(cut_pass.READ_COUNTER), writes=mask(cut_pass.WRITE_COUNTER),
            constants=cut_pass.look_constants(interval), tensor="looks at the columns",
        )  # fmt: skip
        work.store(SCHEDULE, after, 1, first=by.LOOK)

    def phase(self) -> None:
        """The phase of the prior's coefficients to a register, and in memory to the next step's."""
        work = self._work
        after = work.rows(SCHEDULE, THREADS, Bank.FACTORS).start
        rows_pass(
            work, (*prior_pass.phase_code(), *prior_pass.clear_code(*_WEIGHTS)),
            (Stream(self._rows + by.PHASE), Stream(after, 0, 1)), reads=mask(0), writes=mask(1),
            constants=prior_pass.phase_constants(), tensor="phase of the prior",
        )  # fmt: skip
        work.store(SCHEDULE, after, 1, first=by.PHASE)

    def weights(self) -> None:
        """The prior's weight and its exponent to registers that ``phase`` has cleared."""
        columns = by.WEIGHTS, by.WEIGHT_EXPONENTS
        self._choose(*zip(columns, _WEIGHTS, strict=True))

    def _choose(self, *columns: tuple[int, int]) -> None:
        """Columns of the table to registers."""
        firsts, registers = zip(*columns, strict=True)
        tables = (Stream(self._rows + first, 1) for first in (by.NUMBERS, *firsts))
        reads = mask(by.READ_NUMBERS, by.READ_FIRST, by.READ_SECOND, by.READ_PRESENT)
        rows_pass(
            self._work, by.choose_code(*registers), (*tables, Stream(self._rows + self._number)),
            reads=reads, outer=by.TABLE_ROWS, tensor="entry of the schedule",
        )  # fmt: skip
        rows_pass(self._work, by.spread_code(*registers), tensor="entry of the schedule")

"""The begin of an update: the step's entry of the schedule, from its table in memory."""

from trainwright.compiler.chip.memory import SCHEDULE
from trainwright.compiler.chip.passes import Bank, Passes
from trainwright.onchip import schedule_pass as by
from trainwright.onchip.rates import RateTable
from trainwright.program.vector import THREADS, Stream, Vector


def _mask(*streams: int) -> int:
    return sum(1 << stream for stream in streams)


def run_schedule(work: Passes, table: RateTable) -> None:
    """Rate and shift of this step to registers of every thread, and the counters to the next step.

    What is in memory is ``schedule_words``.
    """
    rows = work.load(SCHEDULE, to=work.rows(SCHEDULE, by.ROWS, Bank.COLUMNS)).start
    after = [work.rows(SCHEDULE, THREADS, Bank.FACTORS).start for _ in range(2)]
    counters = (rows + by.POSITION, rows + by.NUMBER)
    work.run(
        by.advance_code(),
        Vector(
            entry=0, length=1, outer=1, inner=THREADS,
            streams=(*map(Stream, counters), *(Stream(first, 0, 1) for first in after)),
            reads=_mask(by.READ_POSITION, by.READ_NUMBER),
            writes=_mask(by.WRITE_POSITION, by.WRITE_NUMBER),
            constants=by.advance_constants(table), tensor="counters of the schedule",
        ),
    )  # fmt: skip
    for first, number in zip(after, (by.POSITION, by.NUMBER), strict=True):
        work.store(SCHEDULE, first, 1, first=number)
    columns = (rows + first for first in (by.NUMBERS, by.RATES, by.SHIFTS))
    work.run(
        by.choose_code(),
        Vector(
            entry=0, length=1, outer=by.TABLE_ROWS, inner=THREADS,
            streams=tuple(Stream(first, 1) for first in columns),
            reads=_mask(by.READ_NUMBERS, by.READ_RATES, by.READ_SHIFTS), writes=0,
            tensor="entry of the schedule",
        ),
    )  # fmt: skip
    work.run(
        by.spread_code(),
        Vector(
            entry=0, length=1, outer=1, inner=THREADS, streams=(), reads=0, writes=0,
            tensor="rate of the step",
        ),
    )  # fmt: skip

"""Runs of a transfer: a three-level loop nest that adds deltas to one address."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from trainwright.program.fields import COUNT_WIDTH, TRANSFER_LEVELS


class Runs(wiring.Component):
    """Walker over a transfer's levels, at most one run per cycle.

    When a run ends, the outermost level that advances adds its delta, and all inner levels start
    again (``trainwright.program.encoding``).

    Members: ``start`` begins at ``base``, with ``count{n}`` iterations and ``delta{n}`` for each
    level, which must not change while ``valid``. ``value`` is the present run's address while
    ``valid``; ``next`` goes to the following run.
    """

    def __init__(self, width: int):
        self.width = width
        super().__init__(
            {
                "start": In(1),
                "base": In(width),
                **{f"count{level}": In(COUNT_WIDTH) for level in range(TRANSFER_LEVELS)},
                **{f"delta{level}": In(width) for level in range(TRANSFER_LEVELS)},
                "valid": Out(1),
                "value": Out(width),
                "next": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        levels = range(TRANSFER_LEVELS)
        counts = [getattr(self, f"count{level}") for level in levels]
        left = [Signal(COUNT_WIDTH, name=f"left{level}") for level in levels]
        last = [Signal(name=f"last{level}") for level in levels]

        def begin(level):
            m.d.sync += [left[level].eq(counts[level]), last[level].eq(counts[level] == 1)]

        with m.If(self.start):
            m.d.sync += [self.valid.eq(1), self.value.eq(self.base)]
            for level in levels:
                begin(level)
        with m.Elif(self.next):
            for level in reversed(levels):
                goes_on = ~last[level]
                with m.If(goes_on) if level == levels[-1] else m.Elif(goes_on):
                    m.d.sync += [
                        self.value.eq(self.value + getattr(self, f"delta{level}")),
                        left[level].eq(left[level] - 1),
                        last[level].eq(left[level] == 2),
                    ]
                    for inner in range(level + 1, TRANSFER_LEVELS):
                        begin(inner)
            with m.Else():
                m.d.sync += self.valid.eq(0)
        return m

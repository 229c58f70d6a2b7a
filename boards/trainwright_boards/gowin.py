"""The top of a design on a Gowin GW5A: the board's oscillator is its clock."""

from amaranth.hdl import Module, Signal

from trainwright_boards.top import CLOCK, BoardTop


class GowinTop(BoardTop):
    """The system at the clock that comes in, as the open tools know no PLL of a GW5AST-138C.

    The reset ends some cycles after configuration.
    """

    def clocking(self, m: Module, clock: Signal) -> None:
        """Drive the clock directly from the pin."""
        m.d.comb += clock.eq(self.ports[CLOCK])

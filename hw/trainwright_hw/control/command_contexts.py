"""Two commands in one engine: the second starts under the last results of the first."""

from collections.abc import Callable

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

COMMANDS = 2
"""Commands of an engine that are not done, at most."""


def by_turn(m: Module, load: Value, turn: Value, value: Value, name: str) -> Callable:
    """A field of the commands in flight, kept for each of the two turns.

    Where ``load``, ``value`` becomes that of ``turn``; the result gives the field of a turn.
    ``load`` may be ``room`` of ``CommandsInFlight``: the turn of the next command is then nobody's,
    and keeps what is there when that is accepted.
    """
    held = [Signal(Value.cast(value).shape(), name=f"{name}_{n}") for n in range(COMMANDS)]
    for number, register in enumerate(held):
        with m.If(load & (turn == number)):
            m.d.sync += register.eq(value)
    return _of_turn(held)


def derived(m: Module, of_turn: Callable[[int], Value], name: str) -> Callable:
    """What follows from fields of the commands in flight, a cycle after these, for each turn.

    ``of_turn`` gives it for a turn, 0 or 1, from what ``by_turn`` gave.
    """
    held = []
    for number in range(COMMANDS):
        value = of_turn(number)
        register = Signal(len(value), name=f"{name}_{number}", reset_less=True)
        m.d.sync += register.eq(value)
        held.append(register)
    return _of_turn(held)


def _of_turn(held: list[Signal]) -> Callable:
    return lambda of: Mux(of, held[1], held[0])


class CommandsInFlight(wiring.Component):
    """Counts an engine's commands until they are done.

    Commands take turns: ``turn`` is that of the next one that is accepted. An event, each high for
    one cycle a command and in the order of the commands: ``accept``; ``final_step``, its last step
    is taken by the array; ``final_row``, its last row is written; ``item``, its statistics are
    handed over. ``room``: one more may be accepted, so that a turn is free. ``stepping``: there are
    steps to take. ``busy``: a command is not done. ``older``: nor is the one after it.
    """

    def __init__(self):
        super().__init__(
            {
                "accept": In(1),
                "final_step": In(1),
                "final_row": In(1),
                "item": In(1),
                "turn": Out(1),
                "room": Out(1),
                "stepping": Out(1),
                "busy": Out(1),
                "older": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        counts = {}
        for name in ("final_step", "final_row", "item"):
            count = counts[name] = Signal(range(COMMANDS + 1), name=f"without_{name}")
            done = getattr(self, name)
            with m.If(self.accept & ~done):
                m.d.sync += count.eq(count + 1)
            with m.If(~self.accept & done):
                m.d.sync += count.eq(count - 1)
        with m.If(self.accept):
            m.d.sync += self.turn.eq(~self.turn)
        m.d.comb += [
            self.older.eq((counts["final_row"] == COMMANDS) | (counts["item"] == COMMANDS)),
            self.room.eq(~self.older),
            self.stepping.eq(counts["final_step"] != 0),
            self.busy.eq((counts["final_row"] != 0) | (counts["item"] != 0)),
        ]
        return m

"""Two commands in one engine: the second starts during the last results of the first."""

from collections.abc import Callable

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

COMMANDS = 2
"""Maximum unfinished commands of an engine."""


def per_context(m: Module, load: Value, context: Value, value: Value, name: str) -> Callable:
    """Keep a field of the commands in flight for each of the two contexts.

    Where ``load``, ``value`` becomes the field of ``context``; the returned function selects the
    field of a context. ``load`` may be ``free`` of ``CommandContexts``: the next command's context
    is then unallocated, and holds the right value when that command is accepted.
    """
    held = [Signal(Value.cast(value).shape(), name=f"{name}_{n}") for n in range(COMMANDS)]
    for number, register in enumerate(held):
        with m.If(load & (context == number)):
            m.d.sync += register.eq(value)
    return _of_context(held)


def per_engine(m: Module, ports, field: Callable, name: str) -> Callable:
    """Keep a field like ``per_context`` for two engines; the result selects by engine and context.

    ``ports`` have ``configure`` and ``configure_context``; ``field`` returns a port's value.
    """
    first, second = (
        per_context(m, port.configure, port.configure_context, field(port), f"{name}_{number}")
        for number, port in enumerate(ports)
    )
    return lambda engine, context: Mux(engine, second(context), first(context))


def derived(m: Module, of_context: Callable[[int], Value], name: str) -> Callable:
    """Register a function of fields of the commands in flight, a cycle after them, per context.

    ``of_context`` computes the value of context 0 or 1 from results of ``per_context``.
    """
    held = []
    for number in range(COMMANDS):
        value = of_context(number)
        register = Signal(len(value), name=f"{name}_{number}", reset_less=True)
        m.d.sync += register.eq(value)
        held.append(register)
    return _of_context(held)


def _of_context(held: list[Signal]) -> Callable:
    return lambda context: Mux(context, held[1], held[0])


class CommandContexts(wiring.Component):
    """Counter of an engine's commands until they are done.

    An engine is double-buffered: commands use the two contexts alternately, and ``context`` is the
    one that the next accepted command gets. Events, each high for one cycle per command and in the
    order of the commands: ``accept``; ``final_step``, the array takes the command's last step;
    ``final_row``, its last row is written; ``item``, its statistics are delivered. ``free``: a
    context is unallocated, so another command may be accepted. ``stepping``: there are steps to
    take. ``busy``: a command is not done. ``older``: nor is the command after it.
    """

    def __init__(self):
        super().__init__(
            {
                "accept": In(1),
                "final_step": In(1),
                "final_row": In(1),
                "item": In(1),
                "context": Out(1),
                "free": Out(1),
                "stepping": Out(1),
                "busy": Out(1),
                "older": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        # One count per event of the commands that have not reached it: events of both commands
        # interleave, but each kind keeps the commands' order.
        counts = {}
        for name in ("final_step", "final_row", "item"):
            count = counts[name] = Signal(range(COMMANDS + 1), name=f"without_{name}")
            done = getattr(self, name)
            with m.If(self.accept & ~done):
                m.d.sync += count.eq(count + 1)
            with m.If(~self.accept & done):
                m.d.sync += count.eq(count - 1)
        with m.If(self.accept):
            m.d.sync += self.context.eq(~self.context)
        m.d.comb += [
            self.older.eq((counts["final_row"] == COMMANDS) | (counts["item"] == COMMANDS)),
            self.free.eq(~self.older),
            self.stepping.eq(counts["final_step"] != 0),
            self.busy.eq((counts["final_row"] != 0) | (counts["item"] != 0)),
        ]
        return m

"""Two commands in one engine: the second starts during the last results of the first."""

from collections.abc import Callable

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

COMMANDS = 2
"""Maximum unfinished commands of an engine."""


def per_context(m: Module, load: Value, context: Value, value: Value, name: str) -> Callable:
    """Keep a field of the commands in flight in a register for each of the two contexts.

    In cycles of ``load`` the register of ``context`` takes ``value``. The returned function selects
    the register of a context. ``load`` may be ``free`` of ``CommandContexts``: the register of the
    next command then follows ``value`` until the command is accepted.
    """
    held = [Signal(Value.cast(value).shape(), name=f"{name}_{n}") for n in range(COMMANDS)]
    for number, register in enumerate(held):
        with m.If(load & (context == number)):
            m.d.sync += register.eq(value)
    return _of_context(held)


def per_port(m: Module, ports, field: Callable, name: str) -> Callable:
    """Keep a field like ``per_context``, but for two ports.

    The returned function selects by port and context. ``ports`` have ``configure`` and
    ``configure_context``; ``field`` returns the field of a port.
    """
    first, second = (
        per_context(m, port.configure, port.configure_context, field(port), f"{name}_{number}")
        for number, port in enumerate(ports)
    )
    return lambda port, context: Mux(port, second(context), first(context))


def derived(m: Module, of_context: Callable[[int], Value], name: str) -> Callable:
    """Register a value derived from fields of the commands in flight, for each context.

    ``of_context`` computes the value of context 0 or 1 from results of ``per_context``; the
    register is a cycle behind the fields.
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

    An engine holds two commands, which use the two contexts alternately; ``context`` is that of the
    next accepted command. Events, each high for one cycle per command and in the order of the
    commands: ``accept``; ``final_step``, the array takes the last step of a command; ``final_row``,
    the last row is written; ``item``, the statistics are delivered. ``free``: a context is
    unallocated, so another command may be accepted. ``stepping``: a command has steps to take.
    ``busy``: at least one command is not done. ``older``: two commands are not done.
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
        # Count, for each event, the commands without it so far. Events of both commands interleave,
        # but events of one kind come in the order of the commands.
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

"""What the lanes of the vector engine give together: the sum or the greatest of a row."""

from collections.abc import Sequence

from amaranth.hdl import Module, Mux, Signal, Value, signed

from trainwright.program.vector import WIDTH


def combined(
    m: Module, values: Sequence[Value], greatest: Value, wanted: Value, turn: Value, parts: int
) -> Value:
    """The sum of a row's values modulo 2^WIDTH, or the greatest; 0 where it is not ``wanted``.

    ``values``, of ``parts`` cycles one after the other, are the row's: ``turn``, a cycle later than
    they, counts the parts in its lowest bits. ``greatest`` is that of the values' cycle, ``wanted``
    that of a cycle later. Two cycles after the values of a row of one part; else three cycles after
    those of the last part, for ``parts`` cycles.
    """
    level: list[Value] = list(values)
    joins = (len(level) - 1).bit_length()
    for number in range(joins + 1):
        if number == joins // 2:
            level = [_register(m, value, f"joined_{place}") for place, value in enumerate(level)]
            later = Signal(name="greatest", reset_less=True)
            m.d.sync += later.eq(greatest)
            greatest = later
        if number < joins:
            level = [
                _joined(m, greatest, a, b, f"joined_{number}_{place}")
                for place, (a, b) in enumerate(zip(level[::2], level[1::2], strict=True))
            ]
    if parts == 1:
        return _register(m, Mux(wanted, level[0], 0), "total")
    bits = (parts - 1).bit_length()
    so_far, total = (
        Signal(signed(WIDTH), name=name, reset_less=True) for name in ("so_far", "all")
    )
    complete, was_wanted = (
        Signal(name=name, reset_less=True) for name in ("complete", "was_wanted")
    )
    one, first = level[0], turn[:bits] == 0
    m.d.sync += [complete.eq(turn[:bits] == parts - 1), was_wanted.eq(wanted)]
    with m.If(first | ~greatest | (one > so_far)):  # one choice less for each bit
        m.d.sync += so_far.eq(Mux(first | greatest, one, so_far + one))
    with m.If(complete):
        m.d.sync += total.eq(Mux(was_wanted, so_far, 0))
    return total


def _joined(m: Module, greatest: Value, a: Value, b: Value, name: str) -> Value:
    to = Signal(signed(WIDTH), name=name)
    m.d.comb += to.eq(Mux(greatest, Mux(a > b, a, b), a + b))
    return to


def _register(m: Module, value: Value, name: str) -> Value:
    to = Signal(signed(WIDTH), name=name, reset_less=True)
    m.d.sync += to.eq(value)
    return to

"""Reductions across the lanes of the vector engine: the sum or the maximum of a row."""

from collections.abc import Sequence

from amaranth.hdl import Module, Mux, Signal, Value, signed

from trainwright.program.vector import WIDTH


def combined(
    m: Module,
    values: Sequence[Value],
    greatest: Value,
    wanted: Value,
    part_number: Value,
    parts: int,
) -> Value:
    """Return the sum of a row's values modulo 2^WIDTH, or the maximum; 0 where not ``wanted``.

    ``values`` of ``parts`` successive cycles belong to a row: ``part_number``, a cycle later than
    the values, counts the parts in its lowest bits. ``greatest`` belongs to the values' cycle,
    ``wanted`` to the next cycle. The result comes two cycles after the values of a one-part row;
    otherwise three cycles after those of the last part, for ``parts`` cycles.
    """
    level: list[Value] = list(values)
    joins = (len(level) - 1).bit_length()
    for number in range(joins + 1):
        # One register in the middle of the tree halves the longest path.
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
    row_value, first = level[0], part_number[:bits] == 0
    m.d.sync += [complete.eq(part_number[:bits] == parts - 1), was_wanted.eq(wanted)]
    with m.If(first | ~greatest | (row_value > so_far)):  # an enable saves a choice per bit
        m.d.sync += so_far.eq(Mux(first | greatest, row_value, so_far + row_value))
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

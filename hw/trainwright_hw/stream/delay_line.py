"""Delay lines, skew and deskew: arrays whose units work a cycle apart.

Operands and control that are broadcast to an array pass from unit to unit through registers, as in
a systolic array (H. T. Kung, "Why systolic architectures?", 1982): a wire to all units would cross
the device. So unit n works n cycles after the first, and words for the units or from them are
offset in the same way.
"""

from collections.abc import Sequence

from amaranth.hdl import Module, Signal, Value


def delay_line(
    m: Module, value: Value, units: int, name: str, *, reset_less: bool = True
) -> list[Value]:
    """Return ``value`` for each of ``units`` units: unchanged, a cycle later, and so on.

    ``reset_less`` suits data; validity flags must start with zeros.
    """
    passed = [Value.cast(value)]
    for unit in range(1, units):
        register = Signal(passed[0].shape(), name=f"{name}_{unit}", reset_less=reset_less)
        m.d.sync += register.eq(passed[-1])
        passed.append(register)
    return passed


def skew(m: Module, words: Sequence[Value], name: str, *, together: int = 1) -> list[Value]:
    """Delay word n of a cycle by n cycles, or ``together`` words by the first one's delay."""
    return [
        delay_line(m, word, n - n % together + 1, f"{name}_{n}")[-1] for n, word in enumerate(words)
    ]


def deskew(m: Module, words: Sequence[Value], name: str) -> list[Value]:
    """Align words of which word n comes n cycles after the first, in the cycle of the last."""
    return skew(m, words[::-1], name)[::-1]

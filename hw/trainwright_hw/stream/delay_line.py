"""Delay lines, skew and deskew: arrays whose units work one after another, a cycle apart.

Operands and control that are broadcast to an array go from one unit to the next through registers,
as in a systolic array (H. T. Kung, "Why systolic architectures?", 1982): a wire to all of them
would cross the device. So unit n works n cycles after the first, and words for or of the units are
that much apart.
"""

from collections.abc import Sequence

from amaranth.hdl import Module, Signal, Value


def delay_line(
    m: Module, value: Value, units: int, name: str, *, reset_less: bool = True
) -> list[Value]:
    """``value`` as each of ``units`` units gets it: as it is, a cycle later, and so on.

    ``reset_less`` for data; a value that says what is valid starts with zeros.
    """
    passed = [Value.cast(value)]
    for unit in range(1, units):
        register = Signal(passed[0].shape(), name=f"{name}_{unit}", reset_less=reset_less)
        m.d.sync += register.eq(passed[-1])
        passed.append(register)
    return passed


def skew(m: Module, words: Sequence[Value], name: str, *, together: int = 1) -> list[Value]:
    """Words of one cycle, word n delayed by n cycles, or ``together`` of them as the first is."""
    return [
        delay_line(m, word, n - n % together + 1, f"{name}_{n}")[-1] for n, word in enumerate(words)
    ]


def deskew(m: Module, words: Sequence[Value], name: str) -> list[Value]:
    """Words of which word n comes n cycles after the first, all in the cycle of the last."""
    return skew(m, words[::-1], name)[::-1]

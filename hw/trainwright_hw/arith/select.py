"""Selection of one of several values, and decoding of an index, without long chains."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Module, Mux, Signal, Value


def select(values: Sequence[Value], index: Value) -> Value:
    """Return ``values[index]`` of 2^n values by a balanced tree of multiplexers."""
    level = list(values)
    for bit in index[: (len(level) - 1).bit_length()]:
        level = [Mux(bit, b, a) for a, b in zip(level[::2], level[1::2], strict=True)]
    return level[0]


LOW = 3
"""Index bits that are decoded separately."""


def one_hot(m: Module, index: Value, count: int, name: str) -> Value:
    """Return ``index == n`` for each n below ``count``, from decoded halves of the index."""
    below, high = _halves(m, index, name)
    return Cat(below[n % len(below)] & (high == n >> LOW) for n in range(count))


def at_most(m: Module, index: Value, count: int, name: str) -> Value:
    """Return ``index <= n`` for each n below ``count``, without a carry chain for each."""
    below, high = _halves(m, index, name)
    less = [high == n for n in range((count - 1 >> LOW) + 1)]
    return Cat(
        Cat(less[: n >> LOW]).any() | (less[n >> LOW] & below[: n % len(below) + 1].any())
        for n in range(count)
    )


def _halves(m: Module, index: Value, name: str) -> tuple[Value, Value]:
    low = index[:LOW]
    decoded = Signal(1 << len(low), name=f"{name}_low")
    m.d.comb += decoded.eq(Cat(low == n for n in range(len(decoded))))
    return decoded, index[LOW:]

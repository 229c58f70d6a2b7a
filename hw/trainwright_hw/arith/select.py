"""One of several values."""

from collections.abc import Sequence

from amaranth.hdl import Mux, Value


def select(values: Sequence[Value], index: Value) -> Value:
    """``values[index]``, 2^n of them, as a balanced tree of multiplexers."""
    level = list(values)
    for bit in index[: (len(level) - 1).bit_length()]:
        level = [Mux(bit, b, a) for a, b in zip(level[::2], level[1::2], strict=True)]
    return level[0]

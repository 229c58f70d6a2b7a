"""Multiplier of an ECP5 made of carry chains, without a DSP block."""

from amaranth.hdl import C, Cat, Instance, Module, Signal, Value, signed

WIDTH = 9
"""Maximum bits of an operand; the right one must have an even number."""


def chain_product(
    m: Module, name: str, left: Value, right: Value, *, left_enable: Value | None = None
) -> Signal:
    """Build ``arith.multiplier.registered_product`` of carry chains, up to ``WIDTH`` bits each.

    Pairs of partial products are added in the cells that form them, then pairwise: three chains in
    series for 8 bits, 80 LUTs in all.
    """
    if max(len(left), len(right)) > WIDTH or len(right) % 2:
        raise ValueError(
            f"operands of {len(left)} and {len(right)} bits: carry chains multiply up to {WIDTH}, "
            "the right one of an even number"
        )
    a, b = (
        Signal(signed(len(value)), name=f"{name}_{side}", reset_less=True)
        for side, value in (("left", left), ("right", right))
    )
    with m.If(C(1) if left_enable is None else left_enable):
        m.d.sync += a.eq(left)
    m.d.sync += b.eq(right)
    sums = [
        _pair(m, f"{name}_{place}", a, b[place], b[place + 1], negate=place + 2 == len(right))
        << place
        for place in range(0, len(right), 2)
    ]
    while len(sums) > 1:
        pairs = zip(sums[::2], sums[1::2], strict=False)
        sums = [low + high for low, high in pairs] + sums[len(sums) // 2 * 2 :]
    product = Signal(signed(len(left) + len(right)), name=name, reset_less=True)
    m.d.sync += product.eq(sums[0])
    return product


def _pair(m: Module, name: str, a: Value, low: Value, high: Value, *, negate: bool) -> Signal:
    """Compute a * low + 2 * a * high, negated where ``negate``: two bits per CCU2C.

    A cell adds the products of pins A, B and of C, D. Its carry is that of A, B alone where both
    products are equal, so the negated product must be connected there.
    """
    size = len(a) + 2
    plain = [a[min(n, len(a) - 1)] for n in range(size)]
    doubled = [C(0, 1), *plain[: size - 1]]
    total = Signal(signed(size), name=name)
    carry: Value = C(int(negate), 1)
    for place in range(0, size, 2):
        ports = {}
        for half in range(2):
            bit = place + half
            inside = bit < size
            ports |= {
                f"i_A{half}": doubled[bit] if inside else C(0, 1),
                f"i_B{half}": high,
                f"i_C{half}": plain[bit] if inside else C(0, 1),
                f"i_D{half}": low,
            }
        after = Signal(name=f"{name}_carry_{place}")
        sums = Signal(2, name=f"{name}_bits_{place}")
        m.submodules[f"{name}_at_{place}"] = Instance(
            "CCU2C",
            p_INIT0=_table(negate),
            p_INIT1=_table(negate),
            p_INJECT1_0="NO",
            p_INJECT1_1="NO",
            i_CIN=carry,
            o_COUT=after,
            o_S0=sums[0],
            o_S1=sums[1],
            **ports,
        )
        m.d.comb += Cat(*total[place : place + 2]).eq(sums)
        carry = after
    return total


def _table(negate: bool) -> int:
    """Return the LUT of (A and B) xor (C and D), with A and B inverted where ``negate``."""
    bits = [(n & 3 == 3) ^ (n >> 2 == 3) ^ negate for n in range(16)]
    return sum(bit << n for n, bit in enumerate(bits))

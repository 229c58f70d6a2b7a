"""The CRC of the link's frames: what each byte does to it, and when it matches.

All is of any state of the unit's registers, so of any frame before. The definition adds bits alone,
so that it takes sums for bits (``formal.linear``): a claim compares sums, and holds for all values.
"""

from collections.abc import Sequence

from trainwright_hw.link.framing import frame_crc
from trainwright_sim.formal.linear import AnyOf, Gates, span, sums_of, variables
from trainwright_sim.formal.mutant import Mutant
from trainwright_sim.formal.proof import LinearProof

POLYNOMIAL = 0x04C11DB7
"""The polynomial without its leading x^32: bit n is the coefficient of x^n."""
WIDTH = 32
NOTHING = [0] * WIDTH
"""The CRC of no bytes."""


def after(crc: Sequence[int], byte: Sequence[int]) -> list[int]:
    """Return the CRC after one more byte, in the order in which bits are sent (lowest first).

    This is polynomial division, one bit per step, from the highest coefficient on.
    """
    remainder = [bit ^ 1 for bit in crc]
    for bit in byte:
        quotient = remainder[0] ^ bit
        remainder = [*remainder[1:], 0]
        for power in range(WIDTH):
            if POLYNOMIAL >> power & 1:
                remainder[WIDTH - 1 - power] ^= quotient
    return [bit ^ 1 for bit in remainder]


def crc_of(unit: Gates, state: Sequence[int]) -> list[int]:
    """Return the unit's output ``crc`` in a given state."""
    return sums_of(unit.cycle(state, {})[1]["crc"])


def steps(unit: Gates) -> bool:
    """Return whether the CRC is right for every state, byte and combination of control inputs."""
    state, byte = variables(WIDTH), variables(8, 1 + WIDTH)

    def later(*, valid: int, start: int, rst: int = 0) -> list[int]:
        inputs = {"data": byte, "valid": [valid], "start": [start], "rst": [rst]}
        return crc_of(unit, unit.cycle(state, inputs)[0])

    now = crc_of(unit, state)
    return (
        crc_of(unit, unit.initial) == NOTHING
        and all(later(valid=v, start=s, rst=1) == NOTHING for v in (0, 1) for s in (0, 1))
        and later(valid=0, start=0) == now
        and later(valid=0, start=1) == NOTHING
        and later(valid=1, start=0) == after(now, byte)
        and later(valid=1, start=1) == after(NOTHING, byte)
    )


def residue(unit: Gates) -> bool:
    """Return whether ``match_detected`` means that the last four bytes were the CRC before them."""
    state, sent = variables(WIDTH), variables(WIDTH, 1 + WIDTH)
    right = [bit ^ before for bit, before in zip(sent, crc_of(unit, state), strict=True)]
    for place in range(0, WIDTH, 8):
        state, _ = unit.cycle(state, {"data": sent[place : place + 8], "valid": [1]})
    match = unit.cycle(state, {})[1]["match_detected"][0]
    return isinstance(match, AnyOf) and match.inverted and span(match.sums) == span(right)


PROOFS = (
    LinearProof(
        name="frame-crc.steps",
        claim="a byte divides by the polynomial of CRC-32, bit by bit; a start resets it",
        block=frame_crc,
        holds=steps,
        mutant=Mutant("catalog.CRC32_ISO_HDLC()", "catalog.CRC32_AUTOSAR()"),
    ),
    LinearProof(
        name="frame-crc.residue",
        claim="it matches after four bytes only if they are the CRC of the bytes before",
        block=frame_crc,
        holds=residue,
        mutant=Mutant("catalog.CRC32_ISO_HDLC()", "catalog.CRC32_BZIP2()"),
    ),
)

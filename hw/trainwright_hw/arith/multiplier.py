"""A multiplier with its registers, mapped to the device at hand."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from amaranth.hdl import C, Module, Signal, Value, signed

from trainwright_hw.vendor import ecp5_logic
from trainwright_hw.vendor.ecp5 import mult18x18d
from trainwright_hw.vendor.gowin import multalu27x18
from trainwright_hw.vendor.xilinx import dsp48e2_pair, pair_fits

PRODUCT_CYCLES = 2
"""Cycles from operands to their registered product."""

FAMILIES = ("ecp5", "gw5a", "nexus", "xcup", "xc7")
"""Device families: ECP5, GW5A, CrossLink-NX, UltraScale+ and 7 series."""
PRIMITIVES: dict[str, Callable[..., Signal]] = {"ecp5": mult18x18d, "gw5a": multalu27x18}
"""Functions that instantiate a registered multiplier, for families whose tools cannot infer it."""
PAIRS: dict[str, tuple[Callable[[int, int], bool], Callable[..., list[Signal]]]] = {
    "xcup": (pair_fits, dsp48e2_pair)
}
"""Functions that make two products with a shared operand in one multiplier.

The predicate tells whether the pair fits, given the bits of the operands, the shared operand last.
"""
LOGIC: dict[str, tuple[int, Callable[..., Signal]]] = {
    "ecp5": (ecp5_logic.WIDTH, ecp5_logic.chain_product)
}
"""Functions that multiply in logic, and their maximum bits, for families with few multipliers."""


@dataclass(frozen=True)
class DevicePlatform:
    """Target of the design: Amaranth's ``platform`` of every ``elaborate``.

    Without a platform the design is behavioural throughout.
    """

    family: str
    """Member of ``FAMILIES``: the family's primitives are instantiated with their registers."""

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise ValueError(f"no family {self.family!r}; there are {', '.join(FAMILIES)}")


def registered_product(
    m: Module,
    platform: object,
    name: str,
    left: Value,
    right: Value,
    *,
    left_enable: Value | None = None,
    spare: bool = False,
) -> Signal:
    """Return the product of two signed values, ``PRODUCT_CYCLES`` later.

    Uses a primitive if the platform has one, or logic for narrow operands where ``spare`` is set
    and the family supports it. The input registers take ``right`` in every cycle and ``left`` in
    cycles of ``left_enable`` (None: every cycle); the product register follows a cycle later.
    Raises ``ValueError`` for operands too wide for a primitive.
    """
    if isinstance(platform, DevicePlatform):
        # Logic in place of a multiplier only where the caller can spare one, on families with a
        # rule for it: the others would lose more than they gain.
        width, of_logic = LOGIC.get(platform.family, (0, None))
        if spare and of_logic is not None and max(len(left), len(right)) <= width:
            return of_logic(m, name, left, right, left_enable=left_enable)
        if platform.family in PRIMITIVES:
            return PRIMITIVES[platform.family](m, name, left, right, left_enable=left_enable)
    # The behavioural form, from which the remaining tools infer a multiplier with both registers.
    a, b = (
        Signal(signed(len(value)), name=f"{name}_{side}", reset_less=True)
        for side, value in (("left", left), ("right", right))
    )
    product = Signal(signed(len(left) + len(right)), name=name, reset_less=True)
    with m.If(C(1) if left_enable is None else left_enable):
        m.d.sync += a.eq(left)
    m.d.sync += [b.eq(right), product.eq(a * b)]
    return product


def sharing(platform: object, own: int, shared: int) -> int:
    """Return how many products with a common operand one multiplier of the device makes: 1 or 2.

    ``own`` and ``shared`` are the bits of the separate and of the common operands.
    # A pair exists only where `sharing` said 2, and that needs a platform.
    """
    if not isinstance(platform, DevicePlatform) or platform.family not in PAIRS:
        return 1
    fits, _ = PAIRS[platform.family]
    return 1 + fits(own, shared)


def registered_pair(
    m: Module,
    platform: object,
    name: str,
    own: Sequence[Value],
    shared: Value,
    *,
    enable: Value | None = None,
) -> list[Signal]:
    """Return both products of a multiplier where ``sharing`` is 2, ``PRODUCT_CYCLES`` later.

    ``own`` loads where ``enable``, ``shared`` in every cycle.
    """
    assert isinstance(platform, DevicePlatform)
    _, make = PAIRS[platform.family]
    return make(m, name, own, shared, enable=enable)

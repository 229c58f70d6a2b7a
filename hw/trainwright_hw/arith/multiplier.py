"""A multiplier with its registers, as the device at hand has them."""

from collections.abc import Callable
from dataclasses import dataclass

from amaranth.hdl import C, Module, Signal, Value, signed

from trainwright_hw.vendor import ecp5_logic
from trainwright_hw.vendor.ecp5 import mult18x18d
from trainwright_hw.vendor.gowin import multalu27x18

PRODUCT_CYCLES = 2
"""Cycles from operands to their registered product."""

FAMILIES: dict[str, Callable[..., Signal]] = {"ecp5": mult18x18d, "gw5a": multalu27x18}
"""What instantiates a registered multiplier, by family of devices."""
LOGIC: dict[str, tuple[int, Callable[..., Signal]]] = {
    "ecp5": (ecp5_logic.WIDTH, ecp5_logic.chain_product)
}
"""What makes one of logic, and of how many bits at most, for families where such are scarce."""


@dataclass(frozen=True)
class DevicePlatform:
    """What the design is built for: Amaranth's ``platform`` of every ``elaborate``.

    Without one the design is behavioural throughout.
    """

    family: str
    """One of ``FAMILIES``: multipliers are its primitives with the registers in them."""

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
    """The product of two signed values, ``PRODUCT_CYCLES`` later.

    A primitive, if the platform has one; of narrow operands and where ``spare`` is asked for, one
    of logic, if the family has such. Its input registers take ``right`` in every cycle and
    ``left`` in those of ``left_enable`` (None: every one); the register of the product follows a
    cycle later. Raises ``ValueError`` for operands too wide for a primitive.
    """
    if isinstance(platform, DevicePlatform):
        width, of_logic = LOGIC.get(platform.family, (0, None))
        if spare and of_logic is not None and max(len(left), len(right)) <= width:
            return of_logic(m, name, left, right, left_enable=left_enable)
        return FAMILIES[platform.family](m, name, left, right, left_enable=left_enable)
    a, b = (
        Signal(signed(len(value)), name=f"{name}_{side}", reset_less=True)
        for side, value in (("left", left), ("right", right))
    )
    product = Signal(signed(len(left) + len(right)), name=name, reset_less=True)
    with m.If(C(1) if left_enable is None else left_enable):
        m.d.sync += a.eq(left)
    m.d.sync += [b.eq(right), product.eq(a * b)]
    return product

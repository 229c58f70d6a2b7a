"""A multiplier with its registers, as the device at hand has them."""

from collections.abc import Callable
from dataclasses import dataclass

from amaranth.hdl import C, Module, Signal, Value, signed

from trainwright_hw.vendor.ecp5 import mult18x18d
from trainwright_hw.vendor.gowin import multalu27x18

PRODUCT_CYCLES = 2
"""Cycles from operands to their registered product."""

FAMILIES: dict[str, Callable[..., Signal]] = {"ecp5": mult18x18d, "gw5a": multalu27x18}
"""What instantiates a registered multiplier, by family of devices."""


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
) -> Signal:
    """The product of two signed values, ``PRODUCT_CYCLES`` later.

    A primitive, if the platform has one. Its input registers take ``right`` in every cycle and
    ``left`` in those of ``left_enable`` (None: every one); the register of the product follows a
    cycle later. Raises ``ValueError`` for operands too wide for a primitive.
    """
    if isinstance(platform, DevicePlatform):
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

"""A multiplier with its registers, as the device at hand has them."""

from collections.abc import Callable
from dataclasses import dataclass

from amaranth.hdl import Module, Signal, Value

from ttforge_hw.mult18x18d import mult18x18d
from ttforge_hw.multalu27x18 import multalu27x18

FAMILIES: dict[str, Callable[..., Signal]] = {"ecp5": mult18x18d, "gw5a": multalu27x18}
"""What instantiates a registered multiplier, by family of devices."""


@dataclass(frozen=True)
class Target:
    """What the design is built for: Amaranth's ``platform`` of every ``elaborate``.

    Without one the design is behavioural throughout.
    """

    family: str
    """One of ``FAMILIES``: multipliers are its primitives with the registers in them."""

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise ValueError(f"no family {self.family!r}; there are {', '.join(FAMILIES)}")


def has_registered_multipliers(platform: object) -> bool:
    """Whether ``registered_product`` instantiates a primitive on this platform."""
    return isinstance(platform, Target)


def registered_product(
    m: Module,
    platform: object,
    name: str,
    left: Value,
    right: Value,
    *,
    left_enable: Value | None = None,
) -> Signal:
    """The product of two signed values, two cycles later, from a primitive of the platform.

    Its input registers take ``right`` in every cycle and ``left`` in those of ``left_enable``
    (None: every one); the register of the product follows a cycle later. Raises ``ValueError``
    for operands that are too wide.
    """
    assert isinstance(platform, Target)
    return FAMILIES[platform.family](m, name, left, right, left_enable=left_enable)

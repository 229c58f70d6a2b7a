"""Bits of each class of quantity."""

from dataclasses import dataclass

from trainwright.network.errors import require
from trainwright.support.text import shown


@dataclass(frozen=True)
class Widths:
    """Bits of each class of quantity. All are signed integers times a power of two.

    ``FLOAT32``, 32 bits throughout, stands for float32 numbers instead: such a network is trained
    for comparison and does not run on the accelerator. Raises ``NetworkError`` for widths that the
    accelerator has not.

    >>> Widths(factor=8).is_float
    False
    """

    factor: int = 4
    bias: int = 8
    activation: int = 8
    gradient: int = 16
    intermediate: int = 16

    def __post_init__(self) -> None:
        if self.is_float:
            return
        for name, least in (
            ("factor", 2),
            ("bias", 4),
            ("activation", 4),
            ("gradient", 4),
            ("intermediate", 4),
        ):
            width = getattr(self, name)
            require(
                isinstance(width, int) and least <= width <= 16,
                f"{name} width must be from {least} to 16 bits, not {shown(width)}",
            )

    @property
    def is_float(self) -> bool:
        """Whether the numbers are float32."""
        return all(width == 32 for width in vars(self).values())


FLOAT32 = Widths(factor=32, bias=32, activation=32, gradient=32, intermediate=32)

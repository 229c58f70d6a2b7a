"""Windows: which values of an image a convolution or a pooling reads for each of its outputs."""

from dataclasses import dataclass
from math import prod

from trainwright.network.errors import require, row

MOST_SIDE = 64
"""Rows or columns of a window."""


@dataclass(frozen=True)
class Window:
    """Rows and columns of a window, and where it lies: output o reads o * stride - padding + k."""

    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    """Rows and columns of zeros on each side of the image."""

    def __post_init__(self) -> None:
        for name, pair, least in (
            ("kernel", self.kernel, 1),
            ("stride", self.stride, 1),
            ("padding", self.padding, 0),
        ):
            require(
                len(pair) == 2 and all(least <= n <= MOST_SIDE for n in pair),
                f"{name} must be two integers (rows, columns) from {least} to {MOST_SIDE}, "
                f"not {row(pair)}",
            )
        require(
            all(p < k for p, k in zip(self.padding, self.kernel, strict=True)),
            f"padding {row(self.padding)} must be smaller than the kernel {row(self.kernel)}: "
            "windows of zeros alone say nothing",
        )

    @property
    def size(self) -> int:
        """Values of one channel in a window."""
        return prod(self.kernel)

    def divides(self, rows: int, columns: int) -> bool:
        """Return whether windows lie next to each other and cover an image without padding."""
        apart = self.stride == self.kernel and self.padding == (0, 0)
        return apart and not (rows % self.kernel[0] or columns % self.kernel[1])

    def over(self, rows: int, columns: int) -> tuple[int, int]:
        """Return the outputs' rows and columns over an image; 0 where the image is too small."""
        sizes = [
            max(0, (size + 2 * padding - kernel) // stride + 1)
            for size, kernel, stride, padding in zip(
                (rows, columns), self.kernel, self.stride, self.padding, strict=True
            )
        ]
        return sizes[0], sizes[1]

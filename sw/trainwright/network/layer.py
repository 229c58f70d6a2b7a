"""Layers: tensor-train matrices, their shapes and ranks, and the windows that they read."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from trainwright.network.errors import require, row
from trainwright.network.window import Window
from trainwright.support.text import amount, shown

MOST_FACTORS = 16
"""Factors of a layer, at most."""
MOST_SIZE = 1 << 20
"""Outputs or inputs of a layer: ten times what the largest scratchpad could take."""


def rank_bounds(outputs: Sequence[int], inputs: Sequence[int]) -> tuple[int, ...]:
    """Return the greatest useful TT rank of each bond: the smaller side of the unfolding there."""
    sizes = [j * i for j, i in zip(outputs, inputs, strict=True)]
    return tuple(min(prod(sizes[:n]), prod(sizes[n:])) for n in range(1, len(sizes)))


@dataclass(frozen=True)
class Layer:
    """A TTM layer ``y = act(W x + b)``, W (J x I) as factors G_n (R_{n-1}, J_n, I_n, R_n).

    ``outputs`` are J_1..J_d, ``inputs`` I_1..I_d, ``ranks`` R_1..R_{d-1} (R_0 = R_d = 1). With a
    ``window`` it is a convolution: W is applied to every window of an image, J are its channels
    and the columns of W are (rows of the kernel, columns of it, channels); I_1 is the kernel's
    size (Garipov et al., "Ultimate tensorization", 2016). Without one it reads an image in the
    order rows, columns, channels; with ``leading`` the first ``leading`` of ``inputs`` are the
    channels, the others rows and columns: the order in which torch flattens images.
    """

    outputs: tuple[int, ...]
    inputs: tuple[int, ...]
    ranks: tuple[int, ...]
    relu: bool = False
    bias: bool = True
    window: Window | None = None
    leading: int = 0
    diagonal: bool = False
    """Whether W is diagonal: one factor (1, J, 1, 1), the scale of each value."""

    def __post_init__(self) -> None:
        order = len(self.outputs)
        least = 1 if self.window is None else 2  # a convolution's first one is of its windows
        require(
            order >= least,
            f"a layer needs at least {amount(least, 'factor')}, not outputs {row(self.outputs)}",
        )
        require(
            len(self.inputs) == order,
            f"outputs {row(self.outputs)} and inputs {row(self.inputs)} differ in length",
        )
        require(
            len(self.ranks) == order - 1,
            f"{amount(order, 'factor')} have {amount(order - 1, 'rank')}, not {row(self.ranks)}",
        )
        require(order <= MOST_FACTORS, f"a layer has at most {MOST_FACTORS} factors, not {order}")
        for size in (*self.outputs, *self.inputs, *self.ranks):
            require(
                isinstance(size, int) and 1 <= size <= MOST_SIZE,
                f"dimensions and ranks are from 1 to {MOST_SIZE}, not {shown(size)}",
            )
        require(
            self.window is None or self.inputs[0] == self.window.size,
            f"the first of inputs {row(self.inputs)} must be the {self.window and self.window.size}"
            " values of the kernel, those behind it multiply to the channels",
        )
        require(
            0 <= self.leading < order and not (self.leading and self.window),
            f"leading inputs are from 0 to {order - 1} of a layer without a kernel, not "
            f"{shown(self.leading)}",
        )
        for what, sizes in (("outputs", self.outputs), ("inputs", self.inputs)):
            require(
                prod(sizes) <= MOST_SIZE,
                f"{what} {row(sizes)} multiply to {prod(sizes):,}, at most {MOST_SIZE:,} "
                "can be: make the layer smaller",
            )
        require(
            not self.diagonal or (order == 1 and self.outputs == self.inputs),
            f"a scale has one size, not outputs {row(self.outputs)} and inputs {row(self.inputs)}",
        )
        bounds = rank_bounds(self.outputs, self.inputs)
        for n, (rank, bound) in enumerate(zip(self.ranks, bounds, strict=True), 1):
            require(
                rank <= bound,
                f"rank R_{n} = {rank} is over its bound {bound} for outputs {row(self.outputs)} "
                f"and inputs {row(self.inputs)}",
            )

    @property
    def order(self) -> int:
        """Number of factors d."""
        return len(self.outputs)

    @property
    def output_size(self) -> int:
        """J."""
        return prod(self.outputs)

    @property
    def input_size(self) -> int:
        """I."""
        return prod(self.inputs)

    @property
    def channels(self) -> int:
        """Channels that a convolution reads."""
        return prod(self.inputs[1:])

    @property
    def bonds(self) -> tuple[int, ...]:
        """R_0 .. R_d."""
        return (1, *self.ranks, 1)

    @property
    def factor_shapes(self) -> tuple[tuple[int, int, int, int], ...]:
        """(R_{n-1}, J_n, I_n, R_n) of each factor."""
        if self.diagonal:
            return ((1, self.output_size, 1, 1),)
        return tuple(
            (left, j, i, right)
            for (left, right), j, i in zip(
                pairwise(self.bonds), self.outputs, self.inputs, strict=True
            )
        )

    @property
    def factor_parameters(self) -> int:
        """Elements of all factors."""
        return sum(prod(shape) for shape in self.factor_shapes)

    @property
    def matrix_parameters(self) -> int:
        """Elements of W where it is stored whole; those of the diagonal, if W is diagonal."""
        return self.output_size * (1 if self.diagonal else self.input_size)

    @property
    def bias_parameters(self) -> int:
        """Elements of the bias."""
        return self.output_size if self.bias else 0

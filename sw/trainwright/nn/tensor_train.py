"""The matrix of a layer as a tensor train: factors, their numbers, ranks and prior."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Self

import torch

from trainwright.driver import fitting_exponent
from trainwright.formats import Fixed, Format
from trainwright.network import FLOAT32, Layer, NetworkError, NumberFormats, Widths
from trainwright.nn.contraction import Matrix, contract
from trainwright.nn.prior import cut_state, prior, replace_data
from trainwright.nn.scales import InputQuantiser, OutputQuantiser
from trainwright.nn.shapes import bond_ranks, check_sizes, factor_sizes, likely, require_sizes
from trainwright.nn.straight_through import gradient_rounded, straight_through
from trainwright.nn.untyped import integers
from trainwright.train.connect import clip
from trainwright.train.initial import deviation, fresh_exponent
from trainwright.train.pretrained import quantisation
from trainwright.train.ranks import kept_columns, strengths
from trainwright.tt import balance, tt_svd

Rank = int | Sequence[int] | str
Numbers = str | Widths | NumberFormats


def formats_of(numbers: object) -> NumberFormats:
    """``"fixed"`` (the accelerator's 4 to 16 bits), ``"float32"``, or formats of one's own.

    Such as ``"activation=posit(8,0)"``, what is not named being as in ``"fixed"``.
    """
    if isinstance(numbers, NumberFormats):
        return numbers
    if isinstance(numbers, Widths):
        return NumberFormats(numbers)
    if isinstance(numbers, str) and "=" in numbers:
        return NumberFormats().with_formats(numbers)
    if numbers not in ("fixed", "float32"):
        raise NetworkError(
            'numbers must be "fixed", "float32", formats such as "activation=posit(8,0)" or '
            f"Widths, not {numbers!r}"
        )
    return NumberFormats(FLOAT32 if numbers == "float32" else Widths())


class TensorTrain(torch.nn.Module):
    """A matrix W (``rows``, ``columns``) as factors G_n (R_{n-1}, J_n, I_n, R_n).

    What is common to the layers of ``trainwright.nn``. J_1 ... J_d and I_1 ... I_d may be more than
    rows and columns: what is beyond them is not used. ``factors`` are float32 master weights; in
    fixed point a layer computes with these rounded, and their gradient passes straight through.
    In training mode they are clipped to what their bits can represent. Raises ``NetworkError`` for
    sizes, ranks or numbers that cannot be.

    >>> train = TensorTrain(10, 64, rank=4)
    >>> train.weight().shape, train.ranks, train.layer.factor_shapes
    (torch.Size([10, 64]), (4,), ((1, 1, 4, 4), (4, 16, 16, 1)))
    """

    factor_exponents: torch.Tensor
    """int32 (d,); a factor's values are integers x 2^exponent."""
    bias: torch.nn.Parameter | None

    def __init__(
        self,
        rows: int,
        columns: int,
        *,
        rank: Rank = 16,
        outputs: Sequence[int] | None = None,
        inputs: Sequence[int] | None = None,
        order: int | None = None,
        bias: bool = True,
        relu: bool = True,
        numbers: Numbers = "fixed",
    ) -> None:
        super().__init__()
        require_sizes(rows=rows, columns=columns)
        self.rows, self.columns, self.numbers = rows, columns, formats_of(numbers)
        self.relu = relu
        if (outputs is None) != (inputs is None) or (outputs is not None and order is not None):
            raise NetworkError("give both of outputs and inputs, or order, or none of them")
        if outputs is None or inputs is None:
            most, order = likely(rank, order)
            outputs, inputs = factor_sizes(rows, columns, rank=most, order=order)
        self.outputs = check_sizes("outputs", outputs, rows)
        self.inputs = check_sizes("inputs", inputs, columns)
        layer = Layer(self.outputs, self.inputs, bond_ranks(rank, self.outputs, self.inputs))
        self.padding_columns = layer.input_size - columns
        self.factors = torch.nn.ParameterList(torch.empty(s) for s in layer.factor_shapes)
        self.register_parameter("bias", torch.nn.Parameter(torch.empty(rows)) if bias else None)
        self.register_buffer("factor_exponents", torch.zeros(layer.order, dtype=torch.int32))
        self._make_quantisers()
        self.reset_parameters()

    def _make_quantisers(self) -> None:
        """Fresh ones, which the next batch calibrates."""
        self.quantise_input = self.quantise_output = torch.nn.Identity()
        if not self.is_float:
            n = self.numbers
            self.quantise_input = InputQuantiser(n.format("activation"), underflow=n.host_underflow)
            self.quantise_output = OutputQuantiser(
                n.format("intermediate"), underflow=self._underflow("intermediate")
            )

    def _underflow(self, kind: str) -> str:
        """What becomes of too small posits of a class where the accelerator rounds."""
        return "zero" if self.numbers.underflow_zero(kind) else "never"

    def set_numbers(self, numbers: Numbers) -> None:
        """Compute in other numbers from now on; parameters and ranks stay.

        Where the format of the factors changes, each gets the exponent that loses least. The next
        batch calibrates inputs and outputs. Raises ``NetworkError`` for numbers that cannot be.

        >>> layer = TensorTrain(10, 64, rank=4)
        >>> layer.set_numbers("factor=fixed(8),activation=posit(8,0)")
        >>> layer.widths.factor
        8
        """
        before, self.numbers = self.numbers, formats_of(numbers)
        device = self.factor_exponents.device
        self._make_quantisers()
        self.quantise_input.to(device)
        self.quantise_output.to(device)
        if self.is_float or (before.format("factor") == self._fmt and not before.widths.is_float):
            return
        with torch.no_grad():
            found = [quantisation(f.detach().cpu(), self._fmt) for f in self.factors]
            self.factor_exponents.copy_(torch.tensor(found, dtype=torch.int32))
        self.clip()

    @property
    def widths(self) -> Widths:
        """Bits of each class of numbers."""
        return self.numbers.widths

    @property
    def _fmt(self) -> Format:
        return self.numbers.format("factor")

    @property
    def is_float(self) -> bool:
        """Whether nothing is rounded."""
        return self.widths.is_float

    @property
    def all_factors(self) -> tuple[torch.nn.Parameter, ...]:
        """``factors`` as a tuple; a ``ParameterList`` looks each one up by its name."""
        found: Any = self.factors._parameters.values()
        return tuple(found)

    @property
    def ranks(self) -> tuple[int, ...]:
        """R_1 .. R_{d-1}, of the bonds between the factors."""
        return tuple(factor.shape[3] for factor in self.all_factors[:-1])

    @property
    def layer(self) -> Layer:
        """Shapes and ranks as ``trainwright.network`` has them; without a ReLU."""
        return Layer(self.outputs, self.inputs, self.ranks, bias=self.bias is not None)

    @property
    def bits(self) -> int:
        """Bits of factors and bias at their widths."""
        return (
            self.layer.factor_parameters * self.widths.factor
            + (self.rows if self.bias is not None else 0) * self.widths.bias
        )

    def reset_parameters(self) -> None:
        """Normal factors that give W the variance 2/columns before a ReLU, 1/columns elsewhere.

        The bias becomes 0; the exponents of the factors are those of fresh factors. Numbers come
        from torch's generator (``torch.manual_seed``).
        """
        layer = Layer(self.outputs, self.inputs, self.ranks, relu=self.relu)
        real = (layer.input_size / self.columns) ** (0.5 / layer.order)
        sigma = deviation(layer) * real
        with torch.no_grad():
            for factor in self.factors:
                factor.normal_(std=sigma)
            if self.bias is not None:
                self.bias.zero_()
        if not self.is_float:
            self.factor_exponents.fill_(fresh_exponent(sigma, self._fmt))
        self.clip()

    def clip(self) -> None:
        """Hold the factors within the range of their bits; beyond it they would run away."""
        if self.is_float:
            return
        for factor, exponent in zip(self.all_factors, integers(self.factor_exponents), strict=True):
            factor.data = clip(factor.data, exponent, self._fmt)

    def used_factors(self) -> list[torch.Tensor]:
        """The factors a forward pass computes with: rounded to their bits, or as they are."""
        if self.is_float:
            return list(self.all_factors)
        if self.training:
            self.clip()
        return [
            straight_through(factor, exponent, self._fmt, underflow=self.numbers.host_underflow)
            for factor, exponent in zip(
                self.all_factors, integers(self.factor_exponents), strict=True
            )
        ]

    def used_bias(self) -> torch.Tensor | None:
        """The bias (rows,) a forward pass computes with, or None."""
        if self.bias is None or self.is_float:
            return self.bias
        fmt = Fixed(self.widths.bias)
        return straight_through(self.bias, fitting_exponent(self.bias.detach(), fmt), fmt)

    def matrix(self) -> Matrix:
        """All of W, padding included, from the factors that a forward pass uses."""
        return contract(self.used_factors())

    def weight(self) -> torch.Tensor:
        """W (rows, columns), dense and differentiable.

        >>> TensorTrain(10, 64, rank=4).weight().shape
        torch.Size([10, 64])
        """
        return self.matrix().dense()[: self.rows, : self.columns]

    def finished(self, y: torch.Tensor) -> torch.Tensor:
        """A layer's output in its numbers; its gradient is rounded too."""
        if self.is_float:
            return y
        fmt, underflow = self.numbers.format("gradient"), self._underflow("gradient")
        return gradient_rounded(self.quantise_output(y), fmt, underflow=underflow)

    @torch.no_grad()
    def load_dense(
        self,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        *,
        rank: Rank | None = None,
        tolerance: float | None = None,
    ) -> Self:
        """Become the TT-SVD of ``weight`` (rows, columns), in the balanced gauge; returns itself.

        Ranks are at most the present ones, or ``rank``; ``tolerance`` bounds the relative error
        ||W - TT||_F / ||W||_F where the ranks allow it. Raises ``TensorTrainError`` for a weight of
        another shape or with values that are not finite.
        """
        whole = weight.new_zeros(self.layer.output_size, self.layer.input_size)
        if tuple(weight.shape) != (self.rows, self.columns):
            raise NetworkError(
                f"the weight has shape {tuple(weight.shape)}, not {(self.rows, self.columns)}"
            )
        whole[: self.rows, : self.columns] = weight.detach()
        bounds = self.ranks if rank is None else bond_ranks(rank, self.outputs, self.inputs)
        train = tt_svd(
            whole.cpu().double(), self.outputs, self.inputs, ranks=bounds, tolerance=tolerance
        )
        self.set_factors(balance(train))
        if bias is not None:
            if self.bias is None:
                raise NetworkError("this layer has no bias, the dense one has: make it with bias")
            self.bias.copy_(bias.detach())
        return self

    @torch.no_grad()
    def set_factors(
        self, factors: Sequence[torch.Tensor], exponents: Sequence[int] | None = None
    ) -> None:
        """Take over ``factors`` (R_{n-1}, J_n, I_n, R_n) of this layer's J_n and I_n, of any ranks.

        Without ``exponents`` each factor gets the one that loses least. An optimiser made before
        has moments of the old ranks: make it afterwards.
        """
        ranks = tuple(factor.shape[3] for factor in factors[:-1])
        expected = Layer(self.outputs, self.inputs, ranks).factor_shapes
        if tuple(tuple(factor.shape) for factor in factors) != expected:
            raise NetworkError(
                f"factors of shapes {[tuple(f.shape) for f in factors]} do not fit outputs "
                f"{list(self.outputs)} and inputs {list(self.inputs)}"
            )
        for own, given in zip(self.factors, factors, strict=True):
            replace_data(own, given.to(own))
        if not self.is_float:
            exponents = exponents or [quantisation(f.cpu(), self._fmt) for f in self.factors]
            self.factor_exponents.copy_(torch.tensor(exponents, dtype=torch.int32))
        self.clip()

    def rank_prior(self, *, form: str = "storage") -> torch.Tensor:
        """The rank prior of this layer, a scalar to add to a loss, times a weight of one's own.

        It shrinks the columns of every bond; ``cut_ranks`` removes those that are gone. ``form`` is
        ``"storage"`` or ``"paper"`` (``docs/training.md``). For a mean loss over N training
        samples a weight of 0.25/N to 0.5/N is usual.
        """
        return prior(list(self.factors), form)

    @torch.no_grad()
    def cut_ranks(
        self,
        threshold: float = 0.02,
        *,
        form: str = "storage",
        optimizer: torch.optim.Optimizer | None = None,
    ) -> bool:
        """Remove the columns weaker than ``threshold`` times the strongest of their bond.

        Parameters stay the same objects with smaller values, gradients and the moments of
        ``optimizer`` are cut alike: call it after ``optimizer.step()``. Returns whether anything
        was cut. Raises ``ValueError`` for a threshold outside of (0, 1).
        """
        if not 0 < threshold < 1:
            raise ValueError(f"rank threshold must be in (0, 1), not {threshold!r}")
        cut = False
        for left, right in pairwise(self.factors):
            kept = kept_columns(strengths(left.data, right.data, form), threshold)
            if len(kept) == left.shape[3]:
                continue
            cut_state(left, 3, kept, optimizer)
            cut_state(right, 0, kept, optimizer)
            cut = True
        return cut

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, torch.Tensor],
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Take the ranks of what is loaded: a network whose ranks were cut loads into any."""
        for n, (factor, (_, j, i, _)) in enumerate(
            zip(self.factors, self.layer.factor_shapes, strict=True)
        ):
            given = state_dict.get(f"{prefix}factors.{n}")
            if given is not None and given.dim() == 4 and tuple(given.shape[1:3]) == (j, i):
                replace_data(factor, factor.new_empty(given.shape))
        untyped: Any = super()
        untyped._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )

    def extra_repr(self) -> str:
        """What ``print`` says of the layer behind its class."""
        numbers = "float32" if self.is_float else f"{self._fmt}"
        return (
            f"{self.rows} x {self.columns}, outputs={self.outputs}, inputs={self.inputs}, "
            f"ranks={self.ranks}, bias={self.bias is not None}, numbers={numbers}"
        )

"""The matrix of a layer as a tensor train: factors, their numbers, ranks and prior."""

import json
from collections.abc import Mapping, MutableMapping, Sequence
from itertools import pairwise
from math import isfinite, prod
from typing import Any, Self

import torch

from trainwright.driver import fitting_exponent
from trainwright.fixed.health import LostTensorWarning
from trainwright.formats import Fixed, Format
from trainwright.network import FLOAT32, Layer, NetworkError, NumberFormats, Widths
from trainwright.nn.computed_weight import LayerParameters, computed, unwritable
from trainwright.nn.contraction import Matrix, contract
from trainwright.nn.output_loss import OutputLoss
from trainwright.nn.overflow import note_overflow
from trainwright.nn.prior import cut_state, prior, refuse_cut_graph, replace_data
from trainwright.nn.processes import warn_of_own_exponents
from trainwright.nn.scales import (
    GradientColumns,
    InputQuantiser,
    OutputQuantiser,
    factor_exponent,
    lost_bias,
)
from trainwright.nn.shapes import (
    bond_ranks,
    check_sizes,
    factor_sizes,
    likely,
    require_kept,
    require_sizes,
)
from trainwright.nn.straight_through import gradient_rounded, straight_through
from trainwright.nn.untyped import (
    FLOATS,
    autocast_type,
    computed_again,
    dynamo_traces,
    elsewhere,
    integers,
    is_batched,
    is_parameter,
    leaf_call,
    outside_graphs,
    recording,
    require_tensor,
    transforming,
    unrounded,
    without_autocast,
    without_batch_dim,
)
from trainwright.support.arguments import flag, is_real_type, is_size, plain, require_kind
from trainwright.support.caution import warn_user
from trainwright.support.text import amount
from trainwright.train.choices import PRIOR_FORMS
from trainwright.train.connect import held_range
from trainwright.train.initial import deviation, fresh_exponent, of_deviation
from trainwright.train.pretrained import quantisation
from trainwright.train.ranks import kept_columns, strengths
from trainwright.tt import balance, tt_svd

Rank = int | Sequence[int] | str
Numbers = str | Widths | NumberFormats
Device = torch.device | str | int | None


def formats_of(numbers: object) -> NumberFormats:
    """Return formats: ``"fixed"`` (the accelerator's 4 to 16 bits), ``"float32"``, or others.

    Others are such as ``"activation=posit(8,0)"``; classes without a format there are fixed.
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


PROGRAM_EXPONENTS = "program_exponents"
"""Entry of a layer's ``state_dict`` with the exponents of compiled programs."""
FORMATS = "formats"
"""Entry of a ``state_dict`` with a layer's formats by class; in older files of its metadata."""
QUANTISE = "quantise_"
"""Beginning of the names of a layer's quantisers."""
ENTRY_BYTES = 1024
"""Unit of the entry's size, in bytes: the exponents of a program of eight layers fit in one."""

_MOST_EXPONENT = 1 << 20
"""Greatest size of an exponent that is read as one."""


class TensorTrain(torch.nn.Module):
    """A matrix W (``rows``, ``columns``) as factors G_n (R_{n-1}, J_n, I_n, R_n).

    Base class of the layers of ``trainwright.nn``. J_1 ... J_d and I_1 ... I_d may multiply to more
    than rows and columns: the excess is not used. ``factors`` are float32 master weights; in fixed
    point a layer computes with their rounded values, and their gradient passes straight through.
    In training mode they are clipped to what their bits can represent. Factors and bias are made
    on ``device`` in ``dtype``; those in half precision are computed with in float32. Raises
    ``NetworkError`` for sizes, ranks or numbers that cannot be.

    >>> train = TensorTrain(10, 64, rank=4)
    >>> train.weight.shape, train.ranks, train.layer.factor_shapes
    (torch.Size([10, 64]), (4,), ((1, 1, 4, 4), (4, 16, 16, 1)))
    """

    factor_exponents: torch.Tensor
    """(d,), whole numbers; a factor's values are integers x 2^exponent."""
    feature_axis = -1
    """Axis of the features in the inputs."""
    sample_dims = 1, 1
    """Dimensions of one sample of the inputs, and of one of the outputs."""
    bias: torch.nn.Parameter | None
    _kept = frozenset(("rows", "columns", "outputs", "inputs", "padding_columns"))
    """Sizes that the parameters have."""

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
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self._parameters = LayerParameters(type(self).__name__)
        require_sizes(rows=rows, columns=columns)
        bias, relu = flag("bias", bias), flag("relu", relu)
        if dtype is not None and not is_real_type(dtype):
            raise NetworkError(f"dtype must be a real floating-point type, not {dtype!r}")
        self.rows, self.columns = rows, columns
        self.__dict__["numbers"] = formats_of(numbers)
        self.relu = relu
        if (outputs is None) != (inputs is None) or (outputs is not None and order is not None):
            raise NetworkError("give outputs and inputs together, or order alone, or none of these")
        if outputs is None or inputs is None:
            largest_rank, order = likely(rank, order)
            outputs, inputs = factor_sizes(rows, columns, rank=largest_rank, order=order)
        self.outputs = check_sizes("outputs", outputs, rows)
        self.inputs = check_sizes("inputs", inputs, columns)
        layer = Layer(self.outputs, self.inputs, bond_ranks(rank, self.outputs, self.inputs))
        self.padding_columns = layer.input_size - columns
        self.factors = torch.nn.ParameterList(
            torch.empty(shape, device=device, dtype=dtype) for shape in layer.factor_shapes
        )
        fresh_bias = torch.empty(rows, device=device, dtype=dtype) if bias else None
        self.register_parameter(
            "bias", None if fresh_bias is None else torch.nn.Parameter(fresh_bias)
        )
        exponents = torch.zeros(layer.order, device=self.factors[0].device)
        self.register_buffer("factor_exponents", exponents)
        self.program_exponents: dict[str, dict[str, int]] = {}
        """Exponents of compiled programs that begin with this layer, by program and tensor."""
        self._zeros_named = False
        self._make_quantisers()
        self.reset_parameters()

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; sizes stay as they are made, and the ReLU is a flag."""
        if name in self._kept:
            require_kept(self, name, value)
        given: Any = flag(name, value) if name == "relu" else value
        super().__setattr__(name, given)

    def _make_quantisers(self) -> None:
        """Make fresh quantisers, which the next batch calibrates."""
        self.quantise_input = self.quantise_output = torch.nn.Identity()
        if not self.is_float:
            n, owner = self.numbers, self._title
            self.gradient_columns = GradientColumns(n.format("gradient"))
            self.output_loss = OutputLoss(n)
            self.quantise_input = InputQuantiser(
                n.format("activation"), underflow=n.host_underflow, owner=owner
            )
            self.quantise_input.feature_axis = self.feature_axis
            self.quantise_output = OutputQuantiser(
                n.format("intermediate"), underflow=self._underflow("intermediate"), owner=owner
            )
        for quantiser in (self.quantise_input, self.quantise_output):
            quantiser.to(self.factor_exponents.device).train(self.training)

    def _underflow(self, kind: str) -> str:
        """Return the rule for too small posits of a class where the accelerator rounds."""
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
        before, self.__dict__["numbers"] = self.numbers, formats_of(numbers)
        self._make_quantisers()
        if not self._is_rounded:
            return
        if before.widths.is_float or before.format("factor") != self._factor_format():
            self._suit_exponents()
            self.clip()

    @property
    def numbers(self) -> NumberFormats:
        """Formats of each class of numbers; setting them is ``set_numbers``."""
        return self.__dict__["numbers"]

    @numbers.setter
    def numbers(self, value: Numbers) -> None:
        self.set_numbers(value)

    @property
    def widths(self) -> Widths:
        """Bits of each class of numbers."""
        return self.numbers.widths

    def _factor_format(self) -> Format:
        """Return the format of the factors; a layer in float32 has none."""
        return self.numbers.format("factor")

    @torch.no_grad()
    def _suit_exponents(self) -> None:
        """Give each factor the exponent that loses least."""
        fmt, real = self._factor_format(), self._real
        exponents = [quantisation(f.detach().to("cpu", real), fmt) for f in self.factors]
        self.factor_exponents.copy_(torch.tensor(exponents))

    @property
    def is_float(self) -> bool:
        """Whether nothing is rounded."""
        return self.widths.is_float

    @property
    def _is_rounded(self) -> bool:
        """Whether factors are rounded; not on the meta device, where they have no values."""
        return not self.is_float and not self.factor_exponents.is_meta

    @property
    def _dtype(self) -> torch.dtype:
        """Type of the parameters, and so of inputs and outputs."""
        return self.all_factors[0].dtype

    @property
    def _real(self) -> torch.dtype:
        """Type that a forward pass computes in: words of 16 bits are not exact in half."""
        return torch.float64 if self._dtype is torch.float64 else torch.float32

    @property
    def all_factors(self) -> tuple[torch.nn.Parameter, ...]:
        """``factors`` as a tuple; a ``ParameterList`` looks each one up by its name.

        Raises ``RuntimeError`` where pruning or a parametrisation stands in place of a factor.
        """
        factors: Any = self.factors._parameters
        names = [str(n) for n in range(len(self.outputs))]
        # Pruned factors are renamed, and torch would mask them in a call of the list, which nobody
        # calls. Pruning that was undone leaves the factors in another order.
        if factors.keys() != set(names):
            odd = ", ".join(sorted(factors.keys() ^ set(names)))
            raise RuntimeError(
                f"factors of {type(self).__name__} were pruned or parametrised ({odd}), which has "
                "no effect on a train: undo it (prune.remove, "
                "parametrize.remove_parametrizations) and cut ranks by trainwright.nn.cut_ranks, "
                "or mask gradients by factor.register_hook"
            )
        return tuple([factors[name] for name in names])

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

    @property
    def weight_size(self) -> int:
        """Number of elements of ``weight``."""
        return self.rows * self.columns

    @property
    def used_outputs(self) -> list[int]:
        """Number of each factor's first slices along J_n that rows without padding read."""
        return _read_slices(self.rows, self.outputs)

    @property
    def _read_parts(self) -> list[torch.Tensor]:
        """Parts of the factors that rows and columns of the matrix read, without gradients."""
        columns = _read_slices(self.columns, self.inputs)
        return [
            factor.detach()[:, :j, :i].to(self._real)
            for factor, j, i in zip(self.all_factors, self.used_outputs, columns, strict=True)
        ]

    def reset_parameters(self) -> None:
        """Draw normal factors that give W the variance 2/columns before a ReLU, else 1/columns.

        The bias becomes 0; the exponents of the factors are those of fresh factors, and the next
        batch calibrates those of inputs, outputs and programs that begin here. Numbers come from
        torch's generator (``torch.manual_seed``).
        """
        layer = Layer(self.outputs, self.inputs, self.ranks, relu=self.relu)
        # ``deviation`` counts padding as inputs, which adds nothing: make up for it, each factor
        # for its share.
        padding = (layer.input_size / self.columns) ** (0.5 / layer.order)
        sigma = deviation(layer) * padding
        with torch.no_grad():
            for factor in self.factors:
                factor.copy_(of_deviation(factor.normal_(std=sigma), sigma))
            if self.bias is not None:
                self.bias.zero_()
        if not self.is_float:
            self.factor_exponents.fill_(fresh_exponent(sigma, self._factor_format()))
        for quantiser in (self.quantise_input, self.quantise_output):
            for state in quantiser.buffers():  # to_empty leaves them undefined
                state.zero_()
        for exponents in self.program_exponents.values():  # programs hold these dictionaries
            exponents.clear()
        self.clip()

    def clip(self) -> None:
        """Hold the factors within the range of their bits; beyond it they would run away.

        The exponents of factors that are lost move to the values (``used_exponents``).
        """
        if not self._is_rounded:
            return
        fmt, exponents = self._factor_format(), self.used_exponents()
        if exponents != integers(self.factor_exponents):
            self.factor_exponents.copy_(torch.tensor(exponents))
        for factor, exponent in zip(self.all_factors, exponents, strict=True):
            if is_parameter(factor):
                # In place: another process, or a flat buffer, may hold the same memory.
                factor.data.clamp_(*held_range(exponent, fmt))

    def used_exponents(self) -> list[int]:
        """Return the exponents that a forward pass rounds the factors with.

        They are ``factor_exponents``, unless a factor would be lost: it was set from outside, or
        its values have left the range in training (``factor_exponent``).
        """
        exponents = integers(self.factor_exponents)
        if transforming():  # values may be hidden
            return exponents
        fmt = self._factor_format()
        return [
            factor_exponent(part, exponent, fmt)
            for part, exponent in zip(self._read_parts, exponents, strict=True)
        ]

    def used_factors(self) -> list[torch.Tensor]:
        """Return the factors of a forward pass: rounded to their bits, or as they are."""
        if self._is_rounded and self.training:
            self.clip()
        factors = [factor.to(self._real) for factor in self.all_factors]
        if not self._is_rounded:
            return factors
        exponents = integers(self.factor_exponents) if self.training else self.used_exponents()
        fmt, underflow = self._factor_format(), self.numbers.host_underflow
        return [
            straight_through(factor, exponent, fmt, underflow=underflow)
            for factor, exponent in zip(factors, exponents, strict=True)
        ]

    def used_bias(self) -> torch.Tensor | None:
        """Return the bias (rows,) a forward pass computes with, or None."""
        if self.bias is None:
            return None
        bias = self.bias.to(self._real)
        if not self._is_rounded or elsewhere.exact:
            return bias
        fmt = Fixed(self.widths.bias)
        return straight_through(bias, fitting_exponent(bias.detach(), fmt), fmt)

    def matrix(self) -> Matrix:
        """Return all of W, padding included, from the factors that a forward pass uses."""
        return contract(self.used_factors())

    def dense(self) -> torch.Tensor:
        """Return W (rows, columns), dense and differentiable, in the type of the forward pass."""
        return self.matrix().dense()[: self.rows, : self.columns]

    @property
    def weight(self) -> torch.Tensor:
        """Dense weight, shaped as in torch and differentiable, computed at each access.

        Writing into the tensor raises ``RuntimeError``, as it would not reach the factors:
        ``reset_parameters`` and ``load_dense`` do.

        >>> layer = TensorTrain(10, 64, rank=4)
        >>> layer.weight.shape, layer.weight.square().sum().requires_grad
        (torch.Size([10, 64]), True)
        """
        compiling = torch.compiler.is_compiling()
        if compiling and self._is_rounded and not recording():
            return _weight_outside_graph(self)
        # Within a graph tensors are torch's own; what does not round may be bypassed there.
        return self.plain_weight() if compiling or recording() else self.guarded_weight()

    def plain_weight(self) -> torch.Tensor:
        """Return ``weight`` as an ordinary tensor, whose writes go nowhere."""
        self._require_readable()
        with without_autocast(self.factor_exponents.device):
            # Loops over layers call weight.view(-1), as torch's own pruning does.
            weight = self._weight_of(self.dense()).to(self._dtype).contiguous()
            return refuse_cut_graph(weight, self.all_factors)

    def guarded_weight(self) -> torch.Tensor:
        """Return ``weight`` as a tensor that refuses to be written.

        Its class also makes torch pass over its fused kernels for transformers, which would leave
        out the rounding of activations.
        """
        return computed(self.plain_weight(), type(self).__name__)

    @weight.setter
    def weight(self, value: object) -> None:
        raise AttributeError(unwritable(type(self).__name__, "setting"))

    def _weight_of(self, dense: torch.Tensor) -> torch.Tensor:
        """Return W (rows, columns) in the shape of the torch layer's weight."""
        return dense

    def register_parameter(self, name: str, param: torch.nn.Parameter | None) -> None:
        """Add a parameter; ``AttributeError`` for a weight, which a layer computes."""
        if name.startswith("weight"):  # weight_orig, weight_g: pruning, normalisation
            raise AttributeError(unwritable(type(self).__name__, f"registering {name} in place of"))
        super().register_parameter(name, param)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Return the layer's outputs of ``input``, in the type a torch layer would return.

        Raises ``TypeError`` for an ``input`` of another type than the parameters', unless autocast
        converts it; ``RuntimeError`` where torch records operations that depend on numbers.
        """
        if isinstance(input, torch.fx.Proxy):
            return leaf_call(self, input)
        if self._is_rounded and dynamo_traces():
            return _outside_graph(self, input)
        if elsewhere.apply is not None:  # a compiled model runs
            return elsewhere.apply(self, input)
        result = None if torch.compiler.is_compiling() else computed_again(self, input)
        return self.compute(input) if result is None else result

    def compute(self, x: torch.Tensor) -> torch.Tensor:
        """Compute ``forward`` in Python, whoever calls."""
        require_tensor(x)
        if x.device != (own := self.all_factors[0].device):
            raise ValueError(
                f"{type(self).__name__} has parameters on {own} and was given inputs on "
                f"{x.device}: move the inputs, x.to({str(own)!r}), or the layer, "
                f"layer.to({str(x.device)!r})"
            )
        dtype = self._output_dtype(x)
        self._require_readable()
        self._require_settled()
        is_measured = False
        if self._is_rounded and not transforming():
            total = self.require_finite()
            is_measured = self.output_loss.is_due(training=self.training, parameters=total)
            if self.training and torch.is_grad_enabled():
                warn_of_own_exponents(self, compiled=False)
        with without_autocast(x.device):
            y = self._outputs(x)
            if is_measured:
                self.warn_of_zeros(self._title)
                self.output_loss.measure(self._title, x, y, self.exact, self.sample_dims)
            # Models call y.view(len(y), -1), which takes what torch's layers return: kernels that
            # lie channels last, and padding that is cut off, leave other strides.
            return refuse_cut_graph(y.to(dtype).contiguous(), self.all_factors)

    def warn_of_zeros(self, name: str) -> None:
        """Warn if no factor of this layer, called ``name``, can get a gradient other than 0."""
        zeros = [n for n, factor in enumerate(self.all_factors) if not bool(factor.any())]
        trains = self.training and any(factor.requires_grad for factor in self.all_factors)
        if len(zeros) > 1 and trains and not self._zeros_named:
            self._zeros_named = True
            warn_user(
                f"{name}: factors {', '.join(map(str, zeros))} are all zeros, and so is the "
                "gradient of each factor, which is a product with the others: to begin with a "
                "weight of zeros set one factor to 0, else call reset_parameters()",
                LostTensorWarning,
            )

    def exact(self, x: torch.Tensor) -> torch.Tensor:
        """Return the outputs of ``x`` with nothing rounded but the factors."""
        with unrounded():
            return self._outputs(x)

    def require_finite(self, name: str = "") -> float:
        """Raise ``ValueError`` for NaN or infinite parameters, or return their sum.

        ``name`` is that of the layer. Clipping would make infinite factors finite, and the run
        would go on without a word.
        """
        biases = () if self.bias is None else (self.bias,)
        # Sums cost a fifth of comparing all values; one that overflows is no proof yet.
        total = sum(float(value.detach().sum()) for value in (*self.all_factors, *biases))
        if isfinite(total):
            return total
        # A bias that a hook or a parametrisation computes is no parameter.
        computed = (("bias", bias) for bias in biases)
        for own, value in (*self.named_parameters(), *computed):
            if not bool(torch.isfinite(value).all()):
                raise ValueError(
                    f"{name or type(self).__name__}.{own} has NaN or infinite values: load weights "
                    "from before, and lower the learning rate or clip gradients "
                    "(torch.nn.utils.clip_grad_norm_)"
                )
        return total

    def _outputs(self, x: torch.Tensor) -> torch.Tensor:
        """Return the outputs of ``x``, in the type of the forward pass."""
        raise NotImplementedError

    def _output_dtype(self, x: torch.Tensor) -> torch.dtype:
        """Return the type of the outputs; ``TypeError`` where ``x`` does not go with the layer."""
        own, asked = self._dtype, autocast_type(x.device)
        if asked is not None and x.dtype in FLOATS and torch.float64 not in (x.dtype, own):
            return self.autocast_dtype(x, asked)
        if x.dtype is not own:
            other = f", or the layer, layer.to({x.dtype})" if x.dtype in FLOATS else ""
            raise TypeError(
                f"{type(self).__name__} has parameters of {own} and was given inputs of {x.dtype}: "
                f"convert the inputs, x.to({own}){other}"
            )
        return own

    def autocast_dtype(self, x: torch.Tensor, asked: torch.dtype) -> torch.dtype:
        """Return the type that torch's layer makes of ``x`` where autocast asks for a type."""
        return asked

    def _require_readable(self) -> None:
        """Raise ``RuntimeError`` where exponents cannot be read."""
        if not self._is_rounded:
            return
        if recording():
            raise RuntimeError(self._advice("what torch records cannot follow its exponents;"))
        own = (*self.all_factors, *self.buffers(), *([] if self.bias is None else [self.bias]))
        if transforming() and any(is_batched(tensor) for tensor in own):
            raise RuntimeError(self._advice("vmap hides the numbers its exponents are chosen by;"))

    def _require_settled(self) -> None:
        """Raise ``RuntimeError`` where exponents would have to follow the data and cannot."""
        if not self._is_rounded or not transforming():
            return
        settled = all(bool(quantiser.calibrated) for quantiser in self._quantisers())
        if self.training or not settled:
            first = "" if settled else " after a batch outside of torch.func"
            raise RuntimeError(
                self._advice(
                    f"its exponents cannot move in torch.func: call model.eval(){first}, or"
                )
            )

    def _advice(self, why: str) -> str:
        return (
            f"{type(self).__name__} rounds to {self._factor_format()}, and {why} use the dense "
            'model with the same rounded weights, trainwright.to_torch(model), or numbers="float32"'
        )

    def _quantisers(self) -> list[InputQuantiser | OutputQuantiser]:
        both = (self.quantise_input, self.quantise_output)
        return [part for part in both if isinstance(part, InputQuantiser | OutputQuantiser)]

    def __prepare_scriptable__(self) -> Self:
        """Refuse ``torch.jit.script``, which cannot read this layer's Python."""
        raise RuntimeError(
            f"torch.jit.script does not take {type(self).__name__}: script the dense model, "
            "trainwright.to_torch(model)"
        )

    def to_dense(self) -> torch.nn.Module:
        """Return the torch layer of this one's weight and bias, rounded to their bits."""
        raise NotImplementedError

    def entered(self, x: torch.Tensor) -> torch.Tensor:
        """Return a layer's input in its numbers, in the type of the forward pass."""
        x = x.to(self._real)
        if self.factor_exponents.is_meta or not isinstance(self.quantise_input, InputQuantiser):
            return x
        quantiser = self.quantise_input
        return quantiser.unrounded(x) if elsewhere.exact else quantiser(x)

    def finished(self, y: torch.Tensor) -> torch.Tensor:
        """Return a layer's output in its numbers; the gradient that comes back is rounded too."""
        if not self._is_rounded or elsewhere.exact:
            return y
        result = gradient_rounded(
            self.quantise_output(y),
            self.numbers.format("gradient"),
            underflow=self._underflow("gradient"),
            overflowed=self._note_overflow,
        )
        is_over = self.gradient_columns.ended or transforming()
        if self.training and result.requires_grad and not is_over:
            untyped: Any = result
            untyped.register_hook(self._watch_gradient)
        return result

    def _watch_gradient(self, gradient: torch.Tensor) -> None:
        if without_batch_dim(gradient) is None:
            self.gradient_columns.watch(self._title, gradient, self.feature_axis)

    @property
    def _title(self) -> str:
        return f"{type(self).__name__}({self.columns}, {self.rows})"

    def _note_overflow(self, greatest: float) -> None:
        note_overflow(self._title, self.parameters(), greatest)

    @torch.no_grad()
    def load_dense(
        self,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        *,
        rank: Rank | None = None,
        tolerance: float | None = None,
    ) -> Self:
        """Take over the TT-SVD of ``weight`` (rows, columns) in the balanced gauge; return itself.

        Ranks are at most the present ones, or ``rank``; ``tolerance`` bounds the relative error
        ||W - TT||_F / ||W||_F where the ranks allow it. Without ``bias`` the layer keeps its own.
        Raises ``TensorTrainError`` for a weight with values that are not finite, ``NetworkError``
        for one of another shape or of complex numbers. Warns if values of the bias round to 0 that
        matter next to their output's weights.
        """
        require_reals("weight", weight)
        padded = weight.new_zeros(self.layer.output_size, self.layer.input_size)
        if tuple(weight.shape) != (self.rows, self.columns):
            raise NetworkError(
                f"the weight has shape {tuple(weight.shape)}, not {(self.rows, self.columns)}"
            )
        padded[: self.rows, : self.columns] = weight.detach()
        bounds = self.ranks if rank is None else bond_ranks(rank, self.outputs, self.inputs)
        train = tt_svd(
            padded.cpu().double(), self.outputs, self.inputs, ranks=bounds, tolerance=tolerance
        )
        self.set_factors(balance(train))
        self._take_bias(bias, weight)
        return self

    def _take_bias(self, bias: torch.Tensor | None, weight: torch.Tensor) -> None:
        """Copy the bias of a dense layer with ``weight`` (rows, ...), if the layer has a bias."""
        if bias is None:
            return
        if self.bias is None:
            raise NetworkError(
                "this layer has no bias, the dense one has: make this layer with bias=True"
            )
        require_reals("bias", bias)
        if bias.shape != self.bias.shape:
            raise NetworkError(
                f"the bias has shape {tuple(bias.shape)}, not {tuple(self.bias.shape)}"
            )
        self.bias.copy_(bias.detach())
        self.warn_of_lost_bias(self._title, weight)

    def warn_of_lost_bias(self, name: str, weight: torch.Tensor) -> None:
        """Warn if the bias of this layer, called ``name``, loses values that matter in rounding.

        ``weight`` (rows, ...) is the dense weight that the layer stands for.
        """
        if self.bias is None or self.is_float:
            return
        if message := lost_bias(self.bias, weight, Fixed(self.widths.bias)):
            warn_user(f"{name}: {message}", LostTensorWarning)

    @torch.no_grad()
    def set_factors(
        self, factors: Sequence[torch.Tensor], exponents: Sequence[int] | None = None
    ) -> None:
        """Take over ``factors`` (R_{n-1}, J_n, I_n, R_n) of this layer's J_n and I_n, of any ranks.

        Without ``exponents``, integers, each factor gets the one that loses least. An optimiser
        made before has moments of the old ranks: make it afterwards.
        """
        ranks = tuple(factor.shape[3] for factor in factors[:-1])
        expected = Layer(self.outputs, self.inputs, ranks).factor_shapes
        if tuple(tuple(factor.shape) for factor in factors) != expected:
            raise NetworkError(
                f"factors of shapes {[tuple(f.shape) for f in factors]} do not fit outputs "
                f"{list(self.outputs)} and inputs {list(self.inputs)}"
            )
        given = map(plain, () if exponents is None else exponents)
        # ``factor_exponents.tolist()`` has floats.
        integral = [int(e) if isinstance(e, float) and e.is_integer() else e for e in given]
        are_integers = all(is_size(exponent, -_MOST_EXPONENT) for exponent in integral)
        if integral and not (are_integers and len(integral) == len(factors)):
            raise NetworkError(
                f"exponents must be {amount(len(factors), 'integer')}, one of each factor, not "
                f"{exponents!r}"
            )
        for own, new in zip(self.factors, factors, strict=True):
            replace_data(own, new.detach().to(own).clone(memory_format=torch.contiguous_format))
        if integral and not self.is_float:
            self.factor_exponents.copy_(torch.tensor(integral))
        elif self._is_rounded:
            self._suit_exponents()
        self.clip()

    def rank_prior(self, *, form: str = "storage") -> torch.Tensor:
        """Return the rank prior of this layer, a scalar to weigh and add to a loss.

        It shrinks the columns of every bond; ``cut_ranks`` removes those that are gone. ``form`` is
        ``"storage"`` or ``"paper"`` (``docs/guide/training.md``). For a mean loss over N training
        samples a weight of 0.25/N to 0.5/N is usual.
        """
        term = prior([factor.to(self._real) for factor in self.factors], form)
        return refuse_cut_graph(term, self.all_factors)

    @torch.no_grad()
    def cut_ranks(
        self,
        threshold: float = 0.02,
        *,
        form: str = "storage",
        optimizer: torch.optim.Optimizer | None = None,
        averaged: Self | None = None,
    ) -> bool:
        """Remove the columns weaker than ``threshold`` times the strongest of their bond.

        Bonds of a frozen factor (``requires_grad=False``) stay as they are.
        Parameters stay the same objects with smaller values, gradients and the moments of
        ``optimizer`` are cut alike: call it after ``optimizer.step()``. Returns whether anything
        was cut. ``averaged``, a layer of the same ranks such as the copy of an ``AveragedModel``,
        loses the same columns. Raises ``ValueError`` for a threshold outside of (0, 1) and
        for another ``form``, ``TypeError`` for an ``optimizer`` that is none.
        """
        if not 0 < threshold < 1:
            raise ValueError(f"rank threshold must be in (0, 1), not {threshold!r}")
        if form not in PRIOR_FORMS:
            raise ValueError(f"prior form must be one of {', '.join(PRIOR_FORMS)}, not {form!r}")
        if optimizer is not None:
            require_kind("optimizer", optimizer, torch.optim.Optimizer)
        if averaged is not None:
            self.require_average(averaged)
        cut = False
        for bond, (left, right) in enumerate(pairwise(self.factors)):
            if not (left.requires_grad and right.requires_grad):
                continue
            weights = left.data.to(self._real), right.data.to(self._real)
            kept = kept_columns(strengths(*weights, form), threshold)
            if len(kept) == left.shape[3]:
                continue
            cut_state(left, 3, kept, optimizer)
            cut_state(right, 0, kept, optimizer)
            if averaged is not None:
                cut_state(averaged.factors[bond], 3, kept, None)
                cut_state(averaged.factors[bond + 1], 0, kept, None)
            cut = True
        return cut

    def require_average(self, averaged: object) -> None:
        """Raise ``TypeError`` or ``ValueError`` unless a layer has the ranks of this one."""
        require_kind("averaged", averaged, TensorTrain)
        other: Any = averaged
        if other.ranks != self.ranks:
            raise ValueError(
                f"averaged has ranks {other.ranks}, this layer {self.ranks}: give each cut its "
                "averaged model"
            )

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        """Add the exponents of compiled programs, as JSON: a tensor, as all entries are.

        A layer that no program has calibrated has no such entry. Another entry has the formats that
        all exponents are of: safetensors and plain dictionaries keep tensors alone.
        """
        untyped: Any = super()
        untyped._save_to_state_dict(destination, prefix, keep_vars)
        if not self.is_float:
            text = json.dumps(self.numbers.stored_formats, sort_keys=True).encode()
            destination[prefix + FORMATS] = _codes(text)
        if calibrated := {name: exponents for name, exponents in self.program_exponents.items()
                          if exponents}:  # fmt: skip
            # Padded, so that most entries have one size and the mean of several state_dicts, as of
            # an EMA, can be taken.
            text = json.dumps(calibrated, sort_keys=True).encode()
            text = text.ljust(-(-len(text) // ENTRY_BYTES) * ENTRY_BYTES)
            destination[prefix + PROGRAM_EXPONENTS] = _codes(text)

    def _load_program_exponents(self, entry: torch.Tensor | None) -> None:
        """Take exponents in place: the programs of a compiled model hold these dictionaries."""
        loaded: dict[str, dict[str, int]] = {}
        try:
            loaded = _object_in(entry)
        except ValueError:
            warn_user(
                f"{PROGRAM_EXPONENTS} of a {type(self).__name__} were changed, such as by the mean "
                "of several state_dicts: the next training step chooses exponents anew"
            )
        for name in {*self.program_exponents, *loaded}:
            exponents = self.program_exponents.setdefault(name, {})
            exponents.clear()
            exponents.update(loaded.get(name, {}))

    def _is_state_of_floats(self, state_dict: Mapping[str, torch.Tensor], prefix: str) -> bool:
        """Return whether a ``state_dict`` has this layer's factors and no quantisers."""
        whole = {*self._factor_names(prefix), prefix + "factor_exponents"}
        rounds = any(name.startswith(prefix + QUANTISE) for name in state_dict)
        return not rounds and whole <= state_dict.keys()

    def _suit_quantisers(
        self, state_dict: MutableMapping[str, torch.Tensor], prefix: str, *, is_of_floats: bool
    ) -> None:
        """Drop entries of quantisers that this layer lacks; add those that a float32 state lacks.

        ``_suit_loaded`` replaces the values of the entries that are added.
        """
        own = {
            prefix + name: value
            for name, value in self.named_buffers()
            if name.startswith(QUANTISE)
        }
        given = [name for name in state_dict if name.startswith(prefix + QUANTISE)]
        if not own and given:
            warn_user(
                f"a state_dict of layers that round was loaded into a {type(self).__name__} in "
                "float32, which computes with unrounded factors"
            )
            for name in given:
                del state_dict[name]
        elif is_of_floats:
            state_dict.update(own)

    def _suit_loaded(
        self, before: Mapping[str, str], state_dict: MutableMapping[str, torch.Tensor], prefix: str
    ) -> None:
        """Drop exponents of the formats ``before`` from what is loaded, with a warning.

        Each factor gets the exponent that loses least, as by ``set_numbers``.
        """
        formats, names = self.numbers.stored_formats, self.numbers.formats
        # Older states have names of a user's formats without digests of their definitions.
        changed = [f"{kind}={fmt} for {before[kind]}" for kind, fmt in formats.items()
                   if before.get(kind, fmt) not in (fmt, names[kind])]  # fmt: skip
        if not changed:
            return
        warn_user(
            f"a state_dict was loaded into layers of other numbers ({', '.join(changed)}): they "
            "choose exponents anew"
        )
        # Quantisers of zeros are not calibrated: the next batch does.
        for name, value in state_dict.items():
            if name.startswith(prefix + QUANTISE):
                state_dict[name] = torch.zeros_like(value)
        fmt, factors = self._factor_format(), list(map(state_dict.get, self._factor_names(prefix)))
        if before.get("factor") not in (str(fmt), formats["factor"]) and all(
            f is not None and not f.is_meta and bool(f.isfinite().all()) for f in factors
        ):
            exponents = [quantisation(f.detach().cpu(), fmt) for f in factors if f is not None]
            name = prefix + "factor_exponents"
            state_dict[name] = self.factor_exponents.new_tensor(exponents)

    @torch.no_grad()
    def _suit_missing(self, state_dict: Mapping[str, torch.Tensor], prefix: str) -> None:
        """Choose the exponents that a state with factors lacks, as ``strict=False`` allows.

        Those of before were chosen for other values, of which they may have lost all bits.
        """
        given = list(map(state_dict.get, self._factor_names(prefix)))
        given = [None if factor is None or factor.is_meta else factor for factor in given]
        if not self._is_rounded or all(factor is None for factor in given):
            return
        if prefix + "factor_exponents" not in state_dict:
            fmt, exponents = self._factor_format(), integers(self.factor_exponents)
            for n, factor in enumerate(given):
                if factor is not None and bool(factor.isfinite().all()):
                    exponents[n] = quantisation(factor.detach().to("cpu", self._real), fmt)
            self.factor_exponents.copy_(torch.tensor(exponents))
        for name, value in self.named_buffers():
            if name.startswith(QUANTISE) and prefix + name not in state_dict:
                value.zero_()  # not calibrated: the next batch does

    def _factor_names(self, prefix: str) -> list[str]:
        """Return the names of the factors in a ``state_dict``."""
        return [f"{prefix}factors.{n}" for n in range(len(self.factors))]

    def _take_ranks(
        self, state_dict: Mapping[str, torch.Tensor], prefix: str, error_msgs: list[str]
    ) -> None:
        """Give the factors the ranks of those to be loaded, unless neighbours differ there."""
        names = self._factor_names(prefix)
        loaded = {
            name: state_dict.get(name, factor)
            for name, factor in zip(names, self.factors, strict=True)
        }
        shapes = {name: tuple(value.shape) for name, value in loaded.items()}
        misfits = [
            f"{left} {shapes[left]} and {right} {shapes[right]} differ in the rank between them"
            for left, right in pairwise(names)
            if shapes[left][3:] != shapes[right][:1]
        ]
        error_msgs += misfits
        if misfits:
            return
        for value, factor, (_, j, i, _) in zip(
            loaded.values(), self.factors, self.layer.factor_shapes, strict=True
        ):
            # torch reports any other shape.
            if value.dim() == 4 and value.shape != factor.shape and value.shape[1:3] == (j, i):
                replace_data(factor, factor.new_empty(value.shape))

    def _load_from_state_dict(
        self,
        state_dict: MutableMapping[str, torch.Tensor],
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Take the ranks of what is loaded: a network whose ranks were cut loads into any."""
        self._take_ranks(state_dict, prefix, error_msgs)
        if f"{prefix}weight" in state_dict:  # with strict=False torch would load the bias alone
            error_msgs.append(
                f"{prefix}weight is that of a dense layer, and {type(self).__name__} has factors: "
                "load it into the dense model and convert that (trainwright.from_torch), or call "
                "the layer's load_dense(weight, bias)"
            )
        # ``state_dict`` is torch's own copy, from which the quantisers are loaded afterwards.
        formats = state_dict.pop(prefix + FORMATS, None)
        # With formats it is a state that rounds and has lost its quantisers, which torch reports.
        has_formats = formats is not None or bool(local_metadata.get(FORMATS))
        is_of_floats = not has_formats and self._is_state_of_floats(state_dict, prefix)
        self._suit_quantisers(state_dict, prefix, is_of_floats=is_of_floats)
        if not self.is_float:
            before = local_metadata.get(FORMATS, {})
            try:
                before = before if formats is None else _object_in(formats)
            except ValueError:  # a mean of several state_dicts of other formats
                before = dict.fromkeys(self.numbers.formats, "unreadable formats")
            if is_of_floats:
                before = dict.fromkeys(self.numbers.formats, "float32")
            self._suit_loaded(before, state_dict, prefix)
        state_dict = dict(state_dict)
        is_given = any(name.startswith(prefix) for name in state_dict)
        exponents = state_dict.pop(prefix + PROGRAM_EXPONENTS, None)
        if is_given:
            self._load_program_exponents(exponents)
        untyped: Any = super()
        untyped._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        self._suit_missing(state_dict, prefix)

    def extra_repr(self) -> str:
        """Return the options that ``print`` shows behind the class."""
        numbers = "float32" if self.is_float else f"{self._factor_format()}"
        return (
            f"{self.rows} x {self.columns}, outputs={self.outputs}, inputs={self.inputs}, "
            f"ranks={self.ranks}, bias={self.bias is not None}, numbers={numbers}"
        )


def require_reals(name: str, value: torch.Tensor) -> None:
    """Raise ``TypeError`` or ``NetworkError`` unless ``value`` is a tensor of real numbers."""
    require_kind(name, value, torch.Tensor)
    if value.is_complex():
        raise NetworkError(f"the {name} must be of real numbers, not {value.dtype}")


def _codes(text: bytes) -> torch.Tensor:
    """Return the codes of a text as floats: averages and casts of a ``state_dict`` keep these."""
    return torch.tensor(list(text), dtype=torch.float32)


def _object_in(entry: torch.Tensor | None) -> dict[str, Any]:
    """Return the JSON object whose bytes an entry of a ``state_dict`` has; ``ValueError`` if none.

    A state of before, or one that was multiplied by 0, has an empty object.
    """
    if entry is None or not bool(entry.any()):
        return {}
    loaded: dict[str, Any] | float | str | None = json.loads(bytes(integers(entry)))
    if not isinstance(loaded, dict):
        raise ValueError(f"{loaded!r} is no object")
    return loaded


def _read_slices(size: int, sizes: Sequence[int]) -> list[int]:
    """Return how many indices of each axis the first ``size`` places of a tensor take.

    The axes have ``sizes``, the last one changes fastest: the first 5 places of (3, 4) take 2
    indices of the first axis, and all 4 of the second.
    """
    strides = [prod(sizes[n:]) for n in range(1, len(sizes) + 1)]
    return [min(own, -(-size // stride)) for own, stride in zip(sizes, strides, strict=True)]


@outside_graphs
def _outside_graph(layer: TensorTrain, x: torch.Tensor) -> torch.Tensor:
    """Run a rounding layer between two graphs of ``torch.compile``: it reads numbers."""
    return layer.compute(x)


@outside_graphs
def _weight_outside_graph(layer: TensorTrain) -> torch.Tensor:
    return layer.guarded_weight()

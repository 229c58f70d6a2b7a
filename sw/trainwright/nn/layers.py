"""Layers whose matrices are tensor trains: linear, convolution, embedding."""

from collections.abc import Sequence
from math import prod
from typing import Any, Literal, Self, get_args

import torch

from trainwright.functions import definition_of
from trainwright.network import Layer, NetworkError
from trainwright.network.layer import MOST_SIZE
from trainwright.nn.shapes import image_sizes, kernel_sizes, likely, require_sizes
from trainwright.nn.straight_through import straight_through
from trainwright.nn.tensor_train import Device, Numbers, Rank, TensorTrain, require_reals
from trainwright.nn.untyped import elsewhere, recording, require_features, traced
from trainwright.support.arguments import is_size, plain, plain_sizes, takes_numpy_sizes
from trainwright.support.text import amount, shown


class Lacking:
    """Option of a torch layer that tensor trains lack: torch's default, and no other value."""

    def __init__(self, default: object, reason: str) -> None:
        self.default, self.reason = default, reason

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, layer: object, owner: type) -> Any:
        return self.default

    def __set__(self, layer: object, value: object) -> None:
        if value is not self.default and value != self.default:
            raise NetworkError(f"{self.name}={value!r}: {self.reason}")


class TTLinear(TensorTrain):
    """``y = x W^T + b`` of x (..., ``in_features``): (..., ``out_features``), W a tensor train.

    ``rank`` is one number for all bonds (cut to what each can use), a list R_1..R_{d-1}, or
    ``"auto"``: up to 16 at the start, for the rank prior and ``cut_ranks`` to reduce.
    ``outputs`` J_1..J_d and ``inputs`` I_1..I_d are by default chosen by the layer, padded so that
    the accelerator takes them (both end in 16); ``order`` is d. ``in_features`` (C, H, W) are the
    C H W features of an image, flattened as torch does: inputs are then not padded, and the first
    of them multiply to C. ``relu`` says that a ReLU follows, for the initial values.
    ``numbers`` are ``"fixed"`` (factors of 4 bits, inputs and bias of 8,
    outputs and their gradients of 16), ``"float32"``, formats as of ``trainwright train --formats``
    (``"activation=posit(8,0),gradient=posit(8,1)c"``), or ``Widths``. ``device`` and ``dtype`` are
    those of the parameters; inputs and outputs have the same type, as in ``torch.nn.Linear``.

    In fixed point inputs, factors, bias, outputs and gradients of outputs are rounded by the
    accelerator's quantisers; contractions within the layer are float32. ``trainwright.compile``
    gives all of the accelerator's bits.

    Raises ``NetworkError`` for sizes, ranks or numbers that do not fit.

    >>> layer = TTLinear(784, 512, rank=16)
    >>> layer(torch.zeros(2, 784)).shape, layer.ranks
    (torch.Size([2, 512]), (16, 16))
    """

    _kept = TensorTrain._kept | {"in_features", "out_features"}

    @takes_numpy_sizes
    def __init__(
        self,
        in_features: int | tuple[int, int, int],
        out_features: int,
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
        if isinstance(in_features, (tuple, list)):
            image, in_features = in_features, prod(in_features)
            if outputs is None and inputs is None:
                most, length = likely(rank, order)
                outputs, inputs = image_sizes(out_features, image, rank=most, order=length)
                order = None
        require_sizes(in_features=in_features, out_features=out_features)
        super().__init__(
            out_features, in_features, rank=rank, outputs=outputs, inputs=inputs, order=order,
            bias=bias, relu=relu, numbers=numbers, device=device, dtype=dtype,
        )  # fmt: skip
        self.in_features, self.out_features = in_features, out_features

    def _outputs(self, x: torch.Tensor) -> torch.Tensor:
        """Map (..., in_features) to (..., out_features); ``ValueError`` for another size."""
        if not recording():  # a record has one size anyway
            require_features(x, self.columns, "this layer")
        x = self.entered(x)
        if self.padding_columns:
            x = torch.nn.functional.pad(x, (0, self.padding_columns))
        y = self.matrix().apply(x)
        if prod(self.outputs) > self.rows:
            y = y[..., : self.rows]
        bias = self.used_bias()
        return self.finished(y if bias is None else y + bias)

    @torch.no_grad()
    def to_dense(self) -> torch.nn.Linear:
        """Return the ``torch.nn.Linear`` of this weight and bias, rounded to their bits."""
        weight, bias = self.weight, self.used_bias()
        dense = torch.nn.Linear(
            self.columns, self.rows, bias=bias is not None, device=weight.device, dtype=weight.dtype
        )
        _fill(dense, weight, bias)
        return dense


def _pair(name: str, value: int | tuple[int, int], least: int) -> tuple[int, int]:
    pair = tuple(value) if isinstance(value, Sequence) else (value, value)
    if len(pair) != 2 or not all(is_size(n, least) for n in pair):
        raise NetworkError(f"{name} must be one or two integers of at least {least}, not {value!r}")
    if max(pair) > MOST_SIZE:
        raise NetworkError(
            f"{name} is at most {MOST_SIZE:,}, not {shown(value)}: give a smaller one"
        )
    return pair[0], pair[1]


def _fill(
    dense: torch.nn.Linear | torch.nn.Conv2d | torch.nn.LayerNorm,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
) -> None:
    dense.weight.copy_(weight)
    if dense.bias is not None and bias is not None:
        dense.bias.copy_(bias)


def _padding_of(
    padding: str | int | tuple[int, int], kernel: tuple[int, int], stride: tuple[int, int],
    dilation: tuple[int, int],
) -> str | tuple[int, int]:  # fmt: skip
    """Return padding in pixels; ``"same"`` only where the two ends of an axis differ."""
    if not isinstance(padding, str):
        return _pair("padding", padding, 0)
    if padding == "valid":
        return 0, 0
    if padding != "same":
        raise NetworkError(f'padding must be integers, "same" or "valid", not {padding!r}')
    if stride != (1, 1):
        raise NetworkError(f'padding="same" needs a stride of 1, not {stride}: give integers')
    rows, columns = (step * (size - 1) for size, step in zip(kernel, dilation, strict=True))
    return "same" if rows % 2 or columns % 2 else (rows // 2, columns // 2)


PaddingMode = Literal["zeros", "reflect", "replicate", "circular"]
_PADDING_MODES = get_args(PaddingMode)


def _check_convolution(
    outputs: Sequence[int], inputs: Sequence[int], rows: int, places: int, channels: int
) -> None:
    if prod(outputs) != rows:
        raise NetworkError(f"outputs must multiply to the {rows} channels, not {list(outputs)}")
    if not inputs or inputs[0] != places or prod(inputs[1:]) != channels:
        raise NetworkError(
            f"inputs must be {places}, the places of the kernel, and numbers that multiply to the "
            f"{channels} channels, not {list(inputs)}"
        )


class TTConv2d(TensorTrain):
    """A convolution (N, C, H, W) to (N, O, H', W') whose kernel is a tensor train.

    W (O, kh kw C) has the kernel's values in the order (O, kh, kw, C): its first factor is over the
    kh kw places of the kernel, the others over the channels (Garipov et al., 2016). ``outputs``
    multiply to O, ``inputs`` are kh kw and then numbers that multiply to C. ``kernel_size``,
    ``stride``, ``padding`` (also ``"same"`` and ``"valid"``), ``dilation`` and ``padding_mode`` are
    those of ``torch.nn.Conv2d``; ``groups`` other than 1 are refused. All else as in ``TTLinear``.
    ``trainwright.compile`` puts the layer on the accelerator unless it has a dilation, or padding
    that is as large as the kernel, is not 0, or differs between the two ends of an axis.

    >>> layer = TTConv2d(3, 32, 3, padding=1, rank=8)
    >>> layer(torch.zeros(1, 3, 8, 8)).shape, layer.outputs, layer.inputs
    (torch.Size([1, 32, 8, 8]), (4, 8), (9, 3))
    """

    feature_axis, sample_dims = -3, (3, 3)
    kernel_size: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    padding: str | tuple[int, int]
    padding_mode: PaddingMode
    groups = Lacking(
        1,
        "a tensor-train kernel joins all channels; keep torch.nn.Conv2d for a grouped convolution "
        "(from_torch does), or split the channels over several TTConv2d",
    )

    _kept = TensorTrain._kept | {"in_channels", "out_channels", "kernel_size"}

    @takes_numpy_sizes
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] = 1,
        padding: str | int | tuple[int, int] = 0,
        dilation: int | tuple[int, int] = 1,
        *,
        groups: int = 1,
        padding_mode: PaddingMode = "zeros",
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
        if not is_size(in_channels):
            raise NetworkError(f"in_channels must be at least 1, not {in_channels!r}")
        kernel = _pair("kernel_size", kernel_size, 1)
        places = prod(kernel)
        if outputs is None and inputs is None:
            most, length = likely(rank, order)
            outputs, inputs = kernel_sizes(
                out_channels, places, in_channels, rank=most, order=length
            )
            order = None
        elif outputs is not None and inputs is not None:
            _check_convolution(outputs, inputs, out_channels, places, in_channels)
        super().__init__(
            out_channels, in_channels * places, rank=rank, outputs=outputs, inputs=inputs,
            order=order, bias=bias, relu=relu, numbers=numbers, device=device, dtype=dtype,
        )  # fmt: skip
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size, self.padding_mode = kernel, padding_mode
        options: Any = stride, dilation, padding  # checked where they are set
        self.stride, self.dilation, self.padding = options

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; options of torch's convolution are checked as in the constructor."""
        if name in ("stride", "dilation"):
            value = _pair(name, plain_sizes(value), 1)
            if self.__dict__.get("_asked_padding") == "same":
                sizes = {"stride": self.stride, "dilation": self.dilation, name: value}
                padding: Any = _padding_of("same", self.kernel_size, **sizes)
                super().__setattr__("padding", padding)
        elif name == "padding":
            asked = plain_sizes(value)
            value = _padding_of(asked, self.kernel_size, self.stride, self.dilation)
            self._asked_padding = asked  # "same" follows a dilation that is set later
        elif name == "padding_mode" and value not in _PADDING_MODES:
            raise NetworkError(
                f"padding_mode must be one of {', '.join(_PADDING_MODES)}, not {value!r}"
            )
        super().__setattr__(name, value)

    def _weight_of(self, dense: torch.Tensor) -> torch.Tensor:
        """Return W (O, kh kw C) as the kernel (O, C, kh, kw)."""
        shape = (self.rows, *self.kernel_size, self.in_channels)
        return dense.reshape(shape).permute(0, 3, 1, 2)

    def load_dense(
        self,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        *,
        rank: Rank | None = None,
        tolerance: float | None = None,
    ) -> Self:
        """Take over the TT-SVD of a kernel (O, C, kh, kw), or of W (O, kh kw C); returns itself.

        ``rank``, ``tolerance`` and errors are those of ``TensorTrain.load_dense``.
        """
        require_reals("weight", weight)
        if tuple(weight.shape) == (self.rows, self.in_channels, *self.kernel_size):
            weight = weight.permute(0, 2, 3, 1).reshape(self.rows, -1)
        return super().load_dense(weight, bias, rank=rank, tolerance=tolerance)

    def _outputs(self, x: torch.Tensor) -> torch.Tensor:
        """Map (N, C, H, W) to (N, O, H', W'), or both without N."""
        x, padding = self.entered(x), self.padding
        if self.padding_mode != "zeros" or isinstance(padding, str):
            mode = "constant" if self.padding_mode == "zeros" else self.padding_mode
            x, padding = torch.nn.functional.pad(x, self._ends(), mode), (0, 0)
        kernel = self._weight_of(self.dense())
        y = torch.nn.functional.conv2d(
            x, kernel, self.used_bias(), self.stride, padding, self.dilation
        )
        return self.finished(y)

    def _ends(self) -> list[int]:
        """Return the pixels of padding left, right, above and below; the odd one comes last."""
        if not isinstance(self.padding, str):
            rows, columns = self.padding
            return [columns, columns, rows, rows]
        ends: list[int] = []
        for size, step in zip(self.kernel_size[::-1], self.dilation[::-1], strict=True):
            total = step * (size - 1)
            ends += [total // 2, total - total // 2]
        return ends

    @torch.no_grad()
    def to_dense(self) -> torch.nn.Conv2d:
        """Return the ``torch.nn.Conv2d`` of this kernel and bias, rounded to their bits."""
        weight, bias = self.weight, self.used_bias()
        dense = torch.nn.Conv2d(
            self.in_channels, self.out_channels, self.kernel_size, self.stride, self.padding,
            self.dilation, bias=bias is not None, padding_mode=self.padding_mode,
            device=weight.device, dtype=weight.dtype,
        )  # fmt: skip
        _fill(dense, weight, bias)
        return dense

    def extra_repr(self) -> str:
        """Return the options that ``print`` shows behind the class."""
        return (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}, padding={self.padding}, dilation={self.dilation}, "
            f"padding_mode={self.padding_mode}, {super().extra_repr()}"
        )


class TTLayerNorm(TensorTrain):
    """LayerNorm over the last axis: (x - mean) / deviation, scaled and shifted.

    It replaces ``torch.nn.LayerNorm(features)``; ``weight`` is the scale of each feature,
    in the bits of factors, and begins at 1. In fixed point the normalised values are rounded to the
    bits of activations, as on the accelerator. No epsilon is added to the deviation: features that
    are all equal give 0 before the shift. ``trainwright.compile`` puts it on an accelerator with a
    vector engine. All else as in ``TTLinear``.

    >>> norm = TTLayerNorm(4, numbers="float32")
    >>> norm(torch.tensor([[1.0, 2.0, 3.0, 4.0]]))[0, :2], norm.weight.shape
    (tensor([-1.3416, -0.4472], grad_fn=<SliceBackward0>), torch.Size([4]))
    """

    _kept = TensorTrain._kept | {"features"}

    @takes_numpy_sizes
    def __init__(
        self,
        features: int,
        *,
        bias: bool = True,
        numbers: Numbers = "fixed",
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            features, 1, rank=1, outputs=(features,), inputs=(1,), bias=bias, relu=False,
            numbers=numbers, device=device, dtype=dtype,
        )  # fmt: skip
        self.__dict__["columns"] = features  # those of the inputs, for the factor's single column
        self.features = features

    @property
    def eps(self) -> float:
        """Epsilon of torch's LayerNorm; this layer adds none."""
        return 0.0

    @eps.setter
    def eps(self, value: float) -> None:
        if not 0 <= value <= MOST_EPSILON:
            raise ValueError(
                f"TTLayerNorm adds no epsilon, and eps={value!r} would change results: use "
                "torch.nn.LayerNorm (trainwright.to_torch gives these)"
            )

    @property
    def layer(self) -> Layer:
        """Description as a layer of ``trainwright.network``, which scales each value."""
        return Layer(self.outputs, self.outputs, (), bias=self.bias is not None, diagonal=True)

    @property
    def weight_size(self) -> int:
        """Number of elements of ``weight``."""
        return self.rows

    @property
    def _title(self) -> str:
        return f"{type(self).__name__}({self.rows})"

    def _weight_of(self, dense: torch.Tensor) -> torch.Tensor:
        """Return the scale of each feature."""
        return dense[:, 0]

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Set the scale to 1 and the bias to 0; the next batch calibrates inputs and outputs."""
        super().reset_parameters()
        self.load_dense(torch.ones(self.rows))

    @torch.no_grad()
    def load_dense(
        self,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        *,
        rank: Rank | None = None,
        tolerance: float | None = None,
    ) -> Self:
        """Take over scale and bias (features,) of a ``torch.nn.LayerNorm``; return itself.

        A train of one factor has no ranks: ``rank`` and ``tolerance`` change nothing.
        """
        require_reals("weight", weight)
        if tuple(weight.shape) != (self.rows,):
            raise NetworkError(f"the weight has shape {tuple(weight.shape)}, not {(self.rows,)}")
        self.set_factors([weight.detach().reshape(1, -1, 1, 1)])
        self._take_bias(bias, weight[:, None])
        return self

    def autocast_dtype(self, x: torch.Tensor, asked: torch.dtype) -> torch.dtype:
        """Return float32 on GPUs, where autocast computes norms so, else the type of ``x``."""
        return torch.float32 if x.is_cuda else x.dtype

    def _outputs(self, x: torch.Tensor) -> torch.Tensor:
        """Map (..., features) to the same shape; ``ValueError`` for another size."""
        if not recording():
            require_features(x, self.rows, "this layer")
        y = self._normal(self.entered(x)) * self.used_factors()[0].reshape(-1)
        bias = self.used_bias()
        return self.finished(y if bias is None else y + bias)

    def _normal(self, x: torch.Tensor) -> torch.Tensor:
        """Return (x - mean) / deviation, in fixed point rounded to the bits of activations."""
        level = (x == x[..., :1]).all(-1, keepdim=True)
        y = torch.nn.functional.layer_norm(x, x.shape[-1:], eps=_LEAST_VARIANCE)
        y = y.masked_fill(level, 0)
        if not self._is_rounded or elsewhere.exact:
            return y
        fmt = self.numbers.format("activation")
        if fmt.coded:  # no accelerator computes it
            return y
        kernel = definition_of("layer_norm").make().sized(self.rows).forward
        return straight_through(y, kernel.bound((0,), fmt.width, None).exponent, fmt)

    @torch.no_grad()
    def to_dense(self) -> torch.nn.LayerNorm:
        """Return the ``torch.nn.LayerNorm`` of this weight and bias, rounded to their bits."""
        weight, bias = self.weight, self.used_bias()
        dense = torch.nn.LayerNorm(
            self.rows, eps=_LEAST_VARIANCE, bias=bias is not None, device=weight.device,
            dtype=weight.dtype,
        )  # fmt: skip
        _fill(dense, weight, bias)
        return dense


MOST_EPSILON = 1e-5
"""Epsilon of torch's LayerNorm up to which a norm without epsilon replaces it: torch's default.

A variance of 1 then differs by 0.0005 %, a deviation of 0.01 by 5 %."""
_LEAST_VARIANCE = 1e-30
"""Stands for no epsilon: it keeps the gradient of equal features finite."""


class TTEmbedding(TensorTrain):
    """Rows of a table W (``num_embeddings``, ``embedding_dim``) that is a tensor train.

    Indices of any shape (...) give (..., embedding_dim); a row is the product of one slice
    G_n(:, j_n, :, :) of each factor, so that W is never formed. The row ``padding_idx`` is 0, and
    gives the factors no gradient. All else as in ``TTLinear``; there is no bias. It runs in torch:
    the accelerator has no gather.

    >>> TTEmbedding(5000, 64, rank=8)(torch.tensor([[1, 4999]])).shape
    torch.Size([1, 2, 64])
    """

    sample_dims = 0, 1
    max_norm = Lacking(None, "it rewrites rows, which factors do not hold; keep torch.nn.Embedding")
    scale_grad_by_freq = Lacking(False, "factors have no gradient for each row")
    sparse = Lacking(False, "factors have dense gradients")

    _kept = TensorTrain._kept | {"num_embeddings", "embedding_dim"}

    @takes_numpy_sizes
    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        *,
        rank: Rank = 16,
        outputs: Sequence[int] | None = None,
        inputs: Sequence[int] | None = None,
        order: int | None = None,
        numbers: Numbers = "fixed",
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        require_sizes(num_embeddings=num_embeddings, embedding_dim=embedding_dim)
        super().__init__(
            num_embeddings, embedding_dim, rank=rank, outputs=outputs, inputs=inputs, order=order,
            bias=False, relu=False, numbers=numbers, device=device, dtype=dtype,
        )  # fmt: skip
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = padding_idx

    @property
    def padding_idx(self) -> int | None:
        """Row that is 0; set, it counts from the end where it is negative, as in torch."""
        return self._padding_idx

    @padding_idx.setter
    def padding_idx(self, value: int | None) -> None:
        row = None if value is None else plain(value)
        # 2.5 lies within the table, but would set no row to 0.
        if row is not None and (not is_size(row, -self.rows) or row >= self.rows):
            raise NetworkError(
                "padding_idx must be an integer within the "
                f"{amount(self.rows, 'row')}, not {value!r}"
            )
        self._padding_idx = None if row is None else row % self.rows

    def _make_quantisers(self) -> None:
        super()._make_quantisers()
        self.quantise_input = torch.nn.Identity()  # indices are not numbers

    def _output_dtype(self, x: torch.Tensor) -> torch.dtype:
        if x.dtype not in (torch.int32, torch.int64):
            raise TypeError(
                f"TTEmbedding takes indices of torch.int64 or torch.int32, not {x.dtype}: "
                "convert them, x.long()"
            )
        return self._dtype

    def _weight_of(self, dense: torch.Tensor) -> torch.Tensor:
        """Return the table, whose row of padding is 0."""
        if self.padding_idx is None:
            return dense
        place = torch.arange(self.rows, device=dense.device) == self.padding_idx
        return dense.masked_fill(place[:, None], 0)

    def to_dense(self) -> torch.nn.Embedding:
        """Return the ``torch.nn.Embedding`` of this table, rounded to its bits."""
        weight = self.weight.detach().clone()
        return torch.nn.Embedding(self.rows, self.columns, self.padding_idx, _weight=weight)

    def _outputs(self, x: torch.Tensor) -> torch.Tensor:
        """Return the rows of integer indices ``x``; ``IndexError`` outside of the table."""
        flat = x.reshape(-1)
        # Indices that are recorded, or have no values, cannot be looked at.
        seen = not traced() and not flat.is_meta and flat.numel()
        if seen and not 0 <= int(flat.min()) <= int(flat.max()) < self.rows:
            raise IndexError(
                f"indices from {int(flat.min())} to {int(flat.max())}, the table has {self.rows} "
                "rows"
            )
        rows: Any = None
        for factor, place in zip(self.used_factors(), self._places(flat), strict=True):
            chosen = factor.index_select(1, place).transpose(0, 1)  # (n, R_{n-1}, I_n, R_n)
            n, left, size, right = chosen.shape
            if rows is None:
                rows = chosen.reshape(n, size, right)
                continue
            product = rows @ chosen.reshape(n, left, size * right)
            rows = product.reshape(n, rows.shape[1] * size, right)
        table = rows.reshape(flat.shape[0], prod(self.inputs))[:, : self.columns]
        if self.padding_idx is not None:
            table = table.masked_fill((flat == self.padding_idx)[:, None], 0)
        return self.finished(table.reshape(*x.shape, self.columns))

    def _places(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """Split row numbers into j_1 .. j_d."""
        places: list[torch.Tensor] = []
        for size in reversed(self.outputs[1:]):
            places.insert(0, flat % size)
            flat = flat // size
        return [flat, *places]  # only the first may lie beyond its factor, if the index does

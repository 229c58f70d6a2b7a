"""Layers whose matrices are tensor trains: linear, convolution, embedding."""

from collections.abc import Sequence
from math import prod
from typing import Any, Self

import torch

from trainwright.network import NetworkError
from trainwright.nn.shapes import image_sizes, is_size, kernel_sizes, likely
from trainwright.nn.tensor_train import Numbers, Rank, TensorTrain


class TTLinear(TensorTrain):
    """``y = x W^T + b`` of x (..., ``in_features``): (..., ``out_features``), W a tensor train.

    ``rank`` is one number for all bonds (cut to what each can use), a list R_1..R_{d-1}, or
    ``"auto"``: up to 16 at the start, for the rank prior and ``cut_ranks`` to reduce.
    ``outputs`` J_1..J_d and ``inputs`` I_1..I_d are chosen where they are not given, padded so that
    the accelerator takes them (both end in 16); ``order`` is d. ``in_features`` (C, H, W) are the
    C H W features of an image, flattened as torch does: inputs are then not padded, and the first
    of them multiply to C. ``relu`` says that a ReLU follows, for the initial values.
    ``numbers`` are ``"fixed"`` (factors of 4 bits, inputs and bias of 8,
    outputs and their gradients of 16), ``"float32"``, formats as of ``trainwright train --formats``
    (``"activation=posit(8,0),gradient=posit(8,1)c"``), or ``Widths``.

    In fixed point inputs, factors, bias, outputs and gradients of outputs are rounded by the
    accelerator's quantisers; contractions within the layer are float32. ``trainwright.compile``
    gives all of the accelerator's bits.

    Raises ``NetworkError`` for sizes, ranks or numbers that cannot be.

    >>> layer = TTLinear(784, 512, rank=16)
    >>> layer(torch.zeros(2, 784)).shape, layer.ranks
    (torch.Size([2, 512]), (16, 16))
    """

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
    ) -> None:
        if isinstance(in_features, (tuple, list)):
            image, in_features = in_features, prod(in_features)
            if outputs is None and inputs is None:
                most, length = likely(rank, order)
                outputs, inputs = image_sizes(out_features, image, rank=most, order=length)
                order = None
        super().__init__(
            out_features, in_features, rank=rank, outputs=outputs, inputs=inputs, order=order,
            bias=bias, relu=relu, numbers=numbers,
        )  # fmt: skip
        self.in_features, self.out_features = in_features, out_features

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(..., in_features) to (..., out_features); ``ValueError`` for another size."""
        if x.shape[-1] != self.columns:
            raise ValueError(f"inputs have {x.shape[-1]} features, this layer takes {self.columns}")
        x = self.quantise_input(x)
        if self.padding_columns:
            x = torch.nn.functional.pad(x, (0, self.padding_columns))
        y = self.matrix().apply(x)
        if y.shape[-1] > self.rows:
            y = y[..., : self.rows]
        bias = self.used_bias()
        return self.finished(y if bias is None else y + bias)


def _pair(name: str, value: int | tuple[int, int], least: int) -> tuple[int, int]:
    pair = (value, value) if isinstance(value, int) else tuple(value)
    if len(pair) != 2 or not all(is_size(n, least) for n in pair):
        raise NetworkError(f"{name} must be one or two integers of at least {least}, not {value!r}")
    return pair[0], pair[1]


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
    ``stride``, ``padding`` and ``dilation`` are one or two integers, as in ``torch.nn.Conv2d``;
    there are no groups. All else as in ``TTLinear``. ``trainwright.compile`` puts it on the
    accelerator, but for dilation and padding as large as the kernel.

    >>> layer = TTConv2d(3, 32, 3, padding=1, rank=8)
    >>> layer(torch.zeros(1, 3, 8, 8)).shape, layer.outputs, layer.inputs
    (torch.Size([1, 32, 8, 8]), (4, 8), (9, 3))
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] = 0,
        dilation: int | tuple[int, int] = 1,
        *,
        rank: Rank = 16,
        outputs: Sequence[int] | None = None,
        inputs: Sequence[int] | None = None,
        order: int | None = None,
        bias: bool = True,
        relu: bool = True,
        numbers: Numbers = "fixed",
    ) -> None:
        if not is_size(in_channels):
            raise NetworkError(f"in_channels must be at least 1, not {in_channels!r}")
        self_kernel = _pair("kernel_size", kernel_size, 1)
        places = prod(self_kernel)
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
            order=order, bias=bias, relu=relu, numbers=numbers,
        )  # fmt: skip
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size = self_kernel
        self.stride = _pair("stride", stride, 1)
        self.padding = _pair("padding", padding, 0)
        self.dilation = _pair("dilation", dilation, 1)

    def kernel(self) -> torch.Tensor:
        """The kernel (O, C, kh, kw), dense and differentiable."""
        shape = (self.rows, *self.kernel_size, self.in_channels)
        return self.weight().reshape(shape).permute(0, 3, 1, 2)

    def load_kernel(
        self,
        kernel: torch.Tensor,
        bias: torch.Tensor | None = None,
        *,
        rank: Rank | None = None,
        tolerance: float | None = None,
    ) -> Self:
        """``load_dense`` of a kernel (O, C, kh, kw)."""
        weight = kernel.permute(0, 2, 3, 1).reshape(len(kernel), -1)
        return self.load_dense(weight, bias, rank=rank, tolerance=tolerance)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, C, H, W) to (N, O, H', W')."""
        y = torch.nn.functional.conv2d(
            self.quantise_input(x), self.kernel(), self.used_bias(), self.stride, self.padding,
            self.dilation,
        )  # fmt: skip
        return self.finished(y)

    def extra_repr(self) -> str:
        """What ``print`` says of the layer behind its class."""
        return (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}, padding={self.padding}, {super().extra_repr()}"
        )


class TTEmbedding(TensorTrain):
    """Rows of a table W (``num_embeddings``, ``embedding_dim``) that is a tensor train.

    Indices of any shape (...) give (..., embedding_dim); a row is the product of one slice
    G_n(:, j_n, :, :) of each factor, so that W is never formed. All else as in ``TTLinear``; there
    is no bias. It runs in torch: the accelerator has no gather.

    >>> TTEmbedding(5000, 64, rank=8)(torch.tensor([[1, 4999]])).shape
    torch.Size([1, 2, 64])
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        *,
        rank: Rank = 16,
        outputs: Sequence[int] | None = None,
        inputs: Sequence[int] | None = None,
        order: int | None = None,
        numbers: Numbers = "fixed",
    ) -> None:
        super().__init__(
            num_embeddings, embedding_dim, rank=rank, outputs=outputs, inputs=inputs, order=order,
            bias=False, relu=False, numbers=numbers,
        )  # fmt: skip
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.quantise_input = torch.nn.Identity()  # indices are not numbers

    def forward(self, indices: torch.Tensor) -> torch.Tensor:
        """Rows of integer ``indices``; ``IndexError`` outside of the table."""
        flat = indices.reshape(-1)
        if flat.numel() and not 0 <= int(flat.min()) <= int(flat.max()) < self.rows:
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
            rows = (rows @ chosen.reshape(n, left, size * right)).reshape(n, -1, right)
        table = rows.reshape(len(flat), -1)[:, : self.columns]
        result = table.reshape(*indices.shape, self.columns)
        return self.finished(result)

    def _places(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """j_1 .. j_d of row numbers."""
        places: list[torch.Tensor] = []
        for size in reversed(self.outputs):
            places.insert(0, flat % size)
            flat = flat // size
        return places

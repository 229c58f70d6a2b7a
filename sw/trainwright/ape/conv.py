"""``conv2d`` through ``gemm``: columns of patches (im2col) times the weights."""

from typing import Any

from torch import Tensor, float32
from torch.nn import functional

from trainwright.ape.gemm import DEFAULT_ADAPTER, check_options, gemm
from trainwright.ape.schemes import AUTO
from trainwright.support.arguments import plain_sizes, require_dense
from trainwright.support.convolution import check_convolution, pair_of
from trainwright.support.graphs import library_call

Sizes = int | tuple[int, int]


def _padding(
    padding: Any, kernel: tuple[int, int], dilation: tuple[int, int], stride: tuple[int, int]
) -> tuple[int, ...]:
    """Return (left, right, top, bottom) for ``functional.pad``."""
    padding = plain_sizes(padding)
    if padding == "valid":
        padding = 0
    if padding == "same":
        if stride != (1, 1):
            raise ValueError(f"padding 'same' goes with stride 1, not {stride}")
        total = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        return total[1] // 2, total[1] - total[1] // 2, total[0] // 2, total[0] - total[0] // 2
    high, wide = pair_of("padding", padding, 0)
    return wide, wide, high, high


def _kind(value: Any) -> str:
    return str(value.dtype) if isinstance(value, Tensor) else type(value).__name__


def patches(x: Tensor, kernel: Sizes, stride: Sizes, dilation: Sizes, groups: int) -> Tensor:
    """Unfold padded x (N, C, H, W) to (N, groups, C/groups * kh * kw, positions)."""
    columns = functional.unfold(x, kernel, dilation=dilation, stride=stride)
    return columns.reshape(x.shape[0], groups, -1, columns.shape[-1])


def _out_size(x: Tensor, kernel: Any, stride: Any, dilation: Any) -> tuple[int, int]:
    high, wide = (
        (size - d * (k - 1) - 1) // s + 1
        for size, k, s, d in zip(x.shape[2:], kernel, stride, dilation, strict=True)
    )
    return high, wide


@library_call
def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    **options: Any,
) -> Tensor:
    """Convolve like ``torch.nn.functional.conv2d``, by ``gemm`` with ``options`` (``dtype``, ...).

    x (N, C, H, W) and weight (O, C/groups, kh, kw) are float32; the result is (N, O, H', W'). K
    runs over channels, then the kernel's rows, then its columns; the bias is added in float32. The
    gradient of x adds overlapping patches in float32. Raises ``ValueError`` and ``TypeError``.

    >>> import torch
    >>> x, weight = torch.randn(1, 3, 8, 8), torch.randn(4, 3, 3, 3)
    >>> conv2d(x, weight, padding=1, dtype="fp32-b").shape
    torch.Size([1, 4, 8, 8])
    """
    for name, tensor in (("x", x), ("weight", weight)):
        if not isinstance(tensor, Tensor) or tensor.dtype is not float32:
            raise TypeError(f"{name} must be a tensor of float32, not {_kind(tensor)}")
        require_dense(name, tensor)
    if bias is not None and (not isinstance(bias, Tensor) or bias.dtype is not float32):
        raise TypeError(f"bias must be a tensor of float32, not {_kind(bias)}")
    given = {"dtype": AUTO, "accumulation": None, "adapter": DEFAULT_ADAPTER, **options}
    check_options(*(given[name] for name in ("dtype", "accumulation", "adapter")))
    if x.ndim == 3:
        return conv2d(x[None], weight, bias, stride, padding, dilation, groups, **options)[0]
    stride, dilation = pair_of("stride", stride, 1), pair_of("dilation", dilation, 1)
    if weight.ndim != 4:
        raise ValueError(f"a weight has 4 dimensions, not {weight.ndim}")
    kernel = (weight.shape[2], weight.shape[3])
    edges = _padding(padding, kernel, dilation, stride)
    check_convolution(
        x.shape, weight.shape, None if bias is None else bias.shape,
        stride=stride, padding=edges, dilation=dilation, groups=groups,
    )  # fmt: skip
    x = functional.pad(x, list(edges))
    high, wide = _out_size(x, kernel, stride, dilation)
    if x.shape[0] == 0 or weight.shape[0] == 0 or x.shape[1] == 0:
        result = x.new_zeros(x.shape[0], weight.shape[0], high, wide)
    else:
        columns = patches(x, kernel, stride, dilation, groups)  # (N, G, K, P)
        columns = columns.permute(1, 2, 0, 3).flatten(2)  # (G, K, N P)
        filters = weight.reshape(groups, weight.shape[0] // groups, -1)  # (G, O/G, K)
        result = gemm(filters, columns, **options)  # (G, O/G, N P)
        result = result.reshape(weight.shape[0], x.shape[0], high, wide).transpose(0, 1)
    return result if bias is None else result + bias[:, None, None]


def conv2d_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    groups: int,
    wanted: tuple[bool, bool, bool],
    **options: Any,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return gradients of x, weight and bias (None where not wanted), products by ``gemm``.

    grad is (N, O, H', W'); the other arguments are those of ``conv2d``, with padding as sizes.
    """
    stride, dilation = pair_of("stride", stride, 1), pair_of("dilation", dilation, 1)
    kernel = (weight.shape[2], weight.shape[3])
    high, wide = pair_of("padding", padding, 0)
    outer = functional.pad(x, [wide, wide, high, high])
    count, channels = x.shape[0], x.shape[1]
    rows = grad.transpose(0, 1).reshape(groups, weight.shape[0] // groups, -1)  # (G, O/G, N P)
    to_x = to_weight = None
    if wanted[0]:
        filters = weight.reshape(groups, weight.shape[0] // groups, -1)  # (G, O/G, K)
        columns = gemm(filters, rows, transpose_a=True, **options)  # (G, K, N P)
        columns = columns.reshape(groups * columns.shape[1], count, -1).transpose(0, 1)
        size = (outer.shape[2], outer.shape[3])
        folded = functional.fold(columns, size, kernel, dilation=dilation, stride=stride)
        to_x = folded[:, :channels, high : high + x.shape[2], wide : wide + x.shape[3]]
    if wanted[1]:
        columns = patches(outer, kernel, stride, dilation, groups)  # (N, G, K, P)
        columns = columns.permute(1, 2, 0, 3).flatten(2)  # (G, K, N P)
        to_weight = gemm(rows, columns, transpose_b=True, **options).reshape(weight.shape)
    return to_x, to_weight, grad.sum((0, 2, 3)) if wanted[2] else None

"""Functions of torch that posits replace above autograd, because torch's own leave them there.

torch also takes no fused inference path of its transformer layers for a tensor with overrides.
"""

from collections.abc import Callable
from math import inf
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from trainwright.posit.format import PositError, PositFormat
from trainwright.posit.operators.registry import number, own_type
from trainwright.posit.operators.structure import LEAST
from trainwright.support.arguments import plain

_functions: Any = torch  # whose stubs lack private functions and lists of dimensions


def _in_parts(func: Callable[..., Any]) -> Callable[..., Any]:
    """Run a function without the kernels that take attention or an LSTM of floats as a whole."""

    def run(*args: Any, **kwargs: Any) -> Any:
        enabled = torch._C._get_mkldnn_enabled()
        torch._C._set_mkldnn_enabled(False)
        try:
            with sdpa_kernel(SDPBackend.MATH):
                return func(*args, **kwargs)
        finally:
            torch._C._set_mkldnn_enabled(enabled)

    return run


def _pack(data: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
    """Pack sequences by the places that torch gives; its own gradient fills a tensor of floats."""
    places = torch.arange(data.shape[0] * data.shape[1]).reshape(data.shape[:2])
    packed, sizes = _functions._pack_padded_sequence(places, lengths, batch_first)
    return data.flatten(0, 1)[packed.to(data.device)], sizes


def _pad_packed(
    data: Tensor, batch_sizes: Tensor, batch_first: bool, padding: float, total_length: int
) -> tuple[Tensor, Tensor]:
    """Pad sequences by the places that torch gives; its own fills a tensor of floats."""
    places, lengths = _functions._pad_packed_sequence(
        torch.arange(len(data)), batch_sizes, batch_first, -1, total_length
    )
    places = places.to(data.device)
    outside = (places < 0).reshape(*places.shape, *[1] * (data.dim() - 1))
    return data[places.clamp(min=0)].masked_fill(outside, padding), lengths


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Start every sum from the bias; torch's own adds it later where x is not contiguous."""
    if bias is None:
        return F.linear(x, weight)
    lines = torch.addmm(bias, x.reshape(-1, x.shape[-1]), weight.t())
    return lines.reshape(*x.shape[:-1], weight.shape[0])


def _contiguous(func: Callable[..., Any]) -> Callable[..., Any]:
    """Make two factors contiguous: torch's own rounds each product where a factor is not."""

    def run(input: Tensor, other: Tensor, **kwargs: Any) -> Tensor:
        return func(input.contiguous(), other.contiguous(), **kwargs)

    return run


def _tensordot(a: Tensor, b: Tensor, dims: Any = 2, out: Any = None) -> Tensor:
    """Move the summed dimensions next to each other: torch's own rounds strided products."""
    several = isinstance(dims, Tensor) and dims.numel() > 1
    sums: Any = dims.tolist() if several else dims
    if isinstance(sums, list | tuple) and len(sums) == 2:
        left, right = sums
        a = a.movedim(left, tuple(range(-len(left), 0)))
        b = b.movedim(right, tuple(range(len(right))))
        # Torch refuses lists of two lengths.
        sums = [list(range(-len(left), 0)), list(range(len(right)))]
    return _functions.tensordot(a.contiguous(), b.contiguous(), sums, out=out)


def _vecdot(x: Tensor, y: Tensor, *, dim: int = -1, out: Any = None) -> Tensor:
    """Multiply rows by columns: torch's own rounds each product, except of two vectors."""
    if not (x.dim() or y.dim()):
        return torch.linalg.vecdot(x, y, dim=dim, out=out)
    x, y = (t.movedim(dim, -1) for t in torch.broadcast_tensors(x, y))
    sums = (x.unsqueeze(-2) @ y.unsqueeze(-1)).squeeze(-1).squeeze(-1)
    return sums if out is None else torch.mul(sums, 1, out=out)


def _attention(query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Make the operands contiguous for ``F.linear``, keeping the identity that torch asks for."""
    contiguous = {id(x): x.contiguous() for x in (query, key, value)}
    return F.multi_head_attention_forward(
        contiguous[id(query)], contiguous[id(key)], contiguous[id(value)], *args, **kwargs
    )


def _recurrent(func: Callable[..., Any]) -> Callable[..., Any]:
    """Make the input of an RNN contiguous with time first, for the same reason."""

    def run(x: Tensor, *args: Any) -> Any:
        packed = not isinstance(args[2], bool)  # otherwise has_biases
        if packed or not args[-1]:
            return func(x.contiguous(), *args)
        y, *states = func(x.transpose(0, 1).contiguous(), *args[:-1], False)
        return y.transpose(0, 1), *states

    return run


def _nanmean(
    x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    """Divide by the count of reals; torch's own takes NaR, which equals itself, for one."""
    count = torch.isnan(x).logical_not().sum(dim, keepdim)
    return torch.nansum(x, dim, keepdim, dtype=dtype) / count


def _isclose(
    x: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    """Compare as ``allclose`` does: NaR is close to nothing, unless ``equal_nan``."""
    close = torch.isclose(x, other, rtol, atol, equal_nan)
    return close if equal_nan else close & ~torch.isnan(x)


def _quantiles(func: Callable[..., Any]) -> Callable[..., Any]:
    """Name what takes quantiles between two elements, for which torch's weights are floats."""

    def run(x: Any, q: Any, *args: Any, **kwargs: Any) -> Tensor:
        try:
            return func(x, q, *args, **kwargs)
        except PositError as error:
            raise PositError(
                f"torch.{func.__name__} weighs two elements by floats, which do not mix with "
                "posits: interpolation='nearest' takes one of them, x.decode() gives floats"
            ) from error

    return run


def _norm_of_nothing(func: Callable[..., Any]) -> Callable[..., Any]:
    """Make posits of the norm of an empty matrix, for which torch makes zeros of floats."""

    def run(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        y = func(x, *args, **kwargs)
        return x.new_zeros(y.shape) if type(y) is Tensor and not x.numel() else y

    return run


def _where(func: Callable[..., Any]) -> Callable[..., Any]:
    """Round numbers to the format first: torch's own converts them to another float type.

    Limits, and the numbers that stand for -inf, are those of the operator.
    """

    def run(*args: Any, **kwargs: Any) -> Any:
        like: Any = next(
            (x for x in (*args, *kwargs.values()) if isinstance(getattr(x, "fmt", 0), PositFormat)),
            None,
        )

        def rounded(x: Any) -> Any:
            if not isinstance(x, int | float) or x == -inf or x in LEAST:
                return x
            nearest = torch.tensor(number(x, like.fmt), dtype=like.dtype, device=like.device)
            return type(like).of_values(nearest, like.fmt)

        if like is None:  # a condition, or the tensor of out=
            return func(*args, **kwargs)
        return func(*map(rounded, args), **{name: rounded(x) for name, x in kwargs.items()})

    return run


def _set(x: Tensor, places: Any, value: Any) -> None:
    """Round a number once: torch's own makes a tensor of the carrier's type of it before."""
    value, fmt = plain(value), getattr(x, "fmt", None)
    finite = isinstance(value, int | float) and value == value and abs(value) != inf
    rounded = number(value, fmt) if finite and fmt is not None else _entering(value, x)
    Tensor.__setitem__(x, places, rounded)


def _entering(source: Any, like: Any) -> Any:
    """Round floats of a graph that are written into posits, so that their gradient is of floats."""
    if not hasattr(like, "fmt") or hasattr(source, "fmt") or not isinstance(source, Tensor):
        return source
    return type(like)(source, like.fmt) if source.requires_grad else source


def _log_sums(input: Tensor, dim: int, *, out: Any = None) -> Tensor:
    """Take logsumexp up to each place where a gradient is needed; the values are the same.

    Torch's own gradient hides terms by e^-maxpos, which is no 0 in posits: a second derivative
    would count these terms whole.
    """
    if out is not None or not (input.requires_grad and torch.is_grad_enabled()) or not input.dim():
        return torch.logcumsumexp(input, dim, out=out)
    parts = [input.narrow(dim, 0, k + 1).logsumexp(dim) for k in range(input.shape[dim])]
    return torch.stack(parts, dim) if parts else torch.logcumsumexp(input, dim)


def _divided(x: Tensor, dividend: Any) -> Tensor:
    """Divide a number by x; torch's own multiplies it by the reciprocal, which rounds twice."""
    like: Any = x
    dividend = plain(dividend)
    if not isinstance(dividend, int | float):
        return x.__rtruediv__(dividend)
    nearest = torch.tensor(number(dividend, like.fmt), dtype=like.dtype, device=like.device)
    return type(like).of_values(nearest, like.fmt) / x


def _new_tensor(
    x: Any, data: Any, *, dtype: torch.dtype | None = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Round data to the format; torch's own makes a tensor of the carrier's type of it."""
    device = x.device if device is None else device
    data = data.detach() if isinstance(data, Tensor) else data
    if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
        return torch.as_tensor(data).to(device, dtype, copy=True)
    own_type(dtype, x.fmt)
    return type(x)(data, x.fmt).to(device).requires_grad_(requires_grad)


def _new(x: Any, *given: Any, device: Any = None) -> Tensor:
    """Make posits by torch's old constructor, which takes data or sizes."""
    if len(given) == 1 and not isinstance(plain(given[0]), int | torch.Size):
        return _new_tensor(x, given[0], device=device)
    return x.new_empty(*given or (0,), device=device)


OVERRIDES: dict[Any, Callable[..., Any]] = {
    F.linear: _linear,
    torch.tensordot: _tensordot,
    **{func: _contiguous(func) for func in (torch.inner, Tensor.inner)},
    torch.linalg.vecdot: _vecdot,
    F.multi_head_attention_forward: _in_parts(_attention),
    F.scaled_dot_product_attention: _in_parts(F.scaled_dot_product_attention),
    torch.lstm: _recurrent(_in_parts(torch.lstm)),
    **{func: _recurrent(func) for func in (torch.gru, torch.rnn_tanh, torch.rnn_relu)},
    **{func: _where(func) for func in (torch.where, Tensor.where)},
    Tensor.__rdiv__: _divided,
    Tensor.__setitem__: _set,
    Tensor.new_tensor: _new_tensor,
    Tensor.new: _new,
    Tensor.copy_: lambda x, other, *args, **options: Tensor.copy_(
        x, _entering(other, x), *args, **options
    ),
    **dict.fromkeys((torch.nanmean, Tensor.nanmean), _nanmean),
    **dict.fromkeys((torch.logcumsumexp, Tensor.logcumsumexp), _log_sums),
    **dict.fromkeys((torch.isclose, Tensor.isclose), _isclose),
    **{func: _norm_of_nothing(func) for func in (torch.linalg.norm, torch.linalg.matrix_norm)},
    **{
        name: _quantiles(func)
        for func in (torch.quantile, torch.nanquantile)
        for name in (func, getattr(Tensor, func.__name__))
    },
    # An encoder asks whether it may make nested tensors, whose kernels compute in floats.
    _functions._nested_tensor_from_mask_left_aligned: lambda x, mask: False,
    _functions._pack_padded_sequence: _pack,
    _functions._pad_packed_sequence: _pad_packed,
}
"""Replacements by function of torch."""

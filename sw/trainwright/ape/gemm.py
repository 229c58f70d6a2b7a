"""``gemm``: alpha op(A) op(B) + beta C in any of the types, batched, differentiable."""

import math
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from trainwright.ape import integer, residues
from trainwright.ape.accumulate import Accumulation
from trainwright.ape.adapter import Adapter
from trainwright.ape.combine import RoundedOnce
from trainwright.ape.products import native_product, product
from trainwright.ape.schemes import (
    AUTO,
    INT16,
    NAMES,
    NATIVE,
    SCHEMES,
    element_type,
    scheme,
    value_range,
)
from trainwright.support.arguments import (
    flag,
    plain,
    require_dense,
    require_kind,
    require_plain,
)
from trainwright.support.caution import warn_user
from trainwright.support.graphs import library_call, with_own_settings
from trainwright.support.text import shown

DEFAULT_ADAPTER = Adapter()


def multiply(
    a: Tensor,
    b: Tensor,
    dtype: str,
    how: Accumulation | None = None,
    adapter: Adapter = DEFAULT_ADAPTER,
) -> Tensor:
    """Multiply (..., M, K) by (..., K, N) with equal leading shapes, without gradients."""
    if dtype == NATIVE:
        return native_product(a, b)
    lead = a.shape[:-2]
    shape = (*lead, a.shape[-2], b.shape[-1])
    if 0 in shape or a.shape[-1] == 0:
        return a.new_zeros(shape)
    a = a.reshape(-1, *a.shape[-2:])  # (B, M, K)
    b = b.reshape(-1, *b.shape[-2:])  # (B, K, N)
    if dtype in residues.TYPES:
        return residues.product(a, b, residues.TYPES[dtype]).reshape(shape)
    if dtype == AUTO:
        if len(a) == 1:  # a stack of one would be a copy
            return adapter.product(a[0], b[0], how).reshape(shape)
        products = [adapter.product(x, y, how) for x, y in zip(a, b, strict=True)]
        return torch.stack(products).reshape(shape)
    kind = scheme(dtype)
    if not a.is_cuda:  # the check would make the GPU wait
        _warn_out_of_range(dtype, a, b)
    return product(a, b, kind, how).reshape(shape)


def _warn_out_of_range(dtype: str, *operands: Tensor) -> None:
    """Check for operands that lie below the range of ``dtype`` as a whole, or partly above it.

    An infinity is above every range: with a lower part it gives NaN, or the other infinity.
    """
    low, high = value_range(dtype)
    for operand in operands:
        size = operand.detach().abs()
        greatest = float(size.masked_fill(size.isnan(), 0).amax())
        if greatest > high or 0 < greatest < low:
            warn_user(
                f"an operand with values up to {greatest:.3g} is out of the range of {dtype!r}, "
                f"{low:.3g} to {high:.3g}: the product is wrong; dtype='auto' takes any range"
            )
            return


def _integer(a: Tensor, b: Tensor) -> Tensor:
    """Multiply int16 (..., M, K) by (..., K, N) with equal leading shapes to int64 (..., M, N)."""
    shape = (*a.shape[:-1], b.shape[-1])
    if 0 in shape or a.shape[-1] == 0:
        return a.new_zeros(shape, dtype=torch.int64)
    flat = integer.product(a.reshape(-1, *a.shape[-2:]), b.reshape(-1, *b.shape[-2:]))
    return flat.reshape(shape)


class _Product(torch.autograd.Function):
    """Differentiable product, whose gradients are products of the same type."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, *how: Any) -> Tensor:  # pyright: ignore
        ctx.save_for_backward(a, b)
        ctx.how = how
        return multiply(a, b, *how)

    @staticmethod
    @with_own_settings
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:  # pyright: ignore
        a, b = ctx.saved_tensors
        to_a, to_b = ctx.needs_input_grad[:2]
        return (
            _Product.apply(grad, b.mT, *ctx.how) if to_a else None,
            _Product.apply(a.mT, grad, *ctx.how) if to_b else None,
            *(None for _ in ctx.how),
        )


def check_options(dtype: str, accumulation: Accumulation | None, adapter: Adapter) -> None:
    """Raise ``TypeError`` or ``ValueError`` for no options, or those that ``dtype`` ignores."""
    if dtype not in NAMES:
        raise ValueError(f"dtype must be one of {', '.join(NAMES)}, not {dtype!r}")
    require_kind("adapter", adapter, Adapter)
    if adapter != DEFAULT_ADAPTER and dtype != AUTO:
        raise ValueError(f"adapter is for dtype {AUTO!r}, not {dtype!r}: omit it")
    if accumulation is None:
        return
    require_kind("accumulation", accumulation, Accumulation)
    if dtype not in SCHEMES and dtype != AUTO:
        raise ValueError(
            f"accumulation is for {', '.join(SCHEMES)} and {AUTO}, and dtype {dtype!r} sums in its "
            "own way: omit it"
        )


def _check(a: Tensor, b: Tensor, dtype: str) -> None:
    wanted = element_type(dtype)
    for name, x in (("a", a), ("b", b)):
        if x.dtype != wanted:
            raise TypeError(f"{name} must be {wanted} for dtype {dtype!r}, not {x.dtype}")
        if x.ndim < 2:
            raise ValueError(f"{name} must have at least 2 dimensions, not shape {tuple(x.shape)}")
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(f"cannot multiply {tuple(a.shape)} by {tuple(b.shape)}")


def _components_product(
    a: Tensor, b: Tensor, form: residues.ResidueType, transpose_a: bool, transpose_b: bool
) -> Tensor:
    """Multiply (..., M, K, components) by (..., K, N, components), leading shapes broadcast."""
    a = a.transpose(-3, -2) if transpose_a and a.ndim > 2 else a
    b = b.transpose(-3, -2) if transpose_b and b.ndim > 2 else b
    for name, x in (("a", a), ("b", b)):
        if x.dtype != form.dtype:
            raise TypeError(f"{name} must be {form.dtype} for dtype {form.name!r}, not {x.dtype}")
        if x.ndim < 3 or x.shape[-1] != form.components:
            raise ValueError(
                f"{name} must have the shape (..., rows, columns, {form.components}) for dtype "
                f"{form.name!r}, not {tuple(x.shape)}"
            )
        if x.requires_grad and torch.is_grad_enabled():
            raise ValueError(f"{form.name} has no gradient: give {name}.detach()")
    if a.shape[-2] != b.shape[-3]:
        raise ValueError(f"cannot multiply {tuple(a.shape)} by {tuple(b.shape)}")
    lead = torch.broadcast_shapes(a.shape[:-3], b.shape[:-3])
    shape = (*lead, a.shape[-3], b.shape[-2], form.components)
    if 0 in shape or a.shape[-2] == 0:
        return a.new_zeros(shape)
    x, y = (x.expand(*lead, *x.shape[-3:]).reshape(-1, *x.shape[-3:]) for x in (a, b))
    return residues.product(x, y, form).reshape(shape)


@library_call
def gemm(
    a: Tensor,
    b: Tensor,
    *,
    dtype: str = AUTO,
    c: Tensor | None = None,
    alpha: float = 1,
    beta: float | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
    accumulation: Accumulation | None = None,
    adapter: Adapter = DEFAULT_ADAPTER,
) -> Tensor:
    """Return alpha op(a) op(b) + beta c, op transposing the last two dimensions if asked for.

    a (..., M, K) and b (..., K, N) after op are float32 (int16 for ``int16``, float64 for
    ``fp64-i8``); leading dimensions broadcast, and ``c`` broadcasts to (..., M, N). ``beta`` is 1
    by default if ``c`` is given; 0 does not read ``c``. The result is float32 (``int16``: int64,
    ``fp64-i8``: float64), whatever the type of ``c``. ``fp128-i8`` multiplies numbers that are
    sums of two float64, as ``trainwright.mcf`` has them: the last dimension of a, b and the result
    has the two. It takes neither ``c``, ``alpha`` nor gradients.

    >>> import torch
    >>> a = torch.tensor([[2.0**30 + 1, 1.0]], dtype=torch.float64)
    >>> gemm(a, a, dtype="fp64-i8", transpose_b=True).item() == float((2**30 + 1) ** 2 + 1)
    True
    >>> pairs = torch.stack([a, torch.zeros_like(a)], -1)
    >>> product = gemm(pairs, pairs, dtype="fp128-i8", transpose_b=True)
    >>> sum(int(part) for part in product.flatten()) == (2**30 + 1) ** 2 + 1
    True

    On the CPU the product is exactly the scheme's (see ``products.product``); ``fp32`` is the
    native product, ``auto`` the adapter's. With a ``c`` in float32 or narrower, ``alpha`` and
    ``beta`` are applied in the result's type, each operation rounded; with a ``c`` in float64 or
    of integers, the whole sum is rounded once. Numbers that float64 does not hold, such as 2**53 +
    1, are refused as ``alpha`` and ``beta`` except by ``int16``. ``int16`` is exact, with integer
    ``alpha`` and ``beta`` and a ``c`` of integers in any type. ``accumulation`` says how emulated
    types and ``auto`` sum on the CPU, ``adapter`` how ``auto`` decides; other types refuse them.
    Differentiable, in ``alpha`` and ``beta`` too, except for ``int16``; gradients are products of
    the same type. Raises ``TypeError`` and ``ValueError``, also where an int64 overflows. On the
    CPU an operand out of the range of the type (``value_range``) is a warning.
    """
    for name, x in (("a", a), ("b", b), ("c", c)):
        if not isinstance(x, Tensor) and not (name == "c" and x is None):
            raise TypeError(f"{name} must be a torch tensor, not {type(x).__name__}")
        if x is not None:
            require_dense(name, x)
            if dtype != NATIVE and name != "c":
                require_plain(name, x)
    if beta is None:
        beta = 0 if c is None else 1
    given = beta
    alpha, beta = _factor("alpha", alpha, dtype), _factor("beta", beta, dtype)
    if beta and c is None:
        raise ValueError(f"beta is {given} but there is no c: give c, or omit beta")
    transpose_a, transpose_b = flag("transpose_a", transpose_a), flag("transpose_b", transpose_b)
    check_options(dtype, accumulation, adapter)
    form = residues.TYPES.get(dtype)
    if form and form.components > 1:
        if c is not None or alpha != 1:
            raise ValueError(f"{dtype} takes no c and no alpha: scale and add with trainwright.mcf")
        return _components_product(a, b, form, transpose_a, transpose_b)
    a = a.mT if transpose_a and a.ndim > 1 else a
    b = b.mT if transpose_b and b.ndim > 1 else b
    _check(a, b, dtype)
    if c is not None and (c.is_complex() or c.dtype is torch.uint64):
        raise TypeError(f"c must be of real numbers that int64 or float64 holds, not {c.dtype}")
    if a.shape[:-2] != b.shape[:-2]:
        lead = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        a, b = a.expand(*lead, *a.shape[-2:]), b.expand(*lead, *b.shape[-2:])
    shape = torch.Size((*a.shape[:-1], b.shape[-1]))
    adds = c is not None and not _constant(beta, 0)
    if adds and c is not None and not broadcasts(c.shape, shape):
        raise ValueError(f"c {tuple(c.shape)} does not broadcast to the product's {tuple(shape)}")
    if dtype == INT16:
        return integer.combined(_integer(a, b), c if beta else None, alpha, beta)
    if torch.is_grad_enabled() and (a.requires_grad or b.requires_grad):
        result = _Product.apply(a, b, dtype, accumulation, adapter)
    else:
        result = multiply(a, b, dtype, accumulation, adapter)
    if adds and c is not None and _rounds_twice(result, c, alpha, beta):
        factors = (torch.as_tensor(x, dtype=torch.float64).reshape(()) for x in (alpha, beta))
        exact: Tensor = RoundedOnce.apply(result, c, *factors)
        return exact
    if not _constant(alpha, 1):
        result = result * alpha
    if adds and c is not None:
        c = c.to(result.dtype)
        result = result + (c if _constant(beta, 1) else c * beta)
    return result


def _factor(name: str, factor: Any, dtype: str) -> float:
    """Return alpha or beta as a tensor or a number that the arithmetic of ``dtype`` holds.

    Raises ``TypeError`` for no number, ``ValueError`` for one that would be rounded to float64.
    """
    given: Any = plain(factor)
    number: Any = given
    if isinstance(factor, Tensor):
        if factor.numel() != 1 or factor.is_complex():
            raise TypeError(f"{name} must be a number, not {factor!r}")
        if factor.is_floating_point():
            return given
        number = factor.item()
    elif not isinstance(factor, Real):
        raise TypeError(f"{name} must be a number, not {factor!r}")
    if dtype == INT16:
        return number
    try:
        held = float(number)
    except OverflowError:
        held = math.inf
    if held == number or math.isnan(held):
        return given if isinstance(factor, Tensor) else held
    raise ValueError(
        f"{name} must be a number that float64 holds, not {shown(factor)}: round it by "
        f"float({name}), or take smaller factors"
    )


def _constant(factor: float | Tensor, number: int) -> bool:
    """Return whether a factor is ``number`` and gets no gradient."""
    differentiable = isinstance(factor, Tensor) and factor.requires_grad
    return not (differentiable and torch.is_grad_enabled()) and bool(factor == number)


def _rounds_twice(result: Tensor, c: Tensor, alpha: float | Tensor, beta: float | Tensor) -> bool:
    """Return whether sums in the result's type would round more than the exact sum."""
    if result.dtype is torch.float64 and c.dtype is torch.float64:
        return not (_constant(alpha, 1) and _constant(beta, 1))
    return c.dtype is torch.float64 or not c.is_floating_point()


def broadcasts(shape: torch.Size, target: torch.Size) -> bool:
    """Return whether ``shape`` broadcasts to ``target`` without enlarging the target."""
    try:
        return torch.broadcast_shapes(shape, target) == target
    except RuntimeError:
        return False

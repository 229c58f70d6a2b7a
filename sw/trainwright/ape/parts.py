"""Splitting float32 into the parts of an emulated type, and joining them (listings 1 and 3)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from trainwright.ape import integer
from trainwright.ape.rounding import round_tf32
from trainwright.ape.schemes import INT16, Scheme, scheme
from trainwright.support.arguments import require_dense, require_plain
from trainwright.support.graphs import library_call


def _narrow(x: Tensor, form: Scheme) -> Tensor:
    """Round float32 to the part's format, to nearest even."""
    return round_tf32(x) if form.part == torch.float32 else x.to(form.part)


@library_call
def split(x: Tensor, dtype: str) -> tuple[Tensor, ...]:
    """Return the parts of ``x``, largest first, each in the shape of ``x``.

    ``x`` is float32 (int16 for ``int16``: high byte signed, low byte unsigned). Each part is
    rounded to nearest even; each remainder is exact in float32. Where the first part is not finite
    (x infinite, NaN, or beyond the range), the lower parts are 0. A scaled lower part that would
    round to infinity (a residual of 16 in the top binade of fp16, which 2^12 takes out of range)
    saturates at 65504, an error of at most 2^-22. Raises ``TypeError``.

    >>> high, low = split(torch.tensor([1 + 2.0**-12]), "fp32-f")
    >>> high.item(), low.item()  # the lower part is scaled by 2^12
    (1.0, 1.0)
    """
    if not isinstance(x, Tensor):
        raise TypeError(f"x must be a torch tensor, not {type(x).__name__}")
    require_dense("x", x)
    require_plain("x", x)
    if dtype == INT16:
        return integer.split(x)
    form = scheme(dtype)
    if x.dtype != torch.float32:
        raise TypeError(f"{dtype} is made from float32, not {x.dtype}")
    remainder = x
    parts = []
    for scale in form.scales:
        scaled = remainder * 2.0**scale if scale else remainder
        part = _narrow(scaled, form)
        if scale:
            limit = torch.finfo(form.part).max
            part = part.clamp(-limit, limit)
        parts.append(part)
        taken = part.to(torch.float32) * 2.0**-scale
        remainder = torch.where(
            torch.isfinite(taken), remainder - taken, torch.zeros_like(remainder)
        )
    return tuple(parts)


@library_call
def join(parts: Sequence[Tensor], dtype: str) -> Tensor:
    """Return the value of the parts in float64, exact for every type.

    >>> from trainwright.ape import split
    >>> join(split(torch.tensor([0.1]), "fp32-b"), "fp32-b").float()
    tensor([0.1000])
    """
    if dtype == INT16:
        return integer.join(parts).to(torch.float64)
    form = scheme(dtype)
    if len(parts) != form.parts:
        raise ValueError(f"{dtype} has {form.parts} parts, not {len(parts)}")
    total = parts[0].to(torch.float64)
    for part, scale in zip(parts[1:], form.scales[1:], strict=True):
        total = total + part.to(torch.float64) * 2.0**-scale
    return total

"""Sizes that a convolution of two dimensions can have, checked before anything is computed."""

from collections.abc import Sequence
from typing import Any

from trainwright.support.arguments import plain_sizes
from trainwright.support.text import amount

Pair = tuple[int, int]


def pair_of(name: str, value: Any, least: int) -> Pair:
    """Return (vertical, horizontal) of one or two numbers. Raises ``ValueError``, ``TypeError``."""
    if isinstance(value, str):
        raise ValueError(f"{name} must be numbers, not {value!r}")
    value = plain_sizes(value)
    sizes = tuple(value) if isinstance(value, Sequence) else (value, value)
    sizes = sizes * 2 if len(sizes) == 1 else sizes
    if any(not isinstance(size, int) or isinstance(size, bool) for size in sizes):
        raise TypeError(f"{name} must be one or two integers, not {value!r}")
    if len(sizes) != 2 or min(sizes) < least:
        raise ValueError(f"{name} must be one or two integers of at least {least}, not {value!r}")
    return sizes[0], sizes[1]


def check_convolution(
    x: Sequence[int],
    weight: Sequence[int],
    bias: Sequence[int] | None,
    *,
    stride: Pair,
    padding: Sequence[int],
    dilation: Pair,
    groups: int,
) -> None:
    """Raise ``ValueError`` where shapes do not go together.

    x (N, C, H, W), weight (O, C/groups, kh, kw), bias (O,); ``padding`` (left, right, top, bottom).
    """
    pair_of("stride", stride, 1)
    pair_of("dilation", dilation, 1)
    if min(padding) < 0:
        raise ValueError(f"padding must be at least 0, not {min(padding)}")
    shapes = f"{tuple(x)} with {tuple(weight)} in {amount(groups, 'group')}"
    if len(x) != 4 or len(weight) != 4 or groups < 1:
        raise ValueError(f"cannot convolve {shapes}")
    if x[1] != weight[1] * groups or weight[0] % groups:
        raise ValueError(f"cannot convolve {shapes}: each group has as many channels and outputs")
    if bias is not None and tuple(bias) != (weight[0],):
        wanted = (weight[0],)
        raise ValueError(f"bias has shape {tuple(bias)}, not {wanted}: one value an output")
    left, right, top, bottom = padding
    for size, side, kernel, spread in (
        (x[2] + top + bottom, "high", weight[2], dilation[0]),
        (x[3] + left + right, "wide", weight[3], dilation[1]),
    ):
        if kernel < 1 or spread * (kernel - 1) + 1 > size:
            pixels = amount(size, "pixel")
            raise ValueError(
                f"a kernel {kernel} {side} with dilation {spread} does not fit {pixels}"
            )

"""The emulated types: what they are made of, which products are formed, what they hold.

Source: Ma et al., *Efficiently Emulating High-Bitwidth Computation with Low-Bitwidth Hardware*
(ICS 2022), sections 4.1-4.4. A type is data: the native format of its parts, the power of two that
scales each part, and its products in groups. A group has one float32 accumulator; the
accumulators are added, smallest first, when K is done.
"""

from dataclasses import dataclass

import torch

Pair = tuple[int, int]
"""Part of the left operand, part of the right one; 0 is the largest part."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Products that share one float32 accumulator, computed pair by pair along K."""

    pairs: tuple[Pair, ...]
    shift: int = 0
    """The group's sum counts times 2^-shift (scaled lower parts)."""


@dataclass(frozen=True, kw_only=True)
class Scheme:
    """An emulated type. ``minimum`` and ``maximum`` bound |x| for x other than 0."""

    name: str
    part: torch.dtype
    """Native format of the parts; float32 stands for TF32 stored in 32 bits."""
    scales: tuple[int, ...]
    """Part n holds its piece of x times 2^scales[n]."""
    groups: tuple[Group, ...]
    """Largest first."""
    minimum: float
    maximum: float
    precision: float
    """Largest |join(split(x)) - x| / |x| in range, as the paper states it."""
    product_error: float
    """Largest relative error of one product, before any accumulation; derived in docs/ape.md."""

    @property
    def parts(self) -> int:
        """How many native numbers make one."""
        return len(self.scales)

    @property
    def products(self) -> int:
        """How many native products make one."""
        return sum(len(group.pairs) for group in self.groups)


_HIGH = Group(pairs=((0, 0),))


def _two(name: str, part: torch.dtype, scale: int, *, keep: bool, **limits: float) -> Scheme:
    """Two parts and three products; ``keep`` adds lo*lo."""
    groups = [_HIGH, Group(pairs=((0, 1), (1, 0)), shift=scale)]
    if keep:
        groups.append(Group(pairs=((1, 1),), shift=2 * scale))
    return Scheme(
        name=name,
        part=part,
        scales=(0, scale),
        groups=tuple(groups),
        precision=2.0**-22,
        product_error=2.0**-22 if keep else 2.0**-21,
        minimum=limits["minimum"],
        maximum=limits["maximum"],
    )


_HALF = {"minimum": 2.0**-14, "maximum": 65504.0}
# The largest float32 below the tie that rounds hi to infinity.
_TF32 = {"minimum": 2.0**-114, "maximum": (2 - 2.0**-11 - 2.0**-23) * 2.0**127}
_BF16 = {"minimum": 2.0**-110, "maximum": (2 - 2.0**-8 - 2.0**-23) * 2.0**127}

SCHEMES: dict[str, Scheme] = {
    scheme.name: scheme
    for scheme in (
        _two("fp32-f", torch.float16, 12, keep=False, **_HALF),
        _two("fp32-t", torch.float32, 0, keep=False, **_TF32),
        Scheme(
            name="fp32-b",
            part=torch.bfloat16,
            scales=(0, 0, 0),
            groups=(
                _HIGH,
                Group(pairs=((0, 1), (1, 0))),
                Group(pairs=((0, 2), (1, 1), (2, 0))),
            ),
            precision=2.0**-23,
            product_error=2.0**-23,
            **_BF16,
        ),
        Scheme(  # Markidis et al. 2018: one accumulator, the smallest products first
            name="fp32-m",
            part=torch.float16,
            scales=(0, 0),
            groups=(Group(pairs=((1, 1), (0, 1), (1, 0), (0, 0))),),
            minimum=0.25,
            maximum=65504.0,
            precision=2.0**-21,
            product_error=2.0**-21,
        ),
        # lo*lo kept: what ``auto`` needs for 2^-22 a product where the parts cannot vouch for it
        _two("fp32-f4", torch.float16, 12, keep=True, **_HALF),
        _two("fp32-t4", torch.float32, 0, keep=True, **_TF32),
    )
}
"""Floating types by name. ``int16`` has its own arithmetic (``trainwright.ape.integer``)."""

NATIVE = "fp32"
AUTO = "auto"
INT16 = "int16"
NAMES = (*SCHEMES, INT16, NATIVE, AUTO)


def scheme(dtype: str) -> Scheme:
    """The floating type of this name; ``ValueError`` for any other."""
    try:
        return SCHEMES[dtype]
    except KeyError:
        raise ValueError(
            f"dtype must be an emulated floating type ({', '.join(SCHEMES)}), not {dtype!r}"
        ) from None


def value_range(dtype: str) -> tuple[float, float]:
    """(least, largest) |x| that ``dtype`` represents to its precision; 0 always does.

    ``int16``: (0, 32768), every value of the type.
    """
    if dtype == INT16:
        return 0.0, 32768.0
    found = scheme(dtype)
    return found.minimum, found.maximum


def precision(dtype: str) -> float:
    """Largest relative error of a value in range after split and join; 0 for ``int16``."""
    return 0.0 if dtype == INT16 else scheme(dtype).precision

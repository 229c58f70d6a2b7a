"""Emulated types: their parts, their products and their ranges.

Source: Ma et al., *Efficiently Emulating High-Bitwidth Computation with Low-Bitwidth Hardware* (ICS
2022), sections 4.1-4.4. A type is data: the native format of its parts, the power of two that
scales each part, and its products in groups. A group has one float32 accumulator; the accumulators
are added, smallest first, at the end of K.
"""

from dataclasses import dataclass

import torch

from trainwright.ape import residues

Pair = tuple[int, int]
"""Index of the left operand's part and of the right operand's part; 0 is the largest part."""


@dataclass(frozen=True, kw_only=True)
class ProductGroup:
    """Products that share one float32 accumulator, computed pair by pair along K."""

    pairs: tuple[Pair, ...]
    shift: int = 0
    """Weight 2^-shift of the group's sum (scaled lower parts)."""


@dataclass(frozen=True, kw_only=True)
class Scheme:
    """Emulated type. ``minimum`` and ``maximum`` bound |x| for nonzero x."""

    name: str
    part: torch.dtype
    """Native format of the parts; float32 stands for TF32 stored in 32 bits."""
    scales: tuple[int, ...]
    """Binary exponents: part n holds its piece of x times 2^scales[n]."""
    groups: tuple[ProductGroup, ...]
    """Groups of products, largest first."""
    minimum: float
    maximum: float
    precision: float
    """Largest |join(split(x)) - x| / |x| in range, as the paper states it."""
    product_error: float
    """Largest relative error of one product before any accumulation (docs/reference/ape.md)."""

    @property
    def parts(self) -> int:
        """Native numbers per number."""
        return len(self.scales)

    @property
    def products(self) -> int:
        """Native products per product."""
        return sum(len(group.pairs) for group in self.groups)


_HIGH = ProductGroup(pairs=((0, 0),))


def _two(name: str, part: torch.dtype, scale: int, *, keep: bool, **limits: float) -> Scheme:
    """Make a type of two parts and three products; ``keep`` adds lo*lo."""
    groups = [_HIGH, ProductGroup(pairs=((0, 1), (1, 0)), shift=scale)]
    if keep:
        groups.append(ProductGroup(pairs=((1, 1),), shift=2 * scale))
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
# Maxima: the largest float32 below the tie that rounds hi to infinity.
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
                ProductGroup(pairs=((0, 1), (1, 0))),
                ProductGroup(pairs=((0, 2), (1, 1), (2, 0))),
            ),
            precision=2.0**-23,
            product_error=2.0**-23,
            **_BF16,
        ),
        Scheme(  # Markidis et al. 2018: one accumulator, the smallest products first
            name="fp32-m",
            part=torch.float16,
            scales=(0, 0),
            groups=(ProductGroup(pairs=((1, 1), (0, 1), (1, 0), (0, 0))),),
            minimum=0.25,
            maximum=65504.0,
            precision=2.0**-21,
            product_error=2.0**-21,
        ),
        # lo*lo kept: ``auto`` needs it for 2^-22 per product where the parts cannot guarantee that
        _two("fp32-f4", torch.float16, 12, keep=True, **_HALF),
        _two("fp32-t4", torch.float32, 0, keep=True, **_TF32),
    )
}
"""Floating types by name. ``int16`` has its own arithmetic (``trainwright.ape.integer``)."""

NATIVE = "fp32"
AUTO = "auto"
INT16 = "int16"
NAMES = (*SCHEMES, INT16, *residues.TYPES, NATIVE, AUTO)


def element_type(dtype: str) -> torch.dtype:
    """Return the torch type of the operands that a type in ``NAMES`` multiplies."""
    if dtype in residues.TYPES:
        return residues.TYPES[dtype].dtype
    return torch.int16 if dtype == INT16 else torch.float32


def scheme(dtype: str) -> Scheme:
    """Look up a floating type by name; ``ValueError`` for any other name."""
    try:
        return SCHEMES[dtype]
    except KeyError:
        raise ValueError(
            f"dtype must be an emulated floating type ({', '.join(SCHEMES)}), not {dtype!r}"
        ) from None


def value_range(dtype: str) -> tuple[float, float]:
    """Return the least and the greatest size that ``dtype`` represents to its precision, besides 0.

    ``int16``: (0, 32768), every value of the type.

    >>> value_range("fp32-f")
    (6.103515625e-05, 65504.0)
    """
    if dtype == INT16:
        return 0.0, 32768.0
    form = scheme(dtype)
    return form.minimum, form.maximum


def precision(dtype: str) -> float:
    """Return the largest relative error of split and join within range; 0 for ``int16``.

    >>> precision("fp32-b") == 2.0**-23
    True
    """
    return 0.0 if dtype == INT16 else scheme(dtype).precision

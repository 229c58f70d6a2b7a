"""Time model of products on this machine: sampled, fitted, cached (section 5.3)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from trainwright.ape import products
from trainwright.ape.schemes import NATIVE, scheme
from trainwright.support.stopwatch import least_seconds

SIZES = ((16, 128, 16), (64, 128, 64), (64, 64, 128), (128, 128, 128), (256, 64, 128))
"""Sample sizes (m, k, n) on the CPU; CUDA samples are 8 times larger to hide launch times."""
KINDS = ("fp32-f", "fp32-f4", "fp32-b", "fp32-t4", NATIVE)


def measure(dtype: str, m: int, k: int, n: int, device: torch.device, repeats: int = 3) -> float:
    """Time ``repeats`` products of random (m, k) by (k, n), split included; return the minimum."""
    a = torch.rand(1, m, k, device=device) + 0.5
    b = torch.rand(1, k, n, device=device) + 0.5

    def run() -> None:
        if dtype == NATIVE:
            products.native_product(a, b)
        else:
            products.product(a, b, scheme(dtype))

    return least_seconds(run, device, repeats)


@dataclass(frozen=True)
class PerformanceModel:
    """Seconds of an (m, k, n) product per type: fixed + tiles * k * each + m n k * rate.

    ``tiles`` is the count of ``products.TILE`` square tiles of the result; each has a cost per step
    of K.

    >>> model = PerformanceModel("a processor", {"fp32": (1e-6, 0.0, 1e-10)})
    >>> model.device
    'a processor'
    """

    device: str
    terms: dict[str, tuple[float, float, float]]
    _kept: ClassVar[dict[str, "PerformanceModel"]] = {}

    @classmethod
    def fit(
        cls, device: str, samples: dict[str, Sequence[tuple[int, int, int, float]]]
    ) -> "PerformanceModel":
        """Fit (m, k, n, seconds) of each type: least relative squares, no term negative."""
        return cls(device, {name: _fit(rows) for name, rows in samples.items()})

    @classmethod
    def calibrate(
        cls, device: torch.device, kinds: Sequence[str] = KINDS, repeats: int = 3
    ) -> "PerformanceModel":
        """Measure this machine, in well under a second on a CPU."""
        scale = 8 if device.type == "cuda" else 1
        samples = {}
        for kind in kinds:
            sizes = [tuple(scale * size for size in sample) for sample in SIZES]
            samples[kind] = [
                (m, k, n, measure(kind, m, k, n, device, repeats)) for m, k, n in sizes
            ]
        return cls.fit(str(device), samples)

    @classmethod
    def of(cls, device: torch.device) -> "PerformanceModel":
        """Return the device's model, calibrated at the first call and cached for the process."""
        key = str(device)
        if key not in cls._kept:
            cls._kept[key] = cls.calibrate(device)
        return cls._kept[key]

    def predict(self, dtype: str, m: int, k: int, n: int) -> float:
        """Predict the seconds of a product. ``KeyError`` for a type that was not sampled."""
        fixed, each, rate = self.terms[dtype]
        return fixed + each * _tiles(m, n) * k + rate * m * n * k


def _tiles(m: int, n: int) -> int:
    return -(-m // products.TILE) * -(-n // products.TILE)


def _fit(rows: Sequence[tuple[int, int, int, float]]) -> tuple[float, float, float]:
    """Solve non-negative least squares of three terms by trying every subset of them."""
    seconds = np.array([row[3] for row in rows])
    features = (
        np.array([(1.0, _tiles(m, n) * k, m * n * k) for m, k, n, _ in rows]) / seconds[:, None]
    )
    least_error, terms = np.inf, np.zeros(3)
    for subset in ([0, 1, 2], [0, 2], [1, 2], [0, 1], [2], [1], [0]):
        part, *_ = np.linalg.lstsq(features[:, subset], np.ones(len(rows)), rcond=None)
        error = float(((features[:, subset] @ part - 1) ** 2).sum())
        if (part >= 0).all() and error < least_error:
            least_error, terms = error, np.zeros(3)
            terms[subset] = part
    return float(terms[0]), float(terms[1]), float(terms[2])

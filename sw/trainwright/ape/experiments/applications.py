"""Accuracy of the applications in every type, against the same code in float64 (Figure 13)."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trainwright.ape.accumulate import NEAREST, TENSOR_CORE
from trainwright.ape.apps import neighbours, pca, quantum, transformer
from trainwright.ape.enabled import enabled
from trainwright.data.digits import load_digits_data
from trainwright.support.finding import Progress, silent, tracked

WAYS = ("fp32", "fp32-f", "fp32-t", "fp32-b", "fp32-m", "auto", "fp32-f nearest", "fp16")
"""Types compared, with accumulators that truncate like tensor cores' except for ``nearest``.

``fp16`` rounds factors to float16 and emulates nothing, for comparison.
"""


@dataclass(frozen=True)
class ApplicationError:
    """Measured quantity of one application in one type."""

    application: str
    figure: str
    dtype: str
    value: float


def _half_product(a: Tensor, b: Tensor) -> Tensor:
    return a.to(torch.float16).to(torch.float32) @ b.to(torch.float16).to(torch.float32)


def _context(way: str) -> AbstractContextManager[Any]:
    """Return no context for float32, else APE with the accumulation that ``way`` names."""
    if way == "fp32":
        return nullcontext()
    dtype, _, rounding = way.partition(" ")
    return enabled(dtype, accumulation=NEAREST if rounding else TENSOR_CORE)


def _relative(result: Tensor, exact: Tensor) -> float:
    """Return the largest error divided by the largest element."""
    return float((result.to(exact.dtype) - exact).abs().max() / exact.abs().max())


def digits() -> tuple[Tensor, Tensor]:
    """Load scikit-learn's digits: (1797, 64) float32 in 0..1, and their labels."""
    data = load_digits_data()
    parts = (data.train, data.test)
    images = torch.cat([torch.from_numpy(part.images) for part in parts]).flatten(1)
    labels = torch.cat([torch.from_numpy(part.labels) for part in parts])
    return images.to(torch.float32) / data.full_scale, labels.to(torch.int64)


def run_pca(way: str) -> list[ApplicationError]:
    """Measure the variances of the ten principal axes, and the projections."""
    x, _ = digits()
    with _context(way):
        values, axes = pca.pca(x, 10)
        placed = pca.project(x, axes)
    exact, basis = pca.pca(x.to(torch.float64), 10)
    wanted = pca.project(x.to(torch.float64), basis)
    sign = (basis * axes.to(torch.float64)).sum(1).sign()  # the sign of an axis is arbitrary
    return [
        ApplicationError("PCA", "error of the variances", way, _relative(values, exact)),
        ApplicationError("PCA", "error of the projections", way, _relative(placed * sign, wanted)),
    ]


def run_neighbours(way: str) -> list[ApplicationError]:
    """Count answers of kNN and k-means that differ from float64's."""
    x, labels = digits()
    train, test = x[:1200], x[1200:]
    wide = x.to(torch.float64)
    with _context(way):
        answers = neighbours.classify(train, labels[:1200], test)
        centres, member = neighbours.kmeans(x, 10)
    exact = neighbours.classify(wide[:1200], labels[:1200], wide[1200:])
    wanted, group = neighbours.kmeans(wide, 10)
    return [
        ApplicationError(
            "kNN", "answers other than float64's", way, float((answers != exact).sum())
        ),
        ApplicationError("kNN", "accuracy", way, float((answers == labels[1200:]).double().mean())),
        ApplicationError(
            "k-means", "samples grouped otherwise", way, float((member != group).sum())
        ),
        ApplicationError("k-means", "error of the centres", way, _relative(centres, wanted)),
    ]


def circuits(qubits: int) -> dict[str, list[quantum.Gate]]:
    """Build the circuits, with gates not fused."""
    return {
        f"QFT, {qubits} qubits": quantum.qft(qubits),
        f"Ising, {qubits} qubits": quantum.ising(qubits),
        f"random, {qubits} qubits": quantum.random_circuit(qubits),
    }


def run_quantum(way: str, qubits: int = 10) -> list[ApplicationError]:
    """Measure the largest error of an amplitude by the largest amplitude, against complex128."""
    rows = []
    for name, gates in circuits(qubits).items():
        exact = quantum.simulate_complex(gates, qubits)
        joined = quantum.fused(gates)
        if way == "fp16":
            state = quantum.simulate(joined, qubits, multiply=_half_product)
        else:
            with _context(way):
                state = quantum.simulate(joined, qubits)
        rows.append(ApplicationError(name, "error of the amplitudes", way, _relative(state, exact)))
    return rows


def run_transformer(way: str) -> list[ApplicationError]:
    """Measure output and gradients of an encoder block, forward and backward in the type."""
    layer = transformer.block()
    random = torch.Generator().manual_seed(1)
    x = torch.randn(2, 16, 64, generator=random)
    wanted = torch.randn(2, 16, 64, generator=random)
    with _context(way):
        output, grads = transformer.step(layer, x, wanted)
    exact, slopes = transformer.step(layer.double(), x.double(), wanted.double())
    worst = max(_relative(grads[name], slopes[name]) for name in slopes)
    return [
        ApplicationError("transformer block", "error of the output", way, _relative(output, exact)),
        ApplicationError("transformer block", "error of the gradients", way, worst),
    ]


def run(ways: tuple[str, ...] = WAYS, progress: Progress = silent) -> list[ApplicationError]:
    """Measure every application in every type; ``fp16`` only for the circuits."""
    rows = []
    for way in tracked(ways, progress):
        rows += run_quantum(way)
        if way != "fp16":
            rows += run_pca(way) + run_neighbours(way) + run_transformer(way)
    return rows

"""The applications, and what the experiments say of them."""

import pytest
import torch

from trainwright.ape.apps import neighbours, pca, quantum
from trainwright.ape.experiments import applications, crossover, magnitude, sizes, speed
from trainwright.ape.performance import PerformanceModel


def values(rows):
    return {row.figure: row.value for row in rows}


@pytest.mark.parametrize("name", ["qft", "ising", "random_circuit"])
def test_circuits_fused_and_real_are_those_of_complex_gates(name):
    gates = getattr(quantum, name)(6)
    exact = quantum.simulate_complex(gates, 6)
    assert float(exact.abs().square().sum()) == pytest.approx(1, abs=1e-12)
    fused = quantum.fused(gates, 4)
    assert len(fused) < len(gates)
    for gate, _ in fused:
        eye = torch.eye(len(gate), dtype=gate.dtype)
        torch.testing.assert_close(gate @ gate.mH, eye)
    state = quantum.simulate(fused, 6, torch.float64)
    torch.testing.assert_close(state, exact, rtol=0, atol=1e-12)


def test_ape_apps_fourier_transform_is_unitary():
    n = 5
    gates = quantum.qft(n)
    start = quantum.simulate_complex(gates[:n], n)
    transformed = quantum.simulate_complex(gates, n).reshape([2] * n)
    transformed = transformed.permute(
        *reversed(range(n))
    ).flatten()  # the circuit leaves the bits reversed
    wanted = torch.fft.ifft(start) * 2 ** (n / 2)
    torch.testing.assert_close(transformed, wanted)


def test_circuits_need_more_than_float16():
    half = values(applications.run_quantum("fp16", 6))
    for dtype in ("fp32-f", "fp32-b"):
        ours = values(applications.run_quantum(dtype, 6))
        assert max(ours.values()) < 1e-5 < 1e-4 < max(half.values())


@pytest.mark.parametrize("dtype", ["fp32-f", pytest.param("fp32-b", marks=pytest.mark.slow)])
def test_pca_and_a_transformer_block(dtype):
    pytest.importorskip("sklearn")
    errors = values(applications.run_pca(dtype))
    assert errors["error of the variances"] < 2e-5 and errors["error of the projections"] < 2e-5
    block = values(applications.run_transformer(dtype))
    assert block["error of the output"] < 2e-6 and block["error of the gradients"] < 5e-6


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["fp32-f", "fp32-b"])
def test_neighbours_are_those_of_float64(dtype):
    pytest.importorskip("sklearn")
    near = values(applications.run_neighbours(dtype))
    assert near["answers other than float64's"] <= 2 and near["accuracy"] > 0.97
    assert near["samples grouped otherwise"] <= 2


def test_ape_apps_compute_their_definitions():
    x = torch.randn(50, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    variances, axes = pca.pca(x, 2)
    wanted = torch.linalg.svd(x - x.mean(0)).S.square()[:2] / 49
    torch.testing.assert_close(variances, wanted)
    torch.testing.assert_close(pca.project(x, axes).var(0), wanted)
    exact = torch.cdist(x[:5], x).square()
    torch.testing.assert_close(neighbours.distances(x[:5], x), exact)
    labels = torch.arange(50) % 3
    assert torch.equal(neighbours.classify(x, labels, x, k=1), labels)
    points = torch.cat([x[:20] * 0.1, x[:20] * 0.1 + 5])
    _, member = neighbours.kmeans(points, 2)
    assert len(member[:20].unique()) == len(member[20:].unique()) == 1 and member[0] != member[-1]


def test_ape_apps_figure_14_stays_within_bounds():
    rows = magnitude.run(200)
    for line in magnitude.summary(rows):
        assert line.value <= line.stated and line.product <= line.product_bound
    table = {(row.dtype, row.exponent): row for row in rows}
    assert table["fp32-f", -20].value > 2.0**-21 > table["fp32-f", -14].value
    assert table["fp32-m", -8].value > 2.0**-21 > table["fp32-m", -2].value
    assert table["fp32-b", -100].value == 0 and table["fp32-b", -120].value > 2.0**-23
    assert table["fp32-f", 17].value == float("inf")


def test_figure_15_errors_grow_by_truncation():
    rows = {(r.dtype, r.rounding, r.size): r.largest for r in sizes.run((64, 1024), side=8)}
    for name in sizes.TYPES:
        assert rows[name, "zero", 1024] > 3 * rows[name, "zero", 64]
        assert rows[name, "zero", 1024] > 3 * rows[name, "nearest", 1024]


def test_ape_apps_figure_8_has_its_rows():
    terms = {"fp32-f": (0.0, 0.0, 3e-9), "fp32-b": (0.0, 0.0, 6e-9), "fp32": (0.0, 0.0, 1e-9)}
    model = PerformanceModel("cpu", {**terms, "fp32-f4": (0.0, 0.0, 4e-9)})
    rows, _, seconds = crossover.run(32, 8, 1, model=model)
    assert seconds > 0 and [row.f_products + row.b_products for row in rows] == [64] * len(rows)
    assert rows[0].choice == "fp32-f" and rows[-1].choice == "fp32-b"
    assert rows[5].choice == "hybrid"  # no cost a call in this model
    assert rows[0].b_predicted == pytest.approx(6e-9 * 32**3)


def test_ape_apps_bench_rows_have_small_errors():
    rows = speed.run_gemm(32, torch.device("cpu"), 1)
    errors = {row.dtype: row.error for row in rows}
    assert {"fp32", "fp64", "fp32-f", "fp32-t", "fp32-b", "fp32-m", "int16", "auto"} <= set(errors)
    assert errors["int16"] == errors["fp64"] == 0 and errors["fp32-f"] < 1e-6
    assert speed.run_adapter(32, torch.device("cpu"), 1).error > 0

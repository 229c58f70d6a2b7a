"""``scripts/device`` without a GPU: its cases against a pretended one, and a rehearsal."""

import json
import sys
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path

import pytest
import torch
from pretend_gpu import pretended

from trainwright import ape, posit
from trainwright.ape import cuda, cuda_product
from trainwright.support import graphs

FOLDER = Path(__file__).parents[2] / "experiments" / "device"


@pytest.fixture
def device_module(monkeypatch):
    """Import a module of the experiment as its own programs do."""
    monkeypatch.syspath_prepend(str(FOLDER))
    yield import_module
    for name in ("device_cases", "device_checks", "device_figures", "device_timing", "__main__"):
        module = sys.modules.get(name)
        if module is not None and str(FOLDER) in str(getattr(module, "__file__", "")):
            del sys.modules[name]


@pytest.mark.parametrize(
    "name",
    [
        "ape: parts in the fused kernels' layout",
        "ape: levels, masks, extents, decisions",
        "ape: gemm fp32-f: shapes, transposes, factors, gradients",
        "ape: gemm: ranges, infinities, the hybrid",
        "ape: int16 exact",
        "mcf: arithmetic of float32 x 2",
        "mcf: arithmetic of float64 x 3",
        "posit: rounding and codes of posit(16,2)",
        "posit: arithmetic of posit(32,2)",
        "posit: products of matrices of posit(8,2)",
        "qr: block in fp64",
        "tt: tt_svd, tt_round, balance",
    ],
)
def test_case_on_pretended_gpu_gives_results_of_the_cpu(device_module, monkeypatch, name):
    # The pretended GPU is a mode of torch: constants that are made outside of all modes lack it.
    monkeypatch.setattr(graphs, "_disable_current_modes", nullcontext)
    cases, checks = device_module("device_cases"), device_module("device_checks")
    (case,) = (c for c in checks.TABLE.cases if f"{c.library}: {c.name}" == name)
    wanted = list(cases.leaves(case.run(lambda x: x)))
    with pretended() as gpu:
        actual = [x.cpu() for x in cases.leaves(case.run(lambda x: x.to(gpu)))]
    assert len(actual) == len(wanted) > 0
    apart = [cases.difference(x, y) for x, y in zip(actual, wanted, strict=True)]
    assert max(apart) <= case.tolerance


def test_difference_of_other_bits_is_never_zero(device_module):
    difference = device_module("device_cases").difference
    x = torch.tensor([1.0, 0.0, float("nan"), float("inf")])
    assert difference(x, x.clone()) == 0
    assert difference(x.double(), x) == float("inf")
    assert difference(x[:3], x) == float("inf")
    for place, other in ((0, 1 + 2.0**-23), (1, -0.0), (2, 1.0), (3, float("nan"))):
        changed = x.clone()
        changed[place] = other
        assert difference(changed, x) > 0


def test_rehearsal_writes_checks_figures_and_log(device_module, monkeypatch, tmp_path, capsys):
    arguments = ["--out", str(tmp_path), "--rehearse", "--device", "cpu", "--check", "one error",
                 "--figure", "adapter", "--figure", "memory"]  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["scripts/device", *arguments])
    monkeypatch.delitem(sys.modules, "__main__")
    with pytest.raises(SystemExit) as ended:
        device_module("__main__")
    assert ended.value.code == 0
    results = json.loads((tmp_path / "results.json").read_text())
    assert [row["passed"] for row in results["checks"]] == [True]
    ways = {row["way"]: row["speedup"] for row in results["figures"]["adapter"]}
    assert ways["fp32-f4"] == 1 and {"auto", "masks and counts"} < ways.keys()
    assert "checks: 1 of 1 passed" in (tmp_path / "log.txt").read_text()
    assert results["conditions"]["torch"] == torch.__version__ and not results["failures"]


def test_spans_cover_every_pair_of_parts_once():
    for form in ape.schemes.SCHEMES.values():
        inner, size = 2500, 2512
        seen = []
        for left, right, factor in cuda_product._spans(form, inner, size):
            assert left.stop - left.start == right.stop - right.start
            for k in (*range(left.start, left.stop, size), left.stop - 1):
                i, j = k // size, form.parts - 1 - (right.start + k - left.start) // size
                seen.append((i, j, factor))
        wanted = {(i, j, 2.0**-g.shift) for g in form.groups for i, j in g.pairs}
        assert set(seen) == wanted
        terms = [a.stop - a.start for a, _, _ in cuda_product._spans(form, inner, size)]
        assert sum(terms) >= inner * form.products and terms[-1] <= cuda_product.CHUNK


def test_precision_restores_the_settings_of_the_caller():
    matmul = torch.backends.cuda.matmul
    name = "fp32_precision" if hasattr(matmul, "fp32_precision") else "allow_tf32"
    before = getattr(matmul, name)
    with pytest.raises(KeyError), cuda.precision(tf32=True):
        raise KeyError
    assert getattr(matmul, name) == before


def test_scatter_of_posits_into_zeros_of_torch_keeps_posits():
    fmt = posit.PositFormat(16, 2)
    p = posit.PositTensor([[0.5], [3.0]], fmt)
    index = torch.tensor([[1], [0]])
    actual = torch.zeros(2, 2, dtype=p.dtype).scatter(1, index, p)
    assert isinstance(actual, posit.PositTensor) and actual.tolist() == [[0, 0.5], [3.0, 0]]
    with pytest.raises(posit.PositError, match="mixes posits"):
        torch.ones(2, 2, dtype=p.dtype).scatter(1, index, p)

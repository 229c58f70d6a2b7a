"""The experiments in small: Table 3, bounds over conditions, clustering, and their commands."""

import json
from itertools import product

import pytest
import torch
from slowly import mostly_slow

from trainwright.cli import main
from trainwright.qr.experiments import clustering, conditions, dots, speed
from trainwright.qr.experiments.variants import Variant
from trainwright.support.tables import markdown, spell


def test_qr_experiments_table_2_matches_paper():
    assert [(row.most, row.most_with_epsilon) for row in dots.table_2()] == [
        (2**10, 2**9),
        (2**23, 2**22),
        (2**52, 2**51),
    ]


@mostly_slow(
    "vectors, distribution",
    product((60_000, 2_000_000), dots.PRINTED),
    quick=[(60_000, "normal")],
)
def test_table_3_within_3_percent(distribution, vectors):
    errors = dots.dot_errors(distribution, vectors)
    every, mixed = dots.table_3(errors)
    mean, deviation, maximum = dots.PRINTED[distribution]
    assert every.mean == pytest.approx(mean, rel=0.03)
    assert every.deviation == pytest.approx(deviation, rel=0.03)
    assert 0.5 * maximum < every.maximum < 1.5 * maximum
    assert every.maximum < every.probable < every.bound
    assert mixed.maximum < mixed.bound < every.probable
    with pytest.raises(ValueError, match="distribution"):
        dots.dot_errors("cauchy", 10)


def test_every_measured_error_is_under_its_bounds():
    rows = conditions.run(320, 20, alphas=(1e-4, 1.0), blocks=(4, 16), levels=(1, 3))
    assert {row.variant for row in rows} >= {"LAPACK fp64", "fp16 BLAS-2 TSQR, L = 3"}
    for row in rows:
        if row.variant.startswith("LAPACK"):
            continue
        for side in ("residual", "orthogonality"):
            measured = getattr(row, side)
            assert measured <= getattr(row, f"{side}_probable") <= getattr(row, f"{side}_bound")
        assert max(row.residual, row.orthogonality) <= row.leading
        assert row.residual_probable < 1  # not vacuous
    by_name = {row.variant: row for row in rows}
    # the worst case of TSQR is the smaller one, its measured error is not
    flat, tree = by_name["fp64 HQR"], by_name["fp64 TSQR, L = 3"]
    assert tree.residual_bound < flat.residual_bound
    assert by_name["fp16 BLAS-2 TSQR, L = 3"].residual > by_name["fp16 BLAS-2 HQR"].residual


@pytest.mark.slow
def test_clusters_are_those_of_fp64():
    model = clustering.BlockModel(96, 3, 0.5, 0.05)
    rows = clustering.run((model,), steps=20)
    assert rows[0].variant == "fp64 HQR" and rows[0].planted == 1.0
    assert model.difficulty > 1
    assert all(row.agreement == 1.0 for row in rows)
    s, _ = clustering.draw(model, 1)
    basis = clustering.subspace_iteration(s, 3, Variant("HQR"), steps=300)
    values = torch.linalg.eigvalsh(basis.mT @ s @ basis)
    assert torch.allclose(values, torch.linalg.eigvalsh(s)[-3:], atol=1e-6)


def test_speed_has_every_routine_beside_torch():
    rows = speed.run(64, 8, repeat=1)
    names = [row.routine for row in rows]
    assert names[:2] == ["torch.linalg.qr fp64", "torch.linalg.qr fp32"]
    assert {"LAPACK geqrt fp64", "fp32 block", "fp16 BLAS-2 TSQR, L = 2"} <= set(names)
    for row in rows:
        limit = 1e-14 if "fp64" in row.routine else 1e-5 if "fp32" in row.routine else 1e-2
        assert row.residual < limit and row.orthogonality < limit
        assert row.seconds >= 0


def test_bench_prints_one_json_object(capsys):
    assert main(["bench", "qr", "--size", "40x5", "--repeat", "1", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["rows"][0]["m"] == 40
    with pytest.raises(SystemExit):
        main(["bench", "qr", "--size", "5x40"])
    assert "rows >= columns" in capsys.readouterr().err


def test_reproduce_leaves_tables_and_pictures(capsys, tmp_path):
    out = tmp_path / "deep" / "out"
    argv = ["reproduce", "qr", "--vectors", "3000", "--rows", "200", "--columns", "8"]
    argv += ["--experiment", "dots", "--experiment", "conditions", "--out", str(out)]
    assert main(argv) == 0
    printed = capsys.readouterr().out
    assert "Table 3" in printed and "fp16 BLAS-3 TSQR, L = 2" in printed
    for name in ("dots.png", "conditions.png", "sizes.png"):
        assert (out / name).read_bytes().startswith(b"\x89PNG")
    results = json.loads((out / "results.json").read_text())
    assert len(results["dots"]["table_3"]) == 4
    (out / "own.png").write_text("a user's")
    again = ["reproduce", "qr", "--vectors", "3000", "--experiment", "dots", "--out", str(out)]
    assert main(again) == 0  # its tables have nothing of the experiment whose pictures go
    assert {path.name for path in out.glob("*.png")} == {"dots.png", "own.png"}
    assert main(["reproduce", "qr", "--rows", "3", "--columns", "8"]) == 2
    with pytest.raises(SystemExit):
        main(["reproduce"])


def test_tables_read_well():
    assert [spell(v) for v in (None, 1234, 1e-9, 0.5, 0.0, float("inf"), True, "x")] == [
        *("-", "1,234", "1.000e-09", "0.5", "0", "inf", "True", "x")
    ]
    table = markdown(("name", "n"), [("a", 1), ("long", 22)])
    assert table == "| name |  n |\n|------|---:|\n| a    |  1 |\n| long | 22 |\n"

"""``trainwright reproduce ape`` and ``trainwright bench ape``."""

import json

import pytest

from trainwright.cli import main

pytest.importorskip("matplotlib")


def test_reproduce_writes_tables_and_pictures(tmp_path, capsys):
    words = ["reproduce", "ape", "--quick", "--size", "32", "--largest", "64"]
    for name in ("figure-14", "figure-15", "figure-8"):
        words += ["--experiment", name]
    assert main([*words, "--out", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    for name in ("14", "15", "8"):
        assert f"## Figure {name}" in text
        assert (tmp_path / f"figure-{name}.png").read_bytes().startswith(b"\x89PNG")
    results = json.loads((tmp_path / "results.json").read_text())
    assert {row["dtype"] for row in results["figure-14"]} >= {"fp32-f", "fp32-t", "fp32-b"}
    assert (tmp_path / "tables.md").read_text() in text


@pytest.mark.slow
def test_ape_cli_reproduce_writes_applications(tmp_path, capsys):
    words = ["reproduce", "ape", "--quick", "--experiment", "applications", "--json"]
    assert main([*words, "--out", str(tmp_path)]) == 0
    rows = json.loads(capsys.readouterr().out)["applications"]
    assert {row["dtype"] for row in rows} == {"fp32", "fp32-f", "fp16"}


def test_bench_prints_json(capsys):
    assert main(["bench", "ape", "--size", "24", "--repeat", "1", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["devices"][0] == "cpu" and report["masks"][0]["seconds"] > 0
    assert {"fp32", "fp64", "int16"} <= {row["dtype"] for row in report["products"]}

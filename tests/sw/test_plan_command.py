"""``trainwright plan``: plans, reasons where there are none, and one line where nothing fits."""

import json

import pytest

from trainwright.cli import main

ODD = """\
classes = 10
image = [10, 10]
[[layers]]
outputs = [1, 37]
inputs = [4, 25]
ranks = [4]
[[layers]]
outputs = [1, 10]
inputs = [1, 37]
ranks = [1]
"""
WIDE = """\
classes = 2
image = [96, 16]
[[layers]]
outputs = [32, 16]
inputs = [96, 16]
ranks = [4]
"""
HUGE = """\
classes = 2
image = [96, 96]
[[layers]]
outputs = [32, 32]
inputs = [96, 96]
ranks = [4]
"""
STEP_KEYS = {"plan", "macs", "cycles", "utilisation", "external_memory_bytes"}


@pytest.fixture
def plan(tmp_path, capsys):
    def run(text: str, *options: str) -> tuple[int, str, str]:
        (tmp_path / "network.toml").write_text(text)
        status = main(["plan", str(tmp_path / "network.toml"), *options])
        out, err = capsys.readouterr()
        return status, out, err

    return run


def test_sizes_that_are_no_multiples_of_the_lanes(plan):
    status, out, err = plan(ODD)
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    assert "the last of outputs [1, 37] must be a multiple of the accelerator's 16 lanes" in err
    assert "use 48" in err


def test_a_fallback_is_said(plan):
    status, out, _ = plan(WIDE)
    assert status == 0
    assert "auto is the paper's schedule: no planned program fits: l1.dw needs" in out
    assert "no backward full at bond 1: " in out
    status, out, _ = plan(WIDE, "--json")
    found = json.loads(out)
    auto, paper = found["plans"]
    assert auto["schedule"] == paper["schedule"] == "paper"
    assert auto["fallback"].startswith("no planned program fits")
    assert paper["fallback"] is None
    assert {(one["pass"], one["kind"]) for one in found["refusals"]} == {
        ("forward", "bidirectional"),
        ("backward", "bidirectional"),
        ("backward", "full"),
    }
    assert all(one["reason"] for one in found["refusals"])


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_nothing_fits(plan, options):
    status, out, err = plan(HUGE, *options)
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    assert "entries of the PE1 factor store" in err
    assert "batch" not in err


def test_what_json_says_of_a_plan(capsys):
    assert main(["plan", "digits", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    for row in found["plans"]:
        assert row.keys() >= STEP_KEYS
        assert row["fallback"] is None
        assert row["mac_utilisation"] == row["utilisation"]
    assert [row["schedule"] for row in found["plans"]] == ["planned", "paper"]
    chosen = {(row["layer"], row["pass"]) for row in found["alternatives"] if row["chosen"]}
    assert chosen == {(layer, way) for layer in (1, 2) for way in ("forward", "backward")}

"""``trainwright plan``: plans, reasons where there are none, and one line where nothing fits."""

import json
from dataclasses import replace

import pytest

from trainwright.cli import main
from trainwright.cli.plan import _why
from trainwright.graph.order import ordered
from trainwright.graph.step import step_graph
from trainwright.network import load_network

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


@pytest.fixture
def plan(tmp_path, capsys):
    def run(text: str, *options: str) -> tuple[int, str, str]:
        (tmp_path / "network.toml").write_text(text)
        status = main(["plan", str(tmp_path / "network.toml"), *options])
        out, err = capsys.readouterr()
        return status, out, err

    return run


def test_sizes_that_are_no_multiples_of_the_lanes(plan):
    status, out, _ = plan(ODD)
    assert status == 0
    assert "a step of 64 samples: " in out
    figures = json.loads(plan(ODD, "--json")[1])
    assert figures["cycles"] > 0
    assert [row["layer"] for row in figures["layers"]] == ["l1", "l2"]
    assert {row["layer"] for row in figures["orders"] if row["chosen"]} == {"l1", "l2"}


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_plan_command_says_that_nothing_fits(plan, options):
    status, out, err = plan(
        ODD, "--formats", "factor=fixed(12)", "--accelerator", "factor_width=4", *options
    )
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    assert "use narrower factors, or an accelerator with factor_width=12" in err


def test_plan_command_prints_order_of_paper(capsys):
    figures = {}
    for plan in ("auto", "paper"):
        assert main(["plan", "digits", "--plan", plan, "--json"]) == 0
        figures[plan] = json.loads(capsys.readouterr().out)
        assert figures[plan]["plan"] == plan
    rows = [row for row in figures["paper"]["orders"] if row["name"] == "the paper's"]
    assert [row["chosen"] for row in rows] == [True, True]
    dropped = [row for row in figures["paper"]["orders"] if not row["chosen"]]
    assert dropped and {row["dropped"] for row in dropped} == {"not the paper's"}
    assert figures["paper"]["macs"] > figures["auto"]["macs"]
    assert main(["plan", "digits", "--plan", "small", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["macs"] > figures["auto"]["macs"]
    assert main(["plan", "digits", "--plan", "fast"]) == 2
    assert "there is no plan 'fast'; give one of auto, paper, small" in capsys.readouterr().err


def test_plan_command_orders_of_a_graph_and_why_each_was_dropped(capsys):
    assert main(["plan", "digits", "--batch", "8", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["cycles"] == sum(program["cycles"] for program in figures["programs"].values())
    assert [layer["layer"] for layer in figures["layers"]] == ["l1", "l2"]
    for layer in ("l1", "l2"):
        rows = [row for row in figures["orders"] if row["layer"] == layer]
        (chosen,) = [row for row in rows if row["chosen"]]
        assert chosen["dropped"] is None and len(rows) > 3
        names = [row["name"] for row in rows if row["name"]]
        assert set(names) >= {"the paper's", "W rebuilt from bond 1", "both sides of bond 1"}
        for row in rows:
            more = row["macs"] - chosen["macs"]
            why = f"{more:,} more multiply-accumulates" if more else "as many multiply-accumulates"
            why = why if more >= 0 else "fills the arrays less"
            assert row["chosen"] or row["dropped"].startswith(why)
    results = [row["makes"] for row in figures["stages"]]
    assert len(set(results)) == len(results) and {"l1.y", "l2.a", "l1.dG1", "l2.db"} <= set(results)


def test_why_an_order_of_a_graph_is_dropped():
    step = step_graph(load_network("digits"), 8)
    best, second = ordered(step.whole, step.sites["l1"], most=2)
    assert _why(best, best, None) is None
    assert _why(second, best, "too large") == "does not fit: too large"
    as_dear = replace(best, products=best.products[::-1])
    assert _why(as_dear, best, None) == (
        "as many multiply-accumulates: the first order found was chosen"
    )
    again = replace(as_dear, cost=best.cost + 5, recomputed=5)
    assert _why(again, best, None).startswith("5 multiply-accumulates to recompute")
    slower = replace(as_dear, cost=best.cost + 7)
    assert _why(slower, best, None).startswith("fills the arrays less: costs the time of 7")

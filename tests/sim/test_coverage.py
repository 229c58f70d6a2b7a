"""What is counted of Verilator's file, and one small block run."""

import json

import pytest

from trainwright_sim.bench import runner
from trainwright_sim.coverage import DEFAULT, Coverage, main, markdown, points


def line(kind: str, what: str, count: int, *, place: str = "12", module: str = "top.inner") -> str:
    """One line as Verilator writes it."""
    fields = {"f": "a.sv", "l": place, "n": "3", "t": kind, "page": f"v_{kind}", "o": what,
              "h": module}  # fmt: skip
    return "C '" + "".join(f"\x01{k}\x02{v}" for k, v in fields.items()) + f"' {count}"


TEXT = "\n".join([
    "# SystemC::Coverage-3",
    line("toggle", "level[0]:0->1", 4),
    line("toggle", "level[0]:1->0", 3),
    line("toggle", "level[1]:0->1", 1),
    line("toggle", "level[1]:1->0", 0),
    line("toggle", "i___05Fvalid:0->1", 0),
    line("toggle", "command__02ecount:0->1", 0),
    line("toggle", "__0241[3]:0->1", 0),
    line("toggle", "next__02415:1->0", 0),
    line("toggle", "level[1]:1->0", 0, module="top.other"),
    line("branch", "if", 7),
    line("branch", "else", 0),
    line("line", "block", 0, place="40"),
    line("line", "block", 2, place="40", module="top.other"),
])  # fmt: skip


def test_bits_and_branches_are_counted():
    found = Coverage.of("some", points(TEXT))
    assert (found.toggles, found.toggled) == (7, 3)
    assert (found.lines, found.executed) == (3, 2)
    assert found.still == ("command.count", "i__valid", "level")
    assert markdown([found, Coverage("none", 0, 0, 0, 0, ())]).splitlines()[2:] == [
        "| some | 7 | 42.9 % | 3 | 66.7 % |",
        "| none | 0 | - | 0 | - |",
    ]


def test_the_default_is_what_the_suite_runs(capsys):
    assert "sequencer" in DEFAULT and "pe1-shifted" not in DEFAULT
    assert main(["--list"]) == 0
    assert set(DEFAULT) <= set(capsys.readouterr().out.split())
    assert main(["nothing"]) == 2
    assert capsys.readouterr().err == "coverage: no bench 'nothing': see --list\n"


@pytest.mark.slow
def test_a_block_is_measured(capsys):
    if reason := runner.unavailable("verilator"):
        pytest.skip(reason)
    assert main(["skid", "--json"]) == 0
    [found] = json.loads(capsys.readouterr().out)["blocks"]
    assert found["toggled"] == found["toggles"] > 40 and not found["still"]
    assert found["executed"] == found["lines"] > 4

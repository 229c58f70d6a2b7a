"""Counts from Verilator's coverage file, and one small block run."""

import json

import pytest

from trainwright_sim.bench import runner
from trainwright_sim.branches import Branch, Reason, Verilog, reasons
from trainwright_sim.coverage import DEFAULT, Coverage, explained, main, markdown, points
from trainwright_sim.mutation.score import HARDWARE


def line(kind: str, what: str, count: int, *, place: str = "12", module: str = "top.inner") -> str:
    """Format a line as Verilator writes one."""
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
    coverage = Coverage.of("some", points(TEXT))
    assert (coverage.toggles, coverage.toggled) == (7, 3)
    assert (coverage.lines, coverage.executed) == (3, 2)
    assert coverage.still == ("command.count", "i__valid", "level")
    assert markdown([coverage, Coverage("none", 0, 0, 0, 0, ())]).splitlines()[2:] == [
        "| some | 7 | 42.9 % | 3 | 66.7 % | 0 | 0 | 0 | 0 |",
        "| none | 0 | - | 0 | - | 0 | 0 | 0 | 0 |",
    ]


VERILOG = r"""
(* src = "/somewhere/trainwright_hw/dma/some.py:12" *)
module \trainwright.inner (a, clk);
  assign \$1  = \level$7 [3:0] == 4'h2;
  assign \$2  = \$1  & a;
  assign out = \$2  ? b : c;
  always_ff @(posedge clk)
    state <= \$9 ;
  always_comb begin
    \$9  = state;
    casez ({ \$2 , 1'h0, a })
      3'b??1:
          \$9  = 1'h0;
      3'b?1?:
          /* empty */;
      3'h4:
        begin
          if (b) begin
            \$9  = 1'h1;
          end
        end
    endcase
    if (c) begin
      \$9  = 1'h0;
    end else if (1'h1) begin
      \$9  = 1'h1;
    end
  end
endmodule
"""


def branch(*conditions: str, signal: str = "state") -> Branch:
    return Branch("dma/some.py", signal, conditions)


def at(text: str, way: str) -> Branch:
    """Return the branch of the line that has a text."""
    [number] = [n for n, line in enumerate(VERILOG.splitlines(), 1) if text in line]
    return Verilog(VERILOG).at(f"{number}.5 {way}")


def test_branches_are_told_by_their_conditions():
    second = "((level == 4'h2) & a)"
    assert at("assign out", "cond_then") == branch(second, signal="out")
    assert at("assign out", "cond_else") == branch(f"not {second}", signal="out")
    assert at("3'b??1:", "case") == branch("a")
    assert at("3'b?1?:", "case") == branch("1'h0") and at("3'b?1?:", "case").is_constant
    assert at("if (b)", "if") == branch(second, "not 1'h0", "not a", "b")
    assert at("if (b)", "else") == branch(second, "not 1'h0", "not a", "not b")
    assert at("    if (c)", "if") == branch("c") and at("    if (c)", "else") == branch("not c")
    assert at("else if", "elsif") == branch("not c", "1'h1")
    assert at("else if", "else").is_constant and not at("else if", "elsif").is_constant


def test_coverage_explains_untaken_branches():
    """By a constant, else by another bench, else by the file."""
    cases = branch("1'h0"), branch("b"), branch("c"), branch("d"), branch("c", signal="other")
    here = Coverage("here", 0, 0, 5, 0, (), untaken=cases)
    elsewhere = Coverage("there", 0, 0, 1, 1, (), taken=frozenset([branch("b")]))
    known = [Reason(source="dma/some.py", signal="state", condition="c", why="so")]
    known.append(Reason(source="dma/some.py", condition="d", block="there", why="elsewhere"))
    reasons = explained(here, [here, elsewhere], known)
    assert [reason.how for reason in reasons] == ["constant", "elsewhere", "reason", "open", "open"]
    assert [reason.why for reason in reasons] == ["", "there", "so", "", ""]
    assert markdown([here, elsewhere], known).splitlines()[2].endswith("| 1 | 1 | 1 | 2 |")
    assert reasons[1].row()["conditions"] == ["b"]
    assert str(reasons[1].branch) == "dma/some.py, state: b"


def test_reasons_are_of_sources_that_are_there():
    known = reasons()
    assert known and all((HARDWARE / reason.source).is_file() and reason.why for reason in known)


def test_coverage_reasons_reject_unknown_field(tmp_path):
    page = tmp_path / "branches.toml"
    page.write_text('[[branch]]\nsource = "a.py"\nwhat = "no such field"\n')
    with pytest.raises(ValueError, match="what"):
        reasons(page)


def test_coverage_default_benches_are_listed(capsys):
    assert main(["--list"]) == 0
    assert set(DEFAULT) <= set(capsys.readouterr().out.split())
    assert main(["nothing"]) == 2
    assert capsys.readouterr().err == "coverage: no bench 'nothing': see --list\n"


@pytest.mark.slow
def test_coverage_of_skid_buffer_is_complete(capsys):
    if reason := runner.unavailable("verilator"):
        pytest.skip(reason)
    assert main(["skid", "--json"]) == 0
    [block] = json.loads(capsys.readouterr().out)["blocks"]
    assert block["toggled"] == block["toggles"] > 40 and not block["still"]
    assert block["executed"] == block["lines"] > 4 and not block["untaken"]

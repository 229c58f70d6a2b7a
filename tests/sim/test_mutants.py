"""Mutants of blocks: what is put in, what the tests of a bench find, what is proven the same."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from folded import each

from trainwright.support.native.cache import Cache
from trainwright_hw.build.convert import component_to_rtlil
from trainwright_sim.bench import runner
from trainwright_sim.bench.catalogue import BENCHES
from trainwright_sim.mutation import execute, score
from trainwright_sim.mutation.__main__ import main, sample
from trainwright_sim.mutation.blocks import BLOCKS, SUITES, Block
from trainwright_sim.mutation.equivalence import Twins
from trainwright_sim.mutation.execute import Verdict
from trainwright_sim.mutation.netlist import NetlistMutant, dumps, loads, mutable
from trainwright_sim.mutation.origin import Origins
from trainwright_sim.mutation.score import Score, SurvivalReason
from trainwright_sim.mutation.suite import outcome

STATISTICS = Block("statistics", 6)
"""A small block with a memory."""


PORTS = {"a": In(1), "b": In(1), "address": In(2), "out": Out(1), "word": Out(4)}


class Redundant(wiring.Component):
    """A counter to 5 and a memory; ``out`` holds the same bit twice over."""

    def __init__(self):
        super().__init__(PORTS)

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.memory = memory = Memory(shape=4, depth=4, init=[])
        write, read = memory.write_port(), memory.read_port(domain="comb")
        count, either = Signal(3), Signal()
        with m.If(count != 5):
            m.d.sync += count.eq(count + 1)
        m.d.comb += [
            either.eq(self.a | self.b),
            self.out.eq(self.a & either | (count == 7)),
            write.en.eq(self.a),
            write.addr.eq(self.address),
            write.data.eq(count),
            read.addr.eq(self.address),
            self.word.eq(read.data),
        ]
        return m


class Twice(wiring.Component):
    """Multiplexer within another."""

    def __init__(self):
        super().__init__(PORTS)

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.within = within = Redundant()
        wiring.connect(m, wiring.flipped(self), within)
        return m


def mutant(**changes) -> NetlistMutant:
    fields = {"number": 1, "mode": "inv", "cell": "add", "port": "A", "bit": 3, "control": None}
    return NetlistMutant(**{**fields, "wire": "level", "source": "bus/axi.py:1", **changes})


@pytest.fixture(scope="module")
def redundant():
    design = mutable(component_to_rtlil(Redundant(), sources=True), 80, seed=1)
    return design, Twins.of(design.rtlil)


def test_faults_are_of_the_source_and_differ(redundant):
    design, _ = redundant
    assert [m.number for m in design.mutants] == list(range(1, len(design.mutants) + 1))
    assert len({(m.cell, m.port, m.bit, m.mode, m.control, m.wire) for m in design.mutants}) > 30
    assert {m.mode for m in design.mutants} >= {"inv", "const0", "const1"}
    assert not {m.port for m in design.mutants} & {"CLK", "WR_CLK", "RD_CLK", "Q"}
    assert not any(m.cell == "memrd_v2" and m.port == "DATA" for m in design.mutants)
    assert any("tests/sim/test_mutants.py" in m.source for m in design.mutants)
    assert loads(dumps(design)) == design


def test_multiplexers_are_of_the_lines_of_their_if(redundant):
    """yosys names no line: those of the register that it feeds, and of the condition."""
    design, _ = redundant
    lines = Path(__file__).read_text().splitlines()
    assert all(m.source for m in design.mutants)
    multiplexers = [m for m in design.mutants if m.cell == "mux" and m.wire != "rst"]
    assert multiplexers
    for m in multiplexers:
        named = [lines[int(s.split(":")[-1]) - 1] for s in m.source.split() if "test_mutants" in s]
        assert any("count" in line for line in named), m


def test_mutant_origins_of_select_include_condition():
    """The register behind two multiplexers, and the cell that drives the select of one."""
    origins = Origins(
        """
  attribute \\src "a.py:1"
  wire \\register
  wire $1
  wire $2
  wire $3
  attribute \\src "a.py:7"
  cell $eq $condition
    connect \\A \\other
    connect \\Y $3
  end
  cell $mux $inner
    connect \\S $3
    connect \\Y $1
  end
  cell $mux $outer
    connect \\A $1
    connect \\Y $2 [3:0]
  end
  connect \\register { 2'00 $2 }
"""
    )
    assert origins.of("$inner", "S") == ["a.py:1", "a.py:7"]
    assert origins.of("$inner", "A") == origins.of("$outer", "Y") == ["a.py:1"]
    assert origins.of("$nowhere", "A") == []


def test_submodules_tested_elsewhere_get_no_faults():
    rtlil = component_to_rtlil(Twice(), sources=True)
    assert len(mutable(rtlil, 30, seed=1).mutants) == 30
    assert len(mutable(rtlil, 30, seed=1, without=["within"]).mutants) == 0
    assert len(mutable(rtlil, 30, seed=1, only=["within."]).mutants) == 30
    mutants = mutable(rtlil, 30, seed=1, without=["sim/test_mutants.py"]).mutants
    assert mutants and not any("test_mutants" in m.source for m in mutants if m.cell != "mux")


def test_mutant_equivalence_is_proved_or_disproved(redundant):
    """``either`` is 1 anyway where ``a`` is set, and 7 is never counted.

    Equal states alone do not prove the latter; a word of the memory shows when it is read.
    """
    design, twins = redundant

    def verdicts(cell: str) -> set[tuple[bool, bool | None]]:
        numbers = [m.number for m in design.mutants if m.cell == cell]
        return {(twins.is_equivalent(n), twins.differs(n, 4)) for n in numbers[:8]}

    assert twins.memories
    assert (True, False) in verdicts("or")  # ``either``
    assert (False, False) in verdicts("eq")  # 7
    assert (False, True) in verdicts("memwr_v2")


@pytest.mark.slow
@pytest.mark.skipif(bool(runner.unavailable("verilator")), reason="needs Verilator")
def test_mutants_found_by_a_bench_are_none_that_are_proven_equal(tmp_path):
    cache, numbers = Cache(tmp_path), list(range(1, 7))
    both = execute.verdicts(STATISTICS, 1, numbers, cache)
    assert [v.mutant.number for v in both] == numbers
    assert any(v.status == "killed" and "random_items" in v.by for v in both)
    score = Score.of("statistics", both, 0)
    assert score.mutants > 3 and score.killed > 3
    twins = Twins.of(execute.prepared(STATISTICS, 1, cache)[0].rtlil)
    killed = [v.mutant.number for v in both if v.status == "killed"]
    assert not any(twins.is_equivalent(number) for number in killed)


@pytest.mark.skipif(bool(runner.unavailable("verilator")), reason="needs Verilator")
def test_tests_find_mutants_and_go_on_where_they_were_cut_off(tmp_path):
    """Unchanged, the compiled block passes; tests of other designs are skipped."""
    block, cache = Block("shared-writes", 12), Cache(tmp_path)
    (killed,) = execute.verdicts(block, 1, [3], cache)
    assert killed.status == "killed" and "test_writes" in killed.by
    assert not execute.recorded(block, 1, cache)
    _, folder = execute.prepared(block, 1, cache)
    with (folder / execute.VERDICTS).open("a") as file:
        file.write('{"number": 4, "verd')  # cut off
    both = execute.verdicts(block, 1, [3, 4], cache)
    assert both[0] == killed and not execute.recorded(block, 2, cache)
    survived = both[1]
    assert survived.status == "survived"
    unkilled = replace(
        SUITES["vector"],
        tests=("hw/test_vector_engine.py::test_vector_engine_scalars_match_exponent_file[0]",),
    )
    assert outcome(unkilled, execute.prepared(block, 1, cache)[0].rtlil, 0).passed == 0


def test_mutant_sample_draws_from_few_blocks():
    chosen = sample(list(BLOCKS), 200, seed=3)
    assert sum(map(len, chosen.values())) == 200
    assert len(chosen) <= 3
    assert sample(list(BLOCKS), 200, seed=3) == chosen != sample(list(BLOCKS), 200, seed=6)
    assert sample(["nest"], None, seed=3) == {"nest": list(range(1, BLOCKS["nest"].mutants + 1))}


@pytest.mark.slow
@pytest.mark.skipif(bool(runner.unavailable("verilator")), reason="needs Verilator")
def test_nine_of_ten_of_a_sample_are_found(capsys):
    """Mutants proven to be equal machines do not count."""
    assert main(["--sample", "200", "--seed", "7", "--least", "90", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["mutants"] == 200
    assert printed["score"] >= 0.9


def test_every_block_has_fifty_mutants_and_all_have_two_thousand():
    counts = [block.mutants for block in BLOCKS.values()]
    assert min(counts) >= 50
    assert sum(counts) >= 2000
    assert BLOCKS.keys() <= BENCHES.keys() | SUITES.keys()


def test_mutation_score_table_counts_verdicts():
    verdicts = [Verdict(mutant(), s, "") for s in ("killed",) * 6 + ("survived",) * 2]
    figures = Score.of("nest", [*verdicts, Verdict(mutant(), "equivalent", "")], 1.5)
    assert (figures.mutants, figures.equivalent, figures.killed, figures.survived) == (9, 1, 6, 2)
    assert figures.score == 0.75
    table = score.markdown([figures, Score("load", 1, 1, 0, 0, 1.0)]).splitlines()
    assert table[2] == "| nest | 9 | 1 | 6 | 2 | 75.0 % |"
    assert table[3] == "| load | 1 | 1 | 0 | 0 | 100.0 % |"
    assert table[4] == "| all | 10 | 2 | 6 | 2 | 75.0 % |"


def test_rows_of_other_blocks_stay_in_the_page(tmp_path):
    page = tmp_path / "page.md"
    written = [Score("store", 9, 1, 6, 2, 1.0), Score("gone", 9, 1, 6, 2, 1.0)]
    page.write_text(score.markdown(written))
    rows = score.with_rows(page, [Score("nest", 4, 0, 4, 0, 1.0), Score("host", 1, 1, 0, 0, 1.0)])
    assert [row.block for row in rows] == ["nest", "store", "host"]
    assert (rows[1].mutants, rows[1].equivalent, rows[1].killed) == (9, 1, 6)
    assert score.with_rows(page, [Score("store", 4, 0, 4, 0, 1.0)])[0].mutants == 4


def test_survivor_reason_matches_source_lines():
    text = score.text_of("bus/axi.py:1")
    assert text.startswith('"""')
    known = [
        SurvivalReason(
            source="bus/axi.py", line=text[3:12], why="because", fault="inv", block="loa"
        )
    ]
    survivor = Verdict(mutant(), "survived", "")
    assert score.reason(known, "load", survivor) == "because"
    assert score.reason(known, "store", survivor) is None
    assert score.reason(known, "load", Verdict(mutant(mode="const0"), "survived", "")) is None
    assert score.reason(known, "load", Verdict(mutant(source="bus/axi.py:2"), "", "")) is None


@each("known", score.reasons(), ids=lambda r: f"{r.source}: {r.line}")
def test_every_reason_is_of_a_line_that_is_there(known):
    assert known.line in score.file_of(known.source).read_text()
    assert len(known.why) > 20


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no-such"], "no block 'no-such': see --list"),
        (["--sample", "0"], "--sample must be at least 1, not 0"),
        (["--minutes", "0"], "--minutes must be positive, not 0.0"),
        (
            ["--sample", "9", "--write", "page.md"],
            "--write and --known are of whole blocks: leave out --sample",
        ),
    ],
)
def test_bad_usage_is_one_clear_error(arguments, message, capsys):
    assert main(arguments) == 2
    assert capsys.readouterr().err == f"mutants: {message}\n"


def test_json_has_the_figures(monkeypatch, capsys, tmp_path):
    verdicts = [
        Verdict(mutant(), "survived", "seen"),
        Verdict(mutant(number=2), "killed", "a test"),
    ]
    monkeypatch.setattr("trainwright_sim.mutation.__main__.verdicts", lambda *_: verdicts)
    assert main(["nest", "--json"]) == 1
    printed = json.loads(capsys.readouterr().out)
    assert {"mutants": 2, "equivalent": 0, "killed": 1, "survived": 1, "score": 0.5}.items() <= (
        printed.items()
    )
    assert printed["survivors"][0]["source"] == "bus/axi.py:1"


@pytest.mark.parametrize(("least", "status"), [("50", 0), ("50.1", 1)])
def test_mutation_command_fails_below_held_score(monkeypatch, capsys, least, status):
    verdicts = [
        Verdict(mutant(), "survived", "seen"),
        Verdict(mutant(number=2), "killed", "a test"),
    ]
    monkeypatch.setattr("trainwright_sim.mutation.__main__.verdicts", lambda *_: verdicts)
    assert main(["nest", "--least", least]) == status
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("50.0 % of 2 faults killed, 1 of 1 survivor without a reason")
    assert not any(line.startswith("survived") for line in lines)

"""Proofs of blocks: some here, all of them in the slow tests, and what the proofs are made of."""

import io
import zlib
from pathlib import Path

import pytest
from amaranth.hdl import Signal
from slowly import mostly_slow

from trainwright_hw.stream.skid_buffer import SkidBuffer
from trainwright_sim.formal.__main__ import main
from trainwright_sim.formal.bench import ProofBench
from trainwright_sim.formal.bitwuzla_stdin import commands
from trainwright_sim.formal.check import Result, kill, prove
from trainwright_sim.formal.linear import AnyOf, Gates, NotLinear, span, variables
from trainwright_sim.formal.mutant import Mutant
from trainwright_sim.formal.proof import Proof
from trainwright_sim.formal.proofs.frame_crc import NOTHING, after
from trainwright_sim.formal.registry import PROOFS
from trainwright_sim.formal.solve import Model
from trainwright_sim.formal.table import COMMAND, write
from trainwright_sim.page import marks

PAGE = Path(__file__).parents[2] / "docs" / "results" / "verification.md"
BEGIN, END = marks(COMMAND)
FAST = ("skid-buffer.waiting", "round-robin.fair", "axi-write.stable", "frame-crc.residue")


@mostly_slow("name", FAST, lambda name: name != "round-robin.fair")
def test_proven_and_the_mutant_is_not(name):
    assert prove(PROOFS[name]).status == "proven"
    assert kill(PROOFS[name]).status == "killed"


@pytest.mark.slow
@pytest.mark.parametrize("name", PROOFS)
def test_every_property_is_proven(name):
    assert prove(PROOFS[name]).status == "proven"


@pytest.mark.slow
@pytest.mark.parametrize("name", PROOFS)
def test_every_mutant_is_killed(name):
    assert kill(PROOFS[name]).status == "killed"


@pytest.mark.parametrize("name", [n for n, proof in PROOFS.items() if isinstance(proof, Proof)])
def test_proof_signals_exist_in_block(name):
    """Claims are of what the source calls so, which may have changed."""
    proof = PROOFS[name]
    assert isinstance(proof, Proof) and proof.rtlil()


@pytest.mark.parametrize("name", PROOFS)
def test_proof_mutant_applies_to_present_source(name):
    proof = PROOFS[name]
    mutant = proof.mutant.of(proof.block)
    assert mutant is not proof.block
    assert mutant.__name__ == proof.block.__name__


def test_proof_mutant_of_absent_text_is_rejected():
    with pytest.raises(ValueError, match="has 'no such text' 0 times"):
        Mutant("no such text", "").of(SkidBuffer)


def counter(*, lemmas: bool, claim: str = "goal") -> Model:
    """Model a counter that stops at 5; from 6 on, which is unreachable, it would count on."""
    bench, count = ProofBench(lemmas=lemmas), Signal(4)
    with bench.m.If(count != 5):
        bench.m.d.sync += count.eq(count + 1)
    bench.goal(count != 9)
    bench.lemma(count < 6)
    getattr(bench, claim)(count != 4)
    return Model(bench.rtlil())


def test_proof_verdicts_need_lemma_and_depth():
    """Induction needs the lemma; a claim that fails in cycle 4 fails in no cycle before."""
    with counter(lemmas=True, claim="assume") as model:
        assert model.holds(12) and model.is_inductive(1)
    with counter(lemmas=False, claim="assume") as model:
        assert model.holds(12) and not model.is_inductive(1)
    with counter(lemmas=True) as model:
        assert model.holds(4) and not model.holds(5)


def bits(value: int, width: int) -> list[int]:
    return [value >> bit & 1 for bit in range(width)]


def test_proof_crc_matches_zlib():
    text, crc = b"whatever \x00\xff", NOTHING
    for count, byte in enumerate(text, 1):
        crc = after(crc, bits(byte, 8))
        assert crc == bits(zlib.crc32(text[:count]), 32)


def test_span_depends_only_on_solutions():
    a, b, c = variables(3)
    assert span([a ^ b, b ^ c ^ 1]) == span([a ^ c ^ 1, a ^ b, b ^ c ^ 1])
    assert span([a ^ b, b ^ c ^ 1]) != span([a ^ b, b ^ c])


def test_gates_as_sums():
    """A register that adds, and a comparison; a choice that is open is no sum."""
    bench, held = ProofBench(), Signal(2, init=2)
    add, choose = bench.free(2, "add"), bench.free(1, "choose")
    equal = bench.free(1, "equal")
    bench.m.d.comb += equal.eq(held == 1)
    with bench.m.If(choose):
        bench.m.d.sync += held.eq(held ^ add)
    gates = Gates(bench.rtlil())
    low, high, more, chosen = variables(4)
    state, out = gates.cycle([low, high], {"add": [more, 1], "choose": [1]})
    assert gates.initial == [0, 1] and state == [low ^ more, high ^ 1]
    assert out["equal"] == [AnyOf(frozenset([low ^ 1, high]), inverted=True)]
    assert gates.cycle([1, 0], {})[1] == {"equal": [1]}
    with pytest.raises(NotLinear, match="a choice by a variable"):
        gates.cycle([low, high], {"add": [more, 1], "choose": [chosen]})


def test_formal_page_lists_every_proof():
    """``scripts/formal --write`` was run after the last proof was added."""
    table = PAGE.read_text().split(BEGIN)[1].split(END)[0]
    rows = [row.split(" | ")[:2] for row in table.strip().splitlines()[2:]]
    assert rows == [[f"| {proof.name}", proof.claim] for proof in PROOFS.values()]


def test_formal_table_replaces_previous_table(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    result = Result(PROOFS[FAST[0]], "proven", 1.26)
    write(page, [result, Result(PROOFS["frame-crc.steps"], "proven", 2)])
    text = page.read_text()
    assert "old" not in text
    assert text.startswith("before\n") and text.endswith(f"{END}\nafter\n")
    assert "| `stream.skid_buffer.SkidBuffer` | k-induction | 1 | proven | 1.3 |" in text
    assert "| `link.framing.frame_crc` | linear | - | proven | 2 |" in text
    page.write_text("no place\n")
    with pytest.raises(OSError, match="no lines"):
        write(page, [result])


def test_commands_of_several_lines_are_one():
    text = "(a)\n(b (c\n  d)\n)\n\n(e)\n"
    assert list(commands(io.StringIO(text))) == ["(a)\n", "(b (c\n  d)\n)\n", "\n(e)\n"]


def test_formal_unknown_name_is_one_error(capsys):
    assert main(["no-such-block"]) == 2
    assert capsys.readouterr().err == "formal: no proof begins with 'no-such-block': see --list\n"


def test_formal_rejects_table_of_some_proofs(capsys, tmp_path):
    assert main(["skid-buffer", "--write", str(tmp_path / "page.md")]) == 2
    assert "--write is of all proofs" in capsys.readouterr().err

"""The mutants of a block, compiled once and run; what is known of them is kept."""

import ast
import hashlib
import inspect
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

from trainwright.support.files import append_line
from trainwright.support.native.cache import Cache
from trainwright_sim.bench import runner
from trainwright_sim.bench.catalogue import Bench
from trainwright_sim.mutation import netlist, origin
from trainwright_sim.mutation.blocks import Block
from trainwright_sim.mutation.equivalence import NEAR_MILLISECONDS, Twins
from trainwright_sim.mutation.netlist import Mutable, MutationError, NetlistMutant
from trainwright_sim.mutation.suite import Suite, outcome

SIMULATOR = "verilator"
VERDICTS = "verdicts.jsonl"
_BENCHES = "trainwright_sim.bench"
_DESIGN = (f"{_BENCHES}.catalogue", f"{_BENCHES}.designs")
_SAME = "equal states stay equal, for any inputs"
_OPEN = "survived", ""
"""Status of a mutant that passed all tests and that the solver has not been asked about yet."""
CYCLES = 4
"""Clock cycles over which the solver compares a survivor's outputs with the original block's."""
_NEAR = {
    True: f"some inputs show it within {CYCLES} cycles",
    False: f"no inputs show it within {CYCLES} cycles",
    None: f"no verdict on {CYCLES} cycles",
}


@dataclass(frozen=True)
class Verdict:
    """The outcome for one mutant.

    ``status`` is "killed", "survived" (all tests pass) or "equivalent" (proven to be the same
    machine); ``by`` is the test that failed, or what is known about a survivor.
    """

    mutant: NetlistMutant
    status: str
    by: str


def verdicts(block: Block, seed: int, numbers: Sequence[int], cache: Cache) -> list[Verdict]:
    """Test the mutants with the given numbers. Raises ``MutationError`` or ``BenchError``."""
    design, folder = prepared(block, seed, cache)
    asked = [number for number in numbers if number <= len(design.mutants)]
    prove(design, folder, asked)
    run_tests(block.tests, design, folder, asked)
    compare(design, folder, asked)
    rows = known(folder)
    return [Verdict(m, *rows[m.number]) for m in design.mutants if m.number in set(asked)]


def recorded(block: Block, seed: int, cache: Cache) -> list[Verdict]:
    """Return the verdicts of all mutants from earlier runs; empty while any has none."""
    design, folder = prepared(block, seed, cache, make=False)
    rows = known(folder)
    open_ones = [m for m in design.mutants if rows.get(m.number, _OPEN) == _OPEN]
    return [] if open_ones else [Verdict(m, *rows[m.number]) for m in design.mutants]


def prove(design: Mutable, folder: Path, numbers: Sequence[int]) -> None:
    """Ask the solver, with a short limit, which mutants without a verdict change nothing.

    Such mutants would otherwise run every test.
    """
    asked = [n for n in numbers if n not in known(folder)]
    twins = Twins.of(design.rtlil) if asked else None
    for number in asked:
        assert twins is not None
        if twins.is_equivalent(number, NEAR_MILLISECONDS):
            _write(folder, number, "equivalent", _SAME)


def compare(design: Mutable, folder: Path, numbers: Sequence[int]) -> None:
    """Ask the solver about the survivors that it has not been asked about yet."""
    rows = known(folder)
    asked = [n for n in numbers if rows[n] == _OPEN]
    twins = Twins.of(design.rtlil) if asked else None
    for number in asked:
        assert twins is not None
        if twins.is_equivalent(number):
            _write(folder, number, "equivalent", _SAME)
        else:
            _write(folder, number, "survived", _NEAR[twins.differs(number, CYCLES)])


def prepared(block: Block, seed: int, cache: Cache, *, make: bool = True) -> tuple[Mutable, Path]:
    """Return the mutated design of a block, and the folder that keeps its verdicts.

    With ``make=False``, a design that has not been mutated yet has no mutants.
    """
    rtlil = block.tests.rtlil(sources=True)
    choice = (block.mutants, seed, block.without, block.only)
    made_by = [inspect.getsource(module) for module in (netlist, origin)]
    key = "mutants-" + _hash([rtlil, choice, made_by])
    entry = cache.find(key)
    if entry is None and not make:
        return Mutable("", ()), cache.folder
    if entry is None:
        with cache.building(key) as folder:
            if folder is not None:
                design = netlist.mutable(rtlil, *choice)
                (folder / "design.json").write_text(netlist.dumps(design))
        entry = cache.entry(key)
    design = netlist.loads((entry / "design.json").read_text())
    known = cache.folder / "verdicts" / _hash([design.rtlil, _material(block.tests)])
    known.mkdir(parents=True, exist_ok=True)
    return design, known


def _hash(material: object) -> str:
    return hashlib.sha256(json.dumps(material).encode()).hexdigest()[:32]


def _material(tests: Bench | Suite) -> list[str]:
    """Return all text that decides whether a test fails, except for the design itself.

    That is the test module and the bench modules that it imports. What the catalogue says shows in
    the design.
    """
    if isinstance(tests, Suite):
        return tests.material
    texts: dict[str, str] = {}

    def take(name: str) -> None:
        if name in texts or name in _DESIGN:
            return
        texts[name] = inspect.getsource(import_module(name))
        for node in ast.walk(ast.parse(texts[name])):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(_BENCHES):
                take(str(node.module))

    take(f"{_BENCHES}.blocks.{tests.module}")
    return [texts[name] for name in sorted(texts)]


def known(folder: Path) -> dict[int, tuple[str, str]]:
    """Return the status and the test of each mutant by number; cut-off lines are ignored."""
    try:
        lines = (folder / VERDICTS).read_text().splitlines()
    except OSError:
        return {}
    rows = {}
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        rows[row["number"]] = (row["verdict"], row["test"])
    return rows


def run_tests(tests: Bench | Suite, design: Mutable, folder: Path, numbers: list[int]) -> None:
    """Run tests on mutants that have no verdict yet. Raises ``MutationError``."""
    if isinstance(tests, Suite):
        _run_suite(tests, design, folder, numbers)
    else:
        _run_bench(tests, design, folder, numbers)


def _run_suite(suite: Suite, design: Mutable, folder: Path, numbers: list[int]) -> None:
    left = [number for number in numbers if number not in known(folder)]
    if not left:
        return
    first = outcome(suite, design.rtlil, 0)
    if first.failed or not first.passed:
        raise MutationError(f"the block as it is fails {first.failed or 'to be tested'}")
    for number in left:
        failed = outcome(suite, design.rtlil, number, first).failed
        _write(folder, number, "killed" if failed else "survived", failed)


def _run_bench(bench: Bench, design: Mutable, folder: Path, numbers: list[int]) -> None:
    built = runner.compiled(SIMULATOR, design.rtlil)
    while left := [number for number in numbers if number not in known(folder)]:
        before = known(folder)
        reason = _simulate(bench, built, folder, left)
        after = known(folder)
        if after.get(0, ("", ""))[0] == "killed":
            (folder / VERDICTS).unlink()
            raise MutationError(f"{bench.name}: the block as it is fails {after[0][1]}")
        if len(after) == len(before) or 0 not in after:
            raise MutationError(f"{bench.name}: the simulator ended without a verdict: {reason}")
        if [number for number in left if number not in after]:
            stuck = next(n for n in left if n not in after)
            _write(folder, stuck, "killed", reason or "the simulator stopped")


def _simulate(bench: Bench, built: Path, folder: Path, numbers: list[int]) -> str:
    """Run the mutants in one simulation, and return why the simulator stopped early, if it did."""
    (folder / "todo.json").write_text(json.dumps(numbers))
    with TemporaryDirectory(prefix="trainwright-mutants-") as logs:
        try:
            runner.simulate(
                built,
                SIMULATOR,
                "trainwright_sim.mutation.campaign",
                Path(logs),
                [f"+bench={bench.name}", f"+campaign={folder}"],
                COCOTB_LOG_LEVEL="CRITICAL",
                COCOTB_REWRITE_ASSERTION_FILES="none.py",
            )
        except (SystemExit, RuntimeError) as error:
            return f"the simulator stopped: {error}"
    return ""


def _write(folder: Path, number: int, verdict: str, by: str) -> None:
    row = {"number": number, "verdict": verdict, "test": by}
    append_line(folder / VERDICTS, json.dumps(row))

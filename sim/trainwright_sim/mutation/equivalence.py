"""Whether a mutant is the same machine, or may be told apart: an SMT solver's verdict.

Two copies of the design with its mutants, one of which selects none, get the same inputs in every
cycle, the reset too. They are the same for ever where equal registers and memories give equal
outputs and, a cycle later, equal registers and memories (induction with that as its claim).
Where that does not hold, they may still be the same from the initial state on: that is looked at
for a number of cycles, and proves nothing of later ones.
"""

import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from trainwright_hw.build.convert import TOP, yosys_command
from trainwright_sim.mutation.netlist import SELECT, SELECT_WIDTH, MutationError

_PASSES = (
    f"hierarchy -top {TOP}",
    "memory_collect",
    "memory_nordff",
    "async2sync",
    "dffunmap",
    "setundef -undriven -zero",
    "opt_clean",
)
_KINDS = "input", "output", "register", "memory"
_LISTED = re.compile(r"^; yosys-smt2-(input|output|register|memory) (\S+)", re.MULTILINE)
SAME_MILLISECONDS, NEAR_MILLISECONDS = 10_000, 2_000
"""For the question that decides, and for the one that only tells more of a survivor."""


@dataclass(frozen=True)
class Twins:
    """A design with mutants as SMT-LIB: ``text``, and what ports, registers and memories it has."""

    text: str
    names: dict[str, tuple[str, ...]]

    @classmethod
    def of(cls, rtlil: str) -> "Twins":
        """From RTLIL with the input ``SELECT``. Raises ``MutationError``."""
        with TemporaryDirectory(prefix="trainwright-mutants-") as name:
            folder = Path(name)
            (folder / "mutable.il").write_text(rtlil)
            script = "; ".join(["read_rtlil mutable.il", *_PASSES, "write_smt2 mutable.smt2"])
            command = [*yosys_command(), "-q", "-p", script]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
            if done.returncode:
                raise MutationError(f"yosys failed: {done.stderr.strip().splitlines()[-1]}")
            text = (folder / "mutable.smt2").read_text()
        found: dict[str, list[str]] = {kind: [] for kind in _KINDS}
        for kind, signal in _LISTED.findall(text):
            found[kind].append(signal)
        names = {kind: tuple(dict.fromkeys(listed)) for kind, listed in found.items()}
        return cls(text, names)

    def is_equivalent(self, number: int) -> bool:
        """Whether equal states stay equal with that mutant: then it is no fault at all."""
        lines = self._copies(number, 2)
        lines += [f"(assert {same})" for same in self._same_state(0)]
        different = [*self._different_outputs(0), *(f"(not {s})" for s in self._same_state(1))]
        return self._ask(lines, different, SAME_MILLISECONDS) == "unsat"

    def differs(self, number: int, cycles: int) -> bool | None:
        """Whether an output differs in the first ``cycles`` cycles after the initial state for some
        inputs; ``None``: no verdict in time."""
        lines = self._copies(number, cycles)
        lines += [f"(assert (|{TOP}_i| {copy}0))" for copy in "ab"]
        lines += [f"(assert {same})" for same in self._same_state(0)]
        different = [line for n in range(cycles) for line in self._different_outputs(n)]
        return {"sat": True, "unsat": False}.get(self._ask(lines, different, NEAR_MILLISECONDS))

    def _copies(self, number: int, states: int) -> list[str]:
        """``a`` with no mutant, ``b`` with one, through that many states with the same inputs."""
        lines = []
        for n in range(states):
            for copy, select in (("a", 0), ("b", number)):
                lines.append(f"(declare-fun {copy}{n} () |{TOP}_s|)")
                lines.append(f"(assert (= {_of(SELECT, copy, n)} (_ bv{select} {SELECT_WIDTH})))")
                if n:
                    lines.append(f"(assert (|{TOP}_t| {copy}{n - 1} {copy}{n}))")
            inputs = (name for name in self.names["input"] if name != SELECT)
            lines += [f"(assert {_equal(name, n)})" for name in inputs]
        return lines

    def _same_state(self, n: int) -> Iterable[str]:
        yield from (_equal(name, n) for name in self.names["register"])
        yield from (_equal(name, n, "m") for name in self.names["memory"])

    def _different_outputs(self, n: int) -> list[str]:
        return [f"(not {_equal(name, n)})" for name in self.names["output"]]

    def _ask(self, lines: list[str], different: list[str], milliseconds: int) -> str:
        from bitwuzla import Option, Options, Parser, TermManager

        options = Options()
        options.set(Option.TIME_LIMIT_PER, milliseconds)
        solver = Parser(TermManager(), options)
        question = "\n".join([*lines, f"(assert (or {' '.join(different)} false))"])
        solver.parse(f"{self.text}\n{question}\n", parse_file=False)
        return str(solver.bitwuzla().check_sat()).lower()


def _of(name: str, copy: str, n: int, kind: str = "n") -> str:
    return f"(|{TOP}_{kind} {name}| {copy}{n})"


def _equal(name: str, n: int, kind: str = "n") -> str:
    return f"(= {_of(name, 'a', n, kind)} {_of(name, 'b', n, kind)})"

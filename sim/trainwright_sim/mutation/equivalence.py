"""Whether a mutant is the same machine, or may be told apart: an SMT solver's verdict.

Two copies of the design get the same inputs in every cycle, the reset included: in one copy a
mutant is selected, in the other none. The solver first tries induction: if equal registers and
memories give equal outputs, and equal registers and memories a cycle later, the copies are the same
for ever. If induction fails, the copies may still be the same from the initial state on. The solver
checks this for a number of cycles, which proves nothing about later cycles.
"""

import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
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
_LISTED = re.compile(r"^; yosys-smt2-(output|memory) (\S+)", re.MULTILINE)
_SYMBOL = re.compile(r"\|[^|]+\|")
_OF_STATE = re.compile(r"\((\|[^|]+\|) state\)")
_DECLARED = re.compile(rf"^\(declare-fun (\|[^|]+\|) \(\|{TOP}_s\|\) (.*)\)$")
_DEFINED = re.compile(rf"^\(define-fun (\|[^|]+\|) \(\(state \|{TOP}_s\|\)\) ")
_NEXT = re.compile(r"\(= (.*) \((\|[^|]+\|) next_state\)\)")
_STEP = f"(define-fun |{TOP}_t|"
SAME_MILLISECONDS, NEAR_MILLISECONDS = 10_000, 2_000
"""Solver time for the question whether a mutant is equivalent, and for the question whether a
survivor differs soon after reset, which is for information only."""


@dataclass(frozen=True)
class Twins:
    """A design with mutants as constants of SMT-LIB, those of one cycle.

    Both copies have what is ``declared``, inputs and state, in common. So what no mutant changes is
    the same term in both, and the solver is left with what is behind the fault.
    """

    declared: dict[str, str]
    """Symbols of inputs, registers and memories, and their sorts."""
    definitions: tuple[str, ...]
    """The other functions, each after those that it uses."""
    following: dict[str, str]
    """Term of each register's or memory's value a cycle later."""
    outputs: tuple[str, ...]
    memories: tuple[str, ...]
    """Names of the memories in the design."""

    @classmethod
    def of(cls, rtlil: str) -> "Twins":
        """Convert RTLIL that has the input ``SELECT``. Raises ``MutationError``."""
        with TemporaryDirectory(prefix="trainwright-mutants-") as name:
            folder = Path(name)
            (folder / "mutable.il").write_text(rtlil)
            script = "; ".join(["read_rtlil mutable.il", *_PASSES, "write_smt2 mutable.smt2"])
            command = [*yosys_command(), "-q", "-p", script]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
            if done.returncode:
                raise MutationError(f"yosys failed: {done.stderr.strip().splitlines()[-1]}")
            return cls.read((folder / "mutable.smt2").read_text())

    @classmethod
    def read(cls, text: str) -> "Twins":
        """Parse the functions of a state that yosys wrote as SMT-LIB text."""
        declared, definitions, following = {}, [], {}
        for statement in _statements(text):
            if match := _DECLARED.match(statement):
                declared[match[1]] = match[2]
            elif match := _DEFINED.match(statement):
                body = _OF_STATE.sub(r"\1", statement[match.end() :])
                definitions.append(f"(define-fun {match[1]} () {body}")
            elif statement.startswith(_STEP):
                rows = _NEXT.findall(_OF_STATE.sub(r"\1", statement))
                following |= {register: value for value, register in rows}
        listed: dict[str, list[str]] = {"output": [], "memory": []}
        for kind, signal in _LISTED.findall(text):
            listed[kind].append(signal)
        outputs = tuple(f"|{TOP}_n {name}|" for name in dict.fromkeys(listed["output"]))
        memories = tuple(dict.fromkeys(listed["memory"]))
        return cls(declared, tuple(definitions), following, outputs, memories)

    def is_equivalent(self, number: int, most: int = SAME_MILLISECONDS) -> bool:
        """Return whether equal states stay equal under the mutant: then it is no fault at all.

        Returns ``False`` also where the solver has no answer within ``most`` milliseconds.
        """
        different = [self._different(term, 0) for term in (*self.outputs, *self.following.values())]
        return self._ask(number, 1, different, most) is False

    def differs(self, number: int, cycles: int) -> bool | None:
        """Return whether some inputs make an output differ within ``cycles`` cycles of the reset.

        Returns ``None`` where the solver has no answer in time.
        """
        begin = [f"(assert {self._named(f'|{TOP}_i|', copy, 0)})" for copy in "ab"]
        different = [self._different(term, n) for n in range(cycles) for term in self.outputs]
        return self._ask(number, cycles, different, NEAR_MILLISECONDS, begin)

    @cached_property
    def _select(self) -> str:
        """Symbol of the input that selects a mutant."""
        begin = f"(define-fun |{TOP}_n {SELECT}| "
        [definition] = [line for line in self.definitions if line.startswith(begin)]
        return _SYMBOL.findall(definition)[1]

    def _named(self, term: str, copy: str, n: int) -> str:
        """Rename the symbols of ``term`` for one copy of the design and one cycle.

        Inputs and the first state keep one name in both copies, which makes them equal.
        """

        def name(match: re.Match[str]) -> str:
            symbol = match[0]
            is_common = symbol in self.declared and symbol != self._select
            is_common &= not n or symbol not in self.following
            return f"|{'' if is_common else copy}{n} {symbol[1:]}"

        return _SYMBOL.sub(name, term)

    def _different(self, term: str, n: int) -> str:
        return f"(not (= {self._named(term, 'a', n)} {self._named(term, 'b', n)}))"

    def _cycle(self, number: int, n: int) -> Iterator[str]:
        """Cycle ``n`` of copy ``a`` with no mutant and of copy ``b`` with one."""
        for symbol, sort in self.declared.items():
            if symbol != self._select and (not n or symbol not in self.following):
                yield f"(declare-fun {self._named(symbol, '', n)} () {sort})"
        for copy, value in (("a", 0), ("b", number)):
            sort, name = self.declared[self._select], self._named(self._select, copy, n)
            yield f"(define-fun {name} () {sort} (_ bv{value} {SELECT_WIDTH}))"
            if n:
                for symbol, before in self.following.items():
                    name, value = self._named(symbol, copy, n), self._named(before, copy, n - 1)
                    yield f"(define-fun {name} () {self.declared[symbol]} {value})"
            yield self._named("\n".join(self.definitions), copy, n)

    def _ask(
        self, number: int, cycles: int, different: list[str], most: int, begin: Sequence[str] = ()
    ) -> bool | None:
        """Ask the solver whether any of the terms ``different`` can be true."""
        from bitwuzla import Option, Options, Parser, TermManager

        options = Options()
        options.set(Option.TIME_LIMIT_PER, most)
        solver = Parser(TermManager(), options)
        lines = [line for n in range(cycles) for line in self._cycle(number, n)]
        question = f"(assert (or {' '.join(different)} false))"
        solver.parse("\n".join([*lines, *begin, question, ""]), parse_file=False)
        answer = str(solver.bitwuzla().check_sat()).lower()
        return {"sat": True, "unsat": False}.get(answer)


def _statements(text: str) -> Iterator[str]:
    """Yield the statements of SMT-LIB text without comments.

    Each statement begins in the first column, and its further lines are indented.
    """
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("(") and lines:
            yield "\n".join(lines)
            lines = []
        line = line.partition("; ")[0].rstrip()
        if line:
            lines.append(line)
    yield "\n".join(lines)

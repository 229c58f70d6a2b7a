"""``scripts/coverage``: which bits of the hardware's blocks the benches move, which lines they run.

A bench runs as it does in the tests, under Verilator, which counts how often each bit of each named
signal rises and falls, and how often each branch is taken.
"""

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from trainwright_hw.build.convert import rtlil_to_verilog
from trainwright_sim.bench import runner
from trainwright_sim.bench.catalogue import BENCHES, Bench
from trainwright_sim.bench.runner import BenchError
from trainwright_sim.branches import Branch, Reason, Verilog, reasons
from trainwright_sim.page import put

COMMAND = "scripts/coverage"
DESCRIPTION = (
    "Run the benches of blocks, and tell which bits never move and what is never executed."
)
SIMULATOR = "verilator"
OPTIONS = ("--coverage-line", "--coverage-toggle")
DEFAULT = (
    "requantise-32", "nest", "fetch", "pe1-posits", "scratchpad", "load", "statistics", "host",
    "sequencer", "top",
)  # fmt: skip
"""Benches of most blocks in few builds: ``top`` has the others."""
_POINT = re.compile(r"\x01(\w+)\x02([^\x01']*)")
_CODE = re.compile(r"__0([0-9A-Fa-f]{2})")
"""The code that stands in Verilator's names for a character that they cannot have."""
_SHOWN = 12
"""Signals named in the text."""


@dataclass(frozen=True)
class Point:
    """Something that is counted: ``kind`` is "toggle", or another for lines and branches."""

    kind: str
    place: str
    """Path of the module and bit of a toggle; number of a line in the Verilog."""
    name: str
    """Name of a toggle's signal, without bit and direction; empty for a line."""
    count: int


@dataclass(frozen=True)
class Coverage:
    """Coverage of one block.

    ``toggles`` are edges of bits, a rise and a fall each; ``lines`` are branches.
    """

    block: str
    toggles: int
    toggled: int
    lines: int
    executed: int
    still: tuple[str, ...]
    """Signals with a bit that never rises, or never falls."""
    taken: frozenset[Branch] = frozenset()
    untaken: tuple[Branch, ...] = ()

    @classmethod
    def of(cls, block: str, points: Iterable[Point], verilog: Verilog | None = None) -> "Coverage":
        """Count points; several at one place are one. ``verilog`` tells branches apart."""
        most: dict[tuple[bool, str], tuple[int, str]] = {}
        for p in points:
            key = p.kind == "toggle", p.place
            most[key] = max(most.get(key, (0, "")), (p.count, p.name))
        toggles = [count for (toggle, _), (count, _) in most.items() if toggle]
        lines = [count for (toggle, _), (count, _) in most.items() if not toggle]
        named = {p.name for p in points if p.kind == "toggle" and not most[True, p.place][0]}
        counted = [
            (verilog.at(place), count)
            for (toggle, place), (count, _) in most.items()
            if verilog and not toggle
        ]
        return cls(
            block, len(toggles), sum(map(bool, toggles)), len(lines), sum(map(bool, lines)),
            tuple(sorted(named)),
            frozenset(branch for branch, count in counted if count and branch.source),
            tuple(branch for branch, count in counted if not count),
        )  # fmt: skip

    def row(self) -> dict[str, object]:
        """Return the coverage as a JSON object."""
        names = ("block", "toggles", "toggled", "lines", "executed")
        return {**{name: getattr(self, name) for name in names}, "still": list(self.still)}


@dataclass(frozen=True)
class Untaken:
    """Branch of a block that its bench does not take.

    ``how`` is "constant" (no condition of it can change), "elsewhere" (the bench ``why`` takes
    it), "reason" (``why`` is the reason) or "open".
    """

    branch: Branch
    how: str
    why: str = ""

    def row(self) -> dict[str, object]:
        """Return the branch as a JSON object."""
        return {**self.branch.row(), "how": self.how, "why": self.why}


HOW = ("constant", "elsewhere", "reason", "open")


def explained(
    coverage: Coverage, coverages: Iterable[Coverage], known: Sequence[Reason]
) -> list[Untaken]:
    """Explain each branch that a block's bench does not take, as far as possible."""
    untaken = []
    for branch in coverage.untaken:
        taken = [o.block for o in coverages if o.block != coverage.block and branch in o.taken]
        why = [reason.why for reason in known if reason.explains(coverage.block, branch)]
        if branch.is_constant:
            untaken.append(Untaken(branch, "constant"))
        elif taken:
            untaken.append(Untaken(branch, "elsewhere", taken[0]))
        elif why:
            untaken.append(Untaken(branch, "reason", why[0]))
        else:
            untaken.append(Untaken(branch, "open"))
    return untaken


def points(text: str) -> list[Point]:
    """Read the points of a file of Verilator, without signals that yosys alone named."""
    listed = []
    for line in text.splitlines():
        if not line.startswith("C '"):
            continue
        fields, count = dict(_POINT.findall(line)), int(line.rsplit(" ", 1)[1])
        kind, what = fields.get("t", ""), fields.get("o", "")
        if kind != "toggle":
            listed.append(Point(kind, f"{fields.get('l')}.{fields.get('n')} {what}", "", count))
            continue
        name = _CODE.sub(lambda code: chr(int(code[1], 16)), what)
        name = re.sub(r"(\[\d+\])*:[01]->[01]$", "", name)
        if "$" not in name:
            listed.append(Point(kind, f"{fields.get('h')}.{what}", name, count))
    return listed


def measure(bench: Bench) -> Coverage:
    """Run a bench. Raises ``BenchError``."""
    rtlil = bench.rtlil(sources=True)
    built = runner.compiled(SIMULATOR, rtlil, OPTIONS)
    with TemporaryDirectory(prefix="trainwright-coverage-") as name:
        folder = Path(name)
        module = f"trainwright_sim.bench.blocks.{bench.module}"
        data = folder / "coverage.dat"
        arguments = [f"+bench={bench.name}", f"+verilator+coverage+file+{data}"]
        try:
            runner.simulate(built, SIMULATOR, module, folder, arguments)
            text = data.read_text()
        except (SystemExit, RuntimeError, OSError) as error:
            raise BenchError(f"{bench.name}: no coverage: {error}") from None
    return Coverage.of(bench.name, points(text), Verilog(rtlil_to_verilog(rtlil, system=True)))


def markdown(coverages: Sequence[Coverage], known: Sequence[Reason] = ()) -> str:
    """Write the table of the page."""
    lines = [f"| block | edges of bits | seen | branches | taken | {' | '.join(HOW)} |"]
    lines.append("|---|---:|---:|---:|---:|" + "---:|" * len(HOW))
    for c in coverages:
        counts = Counter(entry.how for entry in explained(c, coverages, known))
        lines.append(
            f"| {c.block} | {c.toggles} | {_percent(c.toggled, c.toggles)} | {c.lines} "
            f"| {_percent(c.executed, c.lines)} | {' | '.join(str(counts[how]) for how in HOW)} |"
        )
    return "\n".join(lines)


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def parser() -> argparse.ArgumentParser:
    """Build the parser of the options."""
    options = argparse.ArgumentParser("coverage", description=DESCRIPTION, allow_abbrev=False)
    options.add_argument(
        "blocks", nargs="*", metavar="BENCH", help=f"default: {', '.join(DEFAULT)}"
    )
    options.add_argument("--list", action="store_true", help="print the benches")
    options.add_argument("--json", action="store_true", help="print one JSON object")
    options.add_argument(
        "--write",
        type=Path,
        metavar="PAGE",
        help="put the table into docs/results/verification.md",
    )
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print coverage; return 0, or 2 for bad usage or a bench that fails."""
    args = parser().parse_args(arguments)
    if args.list:
        print("\n".join(BENCHES))
        return 0
    if unknown := [name for name in args.blocks if name not in BENCHES]:
        print(f"coverage: no bench {unknown[0]!r}: see --list", file=sys.stderr)
        return 2
    if reason := runner.unavailable(SIMULATOR):
        print(f"coverage: {reason}", file=sys.stderr)
        return 2
    try:
        known = reasons()
        coverages = [measure(BENCHES[name]) for name in args.blocks or DEFAULT]
        if args.write:
            put(args.write, COMMAND, markdown(coverages, known))
    except (BenchError, OSError, ValueError) as error:
        print(f"coverage: {error}", file=sys.stderr)
        return 2
    if args.json:
        rows = [
            {**c.row(), "untaken": [entry.row() for entry in explained(c, coverages, known)]}
            for c in coverages
        ]
        print(json.dumps({"blocks": rows}))
        return 0
    print(markdown(coverages, known))
    for c in coverages:
        rest = f" and {len(c.still) - _SHOWN} more" if len(c.still) > _SHOWN else ""
        print(f"{c.block}: bits that stay, of {', '.join(c.still[:_SHOWN]) or 'nothing'}{rest}")
        for entry in explained(c, coverages, known):
            if entry.how == "open":
                print(f"{c.block}: not taken, and no reason: {entry.branch}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

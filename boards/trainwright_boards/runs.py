"""Record of runs: how far each board was built, and the figures that came out.

Each run is a line of JSON, which ``--append`` of ``trainwright build`` and ``trainwright export
--estimate`` writes. A board without a line counts as not run.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

from trainwright.parameters import PRESETS, preset
from trainwright.support.files import append_line
from trainwright.support.tables import markdown
from trainwright_boards.catalogue import BOARDS
from trainwright_boards.catalogue.zynq import EXPORTS
from trainwright_boards.estimate import accelerator_digest, design_digest
from trainwright_boards.flow import design, family
from trainwright_boards.job import SYNTH, Build
from trainwright_boards.tools import BuildError

FILE = Path(__file__).with_name("runs.jsonl")
STEPS = {
    "synth": "synthesised",
    "place": "placed",
    "route": "routed",
    "pack": "packed as a bitstream",
}
COLUMNS = (
    *("board", "part", "preset", "memory", "last step", "LUTs", "FFs", "multipliers"),
    *("block RAMs", "MHz", "date", "commit"),
)


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run of the tools for a board."""

    label: str
    """Commit that was built."""
    date: str
    board: str
    preset: str | None
    """Preset, if the sizes are those of one."""
    fingerprint: int | None
    memory: str
    """Member of ``board.MEMORIES``; empty for an accelerator that uses a processor's memory."""
    stage: str
    """Last of ``job.STAGES`` that was run."""
    clock_mhz: float
    seed: int | None
    luts: int
    flip_flops: int | None
    multipliers: int
    block_rams: float
    """Block RAMs of 16 or 18 Kbit."""
    fmax_mhz: float | None
    """Clock reached, where the design was routed."""
    seconds: int | None
    """Time of the tools; None where an earlier version cached the netlist without its time."""
    design: str | None = None
    """Digest of the design; None in lines of versions before 2026-11-28."""

    @property
    def complete(self) -> bool:
        """Whether the run ended with the last stage that tools from PyPI reach for the board."""
        return self.stage == last_stage(self.board)


def last_stage(board: str) -> str:
    """Return the last stage that tools from PyPI reach for a board."""
    return family(BOARDS[board]).last if board in BOARDS else SYNTH


def run_of(figures: Mapping[str, Any], label: str) -> Run:
    """Return the run that figures of a build or an estimate belong to."""
    used = {name: counts["used"] for name, counts in figures["resources"].items()}
    if figures["board"] in EXPORTS:  # counted in block RAMs of 36 Kbit
        used["block_rams"] *= 2
    names = [name for name in PRESETS if preset(name).fingerprint == figures["fingerprint"]]
    fmax, seconds = figures.get("fmax_mhz"), figures["seconds"]
    return Run(
        label=label,
        date=date.today().isoformat(),
        board=figures["board"],
        preset=names[0] if names else None,
        fingerprint=figures["fingerprint"],
        memory=figures.get("memory", ""),
        stage=figures["stage"],
        clock_mhz=figures["clock_mhz"],
        seed=figures.get("seed"),
        luts=round(used["luts"]),
        flip_flops=round(used["flip_flops"]) if "flip_flops" in used else None,
        multipliers=round(used["multipliers"]),
        block_rams=used["block_rams"],
        fmax_mhz=None if fmax is None else round(fmax, 2),
        seconds=round(sum(seconds.values())) if "yosys" in seconds else None,
        design=figures.get("design"),
    )


def append(path: Path, run: Run) -> None:
    """Add a run to a file of one JSON object a line. Raises ``BuildError``."""
    try:
        append_line(path, json.dumps(asdict(run)))
    except OSError as error:
        raise BuildError(f"cannot write to {path}: {error.strerror}") from error


def is_present(run: Run) -> bool:
    """Return whether this version makes the design of a run. The search takes some seconds."""
    if run.design is None or run.preset is None:
        return False
    sizes = preset(run.preset)
    if run.board in EXPORTS:
        return run.design == accelerator_digest(EXPORTS[run.board], sizes)
    clock_hz = round(run.clock_mhz * 1e6)
    job = Build(BOARDS[run.board], sizes, clock_hz, Path(), memory=run.memory)
    return run.design == design_digest(design(job))


@cache
def recorded() -> tuple[Run, ...]:
    """Return the runs of the package's ``runs.jsonl``, in the order of the file."""
    return tuple(Run(**json.loads(line)) for line in FILE.read_text().splitlines())


def finished(board: str) -> dict[tuple[str | None, str], Run]:
    """Return the newest complete run of each preset and memory of a board."""
    return {(r.preset, r.memory): r for r in recorded() if r.board == board and r.complete}


def boards_run() -> list[str]:
    """List the boards that have a recorded complete run."""
    return [name for name in (*BOARDS, *EXPORTS) if finished(name)]


def not_run() -> list[str]:
    """List the boards without a recorded complete run."""
    return [name for name in (*BOARDS, *EXPORTS) if not finished(name)]


def told(board: str) -> list[str]:
    """Describe how far a board was run, in a line for each run."""
    end = "; Vivado goes on" if last_stage(board) == SYNTH else ""
    lines = [
        f"{STEPS[run.stage]} on {run.date} with {run.preset or 'own sizes'}"
        + (f", memory {run.memory}" if run.memory else "")
        + f": {run.luts:,} LUTs"
        + ("" if run.fmax_mhz is None else f", {run.fmax_mhz:g} MHz")
        + end
        for run in finished(board).values()
    ]
    return lines or ["not run yet: described from its documents alone"]


def ages() -> str:
    """List complete runs with this version's design, and runs with an earlier design."""
    named: dict[bool, list[str]] = {True: [], False: []}
    for board in boards_run():
        for run in finished(board).values():
            name = f"{board} with {run.preset or 'own sizes'}"
            named[is_present(run)].append(f"{name}, {run.memory}" if run.memory else name)
    present, earlier = ("; ".join(names) or "none" for names in named.values())
    return (
        f"Designs of this version: {present}.\n"
        f"Designs of earlier versions, whose sizes and clock may differ: {earlier}."
    )


def part_name(board: str) -> str:
    """Return the name of a board's part."""
    return BOARDS[board].part.name if board in BOARDS else EXPORTS[board].part


def table(boards: Iterable[str]) -> str:
    """Return the newest complete runs of some boards as a table of Markdown."""
    rows = [
        [
            run.board,
            part_name(run.board),
            run.preset or f"{run.fingerprint or 0:08x}",
            run.memory or "processor's",
            run.stage,
            *(run.luts, run.flip_flops, run.multipliers, f"{run.block_rams:g}", run.fmax_mhz),
            run.date,
            run.label,
        ]
        for board in boards
        for run in finished(board).values()
    ]
    return markdown(COLUMNS, rows)


def summary() -> str:
    """Return the table and the number of boards that were run, and the names of the rest."""
    count = f"{len(boards_run())} boards were run to the last step for which tools come from PyPI."
    described = f" Described and not run: {', '.join(not_run())}." if not_run() else ""
    commits = (
        "A row is of the commit in its last column: `--runs --check` says which rows are of "
        "designs of this version."
    )
    return f"{table(boards_run())}\n{count}{described}\n{commits}"

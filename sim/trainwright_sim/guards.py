"""Headline figures that do not depend on the machine, held to a file.

``python -m trainwright_sim.guards`` measures the quick figures and compares them with the file,
``--all`` the slow ones too; ``--write`` puts the measured figures into the file. A figure that gets
worse needs its new line in the file, and a reason in the commit.
"""

import argparse
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

from trainwright.compiler import CompiledStep, compile_step
from trainwright.compiler.base.progress import followed
from trainwright.compiler.step.compile import compile_network
from trainwright.network import load_network
from trainwright.parameters import AcceleratorParameters, preset
from trainwright.program.fields import DESCRIPTOR_BYTES
from trainwright.report.memory import accelerator_memory
from trainwright.support.files import write_whole
from trainwright.support.text import amount
from trainwright_hw.build.convert import TOP, yosys_command
from trainwright_hw.build.synthesis import ecp5_passes, write_adders
from trainwright_sim.bench.catalogue import BENCHES

FILE = Path(__file__).parents[2] / "docs" / "guards.toml"
BATCH = 64
SECONDS = 600
"""Longest synthesis of a block."""


@dataclass(frozen=True)
class Figure:
    """Figure that is better the smaller it is."""

    name: str
    measure: Callable[[], int]
    is_slow: bool = False
    """Whether measuring takes more than a second or two."""


class GuardError(RuntimeError):
    """Error: a figure cannot be measured, or the file of figures is malformed."""


@dataclass(frozen=True)
class Case:
    """Step whose cycles pages of the docs quote: a built-in network, and options of the step."""

    network: str
    batch: int = BATCH
    device: str | None = None
    plan: str = "auto"
    ranks: tuple[tuple[int, ...], ...] | None = None
    formats: str | None = None

    def step(self) -> CompiledStep:
        """Compile the step without the cache of programs."""
        network = load_network(self.network)
        if self.ranks is not None:
            network = network.with_ranks(self.ranks)
        if self.formats is not None:
            network = network.with_formats(self.formats)
        parameters = AcceleratorParameters() if self.device is None else preset(self.device)
        return compile_step(network, self.batch, parameters, plan=self.plan)


@cache
def _step(case: Case) -> CompiledStep:
    return case.step()


def _cycles(case: Case) -> int:
    return _step(case).predicted_cycles


def _bytes_moved(name: str) -> int:
    return _step(Case(name)).bytes_moved


def _bits_stored(name: str) -> int:
    """Return the bits of a training step's memory, external and on chip."""
    return sum(item.bits for item in accelerator_memory(_step(Case(name))))


def _program_bytes(name: str) -> int:
    step = _step(Case(name))
    return DESCRIPTOR_BYTES * (len(step.forward.descriptors) + len(step.backward.descriptors))


def _effort(name: str) -> int:
    """Count alternatives of compiling a step without the cache of programs."""
    with followed() as progress:
        compile_network(load_network(name), BATCH, AcceleratorParameters())
    return progress.effort


def _state_bits() -> int:
    """Count flip-flops of PE1's and PE2's benches, before any mapping."""
    return sum(_registers(name) for name in ("pe1", "pe2"))


def _registers(block: str) -> int:
    passes = f"read_rtlil design.il; hierarchy -top {TOP}; proc; flatten; opt_clean; simplemap"
    cells = _cells(block, passes)
    return sum(count for cell, count in cells.items() if "dff" in cell.lower())


@cache
def _mapped(block: str) -> Mapping[str, int]:
    return _cells(block, ecp5_passes("design.il", TOP))


def _luts(block: str) -> int:
    return _mapped(block).get("LUT4", 0)


def _flip_flops(block: str) -> int:
    return _mapped(block).get("TRELLIS_FF", 0)


def _cells(block: str, passes: str) -> Mapping[str, int]:
    with TemporaryDirectory(prefix="trainwright-guards-") as name:
        folder = Path(name)
        (folder / "design.il").write_text(BENCHES[block].rtlil())
        write_adders(folder)
        command = [*yosys_command(), "-q", "-p", f"{passes}; tee -q -o cells.json stat -json"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS)
        if done.returncode:
            raise GuardError(f"yosys failed: {done.stderr.strip().splitlines()[-1]}")
        return json.loads((folder / "cells.json").read_text())["design"]["num_cells_by_type"]


NETWORKS = ("digits", "fashion")
DEVICES = ("ecp5-85f", "gw5ast-138c")
"""Presets of the boards that pages give cycles of `digits` for."""
NARROW = "intermediate=fixed(8),gradient=fixed(8)"
CASES = {
    **{f"digits-{device}": Case("digits", device=device) for device in DEVICES},
    "digits-paper": Case("digits", plan="paper"),
    "digits-zu3eg-w8": Case("digits", device="zu3eg-w8", formats=NARROW),
    "digits-batch-32": Case("digits", batch=32),
    "fashion-ranks-12-5-13-16": Case("fashion", ranks=((12, 5, 13), (16,))),
}
"""Steps in addition to those of `NETWORKS`; all of them compile in a few seconds."""
RANKS: dict[str, tuple[tuple[int, ...], ...]] = {
    "14-10-15-12": ((14, 10, 15), (12,)),
    "9-2-3-3": ((9, 2, 3), (3,)),
    "6": ((6, 6, 6), (6,)),
    "8": ((8, 8, 8), (8,)),
    "12": ((12, 12, 12), (12,)),
}
SLOW_CASES = {
    "fashion-paper": Case("fashion", plan="paper"),
    "fashion-zu3eg-w8": Case("fashion", device="zu3eg-w8", formats=NARROW),
    "fashion-conv-batch-4": Case("fashion-conv", batch=4),
    **{f"fashion-ranks-{ranks}": Case("fashion", ranks=RANKS[ranks]) for ranks in RANKS},
    "fashion-batch-32": Case("fashion", batch=32),
    "fashion-batch-32-small": Case("fashion", batch=32, plan="small"),
    **{f"fashion-{d}": Case("fashion", device=d) for d in ("ecp5-85f", "ecp5-85f-sdram")},
    **{f"{n}-ecp5-85f-narrow": Case(n, device="ecp5-85f", formats=NARROW) for n in NETWORKS},
    **{f"{n}-ecp5-85f-w8": Case(n, device="ecp5-85f-w8", formats=NARROW) for n in NETWORKS},
}
"""Further steps in pages of results."""
BLOCKS = ("requantise-32", "nest", "load", "sequencer")
FIGURES: dict[str, Figure] = {
    figure.name: figure
    for figure in (
        *(Figure(f"{n}.cycles", partial(_cycles, Case(n))) for n in NETWORKS),
        *(Figure(f"{name}.cycles", partial(_cycles, case)) for name, case in CASES.items()),
        *(Figure(f"{n}.cycles", partial(_cycles, c), is_slow=True) for n, c in SLOW_CASES.items()),
        *(Figure(f"{n}.bytes-moved", partial(_bytes_moved, n)) for n in NETWORKS),
        *(Figure(f"{n}.bits-stored", partial(_bits_stored, n)) for n in NETWORKS),
        *(Figure(f"{n}.program-bytes", partial(_program_bytes, n)) for n in NETWORKS),
        *(Figure(f"{n}.effort", partial(_effort, n)) for n in NETWORKS),
        Figure("fashion-conv.effort", partial(_effort, "fashion-conv"), is_slow=True),
        Figure("arrays.state-bits", _state_bits),
        *(Figure(f"{b}.luts", partial(_luts, b), is_slow=True) for b in BLOCKS),
        *(Figure(f"{b}.flip-flops", partial(_flip_flops, b), is_slow=True) for b in BLOCKS),
    )
}
"""A step of each built-in network, plan "auto", by the cycle model; a block's design is that of its
bench, mapped to an ECP5."""

# --- figures in pages ---------------------------------------------------------------------------

_NUMBER = r"(?P<number>[1-9]\d{0,2}(?:,\d{3})*(?:\.\d+)?)"
_MARKED = re.compile(rf"{_NUMBER}<!-- (?P<kind>guard|at|part) (?P<value>[\w.-]+) -->")
_MARK = r"(?P<mark><!-- (?:guard|at|part) [\w.-]+ -->)?"
_HELD = re.compile(
    rf"{_NUMBER}{_MARK} (?:cycles|(?:of [\d,]+ )?LUT(?:s|4| sites))\b"
    rf"|(?P<mhz>[1-9]\d*\.\d+){_MARK.replace('mark', 'mhz_mark')} MHz\b"
)
"""Cycles, LUTs, and clocks with a decimal point: a clock in whole MHz is asked for, or a part's."""
LEAST_HELD = 1000
"""Cycles and LUTs below which a figure is a property of the design or of a small block."""


@dataclass(frozen=True)
class Mark:
    """A figure in a page, and the comment behind it.

    ``guard NAME``: the figure NAME in the file of figures; ``at COMMIT``: measured at that commit;
    ``part NAME``: a property of a part that can be bought.
    """

    line: int
    number: float
    kind: str
    value: str


def marks(page: str) -> list[Mark]:
    """List the marked figures of a page's text."""
    return [
        Mark(line, _value(match["number"]), match["kind"], match["value"])
        for line, text in enumerate(page.splitlines(), 1)
        for match in _MARKED.finditer(text)
    ]


def unmarked(page: str) -> list[tuple[int, float]]:
    """List line and figure of all cycles, LUTs and clocks in a page that carry no mark."""
    return [
        (line, _value(match["number"] or match["mhz"]))
        for line, text in enumerate(page.splitlines(), 1)
        for match in _HELD.finditer(text)
        if not (match["mark"] or match["mhz_mark"])
        and (match["mhz"] or _value(match["number"]) >= LEAST_HELD)
    ]


def wrong_marks(page: str, recorded: Mapping[str, int]) -> list[str]:
    """Describe each figure that differs from the one in the file that its mark names."""
    lines = []
    for mark in marks(page):
        if mark.kind == "guard" and recorded.get(mark.value) != mark.number:
            lines.append(
                f"line {mark.line}: {mark.number:,}, {mark.value} is {recorded.get(mark.value)}"
            )
    return lines


def _value(text: str) -> float:
    plain = text.replace(",", "")
    return float(plain) if "." in plain else int(plain)


# --- the file -----------------------------------------------------------------------------------


def load(path: Path = FILE) -> dict[str, int]:
    """Read the figures of the file. Raises ``GuardError`` for a malformed file."""
    try:
        read = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise GuardError(f"{path}: {error}") from None
    return {f"{group}.{what}": value for group, row in read.items() for what, value in row.items()}


def compare(recorded: Mapping[str, int], measured: Mapping[str, int]) -> list[str]:
    """List the figures that are not as recorded, a line each.

    A better one is listed too, or the next change for the worse would hide behind it.
    """
    lines = []
    for name, value in measured.items():
        known = recorded.get(name)
        if known is None:
            lines.append(f"{name}: {value} is not in the file")
        elif value != known:
            change = "worse" if value > known else "better"
            lines.append(f"{name}: {value} is {change} than {known}")
    return lines


def measure(names: Iterable[str]) -> dict[str, int]:
    """Measure the figures of those names."""
    return {name: FIGURES[name].measure() for name in names}


def text_of(figures: Mapping[str, int]) -> str:
    """Write figures as the text of the file."""
    lines = ["# Less is better. A line that grows needs its reason in the commit:"]
    lines.append("# python -m trainwright_sim.guards --all --write")
    groups: dict[str, list[str]] = {}
    for name, value in figures.items():
        group, what = name.split(".")
        groups.setdefault(group, []).append(f"{what} = {value}")
    for group, rows in groups.items():
        lines += ["", f"[{group}]", *rows]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare figures; return 0 if all are as recorded, 1 if not, 2 if one cannot be measured."""
    options = argparse.ArgumentParser("guards", description=__doc__, allow_abbrev=False)
    options.add_argument("--all", action="store_true", help="the dear figures too: minutes")
    options.add_argument("--write", action="store_true", help="put what is measured into the file")
    options.add_argument("--file", type=Path, default=FILE, help="default: docs/guards.toml")
    args = options.parse_args(arguments)
    try:
        recorded = load(args.file) if args.file.exists() else {}
        chosen = [name for name, figure in FIGURES.items() if args.all or not figure.is_slow]
        measured = measure(chosen)
        lines = compare(recorded, measured)
        print("\n".join(lines or [f"{amount(len(measured), 'figure')}, all as recorded"]))
        if args.write:
            kept = {name: recorded[name] for name in FIGURES if name in recorded}
            merged = {**kept, **measured}
            write_whole(args.file, text_of({n: merged[n] for n in FIGURES if n in merged}))
            return 0
        return int(bool(lines))
    except (GuardError, OSError) as error:
        print(f"guards: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())

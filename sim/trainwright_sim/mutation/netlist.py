"""A design with many faults in it, of which an input selects one: what yosys' ``mutate`` makes."""

import json
import re
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from trainwright_hw.build.convert import TOP, yosys_command
from trainwright_sim.mutation.origin import Origins

SELECT, SELECT_WIDTH = "mutant", 16
"""The input, and its width; 0 selects the design as it is."""
_PASSES = (
    f"hierarchy -top {TOP}",
    "proc",
    "flatten",
    "opt_expr",
    "opt_merge",
    "opt_clean",
    "opt_expr",
    "opt_clean",
)
"""Enough that few faults are in what does nothing; the cells are those of the source."""
_CLOCKS = ("CLK", "RD_CLK", "WR_CLK")
_STATE = (("dff", "Q"), ("memrd", "DATA"), ("memrd", "EN"), ("memrd", "ARST"), ("memrd", "SRST"))
"""What registers and memories give would part with its initial value, and be no state any more to
``equivalence``: what reads it, and what it is taken from, get faults instead. What a read port does
not use is a constant, and yosys insists on it."""
_CONSTANT = "meminit"
"""Cells of what a memory holds at first: yosys insists on constants."""
_SURPLUS = 4
"""Candidates for each mutant wanted: some are excluded, or the same once more."""

SECONDS = 300
"""Longest time of a run of yosys."""


class MutationError(RuntimeError):
    """A tool is absent or failed; the message says which."""


@dataclass(frozen=True)
class Mutant:
    """One fault: ``mode`` (``inv``, ``const0``, ``const1``, ``cnot0``, ``cnot1``) at a bit of a
    cell's port. ``wire``: the name that the bit has in the source; ``source``: file and line.
    """

    number: int
    mode: str
    cell: str
    port: str
    bit: int
    control: int | None
    wire: str
    source: str

    @property
    def fault(self) -> str:
        """In a few words."""
        where = f"{self.wire or 'a signal'} at {self.cell}.{self.port}[{self.bit}]"
        control = "" if self.control is None else f" by bit {self.control}"
        return f"{self.mode}{control}: {where}"


@dataclass(frozen=True)
class Mutable:
    """``rtlil``, the design with all of its ``mutants`` behind the input ``SELECT``."""

    rtlil: str
    mutants: tuple[Mutant, ...]


def mutable(
    rtlil: str, mutants: int, seed: int, without: Sequence[str] = (), only: Sequence[str] = ()
) -> Mutable:
    """Choose ``mutants`` faults, spread over cells, ports and lines of the source, and put them in.

    ``rtlil`` with sources; ``without``: submodules and files that get none; ``only``: parts of the
    names of cells that get some (default: all). Raises ``MutationError``.
    """
    with TemporaryDirectory(prefix="trainwright-mutants-") as name:
        folder = Path(name)
        (folder / "design.il").write_text(rtlil)
        _yosys(folder, "read_rtlil design.il", *_PASSES, "write_rtlil flat.il")
        flat = (folder / "flat.il").read_text()
        # asked for more than there are, yosys does not end: there are 5 at least a connection
        wanted = min(_SURPLUS * mutants, 4 * flat.count("\n    connect "))
        select = [f"select {' '.join(f'{TOP}/c:*{part}*' for part in only)}"] if only else []
        ask = f"mutate -list {wanted} -seed {seed} -o list.txt"
        _yosys(folder, "read_rtlil flat.il", *select, ask)
        lines = (folder / "list.txt").read_text().splitlines()
        cells = _cell_types(flat)
        chosen = _chosen(lines, cells, mutants, seed, without)
        control = f"-ctrl {SELECT} {SELECT_WIDTH}"
        apply = [f"mutate {control} {n} {line}" for n, line in enumerate(chosen, 1)]
        (folder / "apply.ys").write_text("\n".join(apply) + "\n")
        _yosys(
            folder,
            "read_rtlil flat.il",
            "script apply.ys",
            "attrmap -remove src -remove hdlname",
            "opt_clean",
            "write_rtlil mutable.il",
        )
        origins = Origins(flat)
        found = tuple(_mutant(n, line, cells, origins) for n, line in enumerate(chosen, 1))
        return Mutable((folder / "mutable.il").read_text(), found)


def _yosys(folder: Path, *script: str) -> None:
    command = [*yosys_command(), "-q", "-p", "; ".join(script)]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise MutationError(f"yosys did not end in {SECONDS} s") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["no message"]
        raise MutationError(f"yosys failed: {lines[-1].strip()}")


def _chosen(
    lines: Sequence[str], cells: dict[str, str], mutants: int, seed: int, without: Sequence[str]
) -> list[str]:
    """Of yosys' list so many, in its order: none twice, none in a clock or in state itself."""
    modules = [rf"\\{name}\." for name in without if "/" not in name]
    elsewhere = re.compile("|".join(modules) or "$^")
    files = tuple(name for name in without if "/" in name)

    def is_wanted(line: str) -> bool:
        found = re.search(r"-cell (\S+) -port (\S+)", line)
        assert found is not None
        cell, port = cells.get(found[1], found[1]), found[2].lstrip("\\")
        state = any(kind in cell and port == output for kind, output in _STATE)
        sources = [name for text in re.findall(r"-src (\S+)", line) for name in text.split("|")]
        other = any(file in source for source in sources for file in files)
        fixed = port in _CLOCKS or _CONSTANT in cell
        return not (fixed or state or other or elsewhere.search(found[1]))

    bodies = [re.sub(r"^mutate ", "", line) for line in lines if is_wanted(line)]
    bodies = list(dict.fromkeys(bodies))
    if len(bodies) > mutants:
        keep = set(Random(seed).sample(range(len(bodies)), mutants))
        bodies = [body for n, body in enumerate(bodies) if n in keep]
    return bodies


def _cell_types(rtlil: str) -> dict[str, str]:
    return {name: kind for kind, name in re.findall(r"^\s*cell (\S+) (\S+)$", rtlil, re.MULTILINE)}


def _mutant(number: int, line: str, cells: dict[str, str], origins: Origins) -> Mutant:
    words = line.split()
    options: dict[str, list[str]] = {}
    for option, value in zip(words[::2], words[1::2], strict=True):
        options.setdefault(option, []).append(value)
    one = {option: values[0] for option, values in options.items()}
    named = options.get("-src") or origins.of(one["-cell"], one["-port"].lstrip("\\"))
    sources = sorted({_relative(part) for s in named for part in s.split("|")})
    return Mutant(
        number=number,
        mode=one["-mode"],
        cell=cells.get(one["-cell"], one["-cell"]).lstrip("$\\"),
        port=one["-port"].lstrip("\\"),
        bit=int(one["-portbit"]),
        control=int(one["-ctrlbit"]) if "-ctrlbit" in one else None,
        wire=one.get("-wire", "").lstrip("\\"),
        source=" ".join(sources),
    )


def _relative(source: str) -> str:
    """``hw/.../trainwright_hw/bus/axi.py:12.1-12.9`` as ``bus/axi.py:12``."""
    path, _, place = source.partition(":")
    inside = re.split(r"trainwright_hw/|site-packages/", path)[-1]
    line = re.match(r"\d+", place)
    return f"{inside}:{line.group() if line else place}"


def dumps(design: Mutable) -> str:
    """As JSON text."""
    return json.dumps({"rtlil": design.rtlil, "mutants": [asdict(m) for m in design.mutants]})


def loads(text: str) -> Mutable:
    """What ``dumps`` gave."""
    read = json.loads(text)
    return Mutable(read["rtlil"], tuple(Mutant(**mutant) for mutant in read["mutants"]))

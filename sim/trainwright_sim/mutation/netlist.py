"""Put many faults into a design, with an input that selects one of them, by yosys' ``mutate``."""

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
"""Passes that remove cells without effect, in which faults would change nothing; all other cells
stay as in the source."""
_CLOCKS = ("CLK", "RD_CLK", "WR_CLK")
_STATE = (("dff", "Q"), ("memrd", "DATA"), ("memrd", "EN"), ("memrd", "ARST"), ("memrd", "SRST"))
"""Outputs of registers and memories, and unused pins of read ports, which get no faults.

A fault there would separate a register from its initial value, and ``equivalence`` would no longer
see it as state. The cells that read the output, and those that drive the input, get faults instead.
An unused pin of a read port is a constant, and yosys insists on that.
"""
_CONSTANT = "meminit"
"""Cells of the initial contents of a memory, which yosys requires to be constants."""
_SURPLUS = 4
"""Candidates drawn for each mutant wanted: some are excluded, some drawn twice."""

SECONDS = 300
"""Longest time of a run of yosys."""


class MutationError(RuntimeError):
    """A tool is absent or failed; the message says which."""


@dataclass(frozen=True)
class NetlistMutant:
    """A fault in a flattened netlist.

    ``mode`` says what it does to one bit of a cell's port: invert it (``inv``), set it to a
    constant (``const0``, ``const1``), or invert it depending on another bit (``cnot0``, ``cnot1``).
    ``wire`` is the name of the bit in the source, and ``source`` the file and line.
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
        """The fault in a few words: what, where and depending on which bit."""
        where = f"{self.wire or 'a signal'} at {self.cell}.{self.port}[{self.bit}]"
        control = "" if self.control is None else f" by bit {self.control}"
        return f"{self.mode}{control}: {where}"


@dataclass(frozen=True)
class Mutable:
    """``rtlil``, the design with all of its ``mutants`` behind the input ``SELECT``."""

    rtlil: str
    mutants: tuple[NetlistMutant, ...]


def mutable(
    rtlil: str, mutants: int, seed: int, without: Sequence[str] = (), only: Sequence[str] = ()
) -> Mutable:
    """Choose ``mutants`` faults, spread over cells, ports and lines of the source, and put them in.

    ``rtlil`` has sources. ``without``: submodules and files that get no faults. ``only``: parts of
    cell names; other cells get no faults (default: all cells may). Raises ``MutationError``.
    """
    with TemporaryDirectory(prefix="trainwright-mutants-") as name:
        folder = Path(name)
        (folder / "design.il").write_text(rtlil)
        _yosys(folder, "read_rtlil design.il", *_PASSES, "write_rtlil flat.il")
        flat = (folder / "flat.il").read_text()
        # yosys never ends if asked for more faults than exist; a connection has at least 5
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
        mutants_made = tuple(_mutant(n, line, cells, origins) for n, line in enumerate(chosen, 1))
        return Mutable((folder / "mutable.il").read_text(), mutants_made)


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
    """Choose mutants from yosys' list, in its order, without clocks and without state itself."""
    modules = [rf"\\{name}\." for name in without if "/" not in name]
    elsewhere = re.compile("|".join(modules) or "$^")
    files = tuple(name for name in without if "/" in name)

    def is_wanted(line: str) -> bool:
        match = re.search(r"-cell (\S+) -port (\S+)", line)
        assert match is not None
        cell, port = cells.get(match[1], match[1]), match[2].lstrip("\\")
        state = any(kind in cell and port == output for kind, output in _STATE)
        sources = [name for text in re.findall(r"-src (\S+)", line) for name in text.split("|")]
        other = any(file in source for source in sources for file in files)
        fixed = port in _CLOCKS or _CONSTANT in cell
        return not (fixed or state or other or elsewhere.search(match[1]))

    bodies = [re.sub(r"^mutate ", "", line) for line in lines if is_wanted(line)]
    bodies = list(dict.fromkeys(bodies))
    if len(bodies) > mutants:
        keep = set(Random(seed).sample(range(len(bodies)), mutants))
        bodies = [body for n, body in enumerate(bodies) if n in keep]
    return bodies


def _cell_types(rtlil: str) -> dict[str, str]:
    return {name: kind for kind, name in re.findall(r"^\s*cell (\S+) (\S+)$", rtlil, re.MULTILINE)}


def _mutant(number: int, line: str, cells: dict[str, str], origins: Origins) -> NetlistMutant:
    words = line.split()
    options: dict[str, list[str]] = {}
    for option, value in zip(words[::2], words[1::2], strict=True):
        options.setdefault(option, []).append(value)
    first = {option: values[0] for option, values in options.items()}
    named = options.get("-src") or origins.of(first["-cell"], first["-port"].lstrip("\\"))
    sources = sorted({_relative(part) for s in named for part in s.split("|")})
    return NetlistMutant(
        number=number,
        mode=first["-mode"],
        cell=cells.get(first["-cell"], first["-cell"]).lstrip("$\\"),
        port=first["-port"].lstrip("\\"),
        bit=int(first["-portbit"]),
        control=int(first["-ctrlbit"]) if "-ctrlbit" in first else None,
        wire=first.get("-wire", "").lstrip("\\"),
        source=" ".join(sources),
    )


def _relative(source: str) -> str:
    """Return ``hw/.../trainwright_hw/bus/axi.py:12.1-12.9`` as ``bus/axi.py:12``."""
    path, _, place = source.partition(":")
    inside = re.split(r"trainwright_hw/|site-packages/", path)[-1]
    line = re.match(r"\d+", place)
    return f"{inside}:{line.group() if line else place}"


def dumps(design: Mutable) -> str:
    """Return a mutated design as JSON text."""
    return json.dumps({"rtlil": design.rtlil, "mutants": [asdict(m) for m in design.mutants]})


def loads(text: str) -> Mutable:
    """Return the mutated design that ``dumps`` wrote."""
    read = json.loads(text)
    return Mutable(read["rtlil"], tuple(NetlistMutant(**mutant) for mutant in read["mutants"]))

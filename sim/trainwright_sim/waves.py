"""Waveforms of the simulated accelerator: which signals, and while which descriptors execute."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import pywellen

from trainwright.support.text import suggestion
from trainwright_hw.build.convert import TOP

CYCLE = 10
"""Time units of a cycle: the time without its last digit is the cycle of ``CommandRecord``."""
_TOP = "top.simulated.inner."
_ROOT = re.compile(rf"{re.escape(_TOP)}(design\.)?")
"""Scopes above the accelerator's blocks in a file: the simulator, and the register of its reset."""
_LANES = re.compile(r"\.(array|vector|lanes)\.")
"""Blocks that repeat for each lane: six sevenths of a file of all signals."""
_MODULE = re.compile(r"^module \\(\S+)$(.*?)^end$", re.MULTILINE | re.DOTALL)
_WIRE = re.compile(r"^  wire (?:.* )?\\(\S+)$", re.MULTILINE)
_MEMORY = re.compile(r"^  memory (?:.* )?size (\d+) (?:.* )?\\(\S+)$", re.MULTILINE)
_CELL = re.compile(r"^  cell \\(\S+) \\(\S+)$", re.MULTILINE)
_INDEX = re.compile(r"\[(\d+)\]")
_MOST_ROWS = 32
"""Rows of the deepest memory that Verilator traces (``--trace-max-array``)."""


@dataclass(frozen=True)
class Waveform:
    """Window of a run, and the file that its waveform is written to."""

    path: Path
    first: int
    """Number of the first descriptor."""
    last: int
    """Number of the last descriptor; both are commands of an engine."""
    signals: tuple[str, ...] = ()
    """Patterns such as ``pe1.*``; none for all signals outside of lanes."""


def signal_names(path: Path) -> list[str]:
    """Return the full names of a file's signals."""
    names = (variable.full_name for variable in pywellen.Waveform(str(path)).all_vars())
    return list(dict.fromkeys(names))


def design_names(rtlil: str) -> list[str]:
    """Return the full names that the signals of a converted design have in a file.

    A file lacks few of these signals: Verilator replaces some by others of the same value.
    """
    modules = dict(_MODULE.findall(rtlil))

    def within(module: str, scope: str) -> Iterator[str]:
        body = modules[module]
        yield from (scope + name for name in _WIRE.findall(body))
        for size, name in _MEMORY.findall(body):
            if int(size) <= _MOST_ROWS:
                yield from (f"{scope}{name}[{row}]" for row in range(int(size)))
        for kind, name in _CELL.findall(body):
            if kind in modules:
                yield from within(kind, f"{scope}{name}.")

    # a file has an element of an array as a signal inside of a scope
    return [_INDEX.sub(r".[\1]", name) for name in within(TOP, _TOP)]


def selected(names: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """Return the shortest list of scopes and signals for ``patterns``.

    A scope stands for every signal in it. Raises ``ValueError`` for a pattern that matches nothing.
    """
    short = {name: _ROOT.sub("", name, 1) for name in names if _ROOT.match(name)}
    chosen = {name for name in short if not (patterns or _LANES.search(name))}
    for pattern in patterns:
        # a printed name may have brackets, which in a pattern stand for one of several letters
        matching = {n for n, i in short.items() if i == pattern or fnmatchcase(i, pattern)}
        if not matching:
            raise ValueError(_unmatched(pattern, short.values()))
        chosen |= matching
    return _scopes(names, chosen)


def _unmatched(pattern: str, names: Iterable[str]) -> str:
    """Describe a pattern that matches no name, with the closest name or scope."""
    scopes = {scope for name in names for scope in _above(name)}
    # two underscores: the members of a port, and no block
    blocks = sorted(scope for scope in scopes if scope.isidentifier() and "__" not in scope)
    return (
        f"--signals {pattern!r} matches no signal; blocks are {', '.join(blocks)} ('pe1.*' takes "
        f"all signals of one){suggestion(pattern, [*names, *(f'{s}.*' for s in scopes)])}"
    )


def _scopes(names: Iterable[str], chosen: set[str]) -> list[str]:
    """Replace signals by their scopes where all of a scope is chosen.

    Verilator compares every signal with every name of the list: whole names of 13,000 signals take
    20 seconds. It has no dot in front of an array's index, where the file has one.
    """
    names = [name.replace(".[", "[") for name in names]
    kept = {name.replace(".[", "[") for name in chosen}
    partial = {scope for name in names if name not in kept for scope in _above(name)}
    whole = (next((s for s in _above(name) if s not in partial), name) for name in kept)
    return sorted(set(whole))


def _above(name: str) -> list[str]:
    """Return the scopes of a signal, outermost first."""
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]

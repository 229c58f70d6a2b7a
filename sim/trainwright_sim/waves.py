"""Waveforms of the simulated accelerator: which signals, and while which descriptors execute."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import pywellen

CYCLE = 10
"""Time units of a cycle: the time without its last digit is the cycle of ``CommandRecord``."""
_ROOT = re.compile(r"top\.simulated\.inner\.(design\.)?")
"""Scopes above the accelerator's blocks in a file: the simulator, and the register of its reset."""
_LANES = re.compile(r"\.(array|vector|lanes)\.")
"""Blocks that repeat for each lane: six sevenths of a file of all signals."""


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


def selected(names: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """Return the shortest list of scopes and signals for ``patterns``.

    A scope stands for every signal in it. Raises ``ValueError`` for a pattern that matches nothing.
    """
    short = {name: _ROOT.sub("", name, 1) for name in names if _ROOT.match(name)}
    chosen = {name for name in short if not (patterns or _LANES.search(name))}
    for pattern in patterns:
        matching = {name for name, inside in short.items() if fnmatchcase(inside, pattern)}
        if not matching:
            blocks = {inside.partition(".")[0] for inside in short.values() if "." in inside}
            raise ValueError(
                f"--signals {pattern!r} matches no signal; blocks are "
                f"{', '.join(sorted(filter(str.isidentifier, blocks)))}: 'pe1.*' takes all "
                "signals of one"
            )
        chosen |= matching
    return _scopes(names, chosen)


def _scopes(names: Iterable[str], chosen: set[str]) -> list[str]:
    """Replace signals by their scopes where all of a scope is chosen.

    Verilator compares every signal with every name of the list: whole names of 13,000 signals take
    20 seconds.
    """
    partial = {scope for name in names if name not in chosen for scope in _above(name)}
    whole = (next((s for s in _above(name) if s not in partial), name) for name in chosen)
    return sorted(set(whole))


def _above(name: str) -> list[str]:
    """Return the scopes of a signal, outermost first."""
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]

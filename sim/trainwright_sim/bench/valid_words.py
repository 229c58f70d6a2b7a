"""Words that are numbers in every format that commands read them in."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from trainwright.golden.compute import compute
from trainwright.golden.state import Addresses, MachineState, Words
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute
from trainwright_sim.bench.commands import SPACE, Rows


def state_of(rows: Rows) -> MachineState:
    """Make the golden model's state; ``rows`` stay unchanged."""
    return MachineState(**_contents(rows))


def _contents(rows: Rows) -> dict:
    return {
        "memory": np.zeros(0, np.uint8),
        "pad": rows.astype(np.int16),
        "known": np.ones(SPACE, np.bool_),
    }


class _Reads(MachineState):
    """Keeps the addresses that were read."""

    rows: Addresses

    def read(self, rows: Addresses) -> Words:
        self.rows = np.union1d(self.rows, rows)
        return super().read(rows)


def reads_of(rows: Rows, d: Compute, p: AcceleratorParameters) -> Addresses:
    """Return the scratchpad rows that a command reads."""
    reads = _Reads(**_contents(rows))
    reads.rows = np.zeros(0, np.int64)
    compute(replace(d, x_format=0, g_format=0, z_format=0), reads, p)
    return reads.rows


def fit(rows: Rows, commands: Sequence[Compute], p: AcceleratorParameters) -> None:
    """Make the words that each command reads numbers of the formats that it may read them in.

    Words that no command reads, or only as fixed point, stay as they are.
    """
    for d in commands:
        numbers = {d.x_format, d.g_format} - {0}
        if not numbers:
            continue
        most = min(p.number_formats[number].largest for number in numbers)
        read = reads_of(rows, d, p)
        rows[read] = _within(rows[read], most)


def _within(words: np.ndarray, most: int) -> np.ndarray:
    """Limit words to ``most``: larger ones become their remainder, or ``most`` itself."""
    remainder = np.sign(words) * (np.abs(words) % (most + 1))
    extreme = np.where(np.abs(words) % 4 == 0, np.sign(words) * most, remainder)
    return np.where(np.abs(words) > most, extreme, words)

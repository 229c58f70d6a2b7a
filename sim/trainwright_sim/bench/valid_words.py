"""Words that are numbers in every format that commands read them in."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from trainwright.golden.compute import compute
from trainwright.golden.state import Addresses, State, Words
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute
from trainwright.program.fields import Target
from trainwright_sim.bench.commands import SPACE, Operands


def state_of(operands: Operands) -> State:
    """What the golden model works on; ``operands`` stay as they are."""
    return State(**_contents(operands))


def _contents(operands: Operands) -> dict:
    return {
        "memory": np.zeros(0, np.uint8),
        "pad": operands.rows.astype(np.int16),
        "known": np.ones(SPACE, np.bool_),
        "stores": {
            target: operands.entries.astype(np.int16)
            for target in (Target.PE1_STORE, Target.PE2_STORE)
        },
    }


class _Reads(State):
    """Keeps the addresses that were read."""

    rows: Addresses
    places: Addresses

    def read(self, rows: Addresses) -> Words:
        self.rows = np.union1d(self.rows, rows)
        return super().read(rows)

    def entries(self, target: Target, entries: Addresses) -> Words:
        self.places = np.union1d(self.places, entries)
        return super().entries(target, entries)


def reads_of(operands: Operands, d: Compute, p: AcceleratorParameters) -> tuple[Addresses, ...]:
    """Rows of the scratchpad and entries of the factor store that a command reads."""
    reads = _Reads(**_contents(operands))
    reads.rows = reads.places = np.zeros(0, np.int64)
    compute(replace(d, x_format=0, g_format=0, z_format=0), reads, p)
    return reads.rows, reads.places


def fit(operands: Operands, commands: Sequence[Compute], p: AcceleratorParameters) -> None:
    """Make the words that each command reads numbers of the formats that it may read them in.

    Words that no command reads, or only as fixed point, stay as they are.
    """
    for d in commands:
        numbers = {d.x_format, d.g_format} - {0}
        if not numbers:
            continue
        most = min(p.number_formats[number].largest for number in numbers)
        both = (operands.rows, operands.entries)
        for words, read in zip(both, reads_of(operands, d, p), strict=True):
            words[read] = _within(words[read], most)


def _within(words: np.ndarray, most: int) -> np.ndarray:
    """The words that are at most ``most``; others their remainders, or ``most`` itself."""
    remainder = np.sign(words) * (np.abs(words) % (most + 1))
    extreme = np.where(np.abs(words) % 4 == 0, np.sign(words) * most, remainder)
    return np.where(np.abs(words) > most, extreme, words)

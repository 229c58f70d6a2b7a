"""The sizes of an accelerator for ``--help``: ranges, defaults, meanings, and the presets."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from trainwright.parameters import PRESETS, AcceleratorParameters, preset

WIDTH = 98
"""Columns; argparse indents by two more."""


@dataclass(frozen=True)
class Size:
    """One size: all values that it takes, where there are few, or its ends."""

    name: str
    meaning: str
    values: Sequence[int] = ()
    least: int = 0
    greatest: int = 0
    powers: bool = False
    """Powers of two only, beside 0."""
    listed: str = ""
    """What it lists, where it is no number."""

    @property
    def range(self) -> str:
        """The values, as text."""
        if self.listed:
            return self.listed
        if self.values and self.powers:
            return f"{self.values[0]}, {self.values[1]} .. {self.values[-1]}"
        if self.values:
            *most, last = map(str, self.values)
            return f"{', '.join(most)} or {last}" if most else f"{last} only"
        if self.powers:
            return f"{self.least}, {2 * self.least} .. {self.greatest}"
        return f"{self.least} to {self.greatest}"


def _powers(name: str, meaning: str, least: int, greatest: int) -> Size:
    return Size(name, meaning, least=least, greatest=greatest, powers=True)


SIZES = (
    Size("lanes", "words of a row, bytes of the memory port", (4, 8, 16)),
    _powers("pe1_rows", "rows of PE1 (x lanes multipliers), at most lanes", 2, 16),
    _powers("pe2_rows", "rows of PE2 (x lanes multipliers), at most lanes", 2, 16),
    Size("word_width", "bits of a scratchpad word", (8, 16)),
    Size("factor_width", "bits of a factor (default: the network's)", least=2, greatest=16),
    Size("accumulator_width", "bits of an accumulator", least=24, greatest=48),
    _powers("scratchpad_banks", "banks of the scratchpad, of at least 16 rows", 1, 8192),
    _powers("scratchpad_rows", "rows of all banks, 16 a bank at least", 16, 1 << 17),
    _powers("program_depth", "descriptors that the program memory holds", 1, 1 << 12),
    _powers("statistics_depth", "slots of statistics, one for a tensor", 1, 256),
    Size("nest_levels", "levels of a descriptor's loop nest", least=3, greatest=10),
    Size("loop_depth", "nested loops of the sequencer", least=1, greatest=8),
    Size("address_width", "bits of an external address", (32,)),
    _powers("burst_beats", "beats of an AXI burst, 4,096 bytes at most", 1, 256),
    _powers("outstanding_bursts", "bursts in flight each way", 1, 64),
    Size("stochastic_rounding", "1: results can be rounded by random bits", (0, 1)),
    Size("vector_engine", "1: loss and update as passes over rows", (0, 1)),
    Size("engine_lanes", "lanes of the vector engine; 0: as many as lanes", (0, 1, 2, 4, 8)),
    Size("sample_loads", "1: LOAD fetches samples in a drawn order", (0, 1)),
    Size("exponents", "slots of the exponent file", (0, 16, 32, 64, 128, 256), powers=True),
    Size("wide_tensors", "1: words of 8 bits, tensors of 16", (0, 1)),
    Size("address_checks", "1: addresses outside end a run", (0, 1)),
    Size("memory_rate", "bytes a cycle of the memory compiled for; 0: 4/5", least=0, greatest=16),
    Size("formats", "beside fixed point, as posit(8,0),posit(8,1)c", listed="names"),
)


def _default(size: Size, default: AcceleratorParameters) -> str:
    value = getattr(default, size.name)
    return ",".join(value) or "none" if size.listed else str(int(value))


def describe_sizes() -> str:
    """The sizes and presets, a line each."""
    default = AcceleratorParameters()
    rows = [(s.name, s.range, _default(s, default), s.meaning) for s in SIZES]
    rows.insert(0, ("NAME", "range", "default", ""))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [
        "  ".join([*(text.ljust(width) for text, width in zip(row, widths, strict=False)), row[3]])
        for row in rows
    ]
    lines += [
        "",
        "A preset is a set of these for a device; NAME=N given besides it goes before it:",
    ]
    width = max(map(len, PRESETS))
    for name in PRESETS:
        sizes = ", ".join(f"{key}={value}" for key, value in PRESETS[name].sizes.items())
        multipliers = preset(name).multipliers
        text = f"{name.ljust(width)}  {multipliers} multipliers; {sizes or 'the defaults'}"
        lines += textwrap.wrap(text, WIDTH, subsequent_indent=" " * (width + 2))
    return "\n".join(line.rstrip() for line in lines)

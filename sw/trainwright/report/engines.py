"""Time line of a step: when each engine has a command, and where an array has none."""

from collections.abc import Sequence
from typing import Any

from trainwright.accelerator import CommandRecord
from trainwright.program.fields import Engine
from trainwright.support.figure import COLOURS, dress, new_figure, to_png

ROWS = (Engine.PE2, Engine.PE1, Engine.STORE, Engine.LOAD)
"""Engines from the lowest row of the picture to the highest."""


def draw_engines(parts: Sequence[tuple[str, Sequence[CommandRecord]]], network: str) -> bytes:
    """Draw the commands of each engine along the cycles of a step, its programs side by side."""
    figure = new_figure(11.0, 3.2)
    axes: Any = dress(figure.subplots(), f"{network}: commands of each engine", "cycles", "")
    begin = 0
    for name, commands in parts:
        end = begin + max((command.end for command in commands), default=0)
        for row, engine in enumerate(ROWS):
            own = [c for c in commands if c.engine is engine]
            bars = [(begin + c.start, max(1, c.end - c.start)) for c in own]
            # Two shades in turn tell commands apart that follow each other without a gap.
            shades = [COLOURS[row] if n % 2 else COLOURS[row] + "99" for n in range(len(own))]
            axes.broken_barh(bars, (row - 0.4, 0.8), facecolors=shades)
        axes.axvline(end, color=COLOURS[7], linewidth=0.8)
        axes.text((begin + end) / 2, len(ROWS) - 0.45, name, ha="center", va="bottom", fontsize=8)
        begin = end
    axes.set_yticks(range(len(ROWS)), [engine.name or "" for engine in ROWS])
    axes.set(xlim=(0, max(1, begin)), ylim=(-0.5, len(ROWS) - 0.2))
    return to_png(figure)

"""Files of a profile: when each engine has a command, and what arrays and memory allow."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from matplotlib.patches import Patch

from trainwright.accelerator import CommandRecord
from trainwright.parameters import AcceleratorParameters
from trainwright.program.engines import ENGINES
from trainwright.program.vector import Code, Vector
from trainwright.report.roofline import draw_roofline
from trainwright.support.figure import COLOURS, dress, new_figure, to_png
from trainwright.timing.lost import purpose_of
from trainwright.timing.profile import ProfiledProgram, trace_events

ROWS = ("vector engine", *[spec.name for spec in reversed(ENGINES)])
"""Engines from the lowest row of the picture to the highest."""
PASSES = ("#004488", "#bb5566", "#ddaa33", "#117733", "#882255", "#44aa99", "#999933", "#332288",
          "#cc79a7", "#e69f00", "#56b4e9", "#661100", "#888888")  # fmt: skip
"""Colours of the vector engine's passes by purpose, taken in turn."""


def profile_files(
    parts: Sequence[ProfiledProgram], totals: Sequence[Mapping[str, Any]],
    p: AcceleratorParameters, network: str, bandwidth: float,
) -> dict[str, str | bytes]:  # fmt: skip
    """Return the trace and the pictures of a profile by name of the file."""
    points = [(t["part"], t["macs"], t["bytes"], t["cycles"]) for t in totals]
    return {
        "trace.json": json.dumps(trace_events(parts)),
        "roofline.png": draw_roofline(points, p, bandwidth),
        "engines.png": draw_engines(parts, network),
    }


def _row(part: ProfiledProgram, command: CommandRecord) -> str:
    """Return the row of a command: those of the vector engine have one of their own."""
    d = part.descriptors[command.number] if command.number >= 0 else None
    return ROWS[0] if isinstance(d, Code | Vector) else command.engine.name or ""


def _bars(commands: Iterable[CommandRecord], begin: int) -> list[tuple[int, int]]:
    return [(begin + c.start, max(1, c.end - c.start)) for c in commands]


def _draw_passes(
    axes: Any, part: ProfiledProgram, commands: list[CommandRecord], begin: int,
    colours: dict[str, str],
) -> None:  # fmt: skip
    """Draw the passes of the vector engine, with a colour for each purpose."""
    by_purpose: dict[str, list[CommandRecord]] = {}
    for command in commands:
        d = part.descriptors[command.number]
        assert isinstance(d, Code | Vector)
        by_purpose.setdefault(purpose_of(d), []).append(command)
    for purpose, commands in by_purpose.items():
        colour = colours.setdefault(purpose, PASSES[len(colours) % len(PASSES)])
        axes.broken_barh(_bars(commands, begin), (-0.4, 0.8), facecolors=colour)


def draw_engines(parts: Sequence[ProfiledProgram], network: str) -> bytes:
    """Draw the commands of each engine along the cycles of a step, its programs side by side.

    Of steps that one start ran, the first of each kind is drawn.
    """
    passes = any(isinstance(d, Vector) for part in parts for d in part.descriptors)
    rows = ROWS if passes else ROWS[1:]
    figure = new_figure(11.0, 4.2 if passes else 3.2)
    axes: Any = dress(figure.subplots(), f"{network}: commands of each engine", "cycles", "")
    begin, colours = 0, dict[str, str]()
    drawn = [(part, *kind) for part in parts for kind in part.kinds_of_steps.items()]
    for part, name, commands in drawn:
        end = begin + max((command.end for command in commands), default=0)
        for place, row in enumerate(rows):
            own = [c for c in commands if _row(part, c) == row]
            if row == ROWS[0]:
                _draw_passes(axes, part, own, begin, colours)
                continue
            # Two shades in turn tell commands apart that follow each other without a gap.
            colour = COLOURS[ROWS.index(row) - 1]
            shades = [colour if n % 2 else colour + "99" for n in range(len(own))]
            axes.broken_barh(_bars(own, begin), (place - 0.4, 0.8), facecolors=shades)
        axes.axvline(end, color=COLOURS[7], linewidth=0.8)
        axes.text((begin + end) / 2, len(rows) - 0.45, name, ha="center", va="bottom", fontsize=8)
        begin = end
    axes.set_yticks(range(len(rows)), rows)
    axes.set(xlim=(0, max(1, begin)), ylim=(-0.5, len(rows) - 0.2))
    if colours:
        patches = [Patch(color=colour, label=purpose) for purpose, colour in colours.items()]
        axes.legend(handles=patches, loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=4,
                    fontsize=8, frameon=False, title="passes of the vector engine")  # fmt: skip
    return to_png(figure)

"""The roofline of a step: multiply-accumulates a cycle against those a byte of external memory."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from trainwright.parameters import AcceleratorParameters
from trainwright.support.figure import COLOURS, dress, new_figure, to_png


def draw_roofline(
    points: Sequence[tuple[str, int, int, int]], p: AcceleratorParameters, bandwidth: float
) -> bytes:
    """Draw a roofline of ``points``: name, multiply-accumulates, bytes, cycles.

    ``bandwidth`` is in beats a cycle.
    """
    figure = new_figure(7.5, 4.6)
    axes: Any = dress(
        figure.subplots(),
        f"{p.multipliers} multipliers, {bandwidth * p.beat_bytes:g} bytes a cycle",
        "multiply-accumulates a byte of external memory",
        "multiply-accumulates a cycle",
    )
    intensities = [macs / max(1, moved) for _, macs, moved, _ in points]
    reach = np.logspace(-1, np.log10(max(10.0, *intensities) * 4), 200)
    roof = np.minimum(p.multipliers, reach * bandwidth * p.beat_bytes)
    axes.plot(reach, roof, color=COLOURS[7], linewidth=1.2, label="what memory and arrays allow")
    for number, (name, macs, moved, cycles) in enumerate(points):
        axes.plot(
            macs / max(1, moved),
            macs / max(1, cycles),
            "o",
            color=COLOURS[number % 7],
            label=f"{name}: {macs / max(1, cycles) / p.multipliers:.0%} of the multipliers",
        )
    axes.set(xscale="log", yscale="log")
    axes.legend(frameon=False, fontsize=8)
    return to_png(figure)

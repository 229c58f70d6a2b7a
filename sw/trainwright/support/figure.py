"""A figure in the house style, as PNG bytes. Drawn without a display and without global state."""

import io
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

COLOURS = ("#4477aa", "#cc6677", "#228833", "#ccbb44", "#aa3377", "#66ccee", "#bbbbbb", "#222222")


def new_figure(width: float = 7.0, height: float = 4.0) -> Figure:
    """Return an empty figure; sizes in inches."""
    return Figure(figsize=(width, height), dpi=110, layout="constrained")


def dress(axes: Any, title: str, x: str, y: str) -> Any:
    """Set title, labels and a light grid; return the axes.

    Ticks of steps and epochs are whole numbers.
    """
    axes.set(title=title, xlabel=x, ylabel=y)
    if x in ("step", "epoch"):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def to_png(figure: Figure) -> bytes:
    """Return PNG bytes, the same for the same figure."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()

"""A figure in the house style, as PNG bytes. Drawn without a display and without global state."""

import io
from functools import cache
from typing import Any

from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font
from matplotlib.ft2font import FT2Font
from matplotlib.ticker import MaxNLocator

COLOURS = ("#4477aa", "#cc6677", "#228833", "#ccbb44", "#aa3377", "#66ccee", "#bbbbbb", "#222222")


MOST_LETTERS = 24
"""Characters of a name in a picture: more would push the axes out of it."""


def label(name: str) -> str:
    """Return a name of a user's as ``literal`` does, and short."""
    text = " ".join(name.split())
    return literal(text if len(text) <= MOST_LETTERS else text[: MOST_LETTERS - 1] + "…")


def literal(text: str) -> str:
    """Return a text of a user's as a picture shows it: no formula, and in letters of the font."""
    # The font lacks letters of many scripts, and would draw each as the same box.
    letters = (c if _font().get_char_index(ord(c)) else ascii(c)[1:-1] for c in text)
    # matplotlib takes what is between two dollars for a formula, and hides _names in legends.
    drawn = "".join(letters).replace("$", r"\$")
    return f" {drawn}" if drawn.startswith("_") else drawn


@cache
def _font() -> FT2Font:
    return get_font(findfont("DejaVu Sans"))


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


def legend_below(figure: Figure, axes: Any, columns: int, title: str | None = None) -> None:
    """Explain the curves of ``axes`` below all axes, where the legend covers none of them."""
    figure.legend(
        *axes.get_legend_handles_labels(), frameon=False, fontsize=8, ncols=columns,
        loc="outside lower center", title=title, title_fontsize=8,
    )  # fmt: skip


def to_png(figure: Figure) -> bytes:
    """Return PNG bytes, the same for the same figure."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()

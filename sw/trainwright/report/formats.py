"""Table and picture of trainings at number formats, scales automatic and frozen."""

from collections.abc import Sequence

from trainwright.report.recipes import Means
from trainwright.support.figure import COLOURS, dress, new_figure, to_png
from trainwright.support.tables import markdown

LEAST_ERROR = 0.1
"""Least error of the picture's logarithmic scale, in percent."""


def table(outcomes: Sequence[Means]) -> str:
    """Return a table with a line for each row."""
    whole = {
        "moved": "bits moved a step", "stored": "bits stored", "exponents_moved": "exponents moved",
        "saturated": "saturated a step", "underflowed": "underflowed a step",
    }  # fmt: skip
    head = ("formats", "scales", "words", "seeds", "test, %", "spread", *whole.values())
    rows = [
        (
            o["formats"], o["scales"], o["word_width"], len(o["seeds"]), round(o["test"], 2),
            round(o["spread"], 2), *(round(o[name]) for name in whole),
        )
        for o in outcomes
    ]  # fmt: skip
    return markdown(head, rows)


def _label(o: Means) -> str:
    words = f", words of {o['word_width']} bits" if o["word_width"] < 16 else ""
    return o["formats"] + words


def picture(outcomes: Sequence[Means]) -> bytes:
    """Draw errors against bits moved and against bits stored; frozen scales hollow.

    Formats of equal bits stand next to each other, and errors are on a logarithmic scale: most
    formats have 11 to 15 %, and those that fail 50 and more.
    """
    figure = new_figure(height=5.5)
    labels = list(dict.fromkeys(map(_label, outcomes)))
    sides = figure.subplots(1, 2, sharey=True)
    what = {"moved": "bits moved a step", "stored": "bits stored"}
    for axes, name in zip(sides, what, strict=True):
        first = name == "moved"
        dress(axes, "", what[name], "% of the test images wrong" if first else "")
        groups = sorted({o[name] for o in outcomes})
        for o in outcomes:
            bits, number, frozen = o[name], labels.index(_label(o)), o["scales"] != "automatic"
            beside = list(dict.fromkeys(_label(p) for p in outcomes if p[name] == bits))
            among = 0.8 * ((beside.index(_label(o)) + 0.5) / len(beside) - 0.5)
            colour = COLOURS[number % len(COLOURS)]
            axes.plot(
                groups.index(bits) + among, max(100 - o["test"], LEAST_ERROR),
                "os^D"[number // len(COLOURS)], color=colour,
                markerfacecolor="none" if frozen else colour,
                label=_label(o) if first and not frozen else None,
            )  # fmt: skip
        if not outcomes:
            continue
        axes.set_xticks(range(len(groups)), [f"{bits:,.0f}" for bits in groups])
        axes.set_xlim(-0.6, len(groups) - 0.4)
        axes.set_yscale("log")
        worst = max(20.0, *(110 - 1.1 * o["test"] for o in outcomes))  # 10 % above the worst
        ticks = [tick for tick in (10, 11, 12, 13, 15, 20, 30, 50, 80) if tick <= worst]
        axes.set_yticks(ticks, [str(tick) for tick in ticks], minor=False)
        axes.set_yticks([], minor=True)
    if sides[0].get_legend_handles_labels()[1]:
        figure.legend(frameon=False, fontsize=6, loc="outside lower center")
    return to_png(figure)

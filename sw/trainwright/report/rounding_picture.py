"""Accuracy against size: models rounded after training beside what the rank prior reached."""

from collections.abc import Mapping, Sequence

from matplotlib.ticker import StrMethodFormatter

from trainwright.support.figure import COLOURS, dress, literal, new_figure, to_png
from trainwright.train.rounding import PriorPoint, Rounded


def draw_rounding(
    rounded: Sequence[Rounded],
    run: Sequence[PriorPoint],
    other_runs: Mapping[str, Sequence[PriorPoint]],
    *,
    has_prior: bool,
    chosen: Rounded,
) -> bytes:
    """Return PNG bytes.

    ``run`` are this run's evaluations, ``other_runs`` the ends of other runs.
    """
    figure = new_figure(7.5, 4.6)
    axes = dress(
        figure.subplots(), "Accuracy and size after TT rounding", "model bits", "% classified right"
    )
    bits = [r.model_bits for r in rounded]
    axes.plot(bits, [100 * r.accuracy for r in rounded], "o-", color=COLOURS[0], markersize=4,
              label="rounded after training")  # fmt: skip
    tuned = [(r.model_bits, 100 * r.tuned) for r in rounded if r.tuned is not None]
    if tuned:
        axes.plot(*zip(*tuned, strict=True), "s-", color=COLOURS[2], markersize=4,
                  label="rounded, then trained further")  # fmt: skip
    label = "this run after each epoch, " + ("with the rank prior" if has_prior else "no prior")
    axes.plot([p.model_bits for p in run], [100 * p.accuracy for p in run], "^:", color=COLOURS[1],
              markersize=4, label=label)  # fmt: skip
    marks = zip("DPXv*hd", (*COLOURS[3:], COLOURS[1]), strict=False)
    for (name, points), (mark, colour) in zip(other_runs.items(), marks, strict=False):
        axes.plot([p.model_bits for p in points], [100 * p.accuracy for p in points], mark,
                  color=colour, markersize=8, label=literal(name))  # fmt: skip
    axes.annotate(
        f"tolerance {chosen.tolerance:g}", (chosen.model_bits, 100 * chosen.accuracy),
        textcoords="offset points", xytext=(8, -12), fontsize=8,
    )  # fmt: skip
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.xaxis.set_minor_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.tick_params(axis="x", which="both", labelsize=7, rotation=30)
    values = [100 * r.accuracy for r in rounded] + [value for _, value in tuned]
    values += [100 * p.accuracy for points in other_runs.values() for p in points]
    values += [100 * p.accuracy for p in run[-1:]]
    axes.set_ylim(max(0.0, min(values) - 3), min(101.0, max(values) + 2))
    axes.legend(frameon=False, fontsize=8)
    return to_png(figure)

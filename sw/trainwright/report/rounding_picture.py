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
    is_regression: bool,
    chosen: Rounded,
) -> bytes:
    """Return PNG bytes.

    ``run`` are this run's evaluations, ``other_runs`` the ends of other runs.
    """
    figure = new_figure(7.5, 4.6)
    unit, title, what = 100, "Accuracy and size after TT rounding", "% classified right"
    if is_regression:
        unit, title, what = 1, "R2 and size after TT rounding", "R2 of the test samples"
    axes = dress(figure.subplots(), title, "model bits", what)
    bits = [r.model_bits for r in rounded]
    axes.plot(bits, [unit * r.accuracy for r in rounded], "o-", color=COLOURS[0], markersize=4,
              label="rounded after training")  # fmt: skip
    tuned = [(r.model_bits, unit * r.tuned) for r in rounded if r.tuned is not None]
    if tuned:
        axes.plot(*zip(*tuned, strict=True), "s-", color=COLOURS[2], markersize=4,
                  label="rounded, then trained further")  # fmt: skip
    label = "this run after each epoch, " + ("with the rank prior" if has_prior else "no prior")
    axes.plot([p.model_bits for p in run], [unit * p.accuracy for p in run], "^:", color=COLOURS[1],
              markersize=4, label=label)  # fmt: skip
    marks = zip("DPXv*hd", (*COLOURS[3:], COLOURS[1]), strict=False)
    for (name, points), (mark, colour) in zip(other_runs.items(), marks, strict=False):
        axes.plot([p.model_bits for p in points], [unit * p.accuracy for p in points], mark,
                  color=colour, markersize=8, label=literal(name))  # fmt: skip
    axes.annotate(
        f"tolerance {chosen.tolerance:g}", (chosen.model_bits, unit * chosen.accuracy),
        textcoords="offset points", xytext=(8, -12), fontsize=8,
    )  # fmt: skip
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.xaxis.set_minor_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.tick_params(axis="x", which="both", labelsize=7, rotation=30)
    values = [unit * r.accuracy for r in rounded] + [value for _, value in tuned]
    values += [unit * p.accuracy for points in other_runs.values() for p in points]
    values += [unit * p.accuracy for p in run[-1:]]
    least = min(values) if is_regression else max(0.0, min(values) - 3)
    axes.set_ylim(least - 0.03 * is_regression, min(1.01 * unit, max(values) + 0.02 * unit))
    axes.legend(frameon=False, fontsize=8)
    return to_png(figure)

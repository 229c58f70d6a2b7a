"""Pictures of the QR experiments, as PNG bytes."""

from collections.abc import Sequence

import numpy as np
from matplotlib.ticker import MaxNLocator

from trainwright.qr.experiments import clustering, conditions, dots
from trainwright.support.figure import COLOURS, dress, legend_below, new_figure, to_png


def draw_dots(errors: Sequence[dots.DotErrors]) -> bytes:
    """Draw histograms of the errors of dot products, with their bounds."""
    figure = new_figure(9.5, 4.4)
    for place, result in zip(np.atleast_1d(figure.subplots(1, len(errors))), errors, strict=True):
        axes = dress(
            place,
            f"{result.distribution}, {len(result.every):,} pairs of {result.length}",
            "|error| / |x|ᵀ|y|",
            "share of the pairs",
        )
        bins = np.logspace(-8, 0, 97)
        every, mixed = dots.table_3(result)
        for row, values, colour in (
            (every, result.every, COLOURS[0]),
            (mixed, result.mixed, COLOURS[1]),
        ):
            share = np.full(len(values), 1 / len(values))
            label = "fp16 every operation" if row is every else "fp16 in, fp32 sum (Ass. 2.4)"
            axes.hist(values.numpy(), bins, weights=share, color=colour, alpha=0.6, label=label)
            axes.axvline(row.bound, color=colour, linestyle="-", linewidth=1)
            axes.axvline(row.probable, color=colour, linestyle=":", linewidth=1)
        axes.set_xscale("log")
        axes.set_xlim(1e-8, 1)
        if result is errors[0]:
            figure.legend(
                *axes.get_legend_handles_labels(), frameon=False, fontsize=8, ncols=2,
                loc="outside lower center",
                title="solid: worst-case bound, dotted: with probability 0.99",
            )  # fmt: skip
    return to_png(figure)


def _chosen(rows: Sequence[conditions.ConditionErrors]) -> list[str]:
    wanted = ("LAPACK fp32", "fp32 HQR", "fp16 end HQR", "fp16 BLAS-3 block, r = 16")
    wanted += ("fp16 BLAS-3 TSQR, L = 2", "fp16 BLAS-2 HQR", "fp16 BLAS-2 TSQR, L = 2")
    present = {row.variant for row in rows}
    return [name for name in wanted if name in present]


def draw_conditions(rows: Sequence[conditions.ConditionErrors]) -> bytes:
    """Draw both errors by condition number, with the square-root bounds dashed."""
    figure = new_figure(10.5, 4.6)
    sides = (("residual", "‖QR − A‖ / ‖A‖"), ("orthogonality", "‖QᵀQ − I‖₂"))
    for place, (side, label) in zip(figure.subplots(1, 2), sides, strict=True):
        size = f"{rows[0].m:,} x {rows[0].n}" if rows else ""
        axes = dress(place, f"{label}, {size}", "condition number", "")
        for colour, name in zip(COLOURS, _chosen(rows), strict=False):
            points = [row for row in rows if row.variant == name]
            x = [row.condition for row in points]
            axes.plot(x, [getattr(r, side) for r in points], "o-", color=colour, markersize=4,
                      label=name)  # fmt: skip
            if points[0].residual_probable is not None:
                bound = [getattr(row, f"{side}_probable") for row in points]
                axes.plot(x, bound, "--", color=colour, linewidth=0.8)
        axes.set_xscale("log")
        axes.set_yscale("log")
        if side == "residual":
            figure.legend(*axes.get_legend_handles_labels(), frameon=False, fontsize=8, ncols=4,
                          loc="outside lower center",
                          title="dashed: square-root bounds of the same colour")  # fmt: skip
    return to_png(figure)


def draw_sizes(rows: Sequence[conditions.ConditionErrors]) -> bytes:
    """Draw both errors by block width and TSQR levels, averaged over condition numbers."""
    figure = new_figure(9.5, 4.8)
    kinds = (("block", "r = ", "block width r"), ("TSQR", "L = ", "TSQR levels L"))
    for place, (method, sign, label) in zip(figure.subplots(1, 2), kinds, strict=True):
        axes = dress(place, f"Mean over the condition numbers: {method}", label, "")
        for colour, level in zip(COLOURS, ("end", "BLAS-3", "BLAS-2"), strict=False):
            by_size: dict[int, list[conditions.ConditionErrors]] = {}
            for row in rows:
                if row.variant.startswith(f"fp16 {level} {method}"):
                    by_size.setdefault(int(row.variant.split(sign)[1]), []).append(row)
            x = sorted(by_size)
            for style, side in (("o-", "residual"), ("s:", "orthogonality")):
                y = [np.mean([getattr(row, side) for row in by_size[size]]) for size in x]
                name = "‖QR − A‖" if side == "residual" else "‖QᵀQ − I‖₂"
                axes.plot(x, y, style, color=colour, markersize=4, label=f"{level} {name}")
        axes.set_yscale("log")
        if method == "block":
            axes.set_xscale("log", base=2)
            legend_below(figure, axes, 3)
        else:
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return to_png(figure)


def draw_clustering(rows: Sequence[clustering.Clustering]) -> bytes:
    """Draw the agreement with the fp64 partition: variants down, graphs across."""
    names = list(dict.fromkeys(row.variant for row in rows))
    graphs = list(dict.fromkeys((row.nodes, row.difficulty) for row in rows))
    table = np.full((len(names), len(graphs)), np.nan)
    for row in rows:
        place = names.index(row.variant), graphs.index((row.nodes, row.difficulty))
        table[place] = np.nan if row.agreement is None else 100 * row.agreement
    figure = new_figure(2.5 + 0.75 * len(graphs), 1.6 + 0.27 * len(names))
    axes = figure.subplots()
    axes.imshow(table, cmap="Blues", vmin=80, vmax=105, aspect="auto")
    axes.set_xticks(range(len(graphs)), [f"{n}\n{d:.1f}" for n, d in graphs], fontsize=8)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set(title="Nodes grouped as with fp64 (%)", xlabel="nodes and signal to noise")
    for (y, x), value in np.ndenumerate(table):
        text = "-" if np.isnan(value) else f"{np.floor(10 * value) / 10:g}"
        axes.text(x, y, text, ha="center", va="center", fontsize=7,
                  color="white" if value > 94 else "black")  # fmt: skip
    axes.spines[:].set_visible(False)
    return to_png(figure)

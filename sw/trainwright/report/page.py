"""The report as one HTML file with everything inside: no network, no other files."""

import base64
from collections.abc import Mapping, Sequence
from math import prod

from trainwright.network import Network, UserNames
from trainwright.report.memory import MemoryItem
from trainwright.report.summary import Summary, summary_rows
from trainwright.support.text import amount, plural
from trainwright.train.state import TrainingState


def _figures(s: Summary) -> list[tuple[str, str, str]]:
    """Return kind, value and name of the figures at the top."""
    score = ("", f"{s.test_accuracy:.1%}", "test accuracy")
    if s.test_mae is not None:
        score = ("", f"{s.test_accuracy:.3f}", f"test R2, mean absolute error {s.test_mae:.4g}")
    boxes = [
        score,
        ("", f"{s.reduction:.1f}x", "smaller than dense float32"),
        ("", f"{s.model_bits:,}", "model bits"),
    ]
    if s.cycles:
        boxes.append(("", f"{s.cycles_last_step:,}", "cycles a step at the end"))
    if s.verified_steps:
        kind = "bad" if s.mismatches else "good"
        noun = plural(s.mismatches, "mismatch")
        boxes.append((kind, f"{s.mismatches:,}", f"{noun} in {amount(s.values_compared, 'value')}"))
    return boxes


def _layers(before: Network, after: Network) -> list[tuple[str, ...]]:
    """Return the rows of the table of layers, with the ranks before and after training."""
    names = UserNames.of_network(after)
    return [
        (
            names.layers[f"l{number}"].removeprefix("layer "),
            _sizes(layer.inputs),
            _sizes(layer.outputs),
            f"{', '.join(map(str, first.ranks))} → {', '.join(map(str, layer.ranks))}"
            if layer.ranks
            else "-",
            f"{layer.factor_parameters:,}",
            f"{layer.matrix_parameters:,}",
        )
        for number, (layer, first) in enumerate(zip(after.layers, before.layers, strict=True), 1)
    ]


def _sizes(sizes: Sequence[int]) -> str:
    product = f" = {prod(sizes):,}" if len(sizes) > 1 else ""
    return " x ".join(f"{size:,}" for size in sizes) + product


def _numbers(network: Network) -> str:
    w = network.widths
    if w.is_float:
        return "float32"
    if network.coded:
        formats = ", ".join(f"{kind} {fmt}" for kind, fmt in network.formats.items())
        return f"{formats}, bias fixed({w.bias})"
    return (
        f"{w.factor}-bit factors, {w.activation}-bit activations, {w.bias}-bit biases, "
        f"{w.gradient}-bit gradients, {w.intermediate}-bit intermediate results"
    )


def render_page(
    summary: Summary,
    state: TrainingState,
    *,
    settings: Mapping[str, object],
    memory: Sequence[MemoryItem],
    pictures: Mapping[str, bytes],
    source: str,
    command: str,
    has_photos: bool,
) -> str:
    """Return the page of a trained state, with the ``settings`` that a user gave.

    ``source`` names the data's file, ``command`` repeats the run; either may be "". Samples of
    data that ``has_photos`` keep their colours on a dark page.
    """
    # Loaded here, as a run needs it once, at its end.
    from jinja2 import Environment, PackageLoader

    network = state.model.network
    template = Environment(
        loader=PackageLoader("trainwright.report", ""), autoescape=True, keep_trailing_newline=True
    ).get_template("page.html")
    return template.render(
        summary=summary,
        data=f"{summary.dataset} ({source})" if source else summary.dataset,
        numbers=_numbers(network),
        figures=_figures(summary),
        result=summary_rows(summary),
        pictures=[(name, base64.b64encode(png).decode()) for name, png in pictures.items()],
        has_photos=has_photos,
        layers=_layers(state.network, network),
        batch=state.settings.batch,
        memory=[
            *((m.name, m.place, f"{m.bits:,}") for m in memory),
            ("together", "", f"{sum(m.bits for m in memory):,}"),
        ],
        settings=settings,
        command=command,
    )

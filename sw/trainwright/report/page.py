"""The report as one HTML file with everything inside: no network, no other files."""

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape

from trainwright.network import Network
from trainwright.report.memory import MemoryItem
from trainwright.report.summary import Summary, summary_rows

_STYLE = """
:root { color-scheme: light dark; --text: #222; --soft: #555; --line: #ddd; --thin: #eee;
        --ground: #fff; --bad: #fde8e8; --good: #e9f6ec; }
@media (prefers-color-scheme: dark) {
  :root { --text: #ddd; --soft: #aaa; --line: #444; --thin: #333; --ground: #17191c;
          --bad: #5a2626; --good: #1f4029; } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto; padding: 0 1rem;
       color: var(--text); background: var(--ground); }
h1 { margin-bottom: 0; } h2 { margin-top: 2.2rem; }
p.lead { color: var(--soft); margin-top: .3rem; }
.figures { display: flex; flex-wrap: wrap; gap: .8rem; }
.figures > div { border: 1px solid var(--line); border-radius: .5rem; padding: .5rem .9rem;
                 min-width: 9rem; }
.figures b { display: block; font-size: 1.5rem; }
.figures .bad { background: var(--bad); } .figures .good { background: var(--good); }
.table { overflow-x: auto; }
table { border-collapse: collapse; } td, th { padding: .2rem .9rem .2rem 0; text-align: left;
        border-bottom: 1px solid var(--thin); vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
.pictures { display: grid; gap: 1rem;
            grid-template-columns: repeat(auto-fit, minmax(min(27rem, 100%), 1fr)); }
img { max-width: 100%; background: #fff; border-radius: .4rem; padding: .3rem;
      box-sizing: border-box; }
figure { margin: 0; } figcaption { color: var(--soft); font-size: .9em; }
@media (prefers-color-scheme: dark) {
  img:not(.photos) { filter: invert(.9) hue-rotate(180deg) brightness(1.35); } }
pre { white-space: pre-wrap; overflow-wrap: anywhere; }
code { font-size: .85em; word-break: break-all; }
"""


CAPTIONS = {
    "accuracy.png": "Samples classified right: batches of each epoch, test split after it.",
    "r2.png": "R2 of the test split after each epoch: 1 is exact, 0 as good as the mean.",
    "predictions.png": "Number predicted for each test sample, over its target.",
    "loss.png": "Loss of every batch, and its mean over 20 batches.",
    "ranks.png": "Tensor-train ranks; the prior cuts columns that contribute little.",
    "scales.png": "Exponent of each tensor, and the share of its values that saturate.",
    "cycles.png": "Cycles of forward and backward pass of every step.",
    "confusion.png": "Test samples of each class (rows) by the class they were given (columns).",
    "samples.png": "Test samples, the mistakes first.",
    "rounding.png": "Size and accuracy after rounding, and along the run.",
}
"""Text below each picture."""


def _table(rows: Iterable[Sequence[str]], head: Sequence[str] = (), numbers: int = 0) -> str:
    """Rows of text; the last ``numbers`` columns are set as numbers."""

    def cells_of(tag: str, cells: Sequence[str]) -> Iterator[str]:
        for n, cell in enumerate(cells):
            kind = " class=n" if n >= len(cells) - numbers else ""
            yield f"<{tag}{kind}>{escape(cell)}</{tag}>"

    lines = ['<div class="table"><table>']
    if head:
        lines.append("<tr>" + "".join(cells_of("th", head)) + "</tr>")
    for row in rows:
        lines.append("<tr>" + "".join(cells_of("td", row)) + "</tr>")
    return "\n".join([*lines, "</table></div>"])


def _figures(s: Summary) -> str:
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
        boxes.append((kind, f"{s.mismatches:,}", f"mismatches in {s.values_compared:,} values"))
    return "".join(
        f'<div class="{kind}"><b>{escape(value)}</b>{escape(name)}</div>'
        for kind, value, name in boxes
    )


def _layers(now: Network, then: Network) -> str:
    rows = []
    for number, (layer, first) in enumerate(zip(now.layers, then.layers, strict=True), 1):
        rows.append(
            (
                str(number),
                f"{' x '.join(map(str, layer.inputs))} = {layer.input_size}",
                f"{' x '.join(map(str, layer.outputs))} = {layer.output_size}",
                f"{', '.join(map(str, first.ranks))} → {', '.join(map(str, layer.ranks))}",
                f"{layer.factor_parameters:,}",
                f"{layer.output_size * layer.input_size:,}",
            )
        )
    head = ("layer", "inputs", "outputs", "ranks", "factor elements", "matrix elements")
    return _table(rows, head, numbers=2)


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
    *,
    now: Network,
    then: Network,
    batch: int,
    settings: Mapping[str, object],
    memory: Sequence[MemoryItem],
    pictures: Mapping[str, bytes],
    source: str,
    command: str,
    in_colour: bool,
) -> str:
    """Return the page. ``now`` has the ranks after training, ``then`` those before.

    ``source`` names the data's file, ``command`` repeats the run; either may be "". Samples that
    are ``in_colour`` keep their colours on a dark page.
    """
    data = f"{summary.dataset} ({source})" if source else summary.dataset
    repeat = f"<h2>Repeat this run</h2>\n<pre><code>{escape(command)}</code></pre>" * bool(command)
    images = "\n".join(
        f"<figure><img{' class=photos' * (in_colour and name == 'samples.png')} "
        f'alt="{escape(name)}" src="data:image/png;base64,'
        f'{base64.b64encode(png).decode()}">'
        f"<figcaption>{escape(CAPTIONS.get(name, name))}</figcaption></figure>"
        for name, png in pictures.items()
    )
    rows = [(m.name, m.place, f"{m.bits:,}") for m in memory]
    rows.append(("together", "", f"{sum(m.bits for m in memory):,}"))
    return f"""<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><title>trainwright: {escape(summary.network)}</title>
<meta name="viewport" content="width=device-width"><style>{_STYLE}</style>
<h1>{escape(summary.network)}</h1>
<p class="lead">Trained on {escape(data)}, back end {escape(summary.backend)}, seed
{summary.seed}: {_numbers(now)}.</p>
<div class="figures">{_figures(summary)}</div>
<h2>Result</h2>
{_table(summary_rows(summary))}
<h2>Pictures</h2>
<div class="pictures">
{images}
</div>
<h2>Network</h2>
{_layers(now, then)}
<h2>Memory of the training state</h2>
<p>Model bits are what is usually reported. A training step of {batch} samples keeps all of this,
as it is stored:</p>
{_table(rows, ("what", "where", "bits"), numbers=1)}
<h2>Settings</h2>
{_table((name, str(value)) for name, value in settings.items())}
{repeat}
<p>Factors after training: <code>sha256 {escape(summary.digest)}</code></p>
</html>
"""

"""``trainwright plan``: ways to compute each layer, their costs, and the choice."""

from typing import TYPE_CHECKING, Any

from trainwright.cli.declare import command as make_command
from trainwright.cli.options import (
    JsonOptions,
    StepOptions,
    WideOptions,
    accelerator_parameters,
)
from trainwright.cli.output import dict_table, show
from trainwright.cli.screen import fitted, folded, is_within, screen_width, transposed
from trainwright.network import Network, UserNames
from trainwright.support.settings import Positive
from trainwright.support.text import amount

if TYPE_CHECKING:
    from trainwright.compiler.step.compile import StepPrograms
    from trainwright.compiler.tile.tile import Lowered
    from trainwright.graph.order import Order


class PlanCommandOptions(StepOptions, WideOptions, JsonOptions):
    """Show how a training step of a network is computed, and which alternatives there were.

    First come the contraction orders of each layer and of its gradients, the cheapest first. An
    order is a tree of products of two tensors. Orders with a name are always listed: W rebuilt from
    the factors left and right of a bond, both sides of a bond without W, and the paper's. The line
    of an order says whether it was chosen, or why not.

    Then come the stages of each program: a stage is computed as a whole by the arrays PE1 and PE2,
    in slices of as many values of an axis as its line says. The last table has cycles,
    multiply-accumulates (MACs) and memory of each program, by the cycle model. Utilisation is the
    useful MACs (without padding and copies) over multipliers times cycles.

    If nothing fits, the exit status is 2 and one line says what is lacking and what to change.

    Examples
    --------
      trainwright plan fashion                      the paper's network
      trainwright plan digits --ranks 8             after a cut of its ranks to 8
      trainwright plan digits --preset lfe5u-25f    on the accelerator for a small device
    """

    effort: Positive | None = None
    """alternatives after which the best programs so far are taken"""


# -- figures ---------------------------------------------------------------------------------------
SPARE = ("arrays", "in slices of", "stage")
"""Columns of stages that the narrowest terminals go without."""
MOST = 6
"""Most orders of a layer that are shown."""


def _why(order: "Order", chosen: "Order", refused: str | None) -> str | None:
    """Explain why an order was dropped; None for the chosen order."""
    if order.text == chosen.text:
        return None
    if refused is not None:
        return f"does not fit: {refused}"
    more = order.macs - chosen.macs
    if more > 0:
        return f"{more:,} more multiply-accumulates"
    if order.recomputed > chosen.recomputed:
        recomputed = f"{order.recomputed:,.0f} multiply-accumulates"
        return f"{recomputed} to recompute what is neither held nor sliced"
    if order.cost > chosen.cost:
        lost = f"{order.cost - chosen.cost:,.0f} multiply-accumulates"
        return f"fills the arrays less: costs the time of {lost} more"
    return "as many multiply-accumulates: the first order found was chosen"


def _orders(network: Network, batch: int, step: "StepPrograms", plan: str) -> list[dict[str, Any]]:
    """List the named and the best orders of each layer, the cheapest first."""
    from trainwright.compiler.base.compiled import PAPER
    from trainwright.compiler.forms.digits import between_width, in_digits
    from trainwright.graph.named import named_orders
    from trainwright.graph.order import ordered
    from trainwright.graph.step import step_graph

    p = step.parameters
    graph = in_digits(step_graph(network, batch), p)
    limits: dict[str, Any] = {
        "cost": step.cost, "word": between_width(network, p), "accumulator": p.accumulator_width,
    }  # fmt: skip
    rows = []
    for chosen, (site, contractions) in zip(step.orders, graph.sites.items(), strict=True):
        named = list(named_orders(graph.whole, contractions, **limits))
        names = {order.text: name for name, order in named}
        best = ordered(graph.whole, contractions, most=MOST, **limits)
        orders = {o.text: o for o in (*best, chosen, *(order for _, order in named))}
        for text, order in sorted(orders.items(), key=lambda item: item[1].cost):
            why = _why(order, chosen, step.refused.get(text))
            rows.append(
                {
                    "layer": site,
                    "name": names.get(text, ""),
                    "order": text,
                    "macs": order.macs,
                    "chosen": why is None,
                    "dropped": "not the paper's" if why and plan == PAPER else why,
                }
            )
    return rows


def _stages(program: str, lowered: "Lowered") -> list[dict[str, Any]]:
    """List the operations of each stage (computed together), with their slices and arrays."""
    return [
        {
            "program": program,
            "stage": number,
            "makes": choice.op.out,
            "of": list(choice.op.operands),
            "slices": dict(stage.loops),
            "arrays": [work.impl.array.name for work in choice.works if work.impl]
            or [spec.name for spec in choice.op.engines],
        }
        for number, stage in enumerate(lowered.stages)
        for choice in stage.choices
    ]


def _layers(network: Network) -> list[dict[str, Any]]:
    return [
        {
            "layer": f"l{n}", "outputs": layer.outputs, "inputs": layer.inputs,
            "ranks": layer.ranks,
            "parameters": layer.factor_parameters + layer.bias_parameters,
            "kernel": layer.window.kernel if layer.window else None,
        }
        for n, layer in enumerate(network.layers, 1)
    ]  # fmt: skip


def report(network: Network, options: PlanCommandOptions) -> dict[str, Any]:
    """Return the figures of ``--json``. Raises ``CompileError`` where the network does not fit."""
    from trainwright.compiler.base.limits import require_batch, require_integers
    from trainwright.compiler.base.progress import MOST_EFFORT
    from trainwright.compiler.plans import require_plan
    from trainwright.compiler.step.stored import cached_step
    from trainwright.timing import predict

    batch, plan = options.batch, options.plan
    p = accelerator_parameters(options.accelerator, network)
    require_plan(plan)
    require_batch(batch)
    require_integers(network)
    step = cached_step(network, batch, p, plan=plan, effort=options.effort or MOST_EFFORT)
    programs = {"forward": step.forward, "backward": step.backward}
    measures = {
        name: {
            "cycles": predict(program.descriptors, p).cycles,
            "macs": program.lowered.macs,
            "descriptors": len(program.descriptors),
            "scratchpad_rows": program.lowered.rows,
        }
        for name, program in programs.items()
    }
    total = sum(program["cycles"] for program in measures.values())
    return {
        "network": network.name,
        "batch": batch,
        "plan": plan,
        "layers": _layers(network),
        "orders": _orders(network, batch, step, plan),
        "stages": [row for name in programs for row in _stages(name, programs[name].lowered)],
        "programs": measures,
        "macs": step.macs,
        "cycles": total,
        "mac_utilisation": step.macs / (p.multipliers * total),
        "external_memory_bytes": step.memory_bytes,
    }


# -- text ------------------------------------------------------------------------------------------
LEGEND = (
    "MACs: multiply-accumulates; x input, y sums, a output, b bias, G1.. factors, "
    "xw windows of x, dx gradient to x, G1*G2 product of G1 and G2"
)


def _equations(order: str, names: UserNames) -> str:
    """Return the results of an order, each with its tree of products in parentheses."""
    operands_of = {
        out: operands.split(" ")
        for out, operands in (product.split(" = ") for product in order.split("; "))
    }

    def is_product(name: str) -> bool:
        return "*" in names.symbol(name)

    def spelled(name: str) -> str:
        if name in operands_of and is_product(name):
            return f"({' '.join(map(spelled, operands_of[name]))})"
        return names.symbol(name)

    return ";  ".join(
        f"{names.symbol(out)} = {' '.join(map(spelled, operands))}"
        for out, operands in operands_of.items()
        if not is_product(out)
    )


def _orders_text(figures: dict[str, Any], names: UserNames, width: int) -> list[str]:
    """Return lines with a tree of the orders of each layer."""
    shapes = {
        row["layer"]: ": " + ", ".join(
            f"{size} {list(row[size])}" for size in ("inputs", "outputs", "ranks")
        )
        for row in figures["layers"]
    }  # fmt: skip
    lines, site = [], ""
    for row in figures["orders"]:
        if row["layer"] != site:
            lines += [""] * bool(site)
            site = row["layer"]
            lines.append(folded(names.layer(site) + shapes.get(site, ""), width, 2))
        known = f" ({row['name']})" if row["name"] else ""
        verdict = names.message(row["dropped"]) if row["dropped"] else "chosen"
        line = f"  {row['macs']:,} MACs{known}: {verdict}"
        lines.append(folded(line.replace("multiply-accumulates", "MACs"), width, 6))
        lines.append(folded("    " + _equations(row["order"], names), width, 6))
    return [*lines, ""]


def _stages_text(figures: dict[str, Any], program: str, names: UserNames, width: int) -> str:
    """Return a table of the stages of a program; a stage's first row has its slices."""
    cells, stage = [], -1
    for row in figures["stages"]:
        if row["program"] != program:
            continue
        layer = row["makes"].partition(".")[0]
        operands = (
            names.symbol(name) if name.partition(".")[0] == layer else names.short(name)
            for name in row["of"]
        )
        slices = row["slices"] if row["stage"] != stage else {}
        stage = row["stage"]
        cells.append(
            [
                stage, names.layer(layer), names.symbol(row["makes"]), ", ".join(operands),
                ", ".join(names.slice(axis, n, layer) for axis, n in slices.items()),
                "+".join(row["arrays"]),
            ]
        )  # fmt: skip
    head = ("stage", "layer", "makes", "of", "in slices of", "arrays")
    text = fitted(head, cells, width)
    # Folded cells say everything: columns go only where folding does not suffice.
    return text if is_within(text, width) else fitted(head, cells, width, SPARE)


def text_of(figures: dict[str, Any], names: UserNames, width: int, *, wide: bool) -> str:
    """Return the text for a terminal, by the user's names, or ``wide`` as JSON has rows and names.

    A line of the text of a terminal has at most ``width`` columns.
    """
    programs = [{"program": name, **measures} for name, measures in figures["programs"].items()]
    summary = (
        f"a step of {amount(figures['batch'], 'sample')}: {figures['cycles']:,} cycles, "
        f"{figures['mac_utilisation']:.1%} utilisation, "
        f"{figures['external_memory_bytes']:,} bytes of external memory"
    )
    if wide:
        tables = (figures["orders"], figures["stages"], programs)
        return "\n".join((*map(dict_table, tables), summary))
    lines = [folded(LEGEND, width, 2), "", *_orders_text(figures, names, width)]
    for name, measures in figures["programs"].items():
        lines.append(f"{name}: {measures['cycles']:,} cycles")
        lines.append(_stages_text(figures, name, names, width))
    head = [key.replace("_", " ") for key in programs[0]]
    lines.append(transposed(head, [list(row.values()) for row in programs], width).rstrip("\n"))
    return "\n".join((*lines, folded(summary, width, 2)))


def _run(options: PlanCommandOptions) -> int:
    network = options.network_named(options.network)
    figures = report(network, options)
    names = UserNames.of_network(network)
    return show(options.json, figures, text_of(figures, names, screen_width(), wide=options.wide))


command = make_command(PlanCommandOptions, _run)

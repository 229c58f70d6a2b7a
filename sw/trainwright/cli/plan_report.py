"""Report of ``trainwright plan``: the contraction orders considered, and those chosen."""

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainwright.compiler.step.compile import Lowered, StepPrograms
    from trainwright.graph.order import Order
    from trainwright.network import Network, UserNames
    from trainwright.parameters import AcceleratorParameters

MOST = 6
"""Most orders of a layer that are shown."""
LEGEND = (
    "MACs: multiply-accumulates; x input, y sums, a output, b bias, G1.. factors, "
    "xw windows of x, dx gradient to x, G1*G2 product of G1 and G2"
)


def _why(order: "Order", chosen: "Order", refused: str | None) -> str | None:
    """Explain why an order was dropped; None for the chosen order."""
    if order.text == chosen.text:
        return None
    if refused is not None:
        return f"does not fit: {refused}"
    more = order.macs - chosen.macs
    if more > 0:
        return f"{more:,} more multiply-accumulates"
    if order.again > chosen.again:
        again = f"{order.again:,.0f} multiply-accumulates"
        return f"{again} to recompute what is neither held nor sliced"
    if order.cost > chosen.cost:
        lost = f"{order.cost - chosen.cost:,.0f} multiply-accumulates"
        return f"fills the arrays less: costs the time of {lost} more"
    return "as many multiply-accumulates: the first order found was chosen"


def _orders(
    network: "Network", batch: int, step: "StepPrograms", plan: str
) -> list[dict[str, Any]]:
    """List the named and the best orders of each layer, the cheapest first."""
    from trainwright.compiler.base.compiled import PAPER
    from trainwright.compiler.forms.digits import between_width, in_digits
    from trainwright.graph.named import named_orders
    from trainwright.graph.order import ordered
    from trainwright.graph.step import step_graph

    p = step.parameters
    graph, cost = in_digits(step_graph(network, batch), p), step.cost
    rows = []
    for chosen, (site, contractions) in zip(step.orders, graph.sites.items(), strict=True):
        widths = {"word": between_width(network, p), "accumulator": p.accumulator_width}
        named = list(named_orders(graph.whole, contractions, cost=cost, **widths))
        names = {order.text: name for name, order in named}
        best = ordered(graph.whole, contractions, cost=cost, most=MOST, **widths)
        orders = {o.text: o for o in (*best, chosen, *(order for _, order in named))}
        for order in sorted(orders.values(), key=lambda order: order.cost):
            is_chosen = order.text == chosen.text
            refused = step.refused.get(order.text)
            paper = plan == PAPER and not is_chosen
            rows.append(
                {
                    "layer": site,
                    "name": names.get(order.text, ""),
                    "order": order.text,
                    "macs": order.macs,
                    "chosen": is_chosen,
                    "dropped": "not the paper's" if paper else _why(order, chosen, refused),
                }
            )
    return rows


def _stages(program: str, lowered: "Lowered") -> list[dict[str, Any]]:
    """List the operations of each stage (computed together), with their slices and arrays."""
    rows = []
    for number, stage in enumerate(lowered.stages):
        for choice in stage.choices:
            arrays = [work.impl.engine.name or "" for work in choice.works if work.impl]
            rows.append(
                {
                    "program": program,
                    "stage": number,
                    "makes": choice.op.out,
                    "of": list(choice.op.operands),
                    "slices": dict(stage.loops),
                    "arrays": arrays or (["PE2"] if choice.works else []),
                }
            )
    return rows


def layers(network: "Network") -> list[dict[str, Any]]:
    """Describe the layers of a network for ``--json``."""
    return [
        {
            "layer": f"l{n}", "outputs": list(layer.outputs), "inputs": list(layer.inputs),
            "ranks": list(layer.ranks),
            "parameters": layer.factor_parameters + layer.bias_parameters,
            "kernel": list(layer.window.kernel) if layer.window else None,
        }
        for n, layer in enumerate(network.layers, 1)
    ]  # fmt: skip


def report(
    network: "Network",
    batch: int,
    p: "AcceleratorParameters",
    plan: str,
    effort: int | None = None,
) -> dict[str, Any]:
    """Return the figures of ``--json`` for the best programs among ``effort`` alternatives.

    Raises ``CompileError`` where the network does not fit.
    """
    from trainwright.compiler.base.limits import require_batch, require_integers
    from trainwright.compiler.base.progress import MOST_EFFORT
    from trainwright.compiler.plans import require_plan
    from trainwright.compiler.step.stored import cached_step
    from trainwright.timing import predict

    require_plan(plan)
    require_batch(batch)
    require_integers(network)
    step = cached_step(network, batch, p, plan=plan, effort=effort or MOST_EFFORT)
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
        "layers": layers(network),
        "orders": _orders(network, batch, step, plan),
        "stages": [row for name in programs for row in _stages(name, programs[name].lowered)],
        "programs": measures,
        "macs": step.macs,
        "cycles": total,
        "mac_utilisation": step.macs / (p.multipliers * total),
        "external_memory_bytes": step.memory_bytes,
    }


_FIGURES = ("cycles", "macs", "descriptors", "scratchpad_rows")
_RESULT = re.compile(r"[^*]*")
"""Symbol of a tensor that is no product."""


def _equations(order: str, names: "UserNames") -> str:
    """Return the results of an order, each with its tree of products in parentheses."""
    operands_of = {
        out: operands.split(" ")
        for out, operands in (product.split(" = ") for product in order.split("; "))
    }

    def spelled(name: str) -> str:
        if name not in operands_of or _RESULT.fullmatch(names.symbol(name)):
            return names.symbol(name)
        return f"({' '.join(map(spelled, operands_of[name]))})"

    return "  ".join(
        f"{names.symbol(out)} = {' '.join(map(spelled, operands))};"
        for out, operands in operands_of.items()
        if _RESULT.fullmatch(names.symbol(out))
    ).removesuffix(";")


def _show_orders(figures: dict[str, Any], names: "UserNames", width: int) -> None:
    """Print a tree of the orders of each layer."""
    from trainwright.cli.screen import folded

    sizes = {row["layer"]: row for row in figures["layers"]}
    for site in dict.fromkeys(row["layer"] for row in figures["orders"]):
        head = names.layer(site)
        if site in sizes:
            layer = sizes[site]
            shape = f"inputs {layer['inputs']}, outputs {layer['outputs']}, ranks {layer['ranks']}"
            head += f": {shape}"
        print(folded(head, width, 2))
        for row in figures["orders"]:
            if row["layer"] != site:
                continue
            known = f" ({row['name']})" if row["name"] else ""
            verdict = names.message(row["dropped"]) if row["dropped"] else "chosen"
            line = f"  {row['macs']:,} multiply-accumulates{known}: {verdict}"
            print(folded(line.replace("multiply-accumulates", "MACs"), width, 6))
            print(folded("    " + _equations(row["order"], names), width, 6))
        print()


def _show_stages(figures: dict[str, Any], names: "UserNames", width: int) -> None:
    """Print a table of stages for each program; a stage's first row has its slices."""
    from trainwright.cli.screen import fitted

    for program, measures in figures["programs"].items():
        print(f"{program}: {measures['cycles']:,} cycles")
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
        print(fitted(("stage", "layer", "makes", "of", "in slices of", "arrays"), cells, width))


def _program_rows(figures: dict[str, Any]) -> list[list[Any]]:
    programs = figures["programs"].items()
    return [[name, *(measures[key] for key in _FIGURES)] for name, measures in programs]


def _summary(figures: dict[str, Any]) -> str:
    return (
        f"a step of {figures['batch']} samples: {figures['cycles']:,} cycles, "
        f"{figures['mac_utilisation']:.1%} utilisation, "
        f"{figures['external_memory_bytes']:,} bytes of external memory"
    )


def show(figures: dict[str, Any], names: "UserNames", width: int) -> None:
    """Print a plan for a terminal of ``width`` columns, layers by the user's names."""
    from trainwright.cli.screen import folded, transposed

    print(folded(LEGEND, width, 2) + "\n")
    _show_orders(figures, names, width)
    _show_stages(figures, names, width)
    cells = _program_rows(figures)
    head = ("program", *(key.replace("_", " ") for key in _FIGURES))
    print(transposed(head, cells, width), end="")
    print(folded(_summary(figures), width, 2))


def show_wide(figures: dict[str, Any]) -> None:
    """Print all columns, one line per row, with the compiler's names."""
    from trainwright.report.tables import markdown

    for layer in dict.fromkeys(row["layer"] for row in figures["orders"]):
        print(f"{layer}")
        rows = [row for row in figures["orders"] if row["layer"] == layer]
        cells = [
            [row["order"], row["name"], row["macs"], row["dropped"] or "chosen"] for row in rows
        ]
        print(markdown(("contraction order", "known as", "macs", ""), cells))
    names = ("program", "stage", "makes", "of", "slices", "arrays")
    cells = [
        [
            row["program"], row["stage"], row["makes"], " ".join(row["of"]),
            " ".join(f"{axis}:{count}" for axis, count in row["slices"].items()),
            "+".join(row["arrays"]),
        ]
        for row in figures["stages"]
    ]  # fmt: skip
    print(markdown(names, cells))
    cells = _program_rows(figures)
    print(markdown(("program", "cycles", "macs", "descriptors", "scratchpad rows"), cells), end="")
    print(_summary(figures))

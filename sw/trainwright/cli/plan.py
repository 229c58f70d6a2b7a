"""``trainwright plan``: how each layer can be computed, what that takes, and what is chosen."""

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from trainwright.cli.command import SimpleCommand
from trainwright.cli.options import (
    accelerator_parameters,
    add_accelerator_options,
    add_formats_option,
    add_network_argument,
    add_ranks_option,
    positive,
    with_formats,
    with_ranks,
)

if TYPE_CHECKING:
    from trainwright.compiler.planner import Alternative
    from trainwright.compiler.plans import LayerPlan
    from trainwright.compiler.refusals import Refusal
    from trainwright.network import Network
    from trainwright.parameters import AcceleratorParameters

DESCRIPTION = """\
Show how the planner computes each layer of a network, forward and backward, and what it chose from.

Rebuild: W is rebuilt strip by strip from its factors and multiplied densely; backward, the
whole gradient of W is made, slice by slice (full). Bidirectional: the factors left and right of a
bond are merged, and nothing of the size of W is made; cheaper where the ranks are small. `bond` is
the number of factors on the left; strips and slices are what is on chip at once; both arrays share
the work as told by `shared` (strips) and `pe1_u` (values of u that PE1 takes). Every row is a whole
forward or backward program with that choice for the one layer: its multiply-accumulates, the cycles
that the model predicts, the bytes that it moves and the rows of the scratchpad that it uses. Where
there is no row of a kind of plan, the reason is given. `auto` is the paper's schedule where no
planned program fits or takes fewer cycles; then that is said. Utilisation is the useful
multiply-accumulates (padding and copies left out) over multipliers times cycles.

With --plan graph, and for networks that are graphs: the contraction orders of each layer, the
cheapest first, those that have names among them, and why each was dropped; what is computed
together, in slices of how many values of which axes, by which array.

Exit status 2, and one line that says what is lacking, where no schedule fits.
"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    add_network_argument(parser)
    add_ranks_option(parser)
    add_formats_option(parser)
    parser.add_argument("--batch", type=positive, default=64, metavar="N", help="default: 64")
    parser.add_argument(
        "--plan",
        choices=("auto", "graph"),
        default="auto",
        help="auto: the planner of layers in one line (default); graph: the compiler of graphs, "
        "which networks with skips, shared layers or windows always have",
    )
    parser.add_argument("--json", action="store_true", help="print JSON and no tables")
    add_accelerator_options(parser)


def _words(plan: object) -> str:
    sizes = ", ".join(f"{name} {value}" for name, value in asdict(plan).items())  # type: ignore[call-overload]
    kind = type(plan).__name__.removeprefix("Forward").removeprefix("Backward").lower()
    return f"{kind}: {sizes}"


def _rows(
    alternatives: "Sequence[Alternative]", chosen: "Sequence[LayerPlan]"
) -> list[dict[str, Any]]:
    """What was measured; ``chosen`` is empty where nothing fits."""
    rows, seen = [], set()
    for one in alternatives:
        key = one.layer, one.plan
        if key in seen:
            continue
        seen.add(key)
        layer = chosen[one.layer - 1] if chosen else None
        rows.append(
            {
                "layer": one.layer,
                "pass": "forward" if one.forward else "backward",
                "way": _words(one.plan),
                "macs": one.macs,
                "cycles": one.cycles,
                "bytes": one.bytes_moved,
                "scratchpad_rows": one.scratchpad_rows,
                "chosen": layer is not None and one.plan in (layer.forward, layer.backward),
            }
        )
    return sorted(rows, key=lambda row: (row["layer"], row["pass"] == "backward", row["cycles"]))


def _refusals(found: "Sequence[Refusal]") -> list[dict[str, Any]]:
    return [
        {
            "layer": one.layer,
            "pass": "forward" if one.forward else "backward",
            "kind": one.kind,
            "bond": one.bond,
            "reason": one.reason,
        }
        for one in found
    ]


def _totals(network: "Network", batch: int, parameters: "AcceleratorParameters") -> list[dict]:
    """A row a plan; raises ``CompileError`` where none fits."""
    from trainwright.compiler import PLANS, CompileError, compile_step

    totals = []
    for name in PLANS:
        try:
            step = compile_step(network, batch, parameters, plan=name)
        except CompileError as error:
            if name == "auto":  # which is the paper's schedule where nothing else fits
                raise
            totals.append({"plan": name, "error": str(error)})
            continue
        cycles = step.predicted_cycles
        utilisation = step.macs / (parameters.multipliers * cycles)
        totals.append(
            {
                "plan": name,
                "macs": step.macs,
                "cycles": cycles,
                "utilisation": utilisation,
                "external_memory_bytes": step.memory_bytes,
                "schedule": "planned" if step.layers else step.schedule,
                "fallback": step.fallback or None,
                "mac_utilisation": utilisation,
            }
        )
    return totals


def _run(args: argparse.Namespace) -> int:
    from trainwright.cli.output import to_json
    from trainwright.cli.plan_graph import layers
    from trainwright.compiler import NotPlannedError, plan_layers
    from trainwright.compiler.step import NO_OTHER
    from trainwright.network import load_network

    network = with_formats(load_network(args.network), args.formats)
    network = with_ranks(network, args.ranks)
    parameters = accelerator_parameters(args.accelerator, network)
    if args.plan == "graph" or not network.is_straight:
        return _graph(network, args, parameters)
    totals = _totals(network, args.batch, parameters)
    if totals[0]["schedule"] == "graph" and totals[0]["fallback"].startswith(NO_OTHER):
        return _graph(network, args, parameters, totals[0]["fallback"])
    try:
        planned = plan_layers(network, args.batch, parameters)
        rows, refusals = _rows(planned.alternatives, planned.layers), planned.refusals
    except NotPlannedError as error:
        rows, refusals = _rows(error.alternatives, ()), error.refusals
    if args.json:
        results = {
            "network": network.name, "batch": args.batch, "layers": layers(network),
            "orders": _orders(rows, _refusals(refusals)), "cycles": totals[0]["cycles"],
        }  # fmt: skip
        results |= {"alternatives": rows, "plans": totals, "refusals": _refusals(refusals)}
        print(to_json(results))
        return 0
    for number in range(1, len(network.layers) + 1):
        _print_layer(number, rows, refusals)
    print(f"a step of {args.batch} samples on {parameters.multipliers} multipliers")
    _print_totals(totals)
    return 0


def _graph(
    network: "Network",
    args: argparse.Namespace,
    parameters: "AcceleratorParameters",
    fallback: str | None = None,
) -> int:
    """The plan of the graph; ``fallback`` says why it is that of auto."""
    from trainwright.cli import plan_graph
    from trainwright.cli.output import to_json

    figures = plan_graph.report(network, args.batch, parameters) | {"fallback": fallback}
    if args.json:
        print(to_json(figures))
        return 0
    plan_graph.show(figures)
    if fallback:
        print(f"auto is that of the graph: {fallback}")
    return 0


def _orders(
    rows: Sequence[dict[str, Any]], refusals: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The ways that were considered for each layer, and why each was dropped."""
    best = {(row["layer"], row["pass"]): row["cycles"] for row in rows if row["chosen"]}
    found = [
        {
            "layer": f"l{row['layer']}",
            "pass": row["pass"],
            "order": row["way"],
            "macs": row["macs"],
            "cycles": row["cycles"],
            "chosen": row["chosen"],
            "dropped": None if row["chosen"] else _more(row, best),
        }
        for row in rows
    ]
    nothing = dict.fromkeys(("macs", "cycles"))
    for one in refusals:
        order = {"layer": f"l{one['layer']}", "pass": one["pass"]}
        order |= {"order": f"{one['kind']}: bond {one['bond']}", **nothing, "chosen": False}
        found.append(order | {"dropped": one["reason"]})
    return found


def _more(row: dict[str, Any], best: dict[tuple[int, str], int]) -> str:
    """Why a way that was timed is not chosen."""
    least = best.get((row["layer"], row["pass"]))
    if least is None:
        return "no program of all layers fits"
    return f"{row['cycles'] - least:,} more cycles"


def _print_layer(
    number: int, rows: Sequence[dict[str, Any]], refusals: "Sequence[Refusal]"
) -> None:
    from trainwright.report.tables import markdown

    print(f"layer {number}")
    names = ("pass", "way", "macs", "cycles", "bytes", "scratchpad_rows")
    titles = ("pass", "contraction order", "macs", "cycles", "bytes", "scratchpad rows", "")
    cells = [
        [*(row[name] for name in names), "chosen" if row["chosen"] else ""]
        for row in rows
        if row["layer"] == number
    ]
    if cells:
        print(markdown(titles, cells), end="")
    for one in _refusals([one for one in refusals if one.layer == number]):
        print(f"no {one['pass']} {one['kind']} at bond {one['bond']}: {one['reason']}")
    print()


def _print_totals(totals: Sequence[dict[str, Any]]) -> None:
    from trainwright.report.tables import markdown

    names = ("plan", "macs", "cycles", "utilisation", "external_memory_bytes")
    good = [row for row in totals if "error" not in row]
    print(markdown(names, [[row[name] for name in names] for row in good]), end="")
    for row in totals:
        if "error" in row:
            print(f"{row['plan']}: does not fit: {row['error']}")
        elif row["fallback"]:
            what = "that of the graph" if row["schedule"] == "graph" else "the paper's schedule"
            print(f"{row['plan']} is {what}: {row['fallback']}")


command = SimpleCommand(
    "plan", "how each layer is computed, and what it takes", _add_arguments, _run
)

"""``trainwright plan``: how each layer can be computed, what that takes, and what is chosen."""

import argparse
from dataclasses import asdict
from typing import Any

from trainwright.cli.command import SimpleCommand
from trainwright.cli.options import (
    accelerator_parameters,
    add_accelerator_options,
    add_network_argument,
    add_ranks_option,
    positive,
    with_ranks,
)

DESCRIPTION = """\
Show how the planner computes each layer of a network, forward and backward, and what it chose from.

Rebuild: W is rebuilt strip by strip from its factors and multiplied densely; backward, the whole
gradient of W is made, slice by slice (full). Bidirectional: the factors left and right of a bond
are merged, and nothing of the size of W is made; cheaper where the ranks are small. `bond` is the
number of factors on the left; strips and slices are what is on chip at once; the arrays share the
work as told by `shared` (strips) and `pe1_u` (values of u that PE1 takes). Every row is a whole
forward or backward program with that choice for the one layer: its multiply-accumulates, the cycles
that the model predicts, the bytes that it moves and the scratchpad rows that it uses.
"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    add_network_argument(parser)
    add_ranks_option(parser)
    parser.add_argument("--batch", type=positive, default=64, metavar="N", help="default: 64")
    parser.add_argument("--json", action="store_true", help="print JSON and no tables")
    add_accelerator_options(parser)


def _words(plan: object) -> str:
    sizes = ", ".join(f"{name} {value}" for name, value in asdict(plan).items())  # type: ignore[call-overload]
    kind = type(plan).__name__.removeprefix("Forward").removeprefix("Backward").lower()
    return f"{kind}: {sizes}"


def _rows(planned: Any) -> list[dict[str, Any]]:
    rows, seen = [], set()
    for one in planned.alternatives:
        layer = planned.layers[one.layer - 1]
        key = one.layer, one.plan
        if key in seen:
            continue
        seen.add(key)
        rows.append(
            {
                "layer": one.layer,
                "pass": "forward" if one.forward else "backward",
                "way": _words(one.plan),
                "macs": one.macs,
                "cycles": one.cycles,
                "bytes": one.bytes_moved,
                "scratchpad_rows": one.scratchpad_rows,
                "chosen": one.plan in (layer.forward, layer.backward),
            }
        )
    return sorted(rows, key=lambda row: (row["layer"], row["pass"] == "backward", row["cycles"]))


def _totals(network: Any, batch: int, parameters: Any) -> list[dict[str, Any]]:
    from trainwright.compiler import PLANS, CompileError, compile_step

    totals = []
    for name in PLANS:
        try:
            step = compile_step(network, batch, parameters, plan=name)
        except CompileError as error:
            totals.append({"plan": name, "error": str(error)})
            continue
        cycles = step.predicted_cycles
        totals.append(
            {
                "plan": name,
                "macs": step.macs,
                "cycles": cycles,
                "utilisation": step.macs / (parameters.multipliers * cycles),
                "external_memory_bytes": step.memory_bytes,
            }
        )
    return totals


def _run(args: argparse.Namespace) -> int:
    from trainwright.cli.output import to_json
    from trainwright.compiler import CompileError, plan_layers
    from trainwright.network import load_network
    from trainwright.report.tables import markdown

    network = with_ranks(load_network(args.network), args.ranks)
    parameters = accelerator_parameters(args.accelerator, network.widths.factor)
    totals = _totals(network, args.batch, parameters)
    try:
        rows = _rows(plan_layers(network, args.batch, parameters))
    except CompileError:
        rows = []  # the totals say why
    if args.json:
        print(to_json({"batch": args.batch, "alternatives": rows, "plans": totals}))
        return 0
    for number in range(1, len(network.layers) + 1):
        print(f"layer {number}")
        mine = [row for row in rows if row["layer"] == number]
        names = ("pass", "way", "macs", "cycles", "bytes", "scratchpad_rows")
        titles = ("pass", "contraction order", "macs", "cycles", "bytes", "scratchpad rows", "")
        cells = [
            [*(row[name] for name in names), "chosen" if row["chosen"] else ""] for row in mine
        ]
        print(markdown(titles, cells))
    names = ("plan", "macs", "cycles", "utilisation", "external_memory_bytes")
    good = [row for row in totals if "error" not in row]
    print(f"a step of {args.batch} samples on {parameters.multipliers} multipliers")
    print(markdown(names, [[row[name] for name in names] for row in good]), end="")
    for row in totals:
        if "error" in row:
            print(f"{row['plan']}: does not fit: {row['error']}")
    return 0


command = SimpleCommand(
    "plan", "how each layer is computed, and what it takes", _add_arguments, _run
)

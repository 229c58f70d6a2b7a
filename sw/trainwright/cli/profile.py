"""``trainwright profile``: where the cycles of a training step go."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwright.cli.backend import (
    add_simulation_options,
    check_simulation_options,
    memory_options,
    opened,
)
from trainwright.cli.command import CommandBody
from trainwright.cli.options import (
    add_accelerator_options,
    add_formats_option,
    add_network_argument,
    add_plan_option,
    add_ranks_option,
    natural,
    positive,
    with_formats,
    with_ranks,
)
from trainwright.cli.screen import add_wide_option, fitted, screen_width, transposed

if TYPE_CHECKING:
    from trainwright.parameters import AcceleratorParameters

DESCRIPTION = """\
Profile one training step: a line a descriptor with its cycles, multiply-accumulates, occupancy of
its array, stalls by cause (operands or the memory awaited, results back-pressured), bytes
and saturations.

`macs` are the multiply-accumulates executed, copies by PE1 and padded lanes included; `useful_macs`
those of the equations alone. Occupancy is executed, utilisation useful multiply-accumulates over
multipliers times cycles: what the arrays do, and what of it counts. In --json `mac_utilisation` is
the utilisation, as `check` and `plan` give it; `utilisation` is the occupancy, a name kept for
programs that read it.

With --backend rtl everything is measured in the simulated hardware; with golden
the cycles are those that the cycle model predicts. --out writes profile.json, trace.json, which
https://ui.perfetto.dev and chrome://tracing open (a row an engine, a cycle as a microsecond),
engines.png, the same time line as a picture, and roofline.png.

A second table divides every cycle of both arrays among causes: computing, copying, stalls, and the
commands that the array waited for, each cause with the descriptor that has most of its cycles.
"""
COLUMNS = {
    "number": "no", "operation": "op", "tensor": "tensor", "engine": "engine", "times": "times",
    "cycles": "cycles", "macs": "macs", "occupancy": "occupancy", "stall_operand": "awaits",
    "stall_result": "blocked", "bytes": "bytes", "saturations": "saturated",
}  # fmt: skip
"""Columns as JSON and ``--wide`` name them, with shorter names for narrower tables."""
CAUSE_COLUMNS = ("array", "cause", "cycles", "share", "no", "tensor")
"""Columns of the table of causes."""
SPARE = ("times", "saturated", "blocked", "engine", "bytes", "awaits")
"""Columns that a narrow terminal goes without, the least telling first."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    add_network_argument(parser)
    add_ranks_option(parser)
    add_formats_option(parser)
    parser.add_argument("--batch", type=positive, default=64, metavar="N", help="default: 64")
    parser.add_argument("--seed", type=natural, default=0, metavar="N", help="of the operands")
    parser.add_argument("--backend", default="rtl", metavar="NAME", help="rtl (default) or golden")
    add_plan_option(parser)
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="write files there")
    add_wide_option(parser)
    parser.add_argument("--json", action="store_true", help="print JSON and no tables")
    add_accelerator_options(parser)
    add_simulation_options(parser)


def _profiled(args: argparse.Namespace, network: Any) -> tuple[list[tuple], Any]:
    """Return (part, program, commands, run) of both programs, and the accelerator's sizes."""
    from trainwright.check.step import random_inputs
    from trainwright.driver import Driver
    from trainwright.timing import predict
    from trainwright.timing.profile import predicted

    memory = memory_options(args)
    check_simulation_options(args.backend, memory, args.engine)
    with opened(
        args.backend,
        network=network,
        accelerator=args.accelerator or (),
        memory=memory,
        engine=args.engine,
    ) as accelerator:
        driver = Driver(accelerator, network, args.batch, plan=args.plan, trace=True)
        given = random_inputs(network, driver, args.seed)
        forward = driver.forward(given.inputs, given.model, given.scales)
        backward = driver.backward(given.gradient, given.scales)
        p, step = accelerator.parameters, driver.step
    parts = []
    for name, program, done in (
        ("forward", step.forward, forward),
        ("backward", step.backward, backward),
    ):
        commands = done.run.commands
        if commands is None:
            commands = predicted(predict(program.descriptors, p))
        parts.append((name, program, commands, done.run))
    return parts, p


def _shares(total: dict[str, Any], p: "AcceleratorParameters") -> dict[str, float]:
    """Occupancy and utilisation."""
    most = p.multipliers * max(1, total["cycles"])
    occupancy = total["macs"] / most
    return {
        "utilisation": occupancy,
        "occupancy": occupancy,
        "mac_utilisation": total["useful_macs"] / most,
    }


def _total(
    name: str, found: list[Any], cycles: int, useful: int, p: "AcceleratorParameters"
) -> dict[str, Any]:
    total = {
        "part": name,
        "cycles": cycles,
        "macs": sum(line.macs for line in found),
        "useful_macs": useful,
    }
    busy = {
        engine: sum(line.cycles for line in found if line.engine == engine)
        for engine in ("LOAD", "STORE", "PE1", "PE2")
    }
    return {
        **total,
        **_shares(total, p),
        "bytes": sum(line.bytes for line in found),
        **{f"{engine.lower()}_cycles": count for engine, count in busy.items()},
    }


def _run(args: argparse.Namespace) -> int:
    import json
    from dataclasses import asdict

    from trainwright.cli.output import to_json, write_results
    from trainwright.network import UserNames, load_network
    from trainwright.report.tables import markdown
    from trainwright.timing import MemoryTiming
    from trainwright.timing.lost import lost_cycles
    from trainwright.timing.profile import as_rows, lines, trace_events

    network = with_formats(load_network(args.network), args.formats)
    network = with_ranks(network, args.ranks)
    names = UserNames.of_network(network)
    parts, p = _profiled(args, network)
    tables, totals, causes = [], [], []
    for name, program, commands, run in parts:
        found = lines(name, program.descriptors, commands, p, run)
        end = run.counters.cycles or max(command.end for command in commands)
        tables.append((name, found))
        totals.append(_total(name, found, end, program.macs, p))
        causes += lost_cycles(name, program.descriptors, commands, end, p)
    whole = {"part": "step"} | {
        key: sum(total[key] for total in totals) for key in totals[0] if key != "part"
    }
    totals.append(whole | _shares(whole, p))
    results = {
        "network": network.name,
        "batch": args.batch,
        "plan": args.plan,
        "cycles_are": "measured" if args.backend == "rtl" else "predicted",
        "totals": totals,
        "causes": [asdict(line) for line in causes],
        "descriptors": [row for _, found in tables for row in as_rows(found)],
    }
    files: dict[str, str | bytes] = {}
    if args.out:
        from trainwright.report.engines import draw_engines
        from trainwright.report.roofline import draw_roofline

        bandwidth = args.memory_bandwidth or MemoryTiming().bandwidth
        points = [(t["part"], t["macs"], t["bytes"], t["cycles"]) for t in totals]
        trace = trace_events([(name, run.descriptors, cs) for name, run, cs, _ in parts])
        rows = [(name, commands) for name, _, commands, _ in parts]
        files = {
            "profile.json": to_json(results),
            "trace.json": json.dumps(trace),
            "roofline.png": draw_roofline(points, p, bandwidth),
            "engines.png": draw_engines(rows, network.name),
        }
        write_results(args.out, files)
    if args.json:
        print(to_json(results))
        return 0
    for name, found in tables:
        rows = as_rows(found)
        print(f"{name}, cycles {results['cycles_are']}")
        if not args.wide:
            rows = [row | {"tensor": names.short(row["tensor"])} for row in rows]
        cells = [[row[column] for column in COLUMNS] for row in rows]
        wide = markdown(tuple(COLUMNS), cells)
        print(wide if args.wide else fitted(list(COLUMNS.values()), cells, screen_width(), SPARE))
    for name, _ in tables:
        print(f"{name}, cycles of each array by cause, with the descriptor that has most of them")
        cells = [
            [
                line.engine, line.cause, line.cycles, f"{line.share:.1%}", line.number,
                names.short(line.tensor),
            ]
            for line in causes
            if line.part == name and line.cycles
        ]  # fmt: skip
        print(fitted(CAUSE_COLUMNS, cells, screen_width()))
    keys = [name for name in totals[0] if name != "utilisation"]
    cells = [[total[key] for key in keys] for total in totals]
    print(markdown(keys, cells) if args.wide else transposed(keys, cells, screen_width()), end="")
    if args.out:
        print(f"written to {args.out}: {', '.join(files)}")
    return 0


command = CommandBody(_add_arguments, _run)

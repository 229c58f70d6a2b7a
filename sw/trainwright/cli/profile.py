"""``trainwright profile``: where the cycles of a training step go."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from trainwright.cli.backend import SimulationOptions, opened_for
from trainwright.cli.declare import command as make_command
from trainwright.cli.options import JsonOptions, SeedOptions, StepOptions, WideOptions
from trainwright.cli.output import to_json, write_results
from trainwright.cli.screen import fitted, screen_width, transposed
from trainwright.network import Network, UserNames
from trainwright.parameters import AcceleratorParameters
from trainwright.report.tables import markdown
from trainwright.support.settings import Option


class ProfileOptions(StepOptions, SeedOptions, WideOptions, JsonOptions, SimulationOptions):
    """Profile one training step, a line a descriptor.

    A line has cycles, multiply-accumulates, occupancy of the array, stalls by cause (operands or
    the memory awaited, results back-pressured), bytes and saturations.

    `macs` are the multiply-accumulates executed, copies by PE1 and padded lanes included;
    `useful_macs` those of the equations alone. Occupancy is executed, utilisation useful
    multiply-accumulates over multipliers times cycles. In --json `mac_utilisation` is the
    utilisation, as in `check` and `plan`; `utilisation` is the occupancy, a name kept for programs
    that read it.

    With --backend rtl everything is measured in the simulated hardware; with golden the cycles are
    predicted by the cycle model. --out writes profile.json, trace.json, which
    https://ui.perfetto.dev and chrome://tracing open (a row an engine, a cycle as a microsecond),
    engines.png, the same time line as a picture, and roofline.png.

    A second table divides every cycle of both arrays among causes: computing, copying, stalls, and
    the commands that the array waited for, each cause with the descriptor that has most of its
    cycles.

    --energy multiplies counted events with published energies (docs/reference/energy.md). It is a
    model of dynamic energy: static power, clock tree and processor are left out.
    """

    backend: Annotated[str, Option(metavar="NAME")] = "rtl"
    """rtl or golden"""
    energy: bool = False
    """also print the energy of the step as a model, low and high, next to the paper's figures"""
    out: Annotated[Path | None, Option(metavar="FOLDER")] = None
    """write files there"""


COLUMNS = {
    "number": "no", "operation": "op", "tensor": "tensor", "engine": "engine", "times": "times",
    "cycles": "cycles", "macs": "macs", "occupancy": "occupancy", "stall_operand": "awaits",
    "stall_result": "blocked", "bytes": "bytes", "saturations": "saturated",
}  # fmt: skip
"""Columns as JSON and ``--wide`` name them, with shorter names for narrower tables."""
SPARE = ("times", "saturated", "blocked", "engine", "bytes", "awaits")
"""Columns that a narrow terminal goes without, the least informative first."""
CAUSE_COLUMNS = ("array", "cause", "cycles", "share", "no", "tensor")
"""Columns of the table of causes."""


def _profiled(options: ProfileOptions, network: Any) -> tuple[list[tuple], Any]:
    """Return (part, program, commands, run) of each program, and the accelerator's sizes."""
    from trainwright.check.step import random_inputs
    from trainwright.driver import Driver
    from trainwright.timing import predict
    from trainwright.timing.profile import predicted

    with opened_for(options, network) as accelerator:
        driver = Driver(accelerator, network, options.batch, plan=options.plan, trace=True)
        given = random_inputs(network, driver, options.seed)
        forward = driver.forward(given.inputs, given.model, given.scales)
        backward = driver.backward(given.gradient, given.scales)
        p, step = accelerator.parameters, driver.step
    parts = []
    for name, program, done in (
        ("forward", step.forward, forward),
        ("backward", step.backward, backward),
    ):
        commands = done.run.commands or predicted(predict(program.descriptors, p))
        parts.append((name, program, commands, done.run))
    return parts, p


def _shares(total: dict[str, Any], p: AcceleratorParameters) -> dict[str, float]:
    """Return occupancy and utilisation."""
    most = p.multipliers * max(1, total["cycles"])
    occupancy = total["macs"] / most
    return {
        "utilisation": occupancy,
        "occupancy": occupancy,
        "mac_utilisation": total["useful_macs"] / most,
    }


def _total(
    name: str, rows: list[Any], cycles: int, useful: int, p: AcceleratorParameters
) -> dict[str, Any]:
    total = {
        "part": name,
        "cycles": cycles,
        "macs": sum(line.macs for line in rows),
        "useful_macs": useful,
    }
    busy = {
        engine: sum(line.cycles for line in rows if line.engine == engine)
        for engine in ("LOAD", "STORE", "PE1", "PE2")
    }
    return {
        **total,
        **_shares(total, p),
        "bytes": sum(line.bytes for line in rows),
        **{f"{engine.lower()}_cycles": count for engine, count in busy.items()},
    }


def _files(
    options: ProfileOptions, network: str, parts: list[tuple], p: AcceleratorParameters,
    results: dict[str, Any],
) -> dict[str, str | bytes]:  # fmt: skip
    """Return the files of ``--out`` by name."""
    from trainwright.report.engines import draw_engines
    from trainwright.report.roofline import draw_roofline
    from trainwright.timing import MemoryTiming
    from trainwright.timing.profile import trace_events

    bandwidth = options.memory_bandwidth or MemoryTiming().bandwidth
    points = [(t["part"], t["macs"], t["bytes"], t["cycles"]) for t in results["totals"]]
    trace = trace_events([(name, program.descriptors, cs) for name, program, cs, _ in parts])
    return {
        "profile.json": to_json(results),
        "trace.json": json.dumps(trace),
        "roofline.png": draw_roofline(points, p, bandwidth),
        "engines.png": draw_engines([(name, cs) for name, _, cs, _ in parts], network),
    }


def _descriptor_table(rows: list[dict[str, Any]], names: UserNames, *, wide: bool) -> str:
    """Return a table of descriptors; unless ``wide`` for the terminal, by the user's names."""
    if wide:
        return markdown(tuple(COLUMNS), [[row[column] for column in COLUMNS] for row in rows])
    rows = [row | {"tensor": names.short(row["tensor"])} for row in rows]
    cells = [[row[column] for column in COLUMNS] for row in rows]
    return fitted(list(COLUMNS.values()), cells, screen_width(), SPARE)


def _energy(network: Network, parts: list[tuple], p: "AcceleratorParameters") -> list[Any]:
    """Return the energy of a step by kind of event, the total last."""
    from trainwright.timing.energy import EnergyModel

    model = EnergyModel(p, network.factor_width)
    for _, program, commands, _ in parts:
        model.add_program(program.descriptors, commands)
    return model.lines()


def _energy_text(lines: list[Any], cycles: int) -> str:
    from trainwright.timing.energy import references

    cells = [
        [line.event, line.count or "", *(f"{1e3 * joules:.4f}" for joules in line.joules)]
        for line in lines
    ]
    table = fitted(("event", "count", "low mJ", "high mJ"), cells, screen_width())
    compared = [
        f"  {name}: {1e3 * joules:,.1f} mJ\n" for name, joules in references(cycles).items()
    ]
    return "".join(
        (
            "energy of the step, a model: dynamic energy of these events, no static power\n",
            f"{table}\n",
            "beside it power times time, as estimated for a whole device by the paper:\n",
            *compared,
        )
    )


def _run(options: ProfileOptions) -> int:
    from trainwright.timing.lost import lost_cycles
    from trainwright.timing.profile import as_rows, lines

    network = options.network_named(options.network)
    parts, p = _profiled(options, network)
    tables, totals, causes = [], [], []
    for name, program, commands, run in parts:
        rows = lines(name, program.descriptors, commands, p, run)
        end = run.counters.cycles or max(command.end for command in commands)
        tables.append((name, rows))
        totals.append(_total(name, rows, end, program.macs, p))
        causes += lost_cycles(name, program.descriptors, commands, end, p)
    whole = {"part": "step"} | {
        key: sum(total[key] for total in totals) for key in totals[0] if key != "part"
    }
    totals.append(whole | _shares(whole, p))
    results = {
        "network": network.name,
        "batch": options.batch,
        "plan": options.plan,
        "cycles_are": "measured" if options.backend == "rtl" else "predicted",
        "totals": totals,
        "causes": [asdict(line) for line in causes],
        "descriptors": [row for _, rows in tables for row in as_rows(rows)],
    }
    energy = _energy(network, parts, p) if options.energy else []
    if energy:
        results["energy"] = [asdict(line) for line in energy]
    files = _files(options, network.name, parts, p, results) if options.out else {}
    if options.out:
        write_results(options.out, files)
    if options.json:
        print(to_json(results))
        return 0
    names = UserNames.of_network(network)
    width = 10**9 if options.wide else screen_width()
    for name, part in tables:
        print(f"{name}, cycles {results['cycles_are']}")
        print(_descriptor_table(as_rows(part), names, wide=options.wide))
    for name, _ in tables:
        print(f"{name}, cycles of each array by cause, and the descriptor with most of them")
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
    print(transposed(keys, [[total[key] for key in keys] for total in totals], width), end="")
    if energy:
        print(_energy_text(energy, totals[-1]["cycles"]), end="")
    if options.out:
        print(f"written to {options.out}: {', '.join(files)}")
    return 0


command = make_command(ProfileOptions, _run)

"""``trainwright profile``: where the cycles of a training step go."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from trainwright.cli.backend import SimulationOptions, opened_for
from trainwright.cli.declare import command as make_command
from trainwright.cli.errors import OptionError
from trainwright.cli.options import (
    JsonOptions,
    SeedOptions,
    StepOptions,
    WideOptions,
    accelerator_parameters,
    check_wide,
)
from trainwright.cli.output import check_results, show, to_json, write_results
from trainwright.cli.screen import fitted, screen_width, transposed
from trainwright.network import Network, UserNames
from trainwright.parameters import AcceleratorParameters
from trainwright.support.settings import Option
from trainwright.support.tables import markdown

if TYPE_CHECKING:
    from trainwright.timing.energy import EnergyModel
    from trainwright.timing.profile import ProfiledProgram


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
    model of dynamic energy: static power, clock tree and processor are left out. With --liberty
    the energy of multiplications follows from toggles: yosys maps a multiplier to the file's cells,
    which are evaluated on the operands of the step.
    """

    backend: Annotated[str, Option(metavar="NAME")] = "rtl"
    """rtl or golden"""
    energy: bool = False
    """also print the energy of the step as a model, low and high, next to the paper's figures"""
    liberty: Annotated[Path | None, Option(metavar="FILE")] = None
    """for --energy: take the energy of multiplications from the cells of this liberty file"""
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


def _profiled(
    options: ProfileOptions, network: Network, p: AcceleratorParameters
) -> tuple[list["ProfiledProgram"], "EnergyModel"]:
    """Return the profile of each program, and the energy of them all."""
    from trainwright.check.operands import toggle_energy
    from trainwright.check.step import random_inputs
    from trainwright.driver import Driver
    from trainwright.timing.energy import EnergyModel
    from trainwright.timing.profile import profiled

    with opened_for(options, p) as accelerator:
        toggles = options.liberty and toggle_energy(
            options.liberty, network, options.batch, accelerator,
            seed=options.seed, plan=options.plan,
        )  # fmt: skip
        driver = Driver(accelerator, network, options.batch, plan=options.plan, trace=True)
        given = random_inputs(network, driver, options.seed)
        forward = driver.forward(given.inputs, given.model, given.scales)
        backward = driver.backward(given.gradient, given.scales)
        step = driver.step
    parts, energy = [], EnergyModel(p, network.factor_width, toggles)
    for name, done in (("forward", forward), ("backward", backward)):
        part = profiled(name, getattr(step, name), done.run, p)
        energy.add_program(part.program.descriptors, part.commands)
        parts.append(part)
    return parts, energy


def _files(
    options: ProfileOptions, parts: list["ProfiledProgram"], p: AcceleratorParameters, results: Any
) -> dict[str, str | bytes]:
    """Return the files of ``--out`` by name."""
    from trainwright.report.engines import draw_engines
    from trainwright.report.roofline import draw_roofline
    from trainwright.timing import MemoryTiming
    from trainwright.timing.profile import trace_events

    bandwidth = options.memory_bandwidth or MemoryTiming().bandwidth
    points = [(t["part"], t["macs"], t["bytes"], t["cycles"]) for t in results["totals"]]
    trace = trace_events([(part.name, part.program.descriptors, part.commands) for part in parts])
    return {
        "profile.json": to_json(results),
        "trace.json": json.dumps(trace),
        "roofline.png": draw_roofline(points, p, bandwidth),
        "engines.png": draw_engines([(x.name, x.commands) for x in parts], results["network"]),
    }


def _descriptor_table(rows: list[dict[str, Any]], names: UserNames, *, wide: bool) -> str:
    """Return a table of descriptors; unless ``wide`` for the terminal, by the user's names."""
    if wide:
        return markdown(tuple(COLUMNS), [[row[column] for column in COLUMNS] for row in rows])
    rows = [row | {"tensor": names.short(row["tensor"])} for row in rows]
    cells = [[row[column] for column in COLUMNS] for row in rows]
    return fitted(list(COLUMNS.values()), cells, screen_width(), SPARE)


def _energy_text(energy: "EnergyModel", cycles: int) -> str:
    from trainwright.timing.energy import references

    cells = [
        [line.event, line.count or "", *(f"{1e3 * joules:.4f}" for joules in line.joules)]
        for line in energy.lines()
    ]
    table = fitted(("event", "count", "low mJ", "high mJ"), cells, screen_width())
    compared = references(cycles).items()
    return "\n".join(
        (
            "energy of the step, a model: dynamic energy of these events, no static power",
            table,
            "sources:",
            *(f"  {source}: {use}" for source, use in energy.sources.items()),
            "beside it power times time, as estimated for a whole device by the paper:",
            *(f"  {name}: {1e3 * joules:,.1f} mJ" for name, joules in compared),
        )
    )


def _run(options: ProfileOptions) -> int:
    from trainwright.timing.lost import lost_cycles
    from trainwright.timing.profile import as_rows, total_of

    check_wide(options)
    if options.seed and options.backend == "golden":
        raise OptionError(
            "--seed only applies to measured cycles, golden predicts them without operands: add "
            "--backend rtl, or omit it"
        )
    if options.liberty is not None and not (options.energy and options.backend == "rtl"):
        raise OptionError("--liberty is for --energy with --backend rtl: add both, or omit it")
    if options.out:
        check_results(options.out)
    network = options.network_named(options.network)
    p = accelerator_parameters(options.accelerator, network)
    parts, energy = _profiled(options, network, p)
    descriptors = {part.name: as_rows(part.rows) for part in parts}
    causes = [
        line
        for part in parts
        for line in lost_cycles(part.name, part.program.descriptors, part.commands, part.cycles, p)
    ]
    totals = [*(total_of(part.name, [part], p) for part in parts), total_of("step", parts, p)]
    cycles_are = "measured" if options.backend == "rtl" else "predicted"
    results: dict[str, Any] = {
        "network": network.name, "batch": options.batch, "plan": options.plan,
        "cycles_are": cycles_are, "totals": totals, "causes": causes,
        "descriptors": [row for rows in descriptors.values() for row in rows],
    }  # fmt: skip
    if options.energy:
        results |= {"energy": energy.lines(), "energy_sources": energy.sources}
    names = UserNames.of_network(network)
    text = []
    for name, rows in descriptors.items():
        text += [f"{name}, cycles {cycles_are}", _descriptor_table(rows, names, wide=options.wide)]
    for name in descriptors:
        cells = [
            [
                line.engine, line.cause, line.cycles, f"{line.share:.1%}", line.number,
                names.short(line.tensor),
            ]
            for line in causes
            if line.part == name and line.cycles
        ]  # fmt: skip
        text += [f"{name}, cycles of each array by cause, and the descriptor with most of them",
                 fitted(CAUSE_COLUMNS, cells, screen_width())]  # fmt: skip
    keys = [name for name in totals[0] if name != "utilisation"]
    width = 10**9 if options.wide else screen_width()
    cells = [[total[key] for key in keys] for total in totals]
    text.append(transposed(keys, cells, width).rstrip("\n"))
    if options.energy:
        text.append(_energy_text(energy, totals[-1]["cycles"]))
    if options.out:
        files = _files(options, parts, p, results)
        write_results(options.out, files)
        text.append(f"written to {options.out}: {', '.join(files)}")
    return show(options.json, results, "\n".join(text))


command = make_command(ProfileOptions, _run)

"""``trainwright profile``: where the cycles of a training step go."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from trainwright.cli.backend import SimulationOptions, opened_for
from trainwright.cli.declare import command as make_command
from trainwright.cli.errors import OptionError
from trainwright.cli.options import (
    JsonOptions,
    StepOptions,
    UpdateOptions,
    WideOptions,
    accelerator_and_place,
)
from trainwright.cli.output import check_results, show, to_json, write_results
from trainwright.cli.screen import fitted, screen_width, transposed
from trainwright.network import Network, UserNames
from trainwright.parameters import AcceleratorParameters
from trainwright.support.settings import Natural, Option, require_unset
from trainwright.support.tables import markdown

if TYPE_CHECKING:
    from trainwright.timing.energy import EnergyModel
    from trainwright.timing.profile import ProfiledProgram, ProfileLine


class ProfileOptions(StepOptions, UpdateOptions, WideOptions, JsonOptions, SimulationOptions):
    """Profile one training step, a line a descriptor.

    A line has cycles, multiply-accumulates, occupancy of the array, cycles in which it `awaits`
    operands or memory or is `blocked` by results, bytes and saturations. With --backend rtl all of
    them are measured in the simulated hardware; with golden the cycle model predicts the cycles.

    `macs` are the multiply-accumulates executed, copies by PE1 and padded lanes included;
    `useful_macs` are those of the equations alone. Occupancy is `macs` over multipliers times
    cycles, utilisation is `useful_macs` over the same. In --json `mac_utilisation` is the
    utilisation, as in `check` and `plan`, and `utilisation` is the occupancy.

    A second table divides every cycle of both arrays among causes: computing, copying, stalls, and
    the commands that the array waited for. Each cause names the descriptor that has most of its
    cycles.

    --out writes profile.json, roofline.png, engines.png (a time line of the engines), and
    trace.json, the same time line for https://ui.perfetto.dev or chrome://tracing, where a cycle
    is shown as a microsecond.

    With --update chip a step includes loss and update. An accelerator that trains alone runs eight
    steps by one start: a descriptor's figures are sums over the eight, `step` is their mean, as
    `train` reports it.

    --energy multiplies counted events with published energies (docs/reference/energy.md). It is a
    model of dynamic energy: static power, clock tree and processor are left out. With --liberty
    the energy of multiplications follows from toggles: yosys maps a multiplier to the file's cells,
    Verilator simulates it on the operands of the step; --out then has its SAIF files, too.

    Examples
    --------
      trainwright profile digits --backend golden   predicted, in a second
      trainwright profile digits --out profile      measured; with pictures and a trace
      trainwright profile fashion --energy          with a model of the step's energy
    """

    backend: Annotated[str, Option(metavar="NAME")] = "rtl"
    """rtl or golden"""
    seed: Natural | None = None
    """seed of the random operands (default: 0)"""
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
    options: ProfileOptions, network: Network, p: AcceleratorParameters, place: str
) -> tuple[list["ProfiledProgram"], "EnergyModel"]:
    """Return the profile of each program of a step, and the energy of them all."""
    from trainwright.check.operands import toggle_energy
    from trainwright.check.parts import RandomStep
    from trainwright.timing.energy import EnergyModel
    from trainwright.timing.profile import profiled

    with opened_for(options, p) as accelerator:
        toggles = options.liberty and toggle_energy(
            options.liberty, network, options.batch, accelerator,
            seed=options.seed or 0, plan=options.plan,
        )  # fmt: skip
        step = RandomStep(
            network, options.batch, accelerator, place, seed=options.seed or 0, plan=options.plan
        )
        parts = [
            profiled(part.name, part.program.descriptors, part.macs, part.run, p, part.steps)
            for part in step.run_step()
        ]
    energy = EnergyModel(p, network.factor_width, toggles)
    for part in parts:
        energy.add_program(part.descriptors, part.commands, len(part.steps))
    return parts, energy


def _descriptor_table(rows: list["ProfileLine"], names: UserNames, *, wide: bool) -> str:
    """Return a table of descriptors; unless ``wide`` for the terminal, by the user's names."""
    if not wide:
        rows = [replace(row, tensor=names.short(row.tensor)) for row in rows]
    cells = [[getattr(row, column) for column in COLUMNS] for row in rows]
    if wide:
        return markdown(tuple(COLUMNS), cells)
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
    from trainwright.report.engines import profile_files
    from trainwright.timing.lost import lost_cycles
    from trainwright.timing.profile import total_of

    if options.backend == "golden":  # which predicts cycles without operands
        require_unset(options, ["seed"], "only applies to measured cycles: add --backend rtl")
    if options.liberty is not None and not (options.energy and options.backend == "rtl"):
        raise OptionError("--liberty is for --energy with --backend rtl: add both, or omit it")
    if options.liberty is not None and options.update == "chip":
        raise OptionError("--liberty takes operands of forward and backward: omit --update chip")
    if options.out:
        check_results(options.out)
    network = options.network_named(options.network)
    p, place = accelerator_and_place(options, network)
    parts, energy = _profiled(options, network, p, place)
    causes = [
        line
        for part in parts
        for line in lost_cycles(part.name, part.descriptors, part.commands, part.cycles, p)
    ]
    totals = [*(total_of(part.name, [part], p) for part in parts),
              total_of("step", parts, p, len(parts[0].steps))]  # fmt: skip
    cycles_are = "measured" if options.backend == "rtl" else "predicted"
    results: dict[str, Any] = {
        "network": network.name, "batch": options.batch, "plan": options.plan,
        "cycles_are": cycles_are, "totals": totals, "causes": causes,
        "descriptors": [row for part in parts for row in part.rows],
    }  # fmt: skip
    if options.energy:
        results |= {"energy": energy.lines(), "energy_sources": energy.sources}
    names = UserNames.of_network(network)
    text = []
    for part in parts:
        text += [f"{part.title}, cycles {cycles_are}",
                 _descriptor_table(part.rows, names, wide=options.wide)]  # fmt: skip
    for part in parts:
        cells = [
            [x.engine, x.cause, x.cycles, f"{x.share:.1%}", x.number, names.short(x.tensor)]
            for x in causes
            if x.part == part.name and x.cycles
        ]
        text += [f"{part.title}, cycles of each array by cause, and the descriptor with most",
                 fitted(CAUSE_COLUMNS, cells, screen_width())]  # fmt: skip
    keys = [name for name in totals[0] if name != "utilisation"]
    width = 10**9 if options.wide else screen_width()
    columns = [list(map(total.get, keys)) for total in totals]
    if len(parts[0].steps) > 1:
        columns[-1][0] = "mean step"
    text.append(transposed(keys, columns, width).rstrip("\n"))
    if options.energy:
        text.append(_energy_text(energy, totals[-1]["cycles"]))
    if options.out:
        bandwidth = options.memory_bandwidth or 1 / p.beat_cycles
        files = {"profile.json": to_json(results), **energy.files}
        files |= profile_files(parts, totals, p, network.name, bandwidth)
        write_results(options.out, files, ["multiplier1.saif", "multiplier2.saif"])
        text.append(f"written to {options.out}: {', '.join(files)}")
    return show(options.json, results, "\n".join(text))


command = make_command(ProfileOptions, _run)

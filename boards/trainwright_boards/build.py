"""A whole build: what ``trainwright build`` does, and its figures."""

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any

from trainwright.support.native.tools import Progress
from trainwright.support.waiting import waiting
from trainwright_boards import flow, report
from trainwright_boards.artix_tools import vivado_script
from trainwright_boards.board import BLOCK, Board
from trainwright_boards.clocks import slower_mhz
from trainwright_boards.export import SCRIPT, building, replace_export, write_files
from trainwright_boards.fits import needed_block_rams
from trainwright_boards.job import (
    NETLIST,
    PACK,
    PLACE,
    ROUTE,
    STAGES,
    SYNTH,
    TIMING,
    TOOLS,
    TOP,
    Build,
    Steps,
)
from trainwright_boards.netlist import Netlist, complaints
from trainwright_boards.tools import BuildError
from trainwright_boards.top import CLOCK

REPORT = "report.json"


def build(
    job: Build, progress: Progress, *, until: str | None = None, options: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Build a bitstream, or what ``until``, one of ``job.STAGES``, makes; return the figures.

    ``until`` is by default the last stage that the part's tools reach (``Family.last``). Figures of
    a bitstream are also in ``report.json`` of the build's folder. ``options`` go to place and
    route. Raises ``BuildError``, also where the part has no room for the netlist.
    """
    until = until or flow.family(job.board).last
    check_reached(job.board, until)
    stages = {SYNTH: 1, PACK: 3}.get(until, 2)  # one run of a tool may place and route
    with building(job.folder):
        flow.bitstream(job).unlink(missing_ok=True)
        steps = Steps(job.folder, progress, check=job.check)
        with steps.stage("synth", 1, stages):
            progress(f"{job.board.title}: writing the design to {job.folder}")
            with waiting(progress, "writing the design"):
                design = flow.write_design(job)
            flow.synthesise(job, steps)
            flow.join(job, steps)
            checked = check_netlist(job) | {"design": design}
        if until == SYNTH:
            return _netlist_figures(job, steps, until) | checked
        with steps.stage("place" if until == PLACE else "place and route", 2, stages):
            flow.floorplan(job, steps)
            if until == PLACE:
                flow.place_and_route(job, steps, options, route=False)
                return _netlist_figures(job, steps, until) | checked
            flow.place_and_route(job, steps, options)
            report.spare_luts(
                report.resources(report.read_timing(job.folder / TIMING), job.board.part)
            )
        if until == PACK:
            with steps.stage("pack", 3, stages):
                flow.pack(job, steps)
                checked["tiles"] = flow.check_bitstream(job, steps)
        figures = _figures(job, steps) | checked | {"stage": until}
        if until == PACK:
            (job.folder / REPORT).write_text(json.dumps(figures, indent=1) + "\n")
    return figures


def check_reached(board: Board, stage: str) -> None:
    """Raise ``BuildError`` for a stage of ``job.STAGES`` that the part's tools do not reach."""
    tools = flow.family(board)
    if STAGES.index(stage) > STAGES.index(tools.last):
        raise BuildError(
            f"wheels build for the {board.part.name} of {board.name} until {tools.last}, "
            f"not {stage}: {tools.beyond}"
        )


def export_sources(job: Build) -> list[Path]:
    """Write what Vivado builds a board with a serial line from, and list the files.

    Raises ``BuildError`` and ``ConversionError``.
    """
    tools = flow.family(job.board)
    files = write_files(job.folder, {SCRIPT: vivado_script(job.board)})
    flow.write_design(job)
    written = [job.folder / tools.source, job.folder / tools.pins, *files]
    replace_export(job.folder, [path.name for path in written])
    return written


def _netlist_figures(job: Build, steps: Steps, stage: str) -> dict[str, Any]:
    """Return the figures of a netlist that is not routed."""
    return {
        "stage": stage,
        "board": job.board.name,
        "part": job.board.part.name,
        "parameters": asdict(job.parameters),
        "fingerprint": job.parameters.fingerprint,
        "multipliers": job.parameters.multipliers,
        "memory": job.memory,
        "memory_bytes": job.memory_bytes,
        "baud": job.baud,
        "clock_mhz": job.clock_hz / 1e6,
        "seed": job.seed,
        "netlist": str(job.folder / NETLIST),
        "resources": report.netlist_resources(_cells(job), job.board.part),
        "seconds": steps.seconds,
    }


def _cells(job: Build) -> Counter[str]:
    """Count the cells of the netlist by type."""
    netlist = Netlist.read(job.folder / NETLIST, TOP)
    return Counter(cell["type"] for cell in netlist.cells.values())


def check_netlist(job: Build) -> dict[str, Any]:
    """List the crossings of the netlist.

    Raise ``BuildError`` where the part has too few places for its cells, and for latches, unknown
    clocks and unguarded crossings.
    """
    netlist = Netlist.read(job.folder / NETLIST, TOP)
    on_chip = job.memory_bytes if job.memory == BLOCK else 0
    reckoned = {"block_rams": needed_block_rams(job.parameters, on_chip)}
    cells = Counter(cell["type"] for cell in netlist.cells.values())
    report.check_room(cells, job.board.part, reckoned)
    broken = complaints(netlist, clock_inputs={CLOCK})
    if broken:
        raise BuildError(f"the netlist of {job.folder} breaks a rule: {'; '.join(broken)}")
    crossings = [asdict(crossing) for crossing in netlist.crossings({CLOCK})]
    return {"clock_nets": sorted(netlist.clocks()), "crossings": crossings}


def _figures(job: Build, steps: Steps) -> dict[str, Any]:
    timing = report.read_timing(job.folder / TIMING)
    used = report.resources(timing, job.board.part)
    clocks = report.clocks(timing)
    slowest = min((c["fmax_mhz"] for c in clocks.values()), default=0.0)
    return {
        "board": job.board.name,
        "part": job.board.part.name,
        "parameters": asdict(job.parameters),
        "fingerprint": job.parameters.fingerprint,
        "multipliers": job.parameters.multipliers,
        "memory": job.memory,
        "memory_bytes": job.memory_bytes,
        "baud": job.baud,
        "clock_mhz": job.clock_hz / 1e6,
        "seed": job.seed,
        **_bitstream_figures(flow.bitstream(job)),
        "resources": used,
        "spare_luts": report.spare_luts(used),
        "clocks": clocks,
        "fmax_mhz": slowest,
        "timing_met": slowest >= job.clock_hz / 1e6,
        "slower_clock_mhz": slower_mhz(job.board, slowest, job.baud, job.memory),
        "critical_path": report.critical_path(timing),
        "changes": steps.checks.records,
        "seconds": steps.seconds,
    }


def _bitstream_figures(path: Path) -> dict[str, Any]:
    """Return path and size of a bitstream, None for both of one that was not packed."""
    packed = path.is_file()
    return {
        "bitstream": str(path) if packed else None,
        "bitstream_bytes": path.stat().st_size if packed else None,
    }


def seeds(job: Build, count: int, progress: Progress, *, at_once: int = 1) -> dict[str, Any]:
    """Place and route with seeds 1 to ``count``, some at once; Fmax of each, and their median.

    A seed whose report is there for the same netlist is not repeated. Raises ``BuildError``.
    """
    check_reached(job.board, ROUTE)
    with building(job.folder):
        steps = Steps(job.folder, progress, check=job.check)
        netlist = job.folder / NETLIST
        flow.write_design(job)
        flow.synthesise(job, steps)
        flow.join(job, steps)
        check_netlist(job)
        flow.floorplan(job, steps)
        with ThreadPoolExecutor(at_once) as pool:
            reached = pool.map(lambda seed: _place(job, seed, progress), range(1, count + 1))
            try:
                fmax = dict(enumerate(reached, 1))
            except KeyboardInterrupt:
                TOOLS.end()
                raise
        return {
            "board": job.board.name,
            "multipliers": job.parameters.multipliers,
            "netlist_bytes": netlist.stat().st_size,
            "fmax_mhz": fmax,
            "median_mhz": median(fmax.values()),
        }


def _place(job: Build, seed: int, progress: Progress) -> float:
    """Place and route with one seed in a folder of its own, and return Fmax in MHz."""
    folder = job.folder / f"seed{seed}"
    folder.mkdir(exist_ok=True)
    for name in (NETLIST, flow.family(job.board).pins):
        text = (job.folder / name).read_text()
        if not (folder / name).exists() or (folder / name).read_text() != text:
            (folder / name).write_text(text)
            (folder / TIMING).unlink(missing_ok=True)
    if not (folder / TIMING).exists():
        flow.place_and_route(
            replace(job, folder=folder, seed=seed), Steps(folder, progress, check=job.check)
        )
    clocks = report.clocks(report.read_timing(folder / TIMING))
    slowest = min(c["fmax_mhz"] for c in clocks.values())
    progress(f"seed {seed}: {slowest:.1f} MHz")
    return slowest

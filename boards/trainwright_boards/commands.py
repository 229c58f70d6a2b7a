"""``trainwright boards``, ``trainwright build`` and ``trainwright load``."""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trainwright.cli.command import CommandBody
from trainwright.cli.declare import add_options, number, positive
from trainwright.cli.errors import OptionError
from trainwright.cli.options import NumberOptions, accelerator_parameters, with_formats
from trainwright.cli.screen import folded, screen_width
from trainwright.network import BUILT_IN, Network, load_network
from trainwright.parameters import PRESETS, AcceleratorParameters, preset
from trainwright.support.errors import file_errors
from trainwright.support.text import read_integer, suggestion
from trainwright_boards.board import BLOCK, MEMORIES, SDRAM, Board
from trainwright_boards.catalogue import BOARDS, find_board
from trainwright_boards.catalogue.zynq import EXPORTS
from trainwright_boards.export import REGISTERS
from trainwright_boards.fits import (
    check_fits,
    choose_memory,
    needed_block_rams,
    obstacles,
)
from trainwright_boards.job import ROUTE, STAGES, SYNTH
from trainwright_boards.tools import BuildError

FOLDER = Path("build")
BATCH = 64
"""Default of ``--batch``, in samples."""
FLOWS = ("vivado", "litex", "fusesoc")
"""Names in ``flows.FLOWS``, whose import would cost every command the hardware's."""
LEAST_BAUD = 9600
"""Slowest serial line: a full frame takes 2 s, and the host gives up on a write of 10 s."""
VIVADO = tuple(name for name, board in BOARDS.items() if board.part.family == "xc7")
"""Boards with a serial line that Vivado builds."""
EXPORTED = (*EXPORTS, *VIVADO, REGISTERS)


def tell(message: str) -> None:
    """Print a line of progress to standard error."""
    print(message, file=sys.stderr, flush=True)


# --- boards -------------------------------------------------------------------------------------


def _boards_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "List the boards, the runs of the tools that are recorded for each, and the presets that "
        "fit. A board that was only described says so."
    )
    tables = parser.add_mutually_exclusive_group()
    tables.add_argument(
        "--table2",
        action="store_true",
        help="the paper's table 2 beside every finished build and estimate in --builds, and the "
        "time of a training step at the clock reached",
    )
    tables.add_argument(
        "--runs",
        action="store_true",
        help="the boards that were run to the last step for which tools come from PyPI, with the "
        "figures of each run, and the boards that were not",
    )
    parser.add_argument(
        "--check", action="store_true",
        help="with --runs: also compare each run's design with the one that this version makes",
    )  # fmt: skip
    parser.add_argument(
        "--builds", type=Path, metavar="FOLDER",
        help="for --table2: folder of the builds (default: build)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _table2(folder: Path, as_json: bool) -> int:
    from trainwright_boards import table2

    rows = [table2.PAPER, *map(table2.row, table2.finished(folder))]
    if len(rows) == 1:
        tell(
            f"nothing is built in {folder}: `trainwright build ulx3s-85f` and "
            "`trainwright export ultra96-v2 --estimate` make more rows"
        )
    print(json.dumps(table2.as_json(rows)) if as_json else table2.table(rows), end="")
    return 0


def _runs(as_json: bool, check: bool) -> int:
    from trainwright_boards import runs

    if check:
        tell("comparing designs, some seconds for each run with a digest of its design")
    if as_json:
        by_board = {
            name: [
                asdict(run) | ({"present": runs.is_present(run)} if check else {})
                for run in runs.finished(name).values()
            ]
            for name in runs.boards_run()
        }
        print(json.dumps({"runs": by_board, "not_run": runs.not_run()}))
        return 0
    print(runs.summary())  # Markdown, for the page of results
    if check:
        print(runs.ages())
    return 0


NOT_ROUTED = (
    "nextpnr as it comes routed no arrays of {} multipliers on it, see docs/results/boards.md"
)


def board_figures(board: Board) -> dict[str, Any]:
    """Collect what ``trainwright boards --json`` prints about a board."""
    from trainwright_boards.runs import finished

    runs = finished(board.name)
    built = {name for name, _ in runs}
    fitting, unrouted, unfit, beside = [], [], {}, []
    for name in PRESETS:
        reasons = obstacles(preset(name), board.part, board.memory_bytes)
        if reasons:
            unfit[name] = reasons
        elif board.is_unrouted(name):
            unrouted.append(name)
        else:
            fitting.append(name)
        if board.sdram is not None and not obstacles(preset(name), board.part, 0):
            beside.append(name)
    chosen = preset(board.preset)
    return {
        "title": board.title,
        "part": board.part.name,
        "speed_grade": board.speed,
        "preset": board.preset,
        "multipliers": chosen.multipliers,
        "memory_bytes": board.memory_bytes,
        "memories": board.memories,
        "block_rams": needed_block_rams(chosen, board.memory_bytes),
        "fits": fitting,
        "built": [name for name in PRESETS if name in built],
        "runs": [asdict(run) for run in runs.values()],
        "not_routed": unrouted,
        "unrouted_multipliers": board.unrouted_multipliers,
        "does_not_fit": unfit,
        "fits_with_sdram": beside,
        "note": board.note,
    }


def _boards(args: argparse.Namespace) -> int:
    if args.builds is not None and not args.table2:
        raise OptionError("--builds is for --table2: add it, or omit --builds")
    if args.check and not args.runs:
        raise OptionError("--check is for --runs: add it, or omit --check")
    if args.table2:
        return _table2(args.builds or FOLDER, args.json)
    if args.runs:
        return _runs(args.json, args.check)
    figures = {name: board_figures(board) for name, board in BOARDS.items()}
    if args.json:
        print(json.dumps(figures))
        return 0
    lines = _described(figures)
    print("\n".join(folded(line, screen_width(), 4) for line in lines))
    return 0


def _described(figures: Mapping[str, dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of ``trainwright boards``: a heading for each board, its facts indented."""
    from trainwright_boards.runs import told

    for name, board in figures.items():
        yield f"{name}: {board['title']}, speed grade {board['speed_grade']}"
        yield from (f"  {line}" for line in told(name))
        memories = (f"{name}, {size // 1024:,} KiB" for name, size in board["memories"].items())
        yield f"  memory: {'; '.join(memories)}"
        for fitting in board["fits"]:
            more = ", the default" if fitting == board["preset"] else ""
            known = "fits" if fitting in board["built"] else "fits by count, not built yet"
            yield f"  {fitting}: {known}{more}"
        for unrouted in board["not_routed"]:
            yield f"  {unrouted}: not routed: {NOT_ROUTED.format(board['unrouted_multipliers'])}"
        for other, reasons in board["does_not_fit"].items():
            but = "; fits with --memory sdram" if other in board["fits_with_sdram"] else ""
            yield f"  {other}: does not fit: needs {' and '.join(reasons)}{but}"
        if board["note"]:
            yield f"  {board['note']}"
    for name, zynq in EXPORTS.items():
        yield f"{name}: {zynq.title}; `trainwright export {name}`"
        yield from (f"  {line}" for line in told(name))


# --- build --------------------------------------------------------------------------------------


def _build_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Build the bitstream of a board: accelerator, its memory, clock and host link. "
        "The build folder keeps every step's files and logs, and report.json."
    )
    parser.add_argument("board", metavar="BOARD", help="see `trainwright boards`")
    parser.add_argument(
        "--network", metavar="NAME", help="make sure that this network's training step fits"
    )
    parser.add_argument(
        "--batch", type=positive, metavar="N", help=f"samples of that step (default: {BATCH})"
    )
    add_options(parser, NumberOptions)
    parser.add_argument("--preset", metavar="NAME", help="sizes (default: the board's own)")
    _accelerator_argument(parser)
    _wiring_arguments(parser)
    _route_arguments(parser)
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FOLDER",
        help="default: build/BOARD, with -PRESET, -sdram and the fingerprint of sizes or formats "
        "of your own behind it where these are chosen",
    )
    _append_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object")


def _wiring_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of what is next to the accelerator: its memory, clock and host link."""
    parser.add_argument(
        "--memory",
        choices=MEMORIES,
        help="the accelerator's external memory: block RAM of the FPGA, or the board's SDRAM "
        "(default: block, and sdram for a --network that needs more)",
    )
    parser.add_argument(
        "--clock",
        type=number,
        metavar="MHZ",
        help="clock of the board, which place and route work for (default: the board's own); if "
        "its PLL only makes another clock within 1 %%, that clock counts",
    )
    parser.add_argument(
        "--baud",
        type=positive,
        metavar="N",
        help="rate of the serial line (default: the fastest of the board's bridge); the host then "
        "takes --backend serial:PORT@N",
    )


def _route_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of synthesis, placement and routing."""
    parser.add_argument("--seed", type=positive, metavar="N", help="placement seed (default: 1)")
    parser.add_argument(
        "--seeds",
        type=positive,
        metavar="N",
        help="no bitstream: place and route with seeds 1 to N, and tell the median Fmax",
    )
    parser.add_argument(
        "--jobs", type=positive, default=1, metavar="N", help="seeds tried at once (default: 1)"
    )
    stages = parser.add_mutually_exclusive_group()
    stages.add_argument(
        "--until",
        choices=STAGES,
        help="stop after this stage: synth tells what the netlist takes of the part, in minutes; "
        "place, route; pack makes the bitstream (default: the last that the part's tools reach: "
        "synth for an Artix-7, pack for the others)",
    )
    stages.add_argument(
        "--synth-only",
        dest="until",
        action="store_const",
        const="synth",
        help="as --until synth",
    )
    parser.add_argument(
        "--relaxed",
        action="store_true",
        help="save LUTs where the clock leaves time, instead of mapping all logic for speed",
    )
    parser.add_argument(
        "--no-check",
        action="store_true",
        help="do not prove that each change of the netlist leaves the same machine",
    )


def _append_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--append", type=Path, metavar="FILE", help="add a line of JSON with the figures to it"
    )
    parser.add_argument(
        "--label", default="", metavar="TEXT", help="text in that line, such as a commit"
    )


def _accelerator_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--accelerator",
        metavar="NAME=N",
        action="append",
        help="a size other than the preset's, such as program_depth=64 (repeatable; names and "
        "ranges: `trainwright check --help`)",
    )


def _preset(name: str) -> AcceleratorParameters:
    if name not in PRESETS:
        raise OptionError(
            f"--preset: no preset {name!r}; there are {', '.join(PRESETS)}"
            f"{suggestion(name, PRESETS)}"
        )
    return preset(name)


def _job(args: argparse.Namespace):
    from trainwright_boards.job import Build

    board = find_board(args.board)
    name = args.preset or board.preset_with(args.memory or BLOCK)
    parameters = _parameters(args, name)
    choose_memory(board, args.memory, 0, "nothing")
    baud = _baud(args, board)
    _clock(args, board, baud, args.memory or BLOCK)  # before a network is compiled, for minutes
    memory = _memory(args, parameters, board)
    clock_hz = _clock(args, board, baud, memory)
    if args.preset is None and name != board.preset_with(memory):
        name = board.preset_with(memory)
        parameters = _parameters(args, name)
    check_fits(parameters, board, name, memory)
    if board.is_unrouted(name):
        why = NOT_ROUTED.format(board.unrouted_multipliers)
        tell(f"preset {name} fits {board.name} by count alone: {why}")
    folder = args.out or _folder(board, args.preset, memory)
    if args.out is None and parameters != _preset(name):  # by sizes or by formats
        folder = folder.with_name(f"{folder.name}-{parameters.fingerprint:08x}")
    return Build(
        board,
        parameters,
        clock_hz,
        folder,
        args.seed or 1,
        memory,
        check=not args.no_check,
        relaxed=args.relaxed,
        line_baud=args.baud,
    )


def _baud(args: argparse.Namespace, board: Board) -> int:
    """Return the rate of the serial line. Raises ``OptionError`` for one that cannot work."""
    if args.baud is not None and not LEAST_BAUD <= args.baud <= board.baud:
        raise OptionError(
            f"--baud: the line to {board.name} takes {LEAST_BAUD} to {board.baud}, not {args.baud}"
        )
    return args.baud or board.baud


def _clock(args: argparse.Namespace, board: Board, baud: int, memory: str) -> int:
    """Return the clock that runs, in Hz."""
    from trainwright_boards.clocks import running_hz

    asked_hz = board.design_hz if args.clock is None else round(args.clock * 1e6)
    if asked_hz <= 0:
        raise OptionError(f"--clock must be above 0, not {args.clock}")
    return running_hz(board, asked_hz, baud, memory)


def _parameters(args: argparse.Namespace, name: str) -> AcceleratorParameters:
    """Return the parameters of a preset, with the formats asked for."""
    parameters = _preset(name)
    sizes = args.accelerator or []
    if any(size.partition("=")[0].strip() == "preset" for size in sizes):
        raise OptionError("--accelerator: name the preset by --preset")
    if args.formats is not None:
        return accelerator_parameters([f"preset={name}", *sizes], _network(args))
    return accelerator_parameters([f"preset={name}", *sizes]) if sizes else parameters


def _folder(board: Board, preset: str | None, memory: str) -> Path:
    parts = [board.name, *([] if preset is None else [preset]), *([SDRAM] * (memory == SDRAM))]
    return FOLDER / "-".join(parts)


def _network(args: argparse.Namespace) -> Network:
    """Return the requested network, or one that stands for any network with these formats."""
    return with_formats(load_network(getattr(args, "network", None) or "digits"), args.formats)


def _memory(args: argparse.Namespace, parameters: AcceleratorParameters, board: Board) -> str:
    """Return the requested memory, or the one that the network needs."""
    if args.network is None:
        return choose_memory(board, args.memory, 0, "nothing")
    from trainwright.compiler import compile_step

    batch = args.batch or BATCH
    step = compile_step(_network(args), batch, parameters)
    what = f"a step of {args.network} with batch {batch}"
    return choose_memory(board, args.memory, step.memory_bytes, what)


def _build(args: argparse.Namespace) -> int:
    from trainwright_boards.build import build, check_reached, seeds

    if args.until in ("synth", "place") and args.seeds is not None:
        raise OptionError(f"--until {args.until} routes nothing: omit --seeds")
    if args.jobs != 1 and args.seeds is None:
        raise OptionError("--jobs is for several placements: add --seeds, or omit it")
    if args.seed is not None and args.seeds is not None:
        raise OptionError("--seeds places with seeds 1 to N: omit --seed or --seeds")
    if args.batch is not None and args.network is None:
        raise OptionError("--batch is of a network: add --network, or omit it")
    if args.append is not None and args.seeds is not None:
        raise OptionError("--append takes the figures of one build: omit --append or --seeds")
    _check_append(args)
    # before a network is compiled and a netlist made, which takes minutes
    board = find_board(args.board)
    check_reached(board, args.until or (SYNTH if args.seeds is None else ROUTE))
    _check_synthesis(args, board)
    job = _job(args)
    if args.clock is not None and round(args.clock * 1e6) != job.clock_hz:
        tell(f"--clock {args.clock:g}: the PLL makes {job.clock_hz / 1e6:g} MHz, used by the build")
    if args.seeds is not None:
        figures = seeds(job, args.seeds, tell, at_once=args.jobs)
        text = "\n".join(
            [f"seed {seed}: {mhz:.1f} MHz" for seed, mhz in figures["fmax_mhz"].items()]
            + [f"median {figures['median_mhz']:.1f} MHz"]
        )
    else:
        figures = build(job, tell, until=args.until)
        text = summary(figures)
        _append(args, figures)
    print(json.dumps(figures) if args.json else text)
    return 0


def _check_synthesis(args: argparse.Namespace, board: Board) -> None:
    """Raise ``OptionError`` for options of stages or passes that the build does not run."""
    from trainwright_boards.flow import family

    tools = family(board)
    of_delay, of_speed = (
        tools.passes(tools.source, "", plain=False, delay_ps=d) for d in (1, None)
    )
    if args.relaxed and of_delay == of_speed:
        raise OptionError(f"--relaxed: passes for {board.part.name} know no delay: omit it")
    if (args.until or tools.last) != SYNTH:
        return
    if args.seed is not None:
        raise OptionError(
            f"--until synth, where a build for {board.name} ends, places nothing: omit --seed"
        )
    if args.no_check and not tools.joins_luts:
        raise OptionError(
            f"a build for {board.name} until synth changes no netlist: omit --no-check"
        )


def _check_append(args: argparse.Namespace) -> None:
    """Check that a line can be appended, because the figures come after minutes of work."""
    if args.append is None:
        if args.label:
            raise OptionError("--label is for the line of --append: add it, or omit --label")
        return
    with file_errors(f"--append: cannot write to {args.append}"), args.append.open("a"):
        pass


def _append(args: argparse.Namespace, figures: dict[str, Any]) -> None:
    """Add the run to the file that ``--append`` names."""
    from trainwright_boards import runs

    if args.append is not None:
        runs.append(args.append, runs.run_of(figures, args.label))


def resource_lines(resources: dict[str, Any]) -> list[str]:
    """Describe the used cells of each kind."""
    return [
        f"  {name.replace('_', ' ')}: {counts['used']:,g} of {counts['available']:,} "
        f"({counts['used'] / counts['available']:.0%})"
        for name, counts in resources.items()
    ]


HELD = {"proof": "proved to leave the same machine", "none": "NOT checked (--no-check)"}
"""How a change of the netlist was checked, for people."""


def summary(figures: dict[str, Any]) -> str:
    """Return the figures of a build as text for people."""
    times = ", ".join(f"{step} {seconds:.0f} s" for step, seconds in figures["seconds"].items())
    took = [f"  time: {times}"] if times else []
    if "clocks" not in figures:
        return "\n".join([figures["netlist"], *resource_lines(figures["resources"]), *took])
    lines = []
    if figures["bitstream"] is not None:
        lines.append(f"{figures['bitstream']}: {figures['bitstream_bytes']:,} bytes")
    lines += [*resource_lines(figures["resources"]), *took]
    for name, clock in figures["clocks"].items():
        lines.append(f"  clock {name}: {clock['fmax_mhz']:.1f} MHz reached")
    if not figures["timing_met"]:
        slower = figures["slower_clock_mhz"]
        less = f"build with --clock {slower}, or " if slower is not None else "choose "
        lines.append(
            f"  too slow for its clock of {figures['clock_mhz']:g} MHz: {less}another --seed"
        )
    for change in figures["changes"]:
        lines.append(f"  {change['change']}: {HELD[change['check']]}")
    path = figures["critical_path"]
    if path:
        total = sum(step["ns"] for step in path)
        lines.append(f"  critical path, {total:.2f} ns:")
        lines += [f"    {s['ns']:6.2f} {s['type']:8} {s['to']}" for s in path]
    return "\n".join(lines)


# --- fit ----------------------------------------------------------------------------------------


def _fit_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Find the largest preset that fits a board, and the networks that it trains. Presets are "
        "tried from the largest array down: first multipliers and block RAMs are counted, then "
        "yosys makes the netlist, whose LUTs and registers are compared with the part (10 % of the "
        "LUTs are left free). A second run skips yosys, except for a Zynq. For each network "
        "the compiler finds the largest batch, halved from --batch, that fits."
    )
    parser.epilog = (
        "examples: trainwright fit ulx3s-12f; trainwright fit arty-a7-35t --network digits --json; "
        "trainwright fit colorlight-i9 --accelerator preset=lfe5u-25f --accelerator "
        "scratchpad_rows=4096. The preset then goes to `trainwright build BOARD --preset NAME`."
    )
    parser.add_argument("board", metavar="BOARD", help="see `trainwright boards`")
    parser.add_argument(
        "--memory", metavar="NAME", help="memory of the accelerator (default: the board's largest)"
    )
    parser.add_argument(
        "--accelerator",
        metavar="NAME=N",
        action="append",
        help="try these sizes instead of the presets, such as preset=lfe5u-25f or lanes=8 "
        "(repeatable; names and ranges: `trainwright check --help`)",
    )
    parser.add_argument(
        "--network",
        metavar="NAME",
        action="append",
        help="network to compile (repeatable; default: every built-in one)",
    )
    parser.add_argument(
        "--batch",
        type=positive,
        default=BATCH,
        metavar="N",
        help=f"largest batch (default: {BATCH})",
    )
    parser.add_argument(
        "--by-count",
        action="store_true",
        help="synthesise nothing: compare multipliers and block RAMs alone; networks are compiled",
    )
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="for netlists and logs (default: build/fit)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _fit(args: argparse.Namespace) -> int:
    from trainwright_boards import fit

    if args.by_count and args.out is not None:
        raise OptionError("--out is for netlists, which --by-count does not make: omit one of them")
    target = fit.target_of(args.board)
    memory = args.memory or max(target.memories, key=lambda name: target.memories[name])
    if memory not in target.memories:
        raise OptionError(
            f"--memory: {args.board} has no {memory!r}, but {' and '.join(target.memories)}"
            f"{suggestion(memory, target.memories)}"
        )
    names = args.network or [*BUILT_IN]
    for name in names:
        load_network(name)  # before synthesis, which takes minutes
    candidates = fit.presets_for(memory)
    if args.accelerator:
        sizes = accelerator_parameters(args.accelerator)
        candidates = [fit.Candidate(name="own-sizes", parameters=sizes, memory=memory)]
    folder = args.out or FOLDER / "fit"
    result = fit.find(target, candidates, folder, tell, synthesise=not args.by_count)
    chosen = result.chosen
    trained = []
    if chosen is not None:
        for name in names:
            tell(f"{name}: compiling for batches from {args.batch} down")
            trained.append(fit.largest_step(chosen, target.memories[memory], name, args.batch))
    figures = {
        "board": args.board,
        "part": target.part.name,
        "memory": memory,
        "memory_bytes": target.memories[memory],
        "preset": None if chosen is None else chosen.name,
        "parameters": None if chosen is None else asdict(chosen.parameters),
        "counted": "by synthesis" if result.resources else "by multipliers and block RAMs alone",
        "resources": result.resources,
        "too_large": result.rejected,
        "networks": trained,
    }
    print(json.dumps(figures) if args.json else "\n".join(_fit_lines(figures)))
    return 0 if chosen is not None else 1


def _fit_lines(figures: dict[str, Any]) -> list[str]:
    """Describe the result of a search for people."""
    lines = [f"{name}: {reason}" for name, reason in figures["too_large"].items()]
    if figures["preset"] is None:
        return [*lines, f"nothing fits the {figures['part']} of {figures['board']}"]
    has = f"{figures['memory']}, {figures['memory_bytes'] // 1024:,} KiB"
    lines.append(f"{figures['preset']}: fits the {figures['part']} {figures['counted']}; {has}")
    lines += resource_lines(figures["resources"])
    for step in figures["networks"]:
        takes = f"{step['network']}: does not fit: {step.get('reason')}"
        if step["batch"] is not None:
            takes = (
                f"{step['network']}: batches of {step['batch']}, {step['cycles']:,} cycles a step, "
                f"{step['memory_bytes']:,} bytes"
            )
        lines.append(f"  {takes}")
    return lines


# --- load ---------------------------------------------------------------------------------------


def _load_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Load a board's bitstream into its FPGA, until it is switched off."
    parser.add_argument("board", metavar="BOARD", help="see `trainwright boards`")
    parser.add_argument(
        "--bitstream", type=Path, metavar="FILE", help="default: that of `trainwright build BOARD`"
    )
    parser.add_argument(
        "--memory", choices=MEMORIES, help=f"memory that it was built with (default: {BLOCK})"
    )


def _load(args: argparse.Namespace) -> int:
    from trainwright_boards.flow import family
    from trainwright_boards.tools import loader

    board = find_board(args.board)
    if args.bitstream is not None and args.memory is not None:
        raise OptionError("--memory is of a build without --bitstream: omit one of them")
    folder = _folder(board, None, args.memory or BLOCK)
    bitstream = args.bitstream or folder / family(board).bitstream
    if not bitstream.is_file():
        if args.bitstream is not None:
            raise BuildError(f"--bitstream: there is no file {bitstream}")
        memory = f" --memory {SDRAM}" if args.memory == SDRAM else ""
        raise BuildError(
            f"there is no {bitstream}: `trainwright build {board.name}{memory}` makes it"
        )
    command = [*loader().command, *board.loader.split(), str(bitstream)]
    if subprocess.run(command).returncode:
        raise BuildError(f"openFPGALoader could not load {board.name}: is it plugged in?")
    return 0


# --- export -------------------------------------------------------------------------------------


def _address(text: str) -> int:
    try:
        return read_integer(text, 0)
    except ValueError:
        message = f"must be an address such as 0x60000000, not {text!r}"
        raise argparse.ArgumentTypeError(message) from None


def _export_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Write Verilog, constraints and a script for a board that only its vendor's tools build: "
        + "; ".join(f"{board.name}, {board.title}" for board in EXPORTS.values())
        + ". For these the system with its serial line: "
        + "; ".join(f"{name}, {BOARDS[name].title}" for name in VIVADO)
        + f". Or write the register map, '{REGISTERS}': SystemRDL, SVD and a C header for drivers. "
        "Or, with --for, the accelerator alone as a package for Vivado (IP-XACT), LiteX (a wrapper "
        "in Python) or FuseSoC (a CAPI2 core), the register map with it."
    )
    parser.add_argument("board", metavar="BOARD", nargs="?", help=", ".join(EXPORTED))
    parser.add_argument("--for", dest="flow", choices=FLOWS, help="package for this flow")
    add_options(parser, NumberOptions)
    parser.add_argument("--preset", metavar="NAME", help="sizes (default: the board's own)")
    _accelerator_argument(parser)
    parser.add_argument(
        "--memory-base",
        type=_address,
        default=0,
        metavar="ADDRESS",
        help="address on the bus of the accelerator's memory, a multiple of the memory's size, "
        "such as 0x60000000 (default: 0)",
    )
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="where to (default: build/BOARD)"
    )
    parser.add_argument(
        "--estimate",
        action="store_true",
        help="also tell what the design takes of the part, by yosys (minutes)",
    )
    _append_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _exported(args: argparse.Namespace, name: str | None) -> AcceleratorParameters:
    """Return the parameters of a preset, or the default ones, with sizes and formats asked for."""
    if name is not None:
        return _parameters(args, name)
    network = None if args.formats is None else _network(args)
    return accelerator_parameters(args.accelerator or [], network)


def _export_for(args: argparse.Namespace) -> int:
    from trainwright_boards.flows import export_for

    if args.board is not None:
        raise OptionError(f"--for packages the accelerator alone: omit {args.board!r}")
    if args.estimate:
        raise OptionError(f"--estimate only applies to boards, not to --for {args.flow}")
    parameters = _exported(args, args.preset)
    folder = args.out or FOLDER / args.flow
    with _as_base_error(args.memory_base):
        written = export_for(
            args.flow, parameters, folder, memory_base=args.memory_base, progress=tell
        )
    figures = {
        "flow": args.flow,
        "fingerprint": parameters.fingerprint,
        "files": [str(file) for file in written],
    }
    print(json.dumps(figures) if args.json else "\n".join(figures["files"]))
    return 0


@contextmanager
def _as_base_error(base: int) -> Iterator[None]:
    """Name the option in errors of the memory's base; print the size of memory that a base allows.

    No file of an export has this size.
    """
    try:
        yield
    except ValueError as error:
        raise OptionError(f"--memory-base: {error}") from None
    # The bits of the base are set in every address, so a larger memory would overlap itself.
    if base:
        tell(f"--memory-base {base:#x}: the memory has at most {base & -base:,} bytes")


def _export(args: argparse.Namespace) -> int:
    from trainwright_boards.export import export, export_registers

    if args.append is not None and not args.estimate:
        raise OptionError("--append takes figures, which --estimate makes")
    _check_append(args)
    if args.flow is not None:
        return _export_for(args)
    if args.board == REGISTERS:
        if args.estimate:
            raise OptionError(f"--estimate only applies to boards, not to {REGISTERS}")
        if args.memory_base:
            raise OptionError(f"--memory-base only applies to Verilog, not to {REGISTERS}")
        parameters = _exported(args, args.preset)
        files = export_registers(parameters, args.out or FOLDER / REGISTERS)
        figures = {"fingerprint": parameters.fingerprint, "files": [str(file) for file in files]}
        print(json.dumps(figures) if args.json else "\n".join(figures["files"]))
        return 0
    if args.board is None:
        names = ", ".join(EXPORTED)
        raise OptionError(f"name a board, {names}, or a flow, --for {'|'.join(FLOWS)}")
    if args.board in VIVADO:
        return _export_serial(args, BOARDS[args.board])
    if args.board not in EXPORTS:
        raise OptionError(
            f"no board {args.board!r} to export for; there are {', '.join(EXPORTED)}"
            f"{suggestion(args.board, EXPORTED)}"
        )
    board = EXPORTS[args.board]
    name = args.preset or board.preset
    parameters = _exported(args, name)
    check_fits(parameters, board, name)
    folder = args.out or FOLDER / board.name
    with _as_base_error(args.memory_base):
        files = export(board, parameters, folder, memory_base=args.memory_base, progress=tell)
    figures = {
        "board": board.name,
        "part": board.part,
        "multipliers": parameters.multipliers,
        "fingerprint": parameters.fingerprint,
        "files": [str(file) for file in files],
    }
    lines = list(figures["files"])
    if args.estimate:
        from trainwright_boards.estimate import estimate

        estimated = estimate(board, parameters, folder, tell)
        figures["resources"] = estimated["resources"]
        lines += resource_lines(figures["resources"])
        _append(args, estimated)
    print(json.dumps(figures) if args.json else "\n".join(lines))
    return 0


def _export_serial(args: argparse.Namespace, board: Board) -> int:
    """Write the system of a board with a serial line, as Vivado's sources and script."""
    from trainwright_boards.build import build, export_sources
    from trainwright_boards.clocks import running_hz
    from trainwright_boards.job import Build

    if args.memory_base:
        raise OptionError(
            f"--memory-base only applies to a processor's memory, not to {board.name}"
        )
    name = args.preset or board.preset
    parameters = _exported(args, name)
    check_fits(parameters, board, name)
    clock_hz = running_hz(board, board.design_hz, board.baud, BLOCK)
    job = Build(board, parameters, clock_hz, args.out or FOLDER / board.name)
    files = export_sources(job)
    figures = {
        "board": board.name,
        "part": board.part.name,
        "multipliers": parameters.multipliers,
        "fingerprint": parameters.fingerprint,
        "files": [str(file) for file in files],
    }
    lines = list(figures["files"])
    if args.estimate:
        built = build(job, tell)
        figures["resources"] = built["resources"]
        lines += resource_lines(figures["resources"])
        _append(args, built)
    print(json.dumps(figures) if args.json else "\n".join(lines))
    return 0


export_command = CommandBody(_export_arguments, _export)
boards = CommandBody(_boards_arguments, _boards)
build_command = CommandBody(_build_arguments, _build)
fit_command = CommandBody(_fit_arguments, _fit)
load_command = CommandBody(_load_arguments, _load)

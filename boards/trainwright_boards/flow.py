"""From a board and an accelerator to a bitstream: a folder with every step's files and logs."""

import gzip
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType

from trainwright.support.native.cache import Cache, default_folder
from trainwright_boards.artix_tools import Artix
from trainwright_boards.board import SDRAM, Board
from trainwright_boards.ecp5_tools import Ecp5
from trainwright_boards.edit import editing
from trainwright_boards.estimate import design_digest
from trainwright_boards.family import Family
from trainwright_boards.floorplan import PROGRAM_MEMORY, multiplier_places, scratchpad_places, tie
from trainwright_boards.functions import difference
from trainwright_boards.gowin_tools import Gowin
from trainwright_boards.job import NETLIST, REPORT_IT, RTLIL, TOP, Build, Steps
from trainwright_boards.joined_luts import join_luts
from trainwright_boards.nexus_tools import Nexus
from trainwright_boards.tools import BuildError, tool
from trainwright_hw.arith.multiplier import DevicePlatform
from trainwright_hw.build.bram_registers import absorb
from trainwright_hw.build.convert import design_to_rtlil, rtlil_to_verilog
from trainwright_hw.build.synthesis import ADDERS_TEXT, write_adders
from trainwright_hw.external.on_chip_memory import OnChipMemory
from trainwright_hw.external.sdram.controller import SdramMemory
from trainwright_hw.link.uart import divisor
from trainwright_hw.soc import Soc

FAMILIES = MappingProxyType({"ecp5": Ecp5(), "gw5a": Gowin(), "nexus": Nexus(), "xc7": Artix()})
"""Tools of each ``Part.family``."""
YOSYS_BUG = "ERROR: Assert"
SYSTEM = "system.json"
KEPT = "top.json.gz"
KEPT_SECONDS = "seconds.json"
"""Time that yosys took for a cached netlist."""
"""Netlist in the cache."""


def family(board: Board) -> Family:
    """Return the tools for a board's part."""
    return FAMILIES[board.part.family]


def bitstream(build: Build) -> Path:
    """Return the path of the file that is loaded into the device."""
    return build.folder / family(build.board).bitstream


def soc_of(build: Build) -> Soc:
    """Build the system.

    Raises ``ValueError`` for a clock that allows no serial rate or that the SDRAM does not accept.
    """
    return Soc(
        build.parameters,
        memory=_memory(build),
        divisor=divisor(build.clock_hz, build.baud),
        clock_hz=build.clock_hz,
    )


def _memory(build: Build) -> OnChipMemory | SdramMemory:
    sdram = build.board.sdram
    if build.memory == SDRAM and sdram is not None:
        cycles = sdram.timing.cycles(build.clock_hz)
        return SdramMemory(build.parameters, timing=sdram.timing, cycles=cycles)
    return OnChipMemory(build.parameters, memory_bytes=build.memory_bytes)


def design(build: Build) -> str:
    """Return the whole design as RTLIL. Raises ``BuildError`` for a clock that cannot be made."""
    board = build.board
    try:
        top = family(board).top(board, build.clock_hz)(soc_of(build))
    except ValueError as error:
        raise BuildError(str(error)) from error
    target = DevicePlatform(board.part.family)
    return design_to_rtlil(top, [*top.ports.values()], name=TOP, target=target)


def write_design(build: Build) -> str:
    """Write the design and the files beside it, and return the design's digest.

    Files are ``top.il`` or ``top.v``, the constraints, and ``system.json`` for a simulation. Raises
    ``BuildError`` for a clock that cannot be made.
    """
    board, tools = build.board, family(build.board)
    text = design(build)
    digest = design_digest(text)
    if tools.source != RTLIL:
        text = rtlil_to_verilog(text)
    (build.folder / tools.source).write_text(text)
    (build.folder / tools.pins).write_text(tools.constraints(board, build.memory))
    system = {
        "family": board.part.family,
        "memory": build.memory,
        "clock_hz": build.clock_hz,
        "divisor": divisor(build.clock_hz, build.baud),
    }
    (build.folder / SYSTEM).write_text(json.dumps(system) + "\n")
    write_adders(build.folder)
    return digest


def synthesise(build: Build, steps: Steps) -> None:
    """Turn the design into ``top.json``. Raises ``BuildError`` where a latch was inferred.

    yosys 0.70 stops at an internal assertion for some designs, whatever passes came before. Plain
    passes avoid it at the cost of more LUTs. A netlist of the same design, passes and yosys is
    taken from the cache.
    """
    tools, netlist = family(build.board), build.folder / NETLIST
    scripts = [
        f"{tools.passes(tools.source, TOP, plain=plain, delay_ps=build.delay_ps)} -json {NETLIST}"
        for plain in (False, True)
    ]
    design = (build.folder / tools.source).read_text()
    parts = json.dumps([design, ADDERS_TEXT, scripts[0], tool("yosys").version])
    key = hashlib.sha256(parts.encode()).hexdigest()
    cache = Cache(default_folder() / "netlists")
    if (entry := cache.find(key)) is not None:
        netlist.write_bytes(gzip.decompress((entry / KEPT).read_bytes()))
        steps.progress(f"synthesis: the netlist of an earlier run, from {entry}")
        if (seconds := entry / KEPT_SECONDS).is_file():
            steps.seconds["yosys"] = json.loads(seconds.read_text())
        return
    for n, script in enumerate(scripts):
        try:
            arguments = ["-q", "-l", "synthesis.log", "-p", script]
            steps.run("yosys", arguments, remedy=REPORT_IT, told_in="synthesis.log")
        except BuildError as error:
            if n or YOSYS_BUG not in str(error):
                raise
            steps.progress(f"{error}; again with yosys's own passes, which make more LUTs")
        else:
            break
    with cache.building(key) as folder:
        if folder is not None:
            (folder / KEPT).write_bytes(gzip.compress(netlist.read_bytes(), 1))
            (folder / KEPT_SECONDS).write_text(json.dumps(steps.seconds.get("yosys", 0.0)))


def join(build: Build, steps: Steps) -> None:
    """Join LUTs of ``top.json`` by multiplexers of slices, where the family has them.

    Raises ``BuildError`` where that makes it another machine.
    """
    if family(build.board).joins_luts:
        with editing(build.folder / NETLIST, TOP) as module:
            steps.checks.begin(module)
            join_luts(module)
            steps.checks.held("LUTs joined", module, difference)


def floorplan(build: Build, steps: Steps) -> None:
    """Change ``top.json``: absorb registers into block RAM, and fix sites of cells.

    Multipliers and the scratchpad get fixed sites. The registers of the descriptor stay outside
    where an exponent file reads them in its first cycle, since the program's memory lies all over
    the device. Raises ``BuildError`` where a change makes it another machine.
    """
    with editing(build.folder / NETLIST, TOP) as module:
        steps.checks.begin(module)
        absorb(module, but=PROGRAM_MEMORY if build.parameters.exponents else None)
        steps.checks.held("registers moved into block RAM", module)
        tie(module, multiplier_places(build.parameters, build.board.part))
        tie(module, scratchpad_places(module, build.parameters, build.board.part))
        steps.checks.held("places", module)


def place_and_route(
    build: Build, steps: Steps, options: Sequence[str] = (), *, route: bool = True
) -> None:
    """Turn ``top.json`` into the family's own file and ``timing.json``.

    A clock that is not met is only reported. Without ``route``, stop once all cells are placed.
    """
    family(build.board).place_and_route(build, steps, options, route=route)


def pack(build: Build, steps: Steps) -> None:
    """Turn the placed design into the bitstream."""
    family(build.board).pack(steps, build.board)


def check_bitstream(build: Build, steps: Steps) -> int:
    """Compare the bitstream with the placed design, and return how many tiles it sets."""
    return family(build.board).check_bitstream(steps, build.board)

"""From a board and an accelerator to a bitstream: a folder with every step's files and logs."""

import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ttforge.native.tools import Progress
from ttforge.parameters import AcceleratorParameters
from ttforge_boards.board import BLOCK, SDRAM, Board
from ttforge_boards.ecp5 import CLOCK, LAMP, RX, TX, Ecp5Top
from ttforge_boards.floorplan import multiplier_places, tie
from ttforge_boards.pll import pll_settings
from ttforge_boards.tools import BuildError, tool
from ttforge_hw.convert import design_to_rtlil
from ttforge_hw.link.uart import divisor
from ttforge_hw.memory import OnChipMemory
from ttforge_hw.multiplier import Target
from ttforge_hw.sdram import SdramMemory
from ttforge_hw.soc import Soc
from ttforge_hw.synthesis import ecp5_passes, write_adders

TOP = "top"
RTLIL, NETLIST, PINS, CONFIG, BITSTREAM = "top.il", "top.json", "top.lpf", "top.config", "top.bit"
TIMING = "timing.json"
YOSYS_BUG = "ERROR: Assert"
REPORT_IT = "If the tools are those that `pip install 'ttforge[boards]'` brings, report it."


@dataclass(frozen=True)
class Build:
    """What is to be built, and where."""

    board: Board
    parameters: AcceleratorParameters
    clock_hz: int
    folder: Path
    seed: int = 1
    memory: str = BLOCK
    """Of ``Board.memories``."""

    @property
    def memory_bytes(self) -> int:
        """Of the accelerator's external memory."""
        return self.board.memories[self.memory]

    @property
    def bitstream(self) -> Path:
        """What is loaded."""
        return self.folder / BITSTREAM


class Steps:
    """Runs the tools in a folder; each has a log of its own, and its seconds are kept."""

    def __init__(self, folder: Path, progress: Progress):
        self.folder = folder
        self.seconds: dict[str, float] = {}
        self.progress = progress

    def run(self, name: str, arguments: Sequence[str], *, remedy: str) -> None:
        """One tool. Raises ``BuildError`` with its last complaint, its log and the remedy."""
        program = tool(name)
        log = self.folder / f"{name}.log"
        self.progress(f"{name} ({program.version}), log: {log}")
        begin = time.monotonic()
        try:
            with log.open("w") as output:
                status = subprocess.run(
                    [*program.command, *arguments],
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                ).returncode
        except OSError as error:
            raise BuildError(f"cannot start {name}: {error}") from error
        self.seconds[name] = time.monotonic() - begin
        if status:
            raise BuildError(f"{name} failed: {_complaint(log)} (log: {log}). {remedy}")


def _complaint(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    errors = [line for line in lines if "ERROR" in line or "Error" in line]
    return (errors or lines or ["it said nothing"])[-1].strip()


def soc_of(build: Build) -> Soc:
    """The system of a build.

    Raises ``BuildError`` for a clock that gives no serial rate or that the SDRAM does not take.
    """
    try:
        cycles = divisor(build.clock_hz, build.board.baud)
        memory = _memory(build)
    except ValueError as error:
        raise BuildError(f"{error}; choose another --clock") from error
    return Soc(
        build.parameters,
        memory=memory,
        divisor=cycles,
        clock_hz=build.clock_hz,
    )


def _memory(build: Build) -> OnChipMemory | SdramMemory:
    sdram = build.board.sdram
    if build.memory == SDRAM and sdram is not None:
        cycles = sdram.timing.cycles(build.clock_hz)
        return SdramMemory(build.parameters, timing=sdram.timing, cycles=cycles)
    return OnChipMemory(build.parameters, memory_bytes=build.memory_bytes)


def write_design(build: Build) -> None:
    """``top.il`` and ``top.lpf``. Raises ``BuildError`` for a clock that the PLL cannot make."""
    board = build.board
    try:
        pll = pll_settings(board.clock_hz, build.clock_hz)
    except ValueError as error:
        raise BuildError(str(error)) from error
    top = Ecp5Top(soc_of(build), pll)
    text = design_to_rtlil(top, top.ports, name=TOP, target=Target(board.part.family))
    (build.folder / RTLIL).write_text(text)
    (build.folder / PINS).write_text(pins(board, build.memory))
    write_adders(build.folder)


def pins(board: Board, memory: str = BLOCK) -> str:
    """The constraints: every pin's place, and the frequency of the only clock that comes in."""
    places = {CLOCK: board.clock_pin, RX: board.rx_pin, TX: board.tx_pin, LAMP: board.lamp_pin}
    used = [(port, site, board.pin_options) for port, site in places.items()]
    if memory == SDRAM and board.sdram is not None:
        for name, sites in board.sdram.pins.items():
            for bit, site in enumerate(sites):
                port = f"sdram_{name}[{bit}]" if len(sites) > 1 else f"sdram_{name}"
                used.append((port, site, board.sdram.pin_options))
    lines = []
    for port, site, options in used:
        lines.append(f'LOCATE COMP "{port}" SITE "{site}";')
        lines.append(f'IOBUF PORT "{port}" {options};')
    lines.append(f'FREQUENCY PORT "{CLOCK}" {board.clock_hz / 1e6:g} MHZ;')
    return "\n".join(lines) + "\n"


def synthesise(steps: Steps) -> None:
    """``top.il`` to ``top.json``; fails where a latch was inferred.

    yosys 0.70 stops at an assertion of its own with some designs, whatever the passes before are;
    with the plain ones more LUTs come out.
    """
    for plain in (False, True):
        script = f"{ecp5_passes(RTLIL, TOP, plain=plain)} -json {NETLIST}"
        try:
            steps.run("yosys", ["-q", "-l", "synthesis.log", "-p", script], remedy=REPORT_IT)
        except BuildError as error:
            if plain or YOSYS_BUG not in str(error):
                raise
            steps.progress(f"{error}; again with yosys's own passes, which make more LUTs")
        else:
            return


def floorplan(build: Build) -> None:
    """Ties the multipliers of ``top.json`` to their places."""
    places = multiplier_places(build.parameters, build.board.part)
    tie(build.folder / NETLIST, TOP, places)


def place_and_route(build: Build, steps: Steps, options: Sequence[str] = ()) -> None:
    """``top.json`` to ``top.config`` and ``timing.json``; timing that fails is only reported."""
    board = build.board
    arguments = [*board.part.options, "--package", board.package, "--speed", board.speed]
    arguments += ["--json", NETLIST, "--lpf", PINS, "--textcfg", CONFIG, "--report", TIMING]
    arguments += ["--router", "router2"]  # the other one does not end where wires are scarce
    arguments += ["--seed", str(build.seed), "--timing-allow-fail", *options]
    steps.run("nextpnr-ecp5", arguments, remedy="A smaller --preset may fit.")


def pack(steps: Steps) -> None:
    """``top.config`` to ``top.bit``."""
    arguments = ["--compress", "--input", CONFIG, "--bit", BITSTREAM]
    steps.run("ecppack", arguments, remedy=REPORT_IT)

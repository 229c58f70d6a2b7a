"""Artix-7: yosys synthesises; Vivado places, routes and packs the exported files."""

from collections.abc import Callable, Sequence
from functools import partial

from trainwright_boards.artix import ArtixTop, mmcm_settings
from trainwright_boards.board import BLOCK, Board
from trainwright_boards.export import SCRIPT, TIMING
from trainwright_boards.family import Family, places
from trainwright_boards.job import SYNTH, TOP, Build, Steps
from trainwright_boards.tools import BuildError
from trainwright_boards.top import CLOCK
from trainwright_hw.build.synthesis import artix_passes
from trainwright_hw.soc import Soc


class Artix(Family):
    """Tools of an Artix-7: a build ends after synthesis, as no wheel brings Vivado."""

    pins, placed, bitstream = "top.xdc", "top.dcp", "top.bit"
    source = "top.v"
    last = SYNTH
    beyond = "Vivado places and routes it: `trainwright export BOARD` writes the files"

    def top(self, board: Board, clock_hz: int) -> Callable[[Soc], ArtixTop]:
        """Return a function that builds the top behind an MMCM.

        Raises ``ValueError`` for a clock that the MMCM cannot make.
        """
        settings = mmcm_settings(board.clock_hz, clock_hz)
        return partial(ArtixTop, mmcm=settings, input_hz=board.clock_hz)

    def running_hz(self, board: Board, asked_hz: int) -> int:
        """Return the clock that the MMCM makes."""
        return round(mmcm_settings(board.clock_hz, asked_hz).output_hz)

    def constraints(self, board: Board, memory: str = BLOCK) -> str:
        """Return the site of every pin, and the frequency of the clock input."""
        lines = [
            f"set_property -dict {{PACKAGE_PIN {site} IOSTANDARD {board.pin_options}}} "
            f"[get_ports {port}]"
            for port, site in places(board).items()
        ]
        period_ns = 1e9 / board.clock_hz
        lines.append(f"create_clock -period {period_ns:.3f} -name {CLOCK} [get_ports {CLOCK}]")
        return "\n".join(lines) + "\n"

    def passes(
        self, source: str, top: str, *, plain: bool, delay_ps: int | None = None
    ) -> str:  # fmt: skip
        """Return the synthesis script, which has only yosys's own passes."""
        return artix_passes(source, top)

    def place_and_route(
        self, build: Build, steps: Steps, options: Sequence[str], *, route: bool = True
    ) -> None:
        """Raise ``BuildError``."""
        raise BuildError(self.beyond)

    def pack(self, steps: Steps, board: Board) -> None:
        """Raise ``BuildError``."""
        raise BuildError(self.beyond)

    def check_bitstream(self, steps: Steps, board: Board) -> int:
        """Raise ``BuildError``."""
        raise BuildError(self.beyond)


def vivado_script(board: Board) -> str:
    """Return the Vivado script that builds a bitstream of a board with a serial line."""
    (prefix,) = board.part.options
    part = f"{prefix}{board.package}-{board.speed}"
    return f"""\
# {board.title}: vivado -mode batch -source {SCRIPT}
create_project -in_memory -part {part}
read_verilog {Artix.source}
read_xdc {Artix.pins}
synth_design -top {TOP} -part {part}
opt_design
place_design
phys_opt_design
route_design
report_utilization -file utilisation.txt
report_timing_summary -file timing.txt
{TIMING}write_bitstream -force {Artix.bitstream}
"""

"""CrossLink-NX: nextpnr-nexus places and routes, prjoxide packs and unpacks."""

from collections.abc import Sequence
from typing import Any

from trainwright_boards.board import BLOCK, Board
from trainwright_boards.edit import editing
from trainwright_boards.family import OwnClock, places
from trainwright_boards.job import NETLIST, REPORT_IT, TIMING, TOP, Build, Steps
from trainwright_boards.tools import BuildError
from trainwright_boards.top import CLOCK
from trainwright_hw.build.synthesis import lattice_passes

SYNTHESIS = "synth_lattice -family lifcl"
UNPACKED, REPACKED = "unpacked.fasm", "repacked.bit"
SMALLER = "A smaller --preset may fit."
FEED_IN = {"INIT0": "0xFFFF", "INIT1": "0x00AA", "INJECT": "NO"}
"""Parameters of the CCU2 with which yosys begins a carry chain: input A1 is the cell's carry."""


def open_feed_ins(module: dict[str, Any]) -> int:
    """Remove the carry input from each cell that begins a chain; count the cells.

    Such a cell ignores its carry input. yosys 0.70 ties the input to a constant, but nextpnr-nexus
    0.11 recognises the beginning of a chain by a cell without carry input.
    """
    begins = [
        cell
        for cell in module["cells"].values()
        if cell["type"] == "CCU2" and FEED_IN.items() <= cell["parameters"].items()
    ]
    for cell in begins:
        cell["connections"].pop("CIN", None)
        cell["port_directions"].pop("CIN", None)
    return len(begins)


class Nexus(OwnClock):
    """Tools of Project Oxide."""

    pins, placed, bitstream = "top.pdc", "top.fasm", "top.bit"
    no_pll = "its design has no PLL"

    def constraints(self, board: Board, memory: str = BLOCK) -> str:
        """Return the site of every pin, and the frequency of the clock input."""
        lines = []
        for port, site in places(board).items():
            lines.append(f"ldc_set_location -site {{{site}}} [get_ports {port}]")
            lines.append(f"ldc_set_port -iobuf {{{board.pin_options}}} [get_ports {port}]")
        period_ns = 1e9 / board.clock_hz
        lines.append(f"create_clock -period {period_ns:.3f} -name {CLOCK} [get_ports {CLOCK}]")
        return "\n".join(lines) + "\n"

    def passes(
        self, source: str, top: str, *, plain: bool, delay_ps: int | None = None
    ) -> str:  # fmt: skip
        """Return the synthesis script."""
        return lattice_passes(source, top, SYNTHESIS, plain=plain, delay_ps=delay_ps)

    def place_and_route(
        self, build: Build, steps: Steps, options: Sequence[str], *, route: bool = True
    ) -> None:
        """Place and route for the clock of the board."""
        board = build.board
        with editing(build.folder / NETLIST, TOP) as module:
            open_feed_ins(module)
        (prefix,) = board.part.options
        arguments = ["--device", f"{prefix}-{board.speed}{board.package}", "--pdc", self.pins]
        arguments += ["--freq", f"{build.clock_hz / 1e6:g}", "--json", NETLIST]
        arguments += ["--fasm", self.placed, "--report", TIMING] if route else ["--no-route"]
        arguments += ["--router", board.router, "--seed", str(build.seed), "--timing-allow-fail"]
        arguments += options
        steps.run("nextpnr-nexus", arguments, remedy=SMALLER, stalls=True)

    def pack(self, steps: Steps, board: Board) -> None:
        """Write the bitstream."""
        steps.run("prjoxide", ["pack", self.placed, self.bitstream], remedy=REPORT_IT)

    def check_bitstream(self, steps: Steps, board: Board) -> int:
        """Unpack the bitstream and pack it again; count the tiles that are set.

        prjoxide writes out defaults that nextpnr omits, so texts differ and bits are compared: the
        unpacked text must pack to the same bytes. Raises ``BuildError`` where it does not.
        """
        remedy = "The bitstream may be damaged: build it again."
        steps.run("prjoxide", ["unpack", self.bitstream, UNPACKED], step="unpack", remedy=remedy)
        steps.run("prjoxide", ["pack", UNPACKED, REPACKED], step="repack", remedy=remedy)
        packed, repacked = ((steps.folder / f).read_bytes() for f in (self.bitstream, REPACKED))
        if packed != repacked:
            raise BuildError(f"{steps.folder / self.bitstream} unpacks to other bits: {remedy}")
        fasm = (steps.folder / self.placed).read_text().splitlines()
        return len({line.partition(".")[0] for line in fasm if line and line[0] not in "#{"})

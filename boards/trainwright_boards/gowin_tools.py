"""A Gowin GW5A: nextpnr-himbaechel, and apycula's gowin_pack."""

from collections.abc import Sequence

from trainwright_boards.board import BLOCK, Board
from trainwright_boards.family import OwnClock, places
from trainwright_boards.gowin_unpack import check_bitstream
from trainwright_boards.job import NETLIST, REPORT_IT, TIMING, Build, Steps
from trainwright_hw.build.synthesis import gowin_passes


class Gowin(OwnClock):
    """Project Apicula."""

    pins, placed, bitstream = "top.cst", "routed.json", "top.fs"
    no_pll = "the open tools know no PLL of its {part}"

    def constraints(self, board: Board, memory: str = BLOCK) -> str:
        """Return the site of every pin; the clock's frequency is an option of place and route."""
        lines = []
        for port, site in places(board).items():
            lines.append(f'IO_LOC "{port}" {site};')
            lines.append(f'IO_PORT "{port}" {board.pin_options};')
        return "\n".join(lines) + "\n"

    def passes(
        self, source: str, top: str, *, plain: bool, delay_ps: int | None = None
    ) -> str:  # fmt: skip
        """Return the synthesis script, the same as for simulating the netlist."""
        return gowin_passes(source, top, "gw5a", plain=plain, delay_ps=delay_ps)

    def place_and_route(
        self, build: Build, steps: Steps, options: Sequence[str], *, route: bool = True
    ) -> None:
        """Place and route; the clock that is requested is the board's."""
        board = build.board
        (prefix,) = board.part.options
        arguments = ["--device", f"{prefix}{board.package}{board.speed}"]
        arguments += ["--vopt", f"cst={self.pins}", "--freq", f"{build.clock_hz / 1e6:g}"]
        arguments += ["--json", NETLIST, "--write", self.placed]
        arguments += ["--report", TIMING] if route else ["--no-route"]
        arguments += ["--router", board.router, "--seed", str(build.seed), "--timing-allow-fail"]
        arguments += options
        steps.run(
            "nextpnr-himbaechel-gowin", arguments, remedy="A smaller --preset may fit.", stalls=True
        )

    def pack(self, steps: Steps, board: Board) -> None:
        """Write the bitstream as text of ones and zeros.

        The pins of the parallel configuration port are free for the design.
        """
        arguments = ["-d", board.part.name, "--cpu_as_gpio", "-o", self.bitstream, self.placed]
        steps.run("gowin_pack", arguments, remedy=REPORT_IT)

    def check_bitstream(self, steps: Steps, board: Board) -> int:
        """See ``trainwright_boards.gowin_unpack``."""
        return check_bitstream(steps, board.part.name, self.placed, self.bitstream)

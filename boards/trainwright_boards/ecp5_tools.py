"""Build for an ECP5: nextpnr-ecp5, ecppack and ecpunpack of Project Trellis."""

from collections.abc import Callable, Sequence
from functools import partial

from trainwright_boards.board import BLOCK, SDRAM, Board
from trainwright_boards.ecp5 import Ecp5Top
from trainwright_boards.edit import editing
from trainwright_boards.family import Family, places
from trainwright_boards.job import NETLIST, REPORT_IT, TIMING, TOP, Build, Steps
from trainwright_boards.pll import pll_settings
from trainwright_boards.relocate import relocate
from trainwright_boards.spacers import add_spacers, is_crowded, remove_spacers
from trainwright_boards.top import CLOCK
from trainwright_boards.unpack import BITSTREAM, CONFIG, check_bitstream
from trainwright_hw.build.synthesis import ecp5_passes
from trainwright_hw.soc import Soc

SPREAD, PLACED = "spread.json", "placed.json"
"""The netlist among spacers, and the placed design."""
ITERATIONS = 80
"""Iterations of the router before a design counts as too slow: designs that met their clock took 32
to 69.

In a design that does not meet its clock, two nets may take a single wire from each other in turn,
without an end.
"""
LESS = 0.985
"""Factor on the requested clock for a second attempt, after the router missed the clock."""
MARGIN = 1.025
"""Factor on the wanted clock that the router is asked for.

The load on a wire, and so its delay, is known only when every net is routed. The clock reported
then was up to 2.1 % below the clock that the router had reached by its own estimate.
"""
ROUTER = {
    "router2/alt-weights": f"{1:032b}",
    "router2/initCurrCongWeight": "0.5",
    "router2/histCongWeight": "1.0",
    "router2/currCongWeightMult": "2.0",
    "router2/estimateWeight": "0.8",
}
"""Settings of ``router2``. The first makes the router read the others, which are its defaults
except for ``estimateWeight`` (1.25): below 1, the estimated rest of a way weighs less than it
costs, so that a search explores more nodes and finds shorter ways."""
PLACER, CROWDED_PLACER = ("--placer", "static"), ("--placer", "heap")
"""Placers: ``static`` gives 14 to 19 % shorter wires than ``heap``, but ignores timing. In a
crowded part (``spacers.is_crowded``) ``static`` found no legal places in 45 minutes, ``heap`` did
in 2."""
SHARE = 0.93
"""Share of the clock's period that paths may take by the estimate before routing."""
SMALLER = "A smaller --preset may fit."


class Ecp5(Family):
    """Project Trellis."""

    pins, placed, bitstream = "top.lpf", CONFIG, BITSTREAM
    joins_luts = True

    def top(self, board: Board, clock_hz: int) -> Callable[[Soc], Ecp5Top]:
        """Return a function that builds the top behind a PLL.

        Raises ``ValueError`` for a clock that the PLL cannot make.
        """
        return partial(Ecp5Top, pll=pll_settings(board.clock_hz, clock_hz))

    def running_hz(self, board: Board, asked_hz: int) -> int:
        """Return the frequency that the PLL makes."""
        return round(pll_settings(board.clock_hz, asked_hz).output_hz)

    def constraints(self, board: Board, memory: str = BLOCK) -> str:
        """Return the site of every pin, and the frequency of the only clock input."""
        used = [(port, site, board.pin_options) for port, site in places(board).items()]
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

    def passes(
        self, source: str, top: str, *, plain: bool, delay_ps: int | None = None
    ) -> str:  # fmt: skip
        """Return the synthesis script, which is also that of simulated netlists."""
        return ecp5_passes(source, top, plain=plain, delay_ps=delay_ps)

    def place_and_route(
        self, build: Build, steps: Steps, options: Sequence[str], *, route: bool = True
    ) -> None:
        """Place the design among spacers, and route it without them.

        An accelerator with an exponent file exchanges data all over the device: cells on its slow
        paths are moved between placing and routing (``relocate``).

        The router routes nets on slow paths again, for at most ``ITERATIONS``. If the clock is not
        met by then, the router starts again for a slightly lower clock, and at last without one, as
        fast as it comes.

        A placed design carries the settings of the run that placed it. In the second run these
        settings override the options. The second run takes the clock from these settings, too: the
        frequency of a PLL is derived only when a design is packed.
        """
        board = build.board
        common = [*board.part.options, "--package", board.package, "--speed", board.speed]
        common += ["--lpf", self.pins, "--seed", str(build.seed), "--timing-allow-fail", *options]
        common += ["--freq", f"{build.clock_hz / 1e6:g}", "--router", board.router]
        with editing(build.folder / NETLIST, TOP, to=build.folder / SPREAD) as module:
            steps.checks.begin(module)
            crowded = is_crowded(module, board.part.luts)
            add_spacers(module, board.part.luts)
            steps.checks.held("spacers", module)
        place = [
            *common,
            "--json",
            SPREAD,
            *(CROWDED_PLACER if crowded else PLACER),
            "--no-route",
            "--write",
            PLACED,
        ]
        steps.run("nextpnr-ecp5", place, remedy=SMALLER, step="place", stalls=True)
        if not route:
            return
        asked = MARGIN * build.clock_hz
        with editing(build.folder / PLACED, TOP) as module:
            steps.checks.begin(module)
            remove_spacers(module)
            if build.parameters.exponents:
                moved = relocate(module, SHARE * 1e12 / build.clock_hz)
                steps.progress(
                    f"{moved.cells} cells of slow paths moved: of {moved.before / 1000:.1f} ns the "
                    f"longest has {moved.after / 1000:.1f}, by estimate"
                )
            steps.checks.held("spacers taken out", module)
            settings = {"timing_driven": f"{1:032b}", "target_freq": f"{asked:.6f}"}
            module["settings"] |= settings | ROUTER
        steps.progress(f"routing for {asked / 1e6:.1f} MHz")
        routing = [*common, "--json", PLACED, "--no-pack", "--no-place"]
        routing += ["--textcfg", self.placed, "--report", TIMING]
        again = [*routing, "--tmg-ripup"]
        if steps.run(
            "nextpnr-ecp5", again, remedy=SMALLER, step="route", give_up=_gives_up, stalls=True
        ):
            return
        less = LESS * asked
        steps.progress(f"too slow after {ITERATIONS} iterations: routing for {less / 1e6:.1f} MHz")
        with editing(build.folder / PLACED, TOP) as module:
            module["settings"]["target_freq"] = f"{less:.6f}"
        if steps.run(
            "nextpnr-ecp5", again, remedy=SMALLER, step="route2", give_up=_gives_up, stalls=True
        ):
            return
        steps.progress(f"too slow after {ITERATIONS} iterations: routing as fast as it comes")
        steps.run("nextpnr-ecp5", routing, remedy=SMALLER, step="route3", stalls=True)

    def pack(self, steps: Steps, board: Board) -> None:
        """Write the compressed bitstream."""
        arguments = ["--compress", "--input", self.placed, "--bit", self.bitstream]
        steps.run("ecppack", arguments, remedy=REPORT_IT)

    def check_bitstream(self, steps: Steps, board: Board) -> int:
        """See ``trainwright_boards.unpack``."""
        return check_bitstream(steps)


def _gives_up(log: str) -> bool:
    return log.count(" iter=") > ITERATIONS

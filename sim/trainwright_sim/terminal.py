"""A simulated board at a pseudo-terminal: its clock goes on whoever is at the other end.

``python -m trainwright_sim.terminal --preset ecp5-85f`` prints the port's name. A host in another
process reaches it as ``--backend serial:PORT``, may end, and come again.
"""

import argparse
import os
import sys
import tty
from collections.abc import Sequence
from contextlib import suppress

from trainwright.accelerator import AcceleratorError
from trainwright.cli.errors import OptionError
from trainwright.cli.options import accelerator_parameters
from trainwright.support.errors import one_line
from trainwright_hw.external.sdram.timing import SdramTiming
from trainwright_sim.board import SDRAM_CLOCK_HZ, SimulatedLine, open_line

SLICE = 2e-4
"""Seconds of the board's clock between two looks at the port."""
MOST_BYTES = 4096


def serve(line: SimulatedLine, port: int) -> None:
    """Carry bytes between ``line`` and the file ``port``, without an end."""
    while True:
        with suppress(BlockingIOError):
            line.write(os.read(port, MOST_BYTES))
        data = line.read(SLICE)
        while data:
            try:
                data = data[os.write(port, data) :]
            except BlockingIOError:
                break  # nobody reads: lost, as on a line


def open_port() -> tuple[int, str]:
    """Open a pseudo-terminal for raw bytes; return our end, and the name of the other end.

    The other end is kept open, as a board keeps its serial bridge.
    """
    ours, theirs = os.openpty()
    for end in (ours, theirs):
        tty.setraw(end)
    os.set_blocking(ours, False)
    return ours, os.ttyname(theirs)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until it is ended; 2 for bad usage or a simulator that cannot be built."""
    parser = argparse.ArgumentParser("terminal", description=__doc__)
    parser.add_argument("--preset", metavar="NAME", help="sizes for a device")
    parser.add_argument("--accelerator", metavar="NAME=N", action="append", default=[])
    parser.add_argument("--memory", choices=("block", "sdram"), default="sdram")
    args = parser.parse_args(arguments)
    preset = [f"preset={args.preset}"] if args.preset else []
    try:
        parameters = accelerator_parameters([*preset, *args.accelerator])
        timing = SdramTiming() if args.memory == "sdram" else None
        line = open_line(parameters, timing=timing, clock_hz=SDRAM_CLOCK_HZ)
    except (OptionError, AcceleratorError) as error:
        print(f"terminal: {one_line(error)}", file=sys.stderr)
        return 2
    port, name = open_port()
    print(name, flush=True)
    with suppress(KeyboardInterrupt):
        serve(line, port)
    return 0


if __name__ == "__main__":
    sys.exit(main())

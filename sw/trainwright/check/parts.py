"""Run the programs of a training step on random operands, for commands that show a step.

``trainwright profile``, ``listing`` and ``trace`` look at the same step. Which programs it has
depends on the place of loss and update.
"""

from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from trainwright.accelerator import Accelerator, Run
from trainwright.accelerator.counted import CountedWrites
from trainwright.check.step import random_inputs
from trainwright.check.training import (
    STEPS,
    RandomTraining,
    TrainingSide,
    random_state,
    weakened,
)
from trainwright.compiler.base.memory import Buffer
from trainwright.driver import Driver
from trainwright.driver.resident import Executed, ResidentDriver
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import Network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Program

HOST, ALONE = "host", "alone"
"""Places of loss and update: the host, and an accelerator that trains alone."""
PARTS = MappingProxyType(
    {
        HOST: ("forward", "backward"),
        ALONE: ("samples", "step", "evaluation"),
    }
)
"""Names of the programs by place, in the order in which they run. Samples alone are fetched before
the first step, and a test set is classified behind the last."""
ALIGNMENT = 4096
"""Bytes: no burst of the memory port crosses a multiple of these."""


@dataclass(frozen=True)
class ExecutedPart(Executed):
    """Program of a step with the result of its run."""

    macs: int
    """Useful multiply-accumulates of one repetition."""
    steps: range = range(1)
    """Numbers of the steps that one start ran."""


@dataclass(frozen=True)
class PreparedPart:
    """Program whose operands are in place, but that has not run."""

    program: Program
    address: int
    step: int = 0
    """Number of the step that the program would run."""


def golden_parts(
    network: Network, batch: int, p: AcceleratorParameters, place: str, plan: str
) -> dict[str, ExecutedPart]:
    """Return all programs of a step by name, executed by the golden model."""
    with GoldenAccelerator(p, memory_bytes=1 << 26) as golden:
        parts = RandomStep(network, batch, golden, place, plan=plan).run_all()
    return {part.name: part for part in parts}


class _Reached(Exception):
    """The program to stop at comes next."""


class _Probe(CountedWrites):
    """Accelerator that notes each program with its result, and may stop before one of them."""

    def __init__(self, accelerator: Accelerator, names: tuple[str, ...]):
        super().__init__(accelerator)
        self.names = names
        self.stop_before: str | None = None
        self.reached: PreparedPart | None = None
        self.noted: list[tuple[Program, Run, range]] = []

    def _stop(self, program: Program, address: int, step: int = 0) -> None:
        if self.names[len(self.noted)] == self.stop_before:
            self.reached = PreparedPart(program, address, step)
            raise _Reached

    def run(self, program: Program, address: int, *, trace: bool = False) -> Run:
        self._stop(program, address)
        run = super().run(program, address, trace=trace)
        self.noted.append((program, run, range(1)))
        return run

    def repeat(
        self, program: Program, times: int, *, address: int, step: int = 0, trace: bool = False
    ) -> Run:
        self._stop(program, address, step)
        run = self._accelerator.repeat(program, times, address=address, step=step, trace=trace)
        self.noted.append((program, run, range(step, step + times)))
        return run


class RandomStep:
    """Training step with random operands, compiled for an accelerator.

    ``place`` is a key of ``PARTS``. An accelerator that trains alone runs ``STEPS`` steps by one
    start: the period in which each of its commands is executed.
    """

    def __init__(
        self, network: Network, batch: int, accelerator: Accelerator, place: str = HOST, *,
        seed: int = 0, plan: str,
    ) -> None:  # fmt: skip
        self.place, self._seed = place, seed
        self._probe: Any = _Probe(accelerator, PARTS[place])
        if place == HOST:
            self.driver = Driver(self._probe, network, batch, plan=plan, trace=True)
            return
        state = random_state(network, seed)
        training = RandomTraining(
            network, batch, weakened(state), STEPS, seed, "cross-entropy", plan
        )  # fmt: skip
        self._side: Any = TrainingSide(training, self._probe)
        self.driver: Driver = self._side.driver

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the programs, in the order in which they run."""
        return PARTS[self.place]

    @property
    def buffers(self) -> dict[str, Buffer]:
        """Buffers in external memory by name."""
        driver = self.driver
        return (
            driver.memory.everything if isinstance(driver, ResidentDriver) else driver.step.buffers
        )

    @property
    def free(self) -> range:
        """Bytes of external memory behind the step's data and programs."""
        driver, end = self.driver, self._probe.memory_bytes
        used = driver.step.memory_bytes
        if isinstance(driver, ResidentDriver):
            used, end = driver.bytes_needed, min(s.address for s in self._side.engine.data_sets)
        return range(-(-used // ALIGNMENT) * ALIGNMENT, end)

    def run_all(self) -> list[ExecutedPart]:
        """Run all programs of ``PARTS``; return each with its result."""
        self._run()
        step = self.driver.step
        macs = {"forward": step.forward.macs, "backward": step.backward.macs, "step": step.macs}
        macs["evaluation"] = step.forward.macs
        return [
            ExecutedPart(name, program, run, macs.get(name, 0), steps)
            for name, (program, run, steps) in zip(
                self._probe.names, self._probe.noted, strict=False
            )
        ]

    def run_step(self) -> list[ExecutedPart]:
        """Run the programs of a step, without those before the first and behind the last."""
        self._probe.stop_before = "evaluation"
        return [part for part in self.run_all() if part.name != "samples"]

    def prepared(self, part: str) -> PreparedPart:
        """Run the programs before ``part``; return that program, to be run on the accelerator."""
        self._probe.stop_before = part
        self._run()
        assert self._probe.reached, f"a step has no program {part!r}"
        return self._probe.reached

    def _run(self) -> None:
        with suppress(_Reached):
            if self.place == HOST:
                random_inputs(self.driver.network, self.driver, self._seed).run(self.driver)
            else:
                self._side.run(self._side.task.state.scales)

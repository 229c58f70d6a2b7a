"""Calibrate the exponents of a step of several programs.

The exponents of each program jump on its *twin*: a driver of the program on the golden model.

``trainwright.compile`` is given the gradient after the forward pass; where the loss is known,
``StepDriver.calibrate`` repeats whole steps.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Self

from trainwright.driver.driver import Driver
from trainwright.driver.model import BackwardOperands, BackwardResult, ForwardOperands
from trainwright.driver.runner import Pass, Runner, repeat
from trainwright.fixed.scale import Scales, TensorStatistics


class Settling:
    """Passes on twins of drivers; each driver has one twin until the context ends."""

    def __init__(self) -> None:
        self.moved = 0
        """Exponents that jumped in this repetition."""
        self._stack = ExitStack()
        self._runners: dict[Driver, Runner[Driver]] = {}
        """Runner of each driver's twin, by the driver and by the twin."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def repeat(self, step: Callable[[], object]) -> int:
        """Repeat a step that consists of passes of this object until no exponent moves.

        Return the repetitions.
        """

        def counted() -> int:
            self.moved = 0
            step()
            return self.moved

        return repeat(counted)

    def forward(
        self, driver: Driver, given: ForwardOperands, *, samples: int | None = None
    ) -> Pass[Driver]:
        """Run ``Runner.forward`` on the twin of a driver, and let its exponents jump.

        ``samples`` is the number of samples in the batch that are not all zeros.
        """
        done = self._run(driver, driver.input_exponent, given)
        self._jump(given.scales, done.result.statistics, samples, len(given.inputs))
        return done

    def _jump(
        self,
        scales: Scales,
        statistics: Mapping[str, TensorStatistics],
        samples: int | None,
        batch: int,
    ) -> None:
        counted = {n: s.of_samples(samples or batch, batch) for n, s in statistics.items()}
        self.moved += scales.jump(counted)

    def on_twin(self, done: Pass[Driver]) -> Pass[Driver]:
        """Run a pass of a driver again on its twin, with the exponents it had."""
        return self._run(done.driver, done.input_exponent, done.operands)

    def _run(self, driver: Driver, exponent: int, given: ForwardOperands) -> Pass[Driver]:
        if driver not in self._runners:
            twin, runner = self._stack.enter_context(driver.twin()), Runner[Driver]()
            runner.driver_for(None, lambda: twin)
            self._runners[driver] = self._runners[twin] = runner
        runner = self._runners[driver]
        runner.driver.input_exponent = exponent
        # Calibration drops no value and rounds to nearest.
        return runner.forward(replace(given, seed=None, masks=None))

    def backward(
        self, done: Pass[Driver], given: BackwardOperands, *, samples: int | None = None
    ) -> BackwardResult:
        """Run ``Runner.backward`` for a pass of ``forward``, and let its exponents jump.

        If only the first ``samples`` of the batch have gradients, the statistics leave out the
        zeros of the other samples.
        """
        back = self._runners[done.driver].backward(done, given)
        self._jump(given.scales, back.statistics, samples, len(given.gradient))
        return back

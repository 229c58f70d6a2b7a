"""Calibration of exponents: steps on the golden model, in which exponents jump."""

from contextlib import ExitStack

import torch

from trainwright.driver import BackwardResult, Driver, Pass, QuantisedModel, Runner
from trainwright.fixed.scale import Scales

MOST_REPETITIONS = 64
"""Steps at most until the exponents stand still."""


class Settling:
    """Drivers of the golden model for as long as exponents are calibrated."""

    def __init__(self) -> None:
        self.moved = 0
        """Exponents that jumped in this repetition."""
        self._stack = ExitStack()
        self._runners: dict[Driver, Runner[Driver]] = {}
        """By drivers, and by their twins."""

    def forward(
        self, driver: Driver, inputs: torch.Tensor, model: QuantisedModel, scales: Scales
    ) -> Pass[Driver]:
        """As ``Runner.forward``, by the twin of a driver; exponents jump."""
        if driver not in self._runners:
            twin, runner = self._stack.enter_context(driver.twin()), Runner[Driver]()
            runner.at(None, lambda: twin)
            self._runners[driver] = self._runners[twin] = runner
        runner = self._runners[driver]
        runner.driver.input_exponent = driver.input_exponent
        done = runner.forward(inputs, model, scales)
        self.moved += scales.jump(done.result.statistics)
        return done

    def backward(
        self, done: Pass[Driver], gradient: torch.Tensor, scales: Scales
    ) -> BackwardResult:
        """As ``Runner.backward``, of a pass of ``forward``."""
        back = self._runners[done.driver].backward(done, gradient, scales)
        self.moved += scales.jump(back.statistics)
        return back

    def close(self) -> None:
        """Release the twins."""
        self._stack.close()

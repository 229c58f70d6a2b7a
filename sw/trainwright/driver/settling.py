"""Calibrate exponents: repeat a step, and let exponents jump after each, until none moves.

``settle`` does so for ``trainwright train``, which has the loss. ``Settling`` does so for
``trainwright.compile``, which is given the gradient later, and for steps of several programs.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Generic, Protocol, Self, TypeVar

import torch

from trainwright.driver.model import BackwardResult, QuantisedModel
from trainwright.driver.runner import Pass, Runner, RunnerDriver, Steps
from trainwright.fixed.scale import Scales, TensorStatistics

MOST_REPETITIONS = 64
"""Most repetitions of a step: calibration stops there even if exponents still move."""


class Paired(RunnerDriver, Protocol):
    """The part of ``trainwright.driver.Driver`` that ``Settling`` needs."""

    def twin(self) -> AbstractContextManager[Any]:
        """Yield a driver of the same programs on the golden model."""
        ...


P = TypeVar("P", bound=Paired)


def repeat(step: Callable[[], int]) -> int:
    """Repeat ``step``, which returns how many exponents moved, until none does.

    Returns the repetitions, at most MOST_REPETITIONS.
    """
    counts = range(1, MOST_REPETITIONS + 1)
    return next((n for n in counts if not step()), MOST_REPETITIONS)


def settle(
    steps: Steps,
    inputs: torch.Tensor,
    gradient_of: Callable[[torch.Tensor], torch.Tensor],
    model: QuantisedModel,
    scales: Scales,
) -> int:
    """Repeat whole steps on one batch; returns the repetitions. See ``Driver.calibrate``."""

    def step() -> int:
        done = steps.forward(inputs, model, scales)
        moved = scales.jump(done.statistics)
        back = steps.backward(gradient_of(done.logits), scales)
        return moved + scales.jump(back.statistics)

    return repeat(step)


class Settling(Generic[P]):
    """Passes on twins of drivers; each driver has one twin until the context ends."""

    def __init__(self) -> None:
        self.moved = 0
        """Exponents that jumped in this repetition."""
        self._stack = ExitStack()
        self._runners: dict[P, Runner[P]] = {}
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
        self,
        driver: P,
        inputs: torch.Tensor,
        model: QuantisedModel,
        scales: Scales,
        *,
        samples: int | None = None,
    ) -> Pass[P]:
        """Run ``Runner.forward`` on the twin of a driver, and let its exponents jump.

        ``samples`` is the number of samples in the batch that are not all zeros.
        """
        done = self._run(driver, driver.input_exponent, inputs, model, scales)
        self._jump(scales, done.result.statistics, samples, len(inputs))
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

    def again(self, done: Pass[P]) -> Pass[P]:
        """Run a pass of a driver again on its twin, with the exponents it had."""
        return self._run(done.driver, done.input_exponent, done.inputs, done.model, done.scales)

    def _run(
        self, driver: P, exponent: int, inputs: torch.Tensor, model: QuantisedModel, scales: Scales
    ) -> Pass[P]:
        if driver not in self._runners:
            twin, runner = self._stack.enter_context(driver.twin()), Runner[P]()
            runner.at(None, lambda: twin)
            self._runners[driver] = self._runners[twin] = runner
        runner = self._runners[driver]
        runner.driver.input_exponent = exponent
        return runner.forward(inputs, model, scales)

    def backward(
        self, done: Pass[P], gradient: torch.Tensor, scales: Scales, *, samples: int | None = None
    ) -> BackwardResult:
        """Run ``Runner.backward`` for a pass of ``forward``, and let its exponents jump.

        If only the first ``samples`` of the batch have gradients, the statistics leave out the
        zeros of the other samples.
        """
        back = self._runners[done.driver].backward(done, gradient, scales)
        self._jump(scales, back.statistics, samples, len(gradient))
        return back

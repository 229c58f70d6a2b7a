"""Steps of a network on an accelerator, forward and backward apart: what training is made of.

``trainwright train`` and ``trainwright.compile`` both run their steps by a ``Runner``; data, loss
and update are theirs.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import torch

from trainwright.accelerator import Counters
from trainwright.compiler import CompileError
from trainwright.driver.model import (
    BackwardResult,
    ForwardResult,
    HeadExponents,
    QuantisedModel,
)
from trainwright.fixed.scale import Scales


class Steps(Protocol):
    """Passes that can be repeated: of a driver, or of several that share a batch."""

    def forward(
        self,
        inputs: torch.Tensor,
        model: QuantisedModel,
        scales: Scales,
        *,
        seed: int | None = None,
        masks: int | None = None,
    ) -> ForwardResult:
        """Return the logits of a batch; see ``Driver.forward``."""
        ...

    def backward(
        self,
        gradient: torch.Tensor,
        scales: Scales,
        *,
        seed: int | None = None,
        exponent: HeadExponents = None,
    ) -> BackwardResult:
        """Return gradients of the last ``forward``; see ``Driver.backward``."""
        ...


Results = tuple[ForwardResult, BackwardResult]


@dataclass(frozen=True)
class StepInputs:
    """Operands with which a training step can be repeated bit by bit."""

    model: QuantisedModel
    inputs: torch.Tensor
    gradient: torch.Tensor
    scales: Scales
    """Requested exponents, as they were before the step."""
    seeds: tuple[int | None, int | None] = (None, None)
    """Seeds of stochastic rounding, forward and backward; None rounds to nearest."""
    gradient_exponent: HeadExponents = None
    """Exponent of ``gradient``, where it is fixed."""
    masks: int | None = None
    """Seed of the masks of dropout."""

    def run(self, driver: Steps) -> Results:
        """Run both passes of the step on a driver."""
        forward = driver.forward(
            self.inputs, self.model, self.scales, seed=self.seeds[0], masks=self.masks
        )
        return forward, driver.backward(
            self.gradient, self.scales, seed=self.seeds[1], exponent=self.gradient_exponent
        )


class RunnerDriver(Steps, Protocol):
    """The part of ``trainwright.driver.Driver`` that a runner uses."""

    input_exponent: int
    """Exponent of the network's inputs."""

    @property
    def tensors(self) -> frozenset[str]:
        """Names of the tensors whose exponents a step needs."""
        ...


D = TypeVar("D", bound=RunnerDriver)


@dataclass(eq=False)
class Pass(Generic[D]):
    """Forward pass: its result, and everything that repeats it bit by bit."""

    driver: D
    inputs: torch.Tensor
    """int64 (batch, I)."""
    input_exponent: int
    model: QuantisedModel
    scales: Scales
    """A copy, as they were."""
    seed: int | None
    masks: int | None
    result: ForwardResult


@dataclass
class HeldActivations:
    """Forward pass whose activations an accelerator holds; copies hold none."""

    last: object = None

    def __getstate__(self) -> dict[str, object]:
        return {"last": None}


@dataclass
class Totals:
    """Sums over the programs that a runner has run; calibration is not counted."""

    forward: int = 0
    backward: int = 0
    """Programs executed, repetitions included."""
    counters: Counters = field(default_factory=Counters)
    saturations: int = 0
    values: int = 0
    """Values that were rounded, of which `saturations` count some."""
    underflows: int = 0
    seconds: float = 0.0

    def add(self, result: ForwardResult | BackwardResult) -> None:
        """Count the result of a program."""
        self.counters += result.counters
        self.values += sum(s.count for s in result.statistics.values())
        self.saturations += sum(s.saturations for s in result.statistics.values())
        self.underflows += sum(s.underflows for s in result.statistics.values())
        self.seconds += result.seconds


class Runner(Generic[D]):
    """Runs steps of one network, whatever its ranks become.

    Runners that share an accelerator share its ``memory``: of several forward passes only the last
    one's activations are in it, the others are run again before their backward pass. A copy has no
    driver yet.
    """

    def __init__(self, memory: HeldActivations | None = None) -> None:
        self.memory = memory or HeldActivations()
        self.totals = Totals()
        self._driver: D | None = None
        self._made_for: object = None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_driver": None, "_made_for": None}

    def at(self, wanted: object, make: Callable[[], D]) -> D:
        """Return the driver, made by ``make`` where its ranks ``wanted`` have changed.

        Passes of the previous driver are then stale.
        """
        if self._driver is None or self._made_for != wanted:
            self._driver, self._made_for = make(), wanted
        return self._driver

    def keep(self, wanted: object) -> None:
        """Forget the driver, unless it is the one that ``at`` would give."""
        if self._made_for != wanted:
            self._driver = self._made_for = None

    @property
    def driver(self) -> D:
        """The driver that ``at`` made."""
        assert self._driver is not None
        return self._driver

    def is_calibrated(self, scales: Scales) -> bool:
        """Return whether every tensor of a step has an exponent."""
        return scales.exponents.keys() >= self.driver.tensors

    def forward(
        self,
        inputs: torch.Tensor,
        model: QuantisedModel,
        scales: Scales,
        *,
        seed: int | None = None,
        masks: int | None = None,
    ) -> Pass[D]:
        """Run a forward pass; return its logits with what its backward pass needs.

        See ``Driver.forward``.
        """
        driver, used = self.driver, scales.copy()
        exponent = driver.input_exponent
        result = driver.forward(inputs, model, scales, seed=seed, masks=masks)
        done = Pass(driver, inputs, exponent, model, used, seed, masks, result)
        self.memory.last = done
        self.totals.forward += 1
        self.totals.add(result)
        return done

    def check(self, done: Pass[D]) -> None:
        """Raise ``CompileError`` where the driver of a pass is not the present one."""
        if done.driver is not self._driver:
            raise CompileError(
                "the program of this forward pass is stale: the ranks changed, or the model was "
                "closed, before backward; run forward again (cut ranks after optimizer.step())"
            )

    def backward(
        self,
        done: Pass[D],
        gradient: torch.Tensor,
        scales: Scales,
        *,
        seed: int | None = None,
        exponent: HeadExponents = None,
    ) -> BackwardResult:
        """Run a backward pass; repeat its forward pass where the activations are gone.

        See ``Driver.backward``. Raises ``CompileError`` where ranks changed since the pass.
        """
        self.check(done)
        driver = done.driver
        if self.memory.last is not done:
            driver.input_exponent = done.input_exponent
            self.totals.forward += 1
            repeated = driver.forward(
                done.inputs, done.model, done.scales, seed=done.seed, masks=done.masks
            )
            self.totals.add(repeated)
        self.memory.last = None
        back = driver.backward(gradient, scales, seed=seed, exponent=exponent)
        self.totals.backward += 1
        self.totals.add(back)
        return back

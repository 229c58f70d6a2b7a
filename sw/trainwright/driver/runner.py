"""Steps of a network on an accelerator, forward and backward apart: what training is made of.

``trainwright train`` and ``trainwright.compile`` both run their steps by a ``Runner``; data, loss
and update are theirs.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

import torch

from trainwright.accelerator import Counters
from trainwright.compiler import CompileError
from trainwright.compiler.base.rules import Written
from trainwright.driver.model import (
    BackwardOperands,
    BackwardResult,
    ForwardOperands,
    ForwardResult,
    HeadExponents,
    QuantisedModel,
)
from trainwright.fixed.scale import Scales

GradientOf = Callable[[torch.Tensor], torch.Tensor]
"""Map from logits float64 (batch, outputs) to the derivative of the loss by them."""
Occupied = Callable[[Written], int]
"""Number of values of a tensor that are not zero because of padding alone."""
MOST_REPETITIONS = 64
"""Most repetitions of a step: calibration stops there even if exponents still move."""


def repeat(step: Callable[[], int]) -> int:
    """Repeat ``step``, which returns how many exponents moved, until none does.

    Returns the repetitions, at most MOST_REPETITIONS.
    """
    counts = range(1, MOST_REPETITIONS + 1)
    return next((n for n in counts if not step()), MOST_REPETITIONS)


class StepDriver:
    """Passes of a network that can be repeated: of a driver, or of several that share a batch."""

    input_exponent: int
    """Exponent of the network's inputs."""
    tensors: frozenset[str] = frozenset()
    """Names of the tensors whose exponents a step needs; ``calibrate`` finds them."""

    @property
    def written(self) -> int:
        """Bytes that the host has given the accelerator, where these are counted; else 0."""
        return 0

    def count_as(self, occupied: Occupied) -> None:
        """Take the count of a tensor's values from ``occupied``, not from the tokens of a batch."""

    def forward(
        self,
        inputs: torch.Tensor,
        model: QuantisedModel,
        scales: Scales,
        *,
        seed: int | None = None,
        masks: int | None = None,
    ) -> ForwardResult:
        """Run the forward pass.

        ``inputs`` int64 (batch, I), words of the activations' format, with exponent
        ``input_exponent`` (pixels 0..1 are quantised with it). With a ``seed`` (32 bits) results
        are rounded stochastically; ``AcceleratorError`` where the accelerator cannot. ``masks`` is
        the seed of the masks of dropout; without one a dropout is the identity. The pass is
        repeated where the accelerator was reset under it, and before ``backward`` where it was
        reset after it.
        """
        return self.run_forward(ForwardOperands(inputs, model, scales, seed, masks))

    def backward(
        self,
        gradient: torch.Tensor,
        scales: Scales,
        *,
        seed: int | None = None,
        exponent: HeadExponents = None,
    ) -> BackwardResult:
        """Run the backward pass of the last ``forward``.

        Its inputs and activations are still in the accelerator's memory: nothing else may run in
        between. Where the accelerator was reset, ``forward`` is repeated first.

        ``gradient`` float (batch, outputs of all heads): derivative of the loss by the
        logits, already divided by whatever the mean needs; the driver quantises it at the finest
        exponent that saturates nothing, or at ``exponent``, of all heads or of each, to nearest.
        ``seed`` as in ``forward``.
        """
        return self.run_backward(BackwardOperands(gradient, scales, seed, exponent))

    def run_forward(self, given: ForwardOperands) -> ForwardResult:
        """Run the forward pass of some operands."""
        raise NotImplementedError

    def run_backward(self, given: BackwardOperands) -> BackwardResult:
        """Run the backward pass of some operands, after their forward pass."""
        raise NotImplementedError

    def calibrate(
        self, inputs: torch.Tensor, gradient_of: GradientOf, model: QuantisedModel, scales: Scales
    ) -> int:
        """Repeat a step on one batch until no exponent moves; returns the repetitions.

        ``gradient_of`` gives the loss gradient (batch, J) of logits (batch, J).
        """

        def step() -> int:
            done = self.forward(inputs, model, scales)
            moved = scales.jump(done.statistics)
            back = self.backward(gradient_of(done.logits), scales)
            return moved + scales.jump(back.statistics)

        return repeat(step)


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

    def run(self, driver: StepDriver) -> Results:
        """Run both passes of the step on a driver."""
        forward = driver.forward(
            self.inputs, self.model, self.scales, seed=self.seeds[0], masks=self.masks
        )
        return forward, driver.backward(
            self.gradient, self.scales, seed=self.seeds[1], exponent=self.gradient_exponent
        )


D = TypeVar("D", bound=StepDriver)


@dataclass(eq=False)
class Pass(Generic[D]):
    """Forward pass: its result, and everything that repeats it bit by bit."""

    driver: D
    input_exponent: int
    operands: ForwardOperands
    """Operands, with a copy of the scales from before the pass."""
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

    def driver_for(self, shape: object, make: Callable[[], D]) -> D:
        """Return the driver for a ``shape``, such as ranks; ``make`` makes it for a new shape.

        Passes of the previous driver are then stale.
        """
        if self._driver is None or self._made_for != shape:
            self._driver, self._made_for = make(), shape
        return self._driver

    def forget_unless(self, shape: object) -> None:
        """Forget the driver, unless it was made for ``shape``."""
        if self._made_for != shape:
            self._driver = self._made_for = None

    @property
    def driver(self) -> D:
        """The driver that ``driver_for`` returned last."""
        assert self._driver is not None
        return self._driver

    def is_calibrated(self, scales: Scales) -> bool:
        """Return whether every tensor of a step has an exponent."""
        return scales.exponents.keys() >= self.driver.tensors

    def forward(self, given: ForwardOperands) -> Pass[D]:
        """Run a forward pass; return its logits with what its backward pass needs.

        See ``StepDriver.forward``.
        """
        driver, kept = self.driver, replace(given, scales=given.scales.copy())
        exponent = driver.input_exponent
        done = Pass(driver, exponent, kept, driver.run_forward(given))
        self.memory.last = done
        self.totals.forward += 1
        self.totals.add(done.result)
        return done

    def check(self, done: Pass[D]) -> None:
        """Raise ``CompileError`` where the driver of a pass is not the present one."""
        if done.driver is not self._driver:
            raise CompileError(
                "the program of this forward pass is stale: ranks, numbers or options of a layer "
                "changed, or the model was closed, before backward; run forward again (cut ranks "
                "after optimizer.step())"
            )

    def backward(self, done: Pass[D], given: BackwardOperands) -> BackwardResult:
        """Run a backward pass; repeat its forward pass where the activations are gone.

        See ``StepDriver.backward``. Raises ``CompileError`` where ranks changed since the pass.
        """
        self.check(done)
        driver = done.driver
        if self.memory.last is not done:
            driver.input_exponent = done.input_exponent
            self.totals.forward += 1
            self.totals.add(driver.run_forward(done.operands))
        self.memory.last = None
        back = driver.run_backward(given)
        self.totals.backward += 1
        self.totals.add(back)
        return back

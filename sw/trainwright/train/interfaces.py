"""Interfaces that the trainer needs: a driver, an update, a verifier, an observer."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from trainwright.driver import (
    BackwardResult,
    ForwardResult,
    HeadExponents,
    StepDriver,
    StepInputs,
)
from trainwright.network import Network
from trainwright.train.history import EvaluationRecord, StepRecord

DriverFactory = Callable[[Network], StepDriver]
"""Make a driver for a network of the given ranks; called at the start and after each cut."""


@dataclass(frozen=True)
class StepCase:
    """A step that has just been run, with its operands and results."""

    number: int
    """Number of the step, from 1."""
    inputs: StepInputs
    forward: ForwardResult
    backward: BackwardResult


@dataclass(frozen=True)
class Verification:
    """Sums over verified steps: what was compared with the golden model, and what differed."""

    steps: int = 0
    tensors: int = 0
    values: int = 0
    mismatches: int = 0
    first: dict[str, Any] | None = None
    """The first value that differed (``check.comparison.Mismatch``), and the ``step`` it was in."""

    def __add__(self, other: "Verification") -> "Verification":
        return Verification(
            self.steps + other.steps,
            self.tensors + other.tensors,
            self.values + other.values,
            self.mismatches + other.mismatches,
            self.first or other.first,
        )


@dataclass(frozen=True)
class BatchLoss:
    """The loss of a batch, and where the backward pass begins."""

    mean: float
    correct: int
    """Samples whose label has the largest logit."""
    gradient: torch.Tensor
    """Derivative of the mean by the logits, float64 (batch, outputs)."""
    exponent: HeadExponents = None
    """Exponent of the gradient's integers; None for the finest at which none saturates."""
    words: int = 0
    """Words with a label, of which ``correct`` counts some; 0 where samples have labels."""


class Update(Protocol):
    """Loss, update and cuts: on the host in floats, or as the chip does them."""

    def loss(self, logits: torch.Tensor, labels: torch.Tensor) -> BatchLoss:
        """Return the loss of ``logits`` float64 (batch, outputs) and ``labels`` int64 (batch,)."""
        ...

    def step(self, backward: BackwardResult, number: int, total: int) -> tuple[float, float]:
        """Update the model in step ``number`` (from 0) of ``total``.

        Return rate and prior weight.
        """
        ...

    def cut(self) -> Network | None:
        """Cut weak columns; return the model's new network, or None if nothing was cut."""
        ...


Verifier = Callable[[StepCase], Verification]
"""Runs a step on the golden model as well and compares every tensor written."""


class Observer:
    """Gets events; this one ignores them. Must not change its arguments."""

    def started(self, step: int, total: int, network: Network) -> None:
        """Note that training continues from ``step`` (0 for a new run) to ``total`` steps."""

    def stepped(self, record: StepRecord) -> None:
        """Note that a step is complete."""

    def cut(self, step: int, network: Network) -> None:
        """Note that ranks were cut after ``step``; ``network`` has the remaining ones."""

    def verified(self, total: Verification) -> None:
        """Note that a step was compared with the golden model; ``total`` sums over such steps."""

    def evaluated(self, record: EvaluationRecord) -> None:
        """Note that the test split was classified."""

    def evaluating(self, done: int, samples: int) -> None:
        """Note the progress of an evaluation: ``done`` of ``samples``."""

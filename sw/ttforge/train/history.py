"""What happened in a run: a record a step, a record an evaluation, now and then the scales."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, field, fields
from itertools import groupby
from typing import Any

import torch


@dataclass(frozen=True)
class StepRecord:
    """One training step. All numbers are exact in float64, which is how checkpoints hold them."""

    step: int
    """From 1."""
    epoch: int
    """From 1."""
    loss: float
    """Mean cross-entropy of the batch, without the prior."""
    correct: int
    """Samples of the batch that were classified right, before the update."""
    samples: int
    learning_rate: float
    prior_weight: float
    cycles: int
    """Cycles of forward and backward; 0 where the back end counts none."""
    seconds: float
    """Wall time of forward and backward on the accelerator."""
    moved: int
    """Exponents that moved after the step."""
    saturations: int
    """Values saturated in the step."""
    ranks: tuple[int, ...]
    """All bonds of all layers, as they were in the step."""


@dataclass(frozen=True)
class EvaluationRecord:
    """Accuracy on the test split after ``step`` steps."""

    step: int
    epoch: int
    accuracy: float
    """Fraction of ``samples``."""
    samples: int


@dataclass(frozen=True)
class ScaleRecord:
    """What the accelerator counted of one tensor in ``step``."""

    step: int
    tensor: str
    exponent: int
    """It was computed with; a value is integer x 2^exponent."""
    mean: float
    """Mean of |q| as a fraction of full scale."""
    saturated: float
    """Fraction of the values that saturated."""


SCALE_RECORDS = 200
"""Steps of a run, evenly spread, whose scales are kept."""

_STEP_FIELDS = tuple(f.name for f in fields(StepRecord))[:-1]
_INTEGERS = frozenset(f.name for f in fields(StepRecord) if f.type in (int, "int"))


@dataclass
class History:
    """All records of a run so far."""

    steps: list[StepRecord] = field(default_factory=list)
    evaluations: list[EvaluationRecord] = field(default_factory=list)
    scales: list[ScaleRecord] = field(default_factory=list)

    @property
    def cycles(self) -> int:
        """Cycles of all steps."""
        return sum(record.cycles for record in self.steps)

    @property
    def accelerator_seconds(self) -> float:
        """Wall time of all steps on the accelerator."""
        return sum(record.seconds for record in self.steps)

    def last_epoch_accuracy(self) -> float:
        """Accuracy on the training batches of the last epoch begun, each before its update."""
        if not self.steps:
            return 0.0
        last = [r for r in self.steps if r.epoch == self.steps[-1].epoch]
        return sum(r.correct for r in last) / sum(r.samples for r in last)

    def epochs(self) -> Iterator[tuple[int, float, float]]:
        """(last step, mean loss, accuracy) on the training batches of each epoch."""
        for _, group in groupby(self.steps, key=lambda r: r.epoch):
            records = list(group)
            samples = sum(r.samples for r in records)
            loss = sum(r.loss for r in records) / len(records)
            yield records[-1].step, loss, sum(r.correct for r in records) / samples

    def best_accuracy(self) -> float:
        """Greatest accuracy on the test split after any epoch; 0 without an evaluation."""
        return max((r.accuracy for r in self.evaluations), default=0.0)

    def to_tensors(self) -> dict[str, torch.Tensor]:
        """The lists as float64 tables, one record a row; names of tensors as lines of UTF-8."""
        steps = [
            (*(float(getattr(r, name)) for name in _STEP_FIELDS), *map(float, r.ranks))
            for r in self.steps
        ]
        evaluations = [tuple(map(float, astuple(r))) for r in self.evaluations]
        names = sorted({r.tensor for r in self.scales})
        numbers = {name: float(number) for number, name in enumerate(names)}
        scales = [
            (float(r.step), numbers[r.tensor], float(r.exponent), r.mean, r.saturated)
            for r in self.scales
        ]
        return {
            "history.steps": torch.tensor(steps, dtype=torch.float64),
            "history.evaluations": torch.tensor(evaluations, dtype=torch.float64),
            "history.scales": torch.tensor(scales, dtype=torch.float64),
            "history.scales.names": torch.tensor(
                list("\n".join(names).encode()), dtype=torch.uint8
            ),
        }

    @classmethod
    def from_tensors(cls, tensors: dict[str, torch.Tensor]) -> "History":
        """The history that ``to_tensors`` wrote."""
        history = cls()
        for row in tensors["history.steps"].tolist():
            values: dict[str, Any] = {
                name: int(value) if name in _INTEGERS else value
                for name, value in zip(_STEP_FIELDS, row, strict=False)
            }
            ranks = tuple(int(rank) for rank in row[len(_STEP_FIELDS) :])
            history.steps.append(StepRecord(**values, ranks=ranks))
        for step, epoch, accuracy, samples in tensors["history.evaluations"].tolist():
            history.evaluations.append(
                EvaluationRecord(int(step), int(epoch), accuracy, int(samples))
            )
        names = bytes(tensors["history.scales.names"].tolist()).decode().split("\n")
        for step, name, exponent, mean, saturated in tensors["history.scales"].tolist():
            history.scales.append(
                ScaleRecord(int(step), names[int(name)], int(exponent), mean, saturated)
            )
        return history

    def to_lines(self) -> str:
        """JSON lines in the order of the steps; ``kind`` is step, scale or evaluation."""
        lines: list[tuple[tuple[int, int], dict[str, Any]]] = []
        lines += [((r.step, 0), {"kind": "step", **vars(r)}) for r in self.steps]
        lines += [((r.step, 1), {"kind": "scale", **vars(r)}) for r in self.scales]
        lines += [((r.step, 2), {"kind": "evaluation", **vars(r)}) for r in self.evaluations]
        return _json_lines(line for _, line in sorted(lines, key=lambda item: item[0]))


def _json_lines(records: Iterable[dict[str, Any]]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)

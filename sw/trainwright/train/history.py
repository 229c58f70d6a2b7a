"""Records of a run: one for each step and evaluation, and the scales now and then."""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from itertools import groupby, pairwise, takewhile
from typing import Any, TypeVar

import msgspec
import torch

from trainwright.network import Network


@dataclass(frozen=True)
class StepRecord:
    """Training step, or several steps that the accelerator did alone.

    A record of several has their sums and means, and the number of the last step. Checkpoints hold
    all numbers as float64, exactly.
    """

    step: int
    """Number of the (last) step, from 1."""
    epoch: int
    """Number of the epoch, from 1."""
    loss: float
    """Mean cross-entropy of the samples, without the prior."""
    correct: int
    """Samples that were classified correctly, each before the update of its step."""
    samples: int
    """Samples, or words where words have labels."""
    learning_rate: float
    prior_weight: float
    cycles: int
    """Cycles of forward and backward; 0 where the back end counts none."""
    seconds: float
    """Wall time of forward and backward on the accelerator."""
    moved: int
    """Exponents that moved after the step; for several steps, those that differ at the end."""
    saturations: int
    """Values saturated in the step."""
    underflows: int
    """Values closer to 0 than the smallest posit."""
    ranks: tuple[int, ...]
    """Ranks of all bonds of all layers, as they were in the step."""


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
    """Accelerator's counts of one tensor in ``step``, or in several steps that end with it."""

    step: int
    tensor: str
    exponent: int
    """Exponent of the tensor; a value is integer x 2^exponent.

    It is the one that the tensor was computed with, or, where the accelerator moves exponents
    itself, the one that it chose after the step.
    """
    mean: float | None
    """Mean of |q| as a fraction of full scale; None where the accelerator moves exponents."""
    saturated: float
    """Fraction of the values that saturated."""
    underflowed: float = 0.0
    """Fraction of the values that were closer to 0 than the smallest posit."""


Record = StepRecord | ScaleRecord | EvaluationRecord
_KINDS: dict[type[Record], str] = {
    StepRecord: "step", ScaleRecord: "scale", EvaluationRecord: "evaluation",
}  # fmt: skip
"""Kinds in the order in which their records follow a step."""

_NAMES = {kind: [f.name for f in fields(kind)] for kind in _KINDS}
Kind = TypeVar("Kind", bound=Record)

SCALE_RECORDS = 200
"""Steps of a run, evenly spread, whose scales are kept."""

# Networks differ in the number of ranks, the last field: a table holds ranks after the fixed
# columns.
_FIXED = len(fields(StepRecord)) - 1


@dataclass
class History:
    """Records of a run so far, by kind."""

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

    @property
    def cycles_of_ends(self) -> tuple[int, int]:
        """Cycles of the first step and of the last one; the mean where a record has several."""
        return self.cycles_a_step[0], self.cycles_a_step[-1]

    @property
    def cycles_a_step(self) -> list[int]:
        """Cycles per step of each record; the mean if a record has several steps."""
        return [
            record.cycles // count for record, count in zip(self.steps, self.counts, strict=True)
        ]

    @property
    def counts(self) -> list[int]:
        """Number of steps of each record."""
        return [b - a for a, b in pairwise([0, *(record.step for record in self.steps)])]

    def epochs(self) -> Iterator[tuple[int, float, float]]:
        """Yield (last step, mean loss, accuracy) on the training batches of each epoch."""
        for _, group in groupby(self.steps, key=lambda r: r.epoch):
            records = list(group)
            samples = sum(r.samples for r in records)
            loss = sum(r.loss * r.samples for r in records) / samples
            yield records[-1].step, loss, sum(r.correct for r in records) / samples

    def scales_of(self, step: int) -> list[ScaleRecord]:
        """Return the scales recorded in ``step``, if it is the last recorded one."""
        # From the end: the list may hold a hundred thousand records, and ``step`` has the last.
        return list(takewhile(lambda r: r.step == step, reversed(self.scales)))[::-1]

    def to_tensors(self) -> dict[str, torch.Tensor]:
        """Return the lists as float64 tables, one record a row.

        The names of tensors are lines of UTF-8.
        """
        names = sorted({r.tensor for r in self.scales})
        # Names become numbers so that a table has one type; a name would repeat with each record.
        numbers = {name: number for number, name in enumerate(names)}
        tables: dict[str, list[tuple[float, ...]]] = {
            "steps": [(*fixed, *ranks) for *fixed, ranks in map(_values, self.steps)],
            "evaluations": [tuple(_values(record)) for record in self.evaluations],
            "scales": [
                (k, numbers[name], exponent, math.nan if mean is None else mean, *rest)
                for k, name, exponent, mean, *rest in map(_values, self.scales)
            ],
        }
        tensors = {
            f"history.{kind}": torch.tensor(rows, dtype=torch.float64)
            for kind, rows in tables.items()
        }
        text = torch.tensor(list("\n".join(names).encode()), dtype=torch.uint8)
        return tensors | {"history.scales.names": text}

    @classmethod
    def from_tensors(cls, tensors: dict[str, torch.Tensor]) -> "History":
        """Return the history that ``to_tensors`` wrote."""
        names = bytes(tensors["history.scales.names"].tolist()).decode().split("\n")
        steps, evaluations, scales = (
            tensors[f"history.{kind}"].tolist() for kind in ("steps", "evaluations", "scales")
        )
        # Scales of earlier versions have fewer columns: those without a default.
        return cls(
            [_record(StepRecord, (*row[:_FIXED], row[_FIXED:])) for row in steps],
            [_record(EvaluationRecord, row) for row in evaluations],
            [
                _record(ScaleRecord, (k, names[int(n)], exponent, *_with_none(row)))
                for k, n, exponent, *row in scales
            ],
        )

    def to_lines(self) -> str:
        """Return the records in order as JSON lines; ``kind`` is step, scale or evaluation."""
        return "".join(map(to_line, self.in_order()))

    def in_order(self) -> Iterator["Record"]:
        """Yield all records by step, the step's own record before scales and evaluations."""
        records: list[Record] = [*self.steps, *self.scales, *self.evaluations]
        kinds = list(_KINDS)
        yield from sorted(records, key=lambda r: (r.step, kinds.index(type(r))))


def _with_none(row: Iterable[float]) -> list[float | None]:
    return [None if math.isnan(value) else value for value in row]


def _values(record: Record) -> Iterable[Any]:
    return vars(record).values()


def _record(kind: type[Kind], row: Sequence[Any]) -> Kind:
    """Return the record of a table's row."""
    # Not strict: a row has floats alone, and whole ones stand for the record's integers.
    return msgspec.convert(dict(zip(_NAMES[kind], row, strict=False)), kind, strict=False)


def to_line(record: Record) -> str:
    """Return a record as one line of JSON, with its newline."""
    return json.dumps({"kind": _KINDS[type(record)], **vars(record)}) + "\n"


def with_flat_ranks(network: Network, flat: Sequence[int]) -> Network:
    """Return the network with a record's ranks: ``flat`` lists the ranks of all layers in order."""
    rest = list(flat)
    return network.with_ranks([[rest.pop(0) for _ in layer.ranks] for layer in network.layers])

"""A batch in micro-batches: one step of the trainer, several of accelerators, on several workers.

Every micro-batch is a step with the same exponents: those of the scales, and one for the gradient
of the logits, which is that of the whole batch. Gradients, sums of |q| and counts are integers and
are added as such. So the bits do not depend on which worker runs which micro-batch, or in what
order. The bits depend on the number of micro-batches, because the gradients of each micro-batch are
requantised to 16 bits.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch

from trainwright.accelerator import Counters, Run
from trainwright.driver import (
    BackwardOperands,
    BackwardResult,
    Driver,
    ForwardOperands,
    ForwardResult,
    QuantisedModel,
    StepDriver,
)
from trainwright.driver.model import PassOutcome
from trainwright.driver.runner import Occupied
from trainwright.fixed.quantise import fitting_exponent
from trainwright.fixed.random_bits import derived_seed
from trainwright.fixed.scale import Scales, TensorStatistics
from trainwright.support.text import amount
from trainwright.train.workers import Workers

_COUNTERS = len(vars(Counters()))
_COUNTS = ("count", "total", "saturations", "underflows")
"""Statistics of a tensor that add up over micro-batches."""


class ParallelDriver(StepDriver):
    """Passes of a batch on this worker's drivers and the other workers'.

    ``drivers`` are one a micro-batch of this worker, each with an accelerator of its own, compiled
    for the micro-batch; every worker has as many. All workers call the same methods with equal
    arguments and get equal results. ``AcceleratorError`` where a worker is gone or differs.
    """

    def __init__(self, drivers: Sequence[Driver], workers: Workers) -> None:
        self._drivers, self._workers = drivers, workers
        self._micro_batch = drivers[0].step.batch
        self._batch = self._micro_batch * len(drivers) * workers.count
        self.network = drivers[0].network
        self.input_exponent, self.tensors = drivers[0].input_exponent, drivers[0].tensors

    @property
    def written(self) -> int:
        """Bytes that the host has given this worker's accelerators."""
        return sum(driver.written for driver in self._drivers)

    def count_as(self, occupied: Occupied) -> None:
        """See ``StepDriver``."""
        for driver in self._drivers:
            driver.count_as(occupied)

    def _rows(self) -> list[slice]:
        """Return this worker's drivers' slices of the batch."""
        size, first = self._micro_batch, self._workers.rank * len(self._drivers)
        return [
            slice((first + n) * size, (first + n + 1) * size) for n in range(len(self._drivers))
        ]

    def _seeds(self, seed: int | None) -> list[int | None]:
        """Return a seed for each driver, by the number of its micro-batch in the whole batch."""
        first = self._workers.rank * len(self._drivers)
        return [micro_seed(seed, first + n) for n in range(len(self._drivers))]

    def run_forward(self, given: ForwardOperands) -> ForwardResult:
        """Return the logits of the whole batch."""
        inputs, rows = given.inputs, self._rows()
        if len(inputs) != self._batch:
            raise ValueError(f"inputs of {amount(len(inputs), 'sample')}, not {self._batch}")
        seeds, masks = self._seeds(given.seed), self._seeds(given.masks)
        done = [
            driver.run_forward(replace(given, inputs=inputs[part], seed=own_seed, masks=own_masks))
            for driver, part, own_seed, own_masks in zip(
                self._drivers, rows, seeds, masks, strict=True
            )
        ]
        logits = _zeros_like(done[0].logits, self._batch)
        for part, result in zip(rows, done, strict=True):
            logits[part] = result.logits
        own = torch.zeros(self._workers.count, dtype=torch.int64)
        own[self._workers.rank] = _fingerprint(given.model, given.scales)
        # The rows of others are zeros, bit for bit: to add the bits is to collect the rows.
        (bits, sames), outcome = self._sum([logits.view(torch.int64).ravel(), own], done)
        self._workers.check_same("model", sames)
        logits.copy_(bits.view(torch.float64).reshape(logits.shape))
        return ForwardResult(logits=logits, **vars(outcome))

    def run_backward(self, given: BackwardOperands) -> BackwardResult:
        """Return gradients of the sum over the whole batch."""
        gradient, exponent = given.gradient, given.exponent
        fmt = self.network.format("gradient")
        # The exponent is chosen by the whole batch: every micro-batch must quantise its gradient in
        # the same unit, or their integers could not be added.
        if exponent is None:
            exponent = fitting_exponent(gradient, fmt, zero=fmt.input_exponent)
        seeds = self._seeds(given.seed)
        done = [
            driver.run_backward(BackwardOperands(gradient[part], given.scales, own_seed, exponent))
            for driver, part, own_seed in zip(self._drivers, self._rows(), seeds, strict=True)
        ]
        integers = sum((_integers(result) for result in done[1:]), _integers(done[0]))
        (summed,), outcome = self._sum([integers], done)
        factors, biases = _values(summed, done[0])
        return replace(done[0], factors=factors, biases=biases, **vars(outcome))

    def _sum(
        self, values: list[torch.Tensor], done: Sequence[ForwardResult] | Sequence[BackwardResult]
    ) -> tuple[list[torch.Tensor], PassOutcome]:
        """Sum ``values`` (int64 vectors) and what was counted over the workers.

        The run is the sum of this worker's runs, with the counters of all workers.
        """
        names = list(done[0].statistics)
        counts = [
            sum(getattr(result.statistics[name], count) for result in done)
            for name in names
            for count in _COUNTS
        ]
        counters = sum((result.counters for result in done[1:]), done[0].counters)
        # Everything travels in one message: a reduction's cost is its latency, and one sum cannot
        # be taken of different steps on different workers.
        last = torch.tensor([*counts, *vars(counters).values()], dtype=torch.int64)
        message = self._workers.total(torch.cat([*values, last]))
        *sums, last = message.split([len(part) for part in (*values, last)])
        last_sums = last.tolist()
        statistics = self._statistics(done[0].statistics, last_sums[:-_COUNTERS])
        counters = Counters(*last_sums[-_COUNTERS:])
        seconds = sum(result.seconds for result in done)
        arrays = np.sum([result.run.statistics for result in done], 0)
        run = Run(*arrays, counters=counters, seconds=seconds)
        return sums, PassOutcome(statistics, counters, seconds, run)

    def _statistics(
        self, own: Mapping[str, TensorStatistics], counts: Sequence[int]
    ) -> dict[str, TensorStatistics]:
        rest = iter(counts)
        return {
            name: replace(s, **{count: next(rest) for count in _COUNTS}) for name, s in own.items()
        }


def micro_seed(seed: int | None, number: int) -> int | None:
    """Return the 32-bit seed of rounding or of masks in micro-batch ``number`` of a step.

    None stays None; the first micro-batch uses the step's own ``seed``.
    """
    if seed is None or not number:
        return seed
    return derived_seed(seed, number)


def _zeros_like(part: torch.Tensor, rows: int) -> torch.Tensor:
    """Return zeros, float64, of ``rows`` rows in the memory layout of ``part``.

    The layout decides in what order torch adds the terms of the loss.
    """
    columns = part.shape[1]
    if part.is_contiguous():
        return torch.zeros((rows, columns), dtype=torch.float64)
    return torch.zeros((columns, rows), dtype=torch.float64).T


def _fingerprint(model: QuantisedModel, scales: Scales) -> int:
    """Return a CRC-32 over factors and all exponents, which must be equal on all workers."""
    crc = zlib.crc32(repr((model.factor_exponents, sorted(scales.exponents.items()))).encode())
    for layer in model.factors:
        for factor in layer:
            crc = zlib.crc32(factor.contiguous().numpy().tobytes(), crc)
    for bias in model.biases:
        if bias is not None:
            crc = zlib.crc32(bias.contiguous().numpy().tobytes(), crc)
    return crc


def _parts(result: BackwardResult) -> list[tuple[torch.Tensor, int]]:
    """Return all gradients of a result with their exponents, factors first."""
    pairs = [
        (value, exponent)
        for layer, exponents in zip(result.factors, result.factor_exponents, strict=True)
        for value, exponent in zip(layer, exponents, strict=True)
    ]
    for value, exponent in zip(result.biases, result.bias_exponents, strict=True):
        if value is not None and exponent is not None:
            pairs.append((value, exponent))
    return pairs


def _integers(result: BackwardResult) -> torch.Tensor:
    """Return all gradients as the accelerator's integers, int64 in one vector."""
    return torch.cat(
        [(value * 2.0**-exponent).to(torch.int64).ravel() for value, exponent in _parts(result)]
    )


def _values(
    integers: torch.Tensor, like: BackwardResult
) -> tuple[list[list[torch.Tensor]], list[torch.Tensor | None]]:
    """Undo ``_integers``: float64, exact as long as the sums have at most 53 bits."""
    parts = _parts(like)
    pieces = integers.split([value.numel() for value, _ in parts])
    values = iter(
        [
            piece.double().reshape(value.shape) * 2.0**exponent
            for piece, (value, exponent) in zip(pieces, parts, strict=True)
        ]
    )
    factors = [[next(values) for _ in layer] for layer in like.factors]
    return factors, [None if bias is None else next(values) for bias in like.biases]

"""Bit-exactness of steps with loss and update on the chip.

Two steps, so that the second one starts from what the first one wrote: the host writes weights only
before the first. Compared with ``==``: every row that any engine writes, statistics, the external
memory; and the golden model's loss, gradient and state with the definitions in ``onchip``.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from trainwright.accelerator import Accelerator, Counters
from trainwright.check.comparison import Comparison, RunProgram, compare_runs
from trainwright.check.step import (
    HARDWARE,
    KERNEL,
    StepCheck,
    compare_buffers,
    is_kernel,
    shortened,
)
from trainwright.compiler.base.compiled import AUTO
from trainwright.compiler.chip.memory import STATE, Words
from trainwright.driver.chip import ChipDriver
from trainwright.driver.driver import Driver
from trainwright.driver.model import QuantisedModel
from trainwright.fixed.quantise import extremes
from trainwright.fixed.scale import Scales
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import Network
from trainwright.onchip.layout import LANES, WeightLayout, make_layout
from trainwright.onchip.loss import LOSSES
from trainwright.onchip.rates import Entry
from trainwright.onchip.state import ChipState, UpdateStep, limits

STEPS = 2
PROGRAMS = ("forward", "loss", "backward", "update")
"""Programs of a step, in their order."""
BIAS_RANGE = 2
ENTRY = Entry(rate=11, rate_shift=5, weight=200, weight_exponent=-14)


@dataclass(frozen=True)
class ChipCheck(StepCheck):
    """Outcome of a check of ``STEPS`` steps; the counters are those of the last one."""

    loss_cycles: int = 0
    update_cycles: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Add the cycles of the programs of loss and update, among those of the step."""
        cycles = {"loss_cycles": self.loss_cycles, "update_cycles": self.update_cycles}
        return {**super().to_dict(), "update": "chip", "steps": STEPS, **cycles}


def random_state(network: Network, seed: int) -> ChipState:
    """Return weights over the whole range of their formats; moments are 0."""
    random = np.random.default_rng(seed)
    exponents = [
        [network.format("factor").input_exponent] * layer.order for layer in network.layers
    ]
    bias = BIAS_RANGE + 1 - network.widths.bias
    layout = make_layout(network, exponents, [bias] * len(network.layers))
    weights = np.zeros((layout.rows, LANES), np.int64)
    for part in layout.parts:
        low, high = limits(part)
        weights.ravel()[part.places] = random.integers(low, high + 1, part.size)
    return ChipState(layout, weights)


def model_of(state: ChipState) -> QuantisedModel:
    """Return the model as forward and backward pass read it."""
    layout: WeightLayout = state.layout
    columns = iter(state.compiled)
    ranks = [[len(next(columns)) for _ in layer.ranks] for layer in layout.network.layers]
    network = layout.network.with_ranks(ranks)
    factors: list[list[torch.Tensor]] = [[] for _ in network.layers]
    biases: list[torch.Tensor | None] = [None] * len(network.layers)
    exponents: list[list[int]] = [[] for _ in network.layers]
    fixed = [0] * len(network.layers)
    for part, values in zip(layout.parts, state.operands(), strict=True):
        read = torch.from_numpy(values)
        if part.index < 0:
            biases[part.layer] = read.double() * 2.0**part.exponent
            fixed[part.layer] = part.exponent
        else:
            factors[part.layer].append(read)
            exponents[part.layer].append(part.exponent)
    return QuantisedModel(network, factors, exponents, biases, fixed)


def calibrated(driver: Driver, model: QuantisedModel, inputs, labels, classes: int) -> Scales:
    """Return exponents with which a step of these operands neither saturates nor vanishes."""
    scales = Scales()

    def gradient_of(logits: torch.Tensor) -> torch.Tensor:
        chosen = torch.from_numpy(labels).flatten()
        every = logits.reshape(len(chosen), -1)
        shares = torch.softmax(every[:, :classes], 1)
        shares[torch.arange(len(chosen)), chosen] -= 1
        shares[chosen < 0] = 0
        padded = torch.nn.functional.pad(shares, (0, every.shape[1] - classes))
        return padded.reshape(logits.shape) / len(chosen)

    driver.calibrate(inputs, gradient_of, model, scales)
    return scales


def random_labels(network: Network, batch: int, random: np.random.Generator) -> Words:
    """Return labels of samples (batch,), or of words (batch, tokens), some of which have none."""
    if network.labels == 1:
        return random.integers(0, network.classes, batch)
    return random.integers(-1, network.classes, (batch, network.labels))


class _Side:
    """Side of the comparison: one accelerator with its driver."""

    def __init__(
        self, accelerator: Accelerator, state: ChipState, batch: int, loss: str, plan: str
    ) -> None:
        self.accelerator = accelerator
        kept = tuple(tuple(columns.tolist()) for columns in state.kept)
        self.driver = ChipDriver(
            accelerator, state.layout, batch, kept=kept, trace=True, loss=loss, plan=plan
        )
        accelerator.write(0, np.zeros(self.driver.memory.size, np.uint8))
        self.driver.put(state, model_of(state))


def _compare_executed(golden: ChipDriver, other: ChipDriver) -> Comparison:
    comparison = Comparison()
    pairs = zip(golden.executed, other.executed, strict=True)
    for number, (ours, theirs) in enumerate(pairs):
        step, place = divmod(number, len(PROGRAMS))
        name = f"{PROGRAMS[place]}, step {step},"
        program = RunProgram(name, theirs.program.descriptors, golden.step.parameters)
        slots = tuple(f"slot {n}" for n in range(len(ours.run.sums)))
        comparison.merge(compare_runs(ours.run, theirs.run, slots, program))
    return comparison


def _compare_memory(golden: _Side, other: _Side) -> Comparison:
    driver = golden.driver
    buffers = {**driver.step.buffers, **driver.memory.buffers}
    return compare_buffers(buffers, golden.accelerator, other.accelerator, LANES)


def _compare_definition(name: str, actual, expected) -> Comparison:
    comparison = Comparison()
    expected = np.atleast_1d(np.asarray(expected))
    comparison.add_arrays(f"{name}, defined", expected, np.asarray(actual), expected.shape[-1])
    return comparison


def check_chip_step(
    network: Network,
    batch: int,
    accelerator: Accelerator,
    *,
    seed: int = 0,
    state: ChipState | None = None,
    loss: str = "cross-entropy",
    plan: str = AUTO,
) -> StepCheck:
    """Run steps with loss and update on golden model and ``accelerator``; compare them.

    Operands are random. The steps begin with random weights, or with those of ``state``, which
    continues with the steps; ``loss`` is one of ``onchip.loss.LOSSES``, ``plan`` of
    ``compiler.base.compiled.IN_ROWS``. A golden model as ``accelerator`` is compared with its
    interpreter. Raises ``CompileError`` for networks and accelerators that the passes do not take.
    """
    itself = is_kernel(accelerator)
    random = np.random.default_rng([seed, 1])
    state = state or random_state(network, seed)
    other = _Side(accelerator, state, batch, loss, plan)
    size = other.driver.memory.size
    p = accelerator.parameters
    with GoldenAccelerator(p, memory_bytes=size, interpreted=itself) as model:
        golden = _Side(model, state, batch, loss, plan)
        driver = golden.driver
        low, high = extremes(network.format("activation"))
        shape = batch, network.input_size
        inputs = [shortened(network, torch.from_numpy(random.integers(low, high + 1, shape)))
                  for _ in range(STEPS)]  # fmt: skip
        labels = [random_labels(network, batch, random) for _ in range(STEPS)]
        scales = calibrated(driver, model_of(state), inputs[0], labels[0], network.classes)
        comparison = Comparison()
        for number in range(STEPS):
            step = UpdateStep(number, seed, ENTRY)
            step_result = _step(
                golden, other, state, step, (inputs[number], labels[number]), scales
            )
            comparison.merge(step_result)
        comparison.merge(_compare_executed(golden.driver, other.driver))
        comparison.merge(_compare_memory(golden, other))
        runs = [execution.run for execution in other.driver.executed[-len(PROGRAMS) :]]
        return ChipCheck(
            comparison=comparison,
            counters=sum((run.counters for run in runs), Counters()),
            seconds=sum(run.seconds for run in runs),
            step=other.driver.step,
            compared=KERNEL if itself else HARDWARE,
            loss_cycles=runs[1].counters.cycles,
            update_cycles=runs[3].counters.cycles,
        )


def _images(driver: ChipDriver, model: QuantisedModel) -> dict[str, np.ndarray]:
    """Return images and biases as the host would write them."""
    images = {
        image.name: image.pack(model.factors[image.layer][image.index])
        for program in (driver.step.forward, driver.step.backward)
        for image in program.images
        if image.is_factor
    }
    for part in driver.layout.parts:
        bias = model.biases[part.layer]
        if part.index < 0 and bias is not None:
            values = (bias * 2.0**-part.exponent).long().numpy()
            images[part.name] = np.repeat(values[:, None], LANES, axis=1)
    return images


def _step(
    golden: _Side, other: _Side, state: ChipState, step: UpdateStep, batch, scales
) -> Comparison:
    """Run one step on both sides, and by the definitions; ``state`` continues with it."""
    inputs, labels = batch
    classes = state.layout.network.classes
    comparison = Comparison()
    sides = [golden.driver, other.driver]
    statistics = [side.run_forward(inputs, scales) for side in sides]
    losses = [side.run_loss(labels) for side in sides]
    driver = golden.driver
    logits, gradient = driver.logits()
    expected = LOSSES[driver.loss](logits, driver.logits_exponent, labels, classes)
    comparison.merge(_compare_definition("gradient of the logits", gradient, expected.gradient))
    for loss in losses:
        comparison.merge(_compare_definition("loss and correct samples",
                                             [loss.total, loss.correct],
                                             [expected.total, expected.correct]))  # fmt: skip
    backward = [side.run_backward(scales) for side in sides]
    gradients, exponents = driver.gradients()
    state.step(gradients, exponents, step)
    for side in sides:
        side.put_columns(state, exponents)
        side.run_update(step, pulled=True)
    arrays = state.to_arrays()
    words = driver.rows(STATE).astype(np.uint16)
    comparison.merge(_compare_definition("state", words, arrays["state"]))
    comparison.merge(_compare_definition("factors", driver.factors(), arrays["factors"]))
    expected_images = _images(driver, model_of(state))
    for name, image in driver.images():
        comparison.merge(_compare_definition(name, image, expected_images[name]))
    scales.update(statistics[0] | backward[0])
    return comparison

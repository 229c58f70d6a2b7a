"""Bit-exactness of training steps whose loss and update an accelerator computes.

The golden model and the accelerator train by the same engine (``train.engine.StepEngine``), with
traces, from memories of zeros. Compared with ``==``: every row that any engine writes, statistics,
the external memory and, where the accelerator trains alone, the exponent file and the order of the
samples.

Where the host starts each step, a third engine computes loss and update by their definitions
(``onchip``): its losses and its state after the last step are compared as well. The second step
starts from the state that the first one wrote. Where the accelerator trains alone, one start runs
all steps, the second of which looks at the columns; then it classifies a test set, whose last batch
is filled up.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import astuple, dataclass, replace
from math import prod
from typing import Any

import numpy as np
import torch

from trainwright.accelerator import Accelerator, Counters
from trainwright.accelerator.counted import CountedWrites
from trainwright.check.comparison import Comparison, Mismatch, RunProgram, compare_runs
from trainwright.check.step import HARDWARE, KERNEL, StepCheck, is_kernel, shortened
from trainwright.compiler.base.compiled import AUTO, IN_ROWS
from trainwright.data import DataSet, Split
from trainwright.data.sentences import PADDING
from trainwright.driver import Driver
from trainwright.driver.card import PAGE
from trainwright.driver.chip import Executed
from trainwright.driver.resident import ResidentDriver
from trainwright.fixed.quantise import extremes
from trainwright.fixed.scale import Scales
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import Network
from trainwright.onchip.layout import LANES, make_layout
from trainwright.onchip.state import ChipState, Words, limits
from trainwright.train.batches import input_quantiser, vocabulary_digits
from trainwright.train.chip_update import ChipModel, ChipUpdate
from trainwright.train.engine import StepEngine, StepResult, TrainingTask
from trainwright.train.host_engine import HostEngine
from trainwright.train.model import fixed_bias_exponents
from trainwright.train.resident import ResidentEngine
from trainwright.train.settings import ChipSettings, PriorSettings, TrainSettings
from trainwright.train.state import TrainingState, scale_ranges
from trainwright.train.vector_engine import VectorEngine

STARTS = 2
"""Steps of a check in which the host starts each step: the second step reads the state that the
first one wrote."""
STEPS, FIRST = 8, 7
"""Steps that one start runs by default, and the number of the first step. The second step renews
the prior's coefficients, and cuts columns."""
PIXELS = 8
FULL_SCALE = (1 << PIXELS) - 1
REST = 5
"""Samples of the data set beyond an epoch of two batches."""
RATE = 0.35
"""Learning rate at the start: large, so that factors change in every step."""
PULL = 0.02
"""Weight of the rank prior in a step, large as well."""


@dataclass(frozen=True)
class TrainingCheck(StepCheck):
    """Outcome of a check of ``steps`` steps; the counters are those of the last start."""

    steps: int = 0
    alone: bool = False
    """Whether one start ran all steps."""
    host_writes: int = 0
    """Bytes that the host wrote between the start and the end of these steps."""
    columns_cut: int = 0
    """Columns of all bonds that were cut."""
    loss_cycles: int = 0
    update_cycles: int = 0
    """Cycles of the programs of loss and update, among those of a step."""

    def to_dict(self) -> dict[str, Any]:
        """Add cycles of the step's programs, or what the host wrote and the columns cut."""
        figures = {**super().to_dict(), "update": "chip", "steps": self.steps}
        names = ("host_writes", "columns_cut") if self.alone else ("loss_cycles", "update_cycles")
        figures |= {name: getattr(self, name) for name in names}
        if self.alone and figures["cycles"]:
            # The counters are those of all steps; other checks report a single step.
            figures["run_cycles"] = figures["cycles"]
            figures["cycles"] = round(figures["run_cycles"] / self.steps)
            figures["mac_utilisation"] *= self.steps
        return figures


def random_state(network: Network, seed: int) -> ChipState:
    """Return weights over the whole range of their formats; moments are 0."""
    random = np.random.default_rng(seed)
    exponents = [
        [network.format("factor").input_exponent] * layer.order for layer in network.layers
    ]
    layout = make_layout(network, exponents, fixed_bias_exponents(network))
    weights = np.zeros((layout.rows, LANES), np.int64)
    for part in layout.parts:
        low, high = limits(part)
        weights.ravel()[part.places] = random.integers(low, high + 1, part.size)
    return ChipState(layout, weights)


def weakened(state: ChipState) -> ChipState:
    """Halve every third column in place, so that the first look cuts it; return the state."""
    layout = state.layout
    for bond in layout.bonds:
        for side in (bond.left, bond.right):
            part = layout.parts[side.part]
            divisors = 1 + (np.arange(side.columns) % 3 == 1)
            along = np.expand_dims(divisors, tuple(n for n in range(4) if n != side.axis))
            values = state.weights.ravel()[part.places].reshape(part.shape)
            state.weights.ravel()[part.places] = (values // along).ravel()
    return state


def random_labels(network: Network, batch: int, random: np.random.Generator) -> Words:
    """Return labels of samples (batch,), or of words (batch, tokens), some of which have none."""
    if network.labels == 1:
        return random.integers(0, network.classes, batch)
    return random.integers(-1, network.classes, (batch, network.labels))


def random_data(
    network: Network, count: int, test_samples: int, seed: int, *, shape: Sequence[int] = ()
) -> DataSet:
    """Return ``count`` random images or lines of words with labels; the first ones are the test.

    Images have the network's padded size unless ``shape`` gives one.
    """
    random, full_scale = np.random.default_rng([seed, 1]), FULL_SCALE
    if network.tokens == 1:
        size = (count, *(shape or network.padded))
        images = random.integers(0, FULL_SCALE + 1, size).astype(np.uint8)
    else:
        full_scale = prod(vocabulary_digits(network))
        images = random.integers(1, full_scale + 1, (count, 1, network.tokens))
        if network.padding:
            lengths = random.integers(1, network.tokens + 1, (count, 1, 1))
            images = np.where(np.arange(network.tokens) < lengths, images, PADDING)
    train = Split(images, random_labels(network, count, random))
    names = tuple(map(str, range(network.classes)))
    return DataSet("random", train, train.first(test_samples), full_scale, names)


@dataclass(frozen=True)
class RandomTraining:
    """Training on random data that all sides of a comparison run."""

    network: Network
    batch: int
    state: ChipState
    """Weights to begin with; each side has a copy."""
    alone: bool
    steps: int
    seed: int
    loss: str
    plan: str

    def task(self) -> TrainingTask:
        """Return a new training task for one side."""
        batch = self.batch
        data = random_data(self.network, 2 * batch + REST, batch + REST, self.seed)
        prior = PriorSettings(
            weight=PULL * len(data.train), warmup=0.0, threshold=0.5, interval=STEPS
        )
        settings = TrainSettings(
            batch=self.batch, seed=self.seed, learning_rate=RATE,
            prior=prior if any(self.network.ranks) else None,
            chip=ChipSettings(loss=self.loss, cut_programs="kept" if self.alone else "fitted"),
        )  # fmt: skip
        state, first = deepcopy(self.state), FIRST if self.alone else 0
        model = ChipModel(self.network.with_ranks(state.ranks), state)
        total = first + self.steps
        update = ChipUpdate(
            model, settings, total=total, samples=len(data.train), classes=self.network.classes
        )
        scales = Scales(scale_ranges(self.network, settings))
        training = TrainingState(self.network, settings, model, scales, step=first)
        draw = self._draw_stored(data.train) if self.alone else self._draw
        return TrainingTask(
            training, data, data.test, total, update, draw, begun=_ignore, save=_ignore,
            labels=lambda _: self.batch * self.network.labels, occupied=None,
        )  # fmt: skip

    def _draw(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw inputs over the whole range of their format, and labels."""
        random = np.random.default_rng([self.seed, 2, step])
        low, high = extremes(self.network.format("activation"))
        shape = self.batch, self.network.input_size
        inputs = torch.from_numpy(random.integers(low, high + 1, shape))
        labels = random_labels(self.network, self.batch, random)
        return shortened(self.network, inputs), torch.from_numpy(labels)

    def _draw_stored(self, train: Split):
        """Return the first samples, as the accelerator reads them, whatever the step."""
        network, first = self.network, train.first(self.batch)
        exponent = network.format("activation").input_exponent
        quantiser = input_quantiser(network, FULL_SCALE, exponent, PIXELS)
        batch = quantiser(first.images), torch.from_numpy(first.labels)
        return lambda step: batch


def _ignore() -> None:
    """Do nothing."""


class TrainingSide:
    """Engine of a random training with its task, and all programs that it ran."""

    def __init__(
        self, plan: RandomTraining, accelerator: Accelerator, *, defined: bool = False
    ) -> None:
        """Open the engine of ``plan``, or, if ``defined``, that of the definitions."""
        self.accelerator: Any = CountedWrites(accelerator)
        self._plan = plan
        self._before = self.host_writes = 0
        self.results: list[StepResult] = []
        self.executed: list[tuple[str, Executed]] = []
        """Programs that have been run, by their names."""
        self.last_start: list[Executed] = []
        """Programs of the last start."""
        self.task = replace(plan.task(), begun=self._begin)
        self.engine: StepEngine = self._engine(defined=defined)
        self.engine.open(self.task)

    def _engine(self, *, defined: bool) -> StepEngine:
        plan, to = self._plan, self.accelerator
        if defined:
            return HostEngine(lambda n: Driver(to, n, plan.batch, plan=IN_ROWS[plan.plan]))
        return (ResidentEngine if plan.alone else VectorEngine)(to, plan=plan.plan, trace=True)

    def _begin(self) -> None:
        self._before = self.accelerator.written

    @property
    def driver(self) -> Any:
        """Driver of the engine, a ``ChipDriver`` unless the engine is that of the definitions."""
        return self.engine.driver

    @property
    def state(self) -> ChipState:
        """Weights after the steps so far."""
        model = self.task.state.model
        assert isinstance(model, ChipModel)
        return model.state

    @property
    def size(self) -> int:
        """Bytes of external memory that the training may touch, without the card of a run."""
        if self._plan.alone:
            return self.accelerator.memory_bytes - PAGE
        return self.driver.memory.size

    def clear(self) -> None:
        """Fill the memory with zeros, so that both accelerators start with the same bytes."""
        self.accelerator.write(0, np.zeros(self.size, np.uint8))

    def run(self, scales: Scales) -> None:
        """Run the steps, then classify the test set if the accelerator has it."""
        state, scales = self.task.state, scales.copy()
        starts = [self._plan.steps] if self._plan.alone else [1] * self._plan.steps
        for count in starts:
            self.results.append(self.engine.run(count, scales))
            self.host_writes = self.accelerator.written - self._before
            self.engine.take()
            scales.update(self.results[-1].statistics)
            self.last_start = list(getattr(self.driver, "executed", ()))
            for executed in self.last_start:
                name = executed.name if self._plan.alone else f"{executed.name}, step {state.step},"
                self.executed.append((name, executed))
            state.step += count
        if self._plan.alone:
            self.engine.classify(scales)
            done = self.driver.executed[len(self.last_start) :]
            self.executed += [(executed.name, executed) for executed in done]


def _perturbed(side: TrainingSide) -> Scales:
    """Return calibrated exponents; an accelerator that trains alone gets some that are off.

    Such an accelerator moves exponents itself: the check has to see them move.
    """
    scales = side.task.state.scales.copy()
    side.task.calibrate(side.driver, scales)
    if isinstance(side.driver, ResidentDriver):
        forward = {t.name for t in side.driver.step.forward.tensors}
        for number, name in enumerate(scales.exponents):  # the loss takes logits of at most 0
            scales.exponents[name] += -(number % 2) if name in forward else number % 3 - 1
    return scales


def _compare_executed(golden: TrainingSide, other: TrainingSide) -> Comparison:
    comparison, p = Comparison(), golden.accelerator.parameters
    for (name, ours), (_, theirs) in zip(golden.executed, other.executed, strict=True):
        program = RunProgram(name, theirs.program.descriptors, p)
        slots = tuple(f"slot {n}" for n in range(len(ours.run.sums)))
        comparison.merge(compare_runs(ours.run, theirs.run, slots, program))
    return comparison


def _compare_memory(golden: TrainingSide, other: TrainingSide, *, programs: bool) -> Comparison:
    """Compare all bytes; those beyond the step's buffers are not counted.

    Without ``programs``, those that the host starts are left out: hardware reads them from memory,
    a golden model is handed them.
    """
    comparison, memory = Comparison(), golden.driver.memory
    ours, theirs = (side.accelerator.read(0, golden.size) for side in (golden, other))
    differs, at = ours != theirs, None
    for name, buffer in memory.everything.items():
        if name.startswith("program.") and not programs:
            differs[buffer.address : buffer.stop] = False
    wrong = np.flatnonzero(differs)
    if len(wrong):
        first = int(wrong[0])
        name, start = next(
            ((n, b.address) for n, b in memory.everything.items() if b.address <= first < b.stop),
            ("memory", 0),
        )
        row, lane = divmod(first - start, LANES)
        at = Mismatch(
            tensor=f"{name} in memory", what="byte", row=row, lane=lane, address=first,
            wanted=int(ours[first]), actual=int(theirs[first]),
        )  # fmt: skip
    comparison.add(at.tensor if at else "memory", memory.size, len(wrong), at)
    return comparison


def _compare_file(golden: TrainingSide, other: TrainingSide) -> Comparison:
    """Compare the exponent file and the order of the samples."""
    comparison, sides = Comparison(), (golden.accelerator, other.accelerator)
    files = [np.array(side.exponents) for side in sides]
    comparison.add_arrays("exponents", *files, row=len(files[0]))
    orders, single = [np.array(astuple(side.order)) for side in sides], Comparison()
    single.add_arrays("order of samples", *orders, row=len(orders[0]))
    comparison.add("order of samples", 1, int(single.differing > 0), single.first_mismatch)
    return comparison


def _compare_definitions(defined: TrainingSide, other: TrainingSide) -> Comparison:
    """Compare losses, correct samples and the state after the last step."""
    comparison = Comparison()
    losses = [
        np.array([[result.loss, result.correct] for result in side.results]).view(np.int64)
        for side in (defined, other)
    ]
    comparison.add_arrays("loss and correct samples, defined", *losses, row=2)
    actual = other.state.to_arrays()
    for name, wanted in defined.state.to_arrays().items():
        comparison.add_arrays(f"{name}, defined", wanted, actual[name], wanted.shape[-1])
    return comparison


def check_training(
    network: Network, batch: int, accelerator: Accelerator, *, alone: bool, seed: int = 0,
    state: ChipState | None = None, loss: str = "cross-entropy", steps: int | None = None,
    plan: str = AUTO,
) -> TrainingCheck:  # fmt: skip
    """Train on the golden model and on ``accelerator``, loss and update included; compare both.

    Samples are random, and so are the weights unless ``state`` gives them. If ``alone``, one start
    runs all ``steps`` and another one a test set; else the host starts each step. ``loss`` is one
    of ``onchip.loss.LOSSES``, ``plan`` of ``compiler.base.compiled.IN_ROWS``. A golden model as
    ``accelerator`` is compared with its interpreter. Raises ``CompileError`` for networks and
    accelerators that the programs do not take.
    """
    itself, size = is_kernel(accelerator), accelerator.memory_bytes
    if state is None:
        state = random_state(network, seed)
        state = weakened(state) if alone else state
    steps = steps or (STEPS if alone else STARTS)
    training = RandomTraining(network, batch, state, alone, steps, seed, loss, plan)
    p = accelerator.parameters
    other = TrainingSide(training, accelerator)
    with GoldenAccelerator(p, memory_bytes=size, interpreted=itself) as model:
        golden = TrainingSide(training, model)
        other.clear()
        scales = _perturbed(golden)
        for side in (golden, other):
            side.run(scales)
        comparison = _compare_executed(golden, other)
        comparison.merge(_compare_memory(golden, other, programs=alone))
        if alone:
            comparison.merge(_compare_file(golden, other))
    if not alone:
        with GoldenAccelerator(p, memory_bytes=size) as model:
            defined = TrainingSide(training, model, defined=True)
            defined.run(scales)
        comparison.merge(_compare_definitions(defined, other))
    runs = [executed.run for executed in other.last_start]
    before, after = (sum(map(len, weights.kept)) for weights in (state, other.state))
    return TrainingCheck(
        comparison=comparison,
        counters=sum((run.counters for run in runs), Counters()),
        seconds=sum(run.seconds for run in runs),
        step=other.driver.step,
        compared=KERNEL if itself else HARDWARE,
        steps=steps,
        alone=alone,
        host_writes=max(golden.host_writes, other.host_writes),
        columns_cut=before - after,
        loss_cycles=0 if alone else runs[1].counters.cycles,
        update_cycles=0 if alone else runs[3].counters.cycles,
    )

"""Bit-exactness of training steps whose loss and update an accelerator computes.

The golden model and the accelerator train by the same engine (``train.engine.StepEngine``), with
traces, from memories of zeros. Compared with ``==``: every row that any engine writes, statistics,
the external memory, the exponent file and the order of the samples. One start runs all steps, the
second of which looks at the columns; another start classifies a test set, whose last batch is
filled up.

Loss and update are computed by their definitions (``onchip``) on the host as well: losses, correct
samples, exponents and the state after the last step are compared with them.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import astuple, dataclass, replace
from math import prod
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from trainwright.accelerator import Accelerator
from trainwright.accelerator.counted import CountedWrites
from trainwright.check.comparison import Comparison, Mismatch, RunProgram, compare_runs
from trainwright.check.step import HARDWARE, KERNEL, MOST_SEED, StepCheck, is_kernel
from trainwright.compiler.base.compiled import AUTO, IN_ROWS
from trainwright.data import DataSet, Split
from trainwright.data.sentences import PADDING
from trainwright.driver import Driver, StepDriver
from trainwright.driver.card import PAGE
from trainwright.driver.resident import ResidentDriver
from trainwright.fixed.scale import Scales
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import Network
from trainwright.onchip.layout import LANES, make_layout
from trainwright.onchip.state import ChipState
from trainwright.support.arguments import require_seed
from trainwright.train.batches import chip_batch_indices, input_quantiser, vocabulary_digits
from trainwright.train.chip_update import ChipModel, ChipUpdate
from trainwright.train.engine import TrainingTask
from trainwright.train.host_engine import HostEngine
from trainwright.train.initial import initial_factors
from trainwright.train.model import fixed_bias_exponents
from trainwright.train.resident import ResidentEngine
from trainwright.train.settings import ChipSettings, PriorSettings, TrainSettings
from trainwright.train.state import TrainingState, scale_ranges

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
    host_writes: int = 0
    """Bytes that the host wrote between the start and the end of these steps."""
    columns_cut: int = 0
    """Columns of all bonds that were cut."""

    def to_dict(self) -> dict[str, Any]:
        """Add what the host wrote, and the columns cut."""
        figures = {**super().to_dict(), "update": "chip", "steps": self.steps}
        figures |= {"host_writes": self.host_writes, "columns_cut": self.columns_cut}
        if figures["cycles"]:
            # The counters are those of all steps; other checks report a single step.
            figures["run_cycles"] = figures["cycles"]
            figures["cycles"] = round(figures["run_cycles"] / self.steps)
            figures["mac_utilisation"] *= self.steps
        return figures


def random_state(network: Network, seed: int) -> ChipState:
    """Return weights over the whole range of their formats; moments are 0.

    Factors have the exponents of a new network: with the same exponents for all factors, a product
    of layers of many factors leaves the range of a softmax.
    """
    random = np.random.default_rng(seed)
    _, exponents = initial_factors(network, seed)
    layout = make_layout(network, exponents, fixed_bias_exponents(network))
    weights = np.zeros((layout.rows, LANES), np.int64)
    for part in layout.parts:
        low, high = part.limits
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


def random_labels(
    network: Network, batch: int, random: np.random.Generator
) -> npt.NDArray[np.generic]:
    """Return labels of samples (batch,), or of words (batch, tokens), some of which have none.

    Labels of a network with heads of both are (batch, 1 + tokens); a regression has targets.
    """
    if network.is_regression:
        return random.normal(size=batch)
    if network.labels == 1:
        return random.integers(0, network.classes, batch)
    labels = random.integers(-1, network.classes, (batch, network.labels))
    if network.is_joint:
        labels[:, 0] = random.integers(0, network.classes_of(network.sequence_head), batch)
    return labels


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
    scale = (0.0, 1.0) if network.is_regression else None
    return DataSet("random", train, train.first(test_samples), full_scale, names, scale=scale)


@dataclass(frozen=True)
class RandomTraining:
    """Training on random data that all sides of a comparison run."""

    network: Network
    batch: int
    state: ChipState
    """Weights to begin with; each side has a copy."""
    steps: int
    seed: int
    loss: str
    plan: str

    def task(self, driver: Callable[[], StepDriver]) -> TrainingTask:
        """Return a new training task for one side; ``driver`` returns its driver."""
        batch = self.batch
        data = random_data(self.network, 2 * batch + REST, batch + REST, self.seed)
        prior = PriorSettings(
            weight=PULL * len(data.train), warmup=0.0, threshold=0.5, interval=STEPS
        )
        # Programs of fewer columns cut none: they are those of a run that compiles after a cut.
        ranks = [len(columns) for columns in self.state.compiled]
        whole = ranks == [bond.left.columns for bond in self.state.layout.bonds]
        settings = TrainSettings(
            batch=self.batch, seed=self.seed, learning_rate=RATE,
            prior=prior if any(self.network.ranks) else None,
            chip=ChipSettings(loss=self.loss, cut_programs="kept" if whole else "fitted"),
        )  # fmt: skip
        state = deepcopy(self.state)
        model = ChipModel(self.network.with_ranks(state.ranks), state)
        total = FIRST + self.steps
        update = ChipUpdate(model, settings, total=total, samples=len(data.train))
        scales = Scales(scale_ranges(self.network, settings))
        training = TrainingState(self.network, settings, model, scales, step=FIRST)

        def draw(step: int) -> tuple[torch.Tensor, torch.Tensor]:
            exponent, train = driver().input_exponent, data.train
            quantiser = input_quantiser(self.network, data.full_scale, exponent, PIXELS)
            indices = chip_batch_indices(len(train), self.batch, self.seed, step)
            return quantiser(train.images[indices]), torch.from_numpy(train.labels[indices])

        labels = self.batch * self.network.rows_of(self.network.main)
        return TrainingTask(
            training, data, data.test, total, update, draw, begun=_ignore, save=_ignore,
            labels=lambda _: labels, occupied=attrgetter("count"),
        )  # fmt: skip


def _ignore() -> None:
    """Do nothing."""


def _state_of(task: TrainingTask) -> ChipState:
    model = task.state.model
    assert isinstance(model, ChipModel)
    return model.state


class TrainingSide:
    """Engine of a random training with its task, and all programs that it ran."""

    def __init__(self, plan: RandomTraining, accelerator: Accelerator) -> None:
        """Open the engine of ``plan``."""
        self.accelerator: Any = CountedWrites(accelerator)
        self._plan = plan
        self._before = self.host_writes = 0
        self.task = replace(plan.task(lambda: self.driver), begun=self._begin)
        self.engine = ResidentEngine(self.accelerator, plan=plan.plan, trace=True)
        self.engine.open(self.task)

    def _begin(self) -> None:
        self._before = self.accelerator.written

    @property
    def driver(self) -> ResidentDriver:
        """Driver of the engine."""
        return self.engine.driver

    @property
    def state(self) -> ChipState:
        """Weights after the steps so far."""
        return _state_of(self.task)

    @property
    def size(self) -> int:
        """Bytes of external memory that the training may touch, without the card of a run."""
        return self.accelerator.memory_bytes - PAGE

    def clear(self) -> None:
        """Fill memory and exponent file with zeros, so that both accelerators start alike."""
        self.accelerator.write(0, np.zeros(self.size, np.uint8))
        # A start sets the slots of its own tensors: others keep what an earlier check left.
        self.accelerator.exponents = [0] * self.accelerator.parameters.exponents

    def run(self, scales: Scales) -> None:
        """Run the steps, then classify the test set if the accelerator has it."""
        scales = scales.copy()
        self.engine.run(self._plan.steps, scales)
        assert self.driver.last_run is not None
        self.result = self.driver.loss_of(self.driver.last_run)
        self.host_writes = self.accelerator.written - self._before
        # Before the test set: its forward pass raises exponents to their floors, as the next step's
        # does, and the definitions leave this to the next step.
        self.exponents = self.driver.exponents()
        self.engine.take()
        self.task.state.step += self._plan.steps
        self.engine.classify(scales)


def _perturbed(side: TrainingSide) -> Scales:
    """Return calibrated exponents, some of which are off: the check has to see them move."""
    scales = side.task.state.scales.copy()
    side.task.calibrate(side.driver, scales)
    forward = {t.name for t in side.driver.step.forward.tensors}
    for number, name in enumerate(scales.exponents):  # the loss takes logits of at most 0
        scales.exponents[name] += -(number % 2) if name in forward else number % 3 - 1
    return scales


def _compare_executed(golden: TrainingSide, other: TrainingSide) -> Comparison:
    comparison, p = Comparison(), golden.accelerator.parameters
    for ours, theirs in zip(golden.driver.executed, other.driver.executed, strict=True):
        program = RunProgram(ours.name, theirs.program.descriptors, p)
        slots = tuple(f"slot {n}" for n in range(len(ours.run.sums)))
        comparison.merge(compare_runs(ours.run, theirs.run, slots, program))
    return comparison


def _compare_memory(golden: TrainingSide, other: TrainingSide) -> Comparison:
    """Compare all bytes; those beyond the step's buffers are not counted."""
    comparison, memory = Comparison(), golden.driver.memory
    ours, theirs = (side.accelerator.read(0, golden.size) for side in (golden, other))
    differs, at = ours != theirs, None
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


def _compare_definitions(plan: RandomTraining, other: TrainingSide, scales: Scales) -> Comparison:
    """Compare losses, correct samples, exponents and state with those of the definitions."""
    comparison, p = Comparison(), other.accelerator.parameters
    total, correct, scales = 0, 0, scales.copy()
    with GoldenAccelerator(p, memory_bytes=other.accelerator.memory_bytes) as golden:
        engine = HostEngine(
            lambda network: Driver(golden, network, plan.batch, plan=IN_ROWS[plan.plan])
        )
        task = plan.task(lambda: engine.driver)
        engine.open(task)
        for _ in range(plan.steps):
            result = engine.run(1, scales)
            engine.take()
            total += round(result.loss * (result.words or plan.batch) / other.driver.loss_unit)
            correct += result.correct
            scales.update(result.statistics)
            task.state.step += 1
    exponents, done = other.exponents, other.result
    for name, wanted, actual in (
        ("loss and correct samples", [total, correct], [done.total, done.correct]),
        ("exponents", [scales.exponents[name] for name in exponents], [*exponents.values()]),
    ):
        arrays = np.array(wanted), np.array(actual)
        comparison.add_arrays(f"{name}, defined", *arrays, row=len(wanted))
    arrays = other.state.to_arrays()
    for name, wanted in _state_of(task).to_arrays().items():
        comparison.add_arrays(f"{name}, defined", wanted, arrays[name], wanted.shape[-1])
    return comparison


def check_training(
    network: Network, batch: int, accelerator: Accelerator, *, seed: int = 0,
    state: ChipState | None = None, loss: str = "cross-entropy", steps: int = STEPS,
    plan: str = AUTO,
) -> TrainingCheck:  # fmt: skip
    """Train on the golden model and on ``accelerator``, loss and update included; compare both.

    Samples are random, and so are the weights unless ``state`` gives them. One start runs all
    ``steps`` and another one a test set. ``loss`` is one of ``onchip.loss.KERNELS``, ``plan`` of
    ``compiler.base.compiled.IN_ROWS``. A golden model as ``accelerator`` is compared with its
    interpreter. Raises ``CompileError`` for networks and accelerators that the programs do not
    take.
    """
    itself, size = is_kernel(accelerator), accelerator.memory_bytes
    seed = require_seed(seed, MOST_SEED)
    state = weakened(random_state(network, seed)) if state is None else state
    training = RandomTraining(network, batch, state, steps, seed, loss, plan)
    p = accelerator.parameters
    other = TrainingSide(training, accelerator)
    with GoldenAccelerator(p, memory_bytes=size, interpreted=itself) as model:
        golden = TrainingSide(training, model)
        other.clear()
        scales = _perturbed(golden)
        for side in (golden, other):
            side.run(scales)
        comparison = _compare_executed(golden, other)
        comparison.merge(_compare_memory(golden, other))
        comparison.merge(_compare_file(golden, other))
    comparison.merge(_compare_definitions(training, other, scales))
    run = other.driver.last_run
    assert run is not None
    before, after = (sum(map(len, weights.kept)) for weights in (state, other.state))
    return TrainingCheck(
        comparison=comparison,
        counters=run.counters,
        seconds=run.seconds,
        step=other.driver.step,
        compared=KERNEL if itself else HARDWARE,
        steps=steps,
        host_writes=max(golden.host_writes, other.host_writes),
        columns_cut=before - after,
    )

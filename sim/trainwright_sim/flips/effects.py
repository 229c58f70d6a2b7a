"""Measure what flipped bits do to the results of one step and to the accuracy after training."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from random import Random

import torch

from trainwright.accelerator import AcceleratorError
from trainwright.data import DataSet
from trainwright.driver import Driver, Results, StepInputs
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import Network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.errors import ProgramError
from trainwright.train.host_engine import HostEngine
from trainwright.train.interfaces import StepCase, Verification
from trainwright.train.loss import heads_loss
from trainwright.train.settings import TrainSettings
from trainwright.train.state import initial_state
from trainwright.train.trainer import Trainer
from trainwright_sim.flips.accelerator import Flipping, Spans

MEMORY_BYTES = 1 << 24
"""External memory of the accelerator, far more than a step needs."""
NOTICES = (ProgramError, AcceleratorError, ValueError, OverflowError)
"""Errors by which the accelerator or the host reports impossible words."""


@dataclass(frozen=True)
class Task:
    """The network to train, its data, and the accelerator's parameters."""

    network: Network
    data: DataSet
    parameters: AcceleratorParameters
    batch: int = 64


@dataclass(frozen=True)
class StepEffects:
    """Effects of ``flips`` single bit flips in ``memory``, with one flip per step."""

    memory: str
    flips: int
    harmless: int
    """Steps with the same result bits as a step without a flip."""
    noticed: int
    """Steps that ended with an error."""
    half: float
    """Median, over the other steps, of the error of the gradients: norm of the difference to a step
    without a flip, relative to the norm of the gradients."""
    worst: float
    """Largest of these errors."""

    def row(self) -> dict[str, object]:
        """Return the figures as an object for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class RunEffects:
    """Effects on training runs of ``rate`` flips per step in ``memory`` on average."""

    memory: str
    rate: float
    runs: int
    flips: int
    noticed: int
    """Runs that ended with an error."""
    accuracy: float
    """Mean test accuracy of the runs without an error."""
    least: float
    """Least test accuracy of the runs without an error."""

    def row(self) -> dict[str, object]:
        """Return the figures as an object for JSON."""
        return asdict(self)


def _opened(task: Task, memory: str, random: Random) -> tuple[Flipping, Callable[..., Driver]]:
    """Return an accelerator that flips bits, and a function that opens drivers for it."""
    golden = GoldenAccelerator(task.parameters, memory_bytes=MEMORY_BYTES)
    flipping = Flipping(golden, memory, random)

    def open_driver(network: Network) -> Driver:
        driver = Driver(flipping, network, task.batch)
        flipping.outside = _data(driver)
        return driver

    return flipping, open_driver


def _data(driver: Driver) -> Spans:
    """Return the spans of external memory that a step uses, without the programs.

    The golden model does not keep programs in external memory, so they cannot be flipped there.
    """
    buffers = driver.step.buffers.items()
    return [(b.address, b.address + b.size) for n, b in buffers if not n.startswith("program.")]


def _poisson(random: Random, rate: float) -> int:
    """Return a Poisson-distributed number of events with mean ``rate`` (below 1000)."""
    count, product, limit = 0, random.random(), 2.718281828459045**-rate
    while product > limit:
        count, product = count + 1, product * random.random()
    return count


def _step(driver: Driver, step: StepInputs, labels: torch.Tensor) -> Results:
    """Run a step again; the loss gradient is computed from the logits of this run."""
    scales = step.scales.copy()
    forward = driver.forward(step.inputs, step.model, scales)
    _, gradient = heads_loss(driver.network, forward.logits, labels)
    return forward, driver.backward(gradient, scales)


def _flat(results: Results) -> torch.Tensor:
    """Return logits and gradients of a step as one vector."""
    forward, backward = results
    factors = [factor for layer in backward.factors for factor in layer]
    biases = [bias for bias in backward.biases if bias is not None]
    return torch.cat([v.flatten() for v in (forward.logits, *factors, *biases)])


def step_effects(task: Task, memory: str, flips: int, *, warm: int, seed: int) -> StepEffects:
    """Train ``warm`` steps, then repeat the last step ``flips`` times with one flipped bit each."""
    random = Random(f"{memory} {seed}")
    flipping, open_driver = _opened(task, memory, random)
    cases: list[StepCase] = []

    def keep(case: StepCase) -> Verification:
        cases.append(case)
        return Verification()

    settings = TrainSettings(steps=warm, batch=task.batch, seed=seed)
    state = initial_state(task.network, settings)
    trainer = Trainer(state, task.data, HostEngine(open_driver, keep))
    for _ in range(warm):
        trainer.step()
    case = cases[-1]
    labels = case.inputs.gradient.argmin(1)  # only the gradient of the label is negative
    driver = open_driver(state.network)
    wanted = _flat(_step(driver, case.inputs, labels))
    size = float(wanted[case.forward.logits.numel() :].norm())
    harmless, noticed, off = 0, 0, []
    for _ in range(flips):
        # A step runs two programs, forward and backward: one of them gets the flip.
        runs = iter(random.choice(((1, 0), (0, 1))))
        flipping.count = lambda runs=runs: next(runs, 0)
        try:
            results = _flat(_step(driver, case.inputs, labels))
        except NOTICES:
            noticed += 1
            continue
        if torch.equal(results, wanted):
            harmless += 1
        else:
            difference = (results - wanted)[case.forward.logits.numel() :]
            off.append(float(difference.norm()) / size)
    off.sort()
    half, worst = (off[len(off) // 2], off[-1]) if off else (0.0, 0.0)
    return StepEffects(memory, flips, harmless, noticed, half, worst)


def run_effects(
    task: Task, memory: str, rate: float, *, runs: int, settings: TrainSettings
) -> RunEffects:
    """Train ``runs`` times, with seeds 0, 1, ..., and classify the test split without flips."""
    accuracies, noticed, flips = [], 0, 0
    for seed in range(runs):
        random = Random(f"{memory} {rate} {seed}")
        flipping, open_driver = _opened(task, memory, random)
        state = initial_state(task.network, TrainSettings(**{**vars(settings), "seed": seed}))
        trainer = Trainer(state, task.data, HostEngine(open_driver))
        # A step runs two programs, each of which asks for a number of flips.
        flipping.count = lambda random=random: _poisson(random, rate / 2)
        try:
            trainer.run()
            flipping.count = lambda: 0
            accuracies.append(trainer.evaluate_test().accuracy)
        except NOTICES:
            noticed += 1
        flips += flipping.flips
    mean = sum(accuracies) / len(accuracies) if accuracies else 0.0
    least = min(accuracies, default=0.0)
    return RunEffects(memory, rate, runs, flips, noticed, mean, least)

"""Bit-exactness of a resident program: whole steps by one start, on golden model and another.

The host writes state, program, schedule, exponents and, where the accelerator fetches them, all
samples; then it starts several steps at once, and writes nothing until they are done. One of eight,
the second one, looks at the columns. Then a test set is classified, its last batch filled up.
Compared with ``==``: every row that any engine writes, statistics, the external memory, the
exponent file and the order of the samples.
"""

from dataclasses import astuple, dataclass
from typing import Any, cast

import numpy as np
import torch

from trainwright.accelerator import Accelerator, FileAccelerator
from trainwright.accelerator.counted import CountedWrites
from trainwright.check.chip import calibrated, model_of, random_state
from trainwright.check.comparison import Comparison, Mismatch, RunProgram, compare_runs
from trainwright.check.step import HARDWARE, KERNEL, StepCheck, is_kernel
from trainwright.compiler.base.compiled import AUTO
from trainwright.compiler.chip.cuts import CutRule
from trainwright.compiler.chip.memory import classes_in_rows
from trainwright.driver.chip import ChipDriver
from trainwright.driver.resident import ResidentDriver, place_data
from trainwright.fixed.scale import Scales
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import Network
from trainwright.onchip.layout import LANES
from trainwright.onchip.rates import Entry, RateTable
from trainwright.onchip.samples import expanded, filled_up, records
from trainwright.onchip.state import ChipState

STEPS, FIRST = 8, 7
"""Steps that one start runs, where nothing else is said, and the number of the first: in the second
the prior's coefficients are renewed, and columns cut."""
TABLE = RateTable((*(Entry(11, 5, 200, -13),) * 3, Entry(9, 3, 160, -11)), steps=2)
CUT_RULE = CutRule(interval=8, distance=2)
"""Schedule of cuts: as often as a training cuts by default."""
PIXELS = 8
REST = 5
"""Samples of the set beyond an epoch of two batches."""


@dataclass(frozen=True)
class ResidentCheck(StepCheck):
    """Outcome of a check; the counters are those of all its steps."""

    steps: int = STEPS
    host_writes: int = 0
    """Bytes that the host wrote between start and end."""
    columns_cut: int = 0
    """Columns of all bonds that were cut in these steps."""

    def to_dict(self) -> dict[str, Any]:
        """Add what the host wrote, and what was cut."""
        mine = {"update": "chip", "steps": self.steps, "host_writes": self.host_writes}
        mine["columns_cut"] = self.columns_cut
        figures = {**super().to_dict(), **mine}
        if figures["cycles"]:  # of all steps: a step's share is what other checks give
            figures["run_cycles"] = figures["cycles"]
            figures["cycles"] = round(figures["run_cycles"] / self.steps)
            figures["mac_utilisation"] *= self.steps
        return figures


class _Batches:
    """Random samples with labels, and the first batch of them."""

    def __init__(self, network: Network, batch: int, seed: int) -> None:
        random = np.random.default_rng([seed, 1])
        shape = 2 * batch + REST, network.input_size
        stored = random.integers(0, 1 << PIXELS, shape).astype(np.uint8)
        labels = random.integers(0, network.classes, len(stored))
        numbered = classes_in_rows(network)
        self.records = records(stored, labels, PIXELS, network.classes, numbered=numbered)
        self.test = filled_up(self.records[: batch + REST], batch, numbered=numbered)
        self.inputs = torch.from_numpy(expanded(stored, PIXELS, PIXELS)[:batch])
        self.labels = labels[:batch]


class _Side:
    """Side of the comparison: one accelerator with its driver."""

    def __init__(
        self, accelerator: Accelerator, state: ChipState, given: _Batches, scales: Scales,
        seed: int, loss: str, plan: str,
    ) -> None:  # fmt: skip
        self.accelerator = cast(FileAccelerator, accelerator)
        batch = len(given.labels)
        counted: Any = CountedWrites(self.accelerator)
        self._counted = counted
        counted.write(0, np.zeros(counted.memory_bytes, np.uint8))
        data = test = None
        if counted.parameters.sample_loads:
            data = place_data(counted, given.records, batch, seed, PIXELS)
            test = place_data(counted, given.test, batch, seed, PIXELS, before=data.address)
        bonds = bool(state.layout.bonds)  # without one no column can shrink or be cut
        self.driver = ResidentDriver(
            counted, state.layout, batch, TABLE, trace=True, seed=seed, ranges=scales.ranges,
            data=data, pulled=bonds, cuts=CUT_RULE if bonds else None, loss=loss, test=test,
            plan=plan,
        )  # fmt: skip
        self.driver.put(state, model_of(state))
        self.driver.begin(scales, state, FIRST)
        if data is None:
            self.driver.put_batch(given.inputs, given.labels)

    def run(self, steps: int) -> int:
        """Run the steps, then the test set.

        Return the bytes that the host wrote during the steps.
        """
        before = self._counted.written
        self.driver.run_steps(steps, step=FIRST)
        written = self._counted.written - before
        if self.driver.evaluation:
            self.driver.evaluate()
        return written


def _weakened(state: ChipState) -> ChipState:
    """Return a state whose third columns have half their size, and are cut at once."""
    layout = state.layout
    for bond in layout.bonds:
        for side in (bond.left, bond.right):
            part = layout.parts[side.part]
            divisors = 1 + (np.arange(side.columns) % 3 == 1)
            along = np.expand_dims(divisors, tuple(n for n in range(4) if n != side.axis))
            values = state.weights.ravel()[part.places].reshape(part.shape)
            state.weights.ravel()[part.places] = (values // along).ravel()
    return state


def _scales(
    network: Network, golden: GoldenAccelerator, state: ChipState, given: _Batches, plan: str
) -> Scales:
    """Return calibrated scales, some of which have far to go."""
    driver = ChipDriver(golden, state.layout, len(given.labels), plan=plan)
    scales = calibrated(driver, model_of(state), given.inputs, given.labels, network.classes)
    forward = {t.name for t in driver.step.forward.tensors}
    for number, name in enumerate(scales.exponents):  # the loss takes logits of at most 0
        scales.exponents[name] += -(number % 2) if name in forward else number % 3 - 1
    return scales


def _compared(golden: _Side, other: _Side) -> Comparison:
    driver, p = other.driver, golden.accelerator.parameters
    ours, theirs = golden.driver.last_run, driver.last_run
    assert ours is not None and theirs is not None
    slots = tuple(f"slot {n}" for n in range(len(ours.sums)))
    step = RunProgram("resident", driver.resident.program.descriptors, p)
    comparison = compare_runs(ours, theirs, slots, step)
    tests = golden.driver.last_evaluation, driver.last_evaluation
    if tests[0] and tests[1] and driver.evaluation:
        program = RunProgram("evaluation", driver.evaluation.descriptors, p)
        comparison.merge(compare_runs(tests[0], tests[1], slots, program))
    sides = golden.accelerator, other.accelerator
    comparison.merge(_compare_memory(golden, other))
    files = [np.array(side.exponents) for side in sides]
    comparison.add_arrays("exponents", *files, row=len(files[0]))
    if p.sample_loads:
        orders = [np.array(astuple(side.order)) for side in sides]
        wrong = bool((orders[0] != orders[1]).any())
        single = Comparison()
        single.add_arrays("order of samples", *orders, row=len(orders[0]))
        comparison.add("order of samples", 1, int(wrong), single.first_mismatch)
    return comparison


def _compare_memory(golden: _Side, other: _Side) -> Comparison:
    """Compare all bytes that both have; what lies beyond the step's buffers is not counted."""
    comparison, driver = Comparison(), golden.driver
    size = min(side.accelerator.memory_bytes for side in (golden, other))
    memory = [side.accelerator.read(0, size) for side in (golden, other)]
    wrong, at = np.flatnonzero(memory[0] != memory[1]), None
    if len(wrong):
        first = int(wrong[0])
        buffers = driver.memory.everything
        name, start = next(
            ((n, b.address) for n, b in buffers.items() if b.address <= first < b.stop),
            ("memory", 0),
        )
        row, lane = divmod(first - start, LANES)
        at = Mismatch(
            tensor=f"{name} in memory", what="byte", row=row, lane=lane, address=first,
            wanted=int(memory[0][first]), actual=int(memory[1][first]),
        )  # fmt: skip
    comparison.add("memory", driver.memory.size, len(wrong), at)
    return comparison


def check_resident_steps(
    network: Network, batch: int, accelerator: Accelerator, *, seed: int = 0,
    loss: str = "cross-entropy", steps: int = STEPS, plan: str = AUTO,
) -> ResidentCheck:  # fmt: skip
    """Run steps and a test set by resident programs on golden model and ``accelerator``; compare.

    ``steps`` steps of random operands and a prior are one start, the test set another. Where
    ``accelerator`` is the golden model it is compared with its interpreter. ``loss`` is one of
    ``onchip.loss.LOSSES``, ``plan`` of ``compiler.base.compiled.IN_ROWS``. Raises ``CompileError``
    for networks and accelerators that the programs do not take.
    """
    itself = is_kernel(accelerator)
    state, given = _weakened(random_state(network, seed)), _Batches(network, batch, seed)
    p, size = accelerator.parameters, accelerator.memory_bytes
    with GoldenAccelerator(p, memory_bytes=size, interpreted=itself) as model:
        scales = _scales(network, model, state, given, plan)
        sides = [_Side(a, state, given, scales, seed, loss, plan) for a in (model, accelerator)]
        writes = max(side.run(steps) for side in sides)
        run = sides[1].driver.last_run
        assert run is not None
        return ResidentCheck(
            comparison=_compared(*sides),
            counters=run.counters,
            seconds=run.seconds,
            step=sides[1].driver.step,
            compared=KERNEL if itself else HARDWARE,
            steps=steps,
            host_writes=writes,
            columns_cut=sum(
                bond.left.columns - len(own)
                for bond, own in zip(state.layout.bonds, sides[1].driver.kept(), strict=True)
            ),
        )

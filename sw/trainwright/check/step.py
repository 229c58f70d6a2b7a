"""Bit-exactness: one training step on the golden model and on another back end, compared whole.

The golden model itself is held to its readable interpreter, which shares no code with the C kernel
that executes its programs.

Compared with ``==``: every row that any engine writes to the scratchpad, in order, with its
address; the whole external memory; every statistics slot.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from trainwright.accelerator import Accelerator, AcceleratorError, Counters, Run, Trace
from trainwright.compiler import CompiledStep
from trainwright.compiler.step import AUTO
from trainwright.driver import BackwardResult, Driver, ForwardResult, QuantisedModel
from trainwright.fixed.quantise import extremes, input_exponent
from trainwright.fixed.random_bits import step_seeds
from trainwright.fixed.scale import Scales
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import Network
from trainwright.program.descriptors import Compute, Transfer


@dataclass
class Comparison:
    """What was compared and what differed."""

    tensors: dict[str, int] = field(default_factory=dict)
    """Values compared of each tensor, by name."""
    mismatches: dict[str, int] = field(default_factory=dict)
    """Values that differ of each tensor, by name, in the order in which they were found."""

    def add(self, name: str, values: int, mismatches: int) -> None:
        """Count a comparison of ``values`` values."""
        self.tensors[name] = self.tensors.get(name, 0) + values
        if mismatches:
            self.mismatches[name] = self.mismatches.get(name, 0) + mismatches

    def merge(self, other: "Comparison") -> None:
        """Count everything of another comparison too."""
        for name, values in other.tensors.items():
            self.add(name, values, other.mismatches.get(name, 0))

    @property
    def values(self) -> int:
        """Values compared."""
        return sum(self.tensors.values())

    @property
    def differing(self) -> int:
        """Values that differ."""
        return sum(self.mismatches.values())

    @property
    def first(self) -> str | None:
        """The first tensor found to differ."""
        return next(iter(self.mismatches), None)


def _compare_trace(result: Comparison, golden: Trace, other: Trace) -> None:
    start = 0
    for name, count in golden.labels:
        stop = start + count
        rows, found = golden.rows[start:stop], other.rows[start:stop]
        if len(found) < count:
            result.add(name, rows.size, (count - len(found)) * rows.shape[1])
            rows = rows[: len(found)]
        else:
            result.add(name, rows.size, 0)
        wrong = rows != found
        moved = golden.addresses[start : start + len(found)] != other.addresses[start:stop]
        result.add(name, 0, int((wrong | moved[:, None]).sum()))
        start = stop
    if len(other.rows) > start:
        surplus = len(other.rows) - start
        result.add("rows written beyond the last tensor", 0, surplus * other.rows.shape[1])


def compare_runs(golden: Run, other: Run, slots: tuple[str, ...]) -> Comparison:
    """Compare the traces (where there are any) and the statistics of two runs of one program."""
    result = Comparison()
    if golden.traces is not None and other.traces is not None:
        for engine, trace in golden.traces.items():
            _compare_trace(result, trace, other.traces[engine])
    for slot, name in enumerate(slots):
        counted, found = (
            (run.sums[slot], run.saturations[slot], run.underflows[slot]) for run in (golden, other)
        )
        wrong = sum(int(a != b) for a, b in zip(counted, found, strict=True))
        result.add(f"{name} statistics", len(counted), wrong)
    return result


def compare_memory(step: CompiledStep, golden: Accelerator, other: Accelerator) -> Comparison:
    """Compare every buffer of the external memory but the programs, value by value."""
    result = Comparison()
    for name, buffer in step.buffers.items():
        if name.startswith("program."):
            continue
        kind = "<i2" if buffer.element_bytes == 2 else np.int8
        ours = golden.read(buffer.address, buffer.size).view(kind)
        found = other.read(buffer.address, buffer.size).view(kind)
        result.add(f"{name} in memory", ours.size, int((ours != found).sum()))
    return result


@dataclass(frozen=True)
class StepInputs:
    """Random operands of one training step."""

    model: QuantisedModel
    inputs: torch.Tensor
    gradient: torch.Tensor
    scales: Scales


def random_inputs(network: Network, driver: Driver, seed: int) -> StepInputs:
    """Seeded operands over the whole range of their formats, with calibrated scales."""
    generator = torch.Generator().manual_seed(seed)
    batch = driver.step.batch
    factors = [
        [
            torch.randint(low, high + 1, shape, generator=generator)
            for shape, (low, high) in zip(
                layer.factor_shapes, map(extremes, network.factor_formats(number)), strict=True
            )
        ]
        for number, layer in enumerate(network.layers)
    ]
    biases = [
        torch.randn(layer.output_size, generator=generator) if layer.bias else None
        for layer in network.layers
    ]
    low, high = extremes(network.format("activation"))
    inputs = torch.randint(low, high + 1, (batch, network.input_size), generator=generator)
    gradient = torch.randn(batch, network.output_size, generator=generator).double() / batch
    exponents = [
        [input_exponent(fmt) for fmt in network.factor_formats(number)]
        for number in range(len(network.layers))
    ]
    model = QuantisedModel(network, factors, exponents, biases)
    scales = Scales()
    driver.calibrate(inputs, lambda logits: gradient, model, scales)
    return StepInputs(model, inputs, gradient, scales)


@dataclass(frozen=True)
class StepCheck:
    """Outcome of a check."""

    comparison: Comparison
    counters: Counters
    seconds: float
    """Wall time of the back end's two runs."""
    step: CompiledStep
    compared: str
    """What was compared with what."""
    underflows: int = 0
    """Values of the step that were closer to 0 than the smallest posit."""

    def to_dict(self) -> dict[str, Any]:
        """The figures ``trainwright check --json`` prints."""
        p, cycles = self.step.parameters, self.counters.cycles
        figures: dict[str, Any] = {
            "network": self.step.network.name,
            "ranks": [list(r) for r in self.step.network.ranks],
            "formats": self.step.network.formats,
            "batch": self.step.batch,
            "plan": self.step.plan,
            "tensors": len(self.comparison.tensors),
            "values": self.comparison.values,
            "mismatches": self.comparison.differing,
            "first_mismatch": self.comparison.first,
            "underflows": self.underflows,
            "macs": self.step.macs,
            "multipliers": p.multipliers,
            "seconds": self.seconds,
        }
        if cycles:
            figures |= {
                "cycles": cycles,
                "mac_utilisation": self.step.macs / (p.multipliers * cycles),
                "sim_cycles_per_second": cycles / self.seconds,
            }
        else:
            figures |= {"cycles": None, "mac_utilisation": None, "sim_cycles_per_second": None}
        return figures | {
            name: value for name, value in vars(self.counters).items() if name != "cycles"
        }


def check_step(
    network: Network,
    batch: int,
    accelerator: Accelerator,
    *,
    seed: int = 0,
    plan: str = AUTO,
    rounding: str = "nearest",
) -> StepCheck:
    """One whole training step, random operands, on golden model and ``accelerator``; compared.

    Where ``accelerator`` is the golden model it is compared with its interpreter. Raises
    ``AcceleratorError`` where it is that interpreter itself, for want of a C compiler.
    """
    p = accelerator.parameters
    itself = is_kernel(accelerator)
    driver = Driver(accelerator, network, batch, plan=plan, trace=True)
    memory_bytes = driver.step.memory_bytes
    _clear(accelerator, memory_bytes)
    with GoldenAccelerator(p, memory_bytes=memory_bytes, interpreted=itself) as golden:
        reference = Driver(golden, network, batch, plan=plan, trace=True)
        operands = random_inputs(network, reference, seed)
        seeds = step_seeds(rounding, seed, 0)
        ours = _run(reference, operands, seeds)
        found = _run(driver, operands, seeds)
        comparison = compare_results(driver.step, ours, found)
        comparison.merge(compare_memory(driver.step, golden, accelerator))
    forward, backward = found
    return StepCheck(
        comparison=comparison,
        counters=forward.counters + backward.counters,
        seconds=forward.seconds + backward.seconds,
        step=driver.step,
        compared=KERNEL if itself else HARDWARE,
        underflows=int(forward.run.underflows.sum() + backward.run.underflows.sum()),
    )


HARDWARE = "the back end against the golden model"


def is_kernel(accelerator: Accelerator) -> bool:
    """Whether it is the golden model's C kernel, to be compared with the interpreter.

    Raises ``AcceleratorError`` for the interpreter itself.
    """
    if not isinstance(accelerator, GoldenAccelerator):
        return False
    if accelerator.interpreted:
        raise AcceleratorError(
            "the golden model executes by its interpreter, as there is no C compiler: there is "
            "nothing to compare it with; install one (pip install ziglang), or check the hardware "
            "(--backend rtl)"
        )
    return True


KERNEL = "the golden model's C kernel against its interpreter"
"""What a check compares."""

Results = tuple[ForwardResult, BackwardResult]


def compare_results(step: CompiledStep, golden: Results, other: Results) -> Comparison:
    """Compare both runs of a step."""
    comparison = Comparison()
    order: dict[str, int] = {}
    for program, ours, found in zip((step.forward, step.backward), golden, other, strict=True):
        slots = tuple(tensor.name for tensor in program.tensors)
        comparison.merge(compare_runs(ours.run, found.run, slots))
        for d in program.descriptors:
            if isinstance(d, Compute | Transfer):
                order.setdefault(d.tensor, len(order))
    # Engines were compared one after the other: back to the order of the programs.
    found_wrong = sorted(comparison.mismatches.items(), key=lambda i: order.get(i[0], len(order)))
    comparison.mismatches = dict(found_wrong)
    return comparison


def _run(driver: Driver, operands: StepInputs, seeds: tuple[int | None, int | None]) -> Results:
    inputs, model, scales = operands.inputs, operands.model, operands.scales
    forward = driver.forward(inputs, model, scales, seed=seeds[0])
    return forward, driver.backward(operands.gradient, scales, seed=seeds[1])


def _clear(accelerator: Accelerator, size: int) -> None:
    accelerator.write(0, np.zeros(size, np.uint8))


def summary(figures: Mapping[str, Any], compared: str = HARDWARE) -> str:
    """The figures of a check for people, a line each; ``compared`` says of what."""
    lines = [
        f"network {figures['network']}, ranks {figures['ranks']}, batch {figures['batch']}, "
        f"plan {figures['plan']}",
        f"compared {figures['tensors']} tensors, {figures['values']:,} values, {compared}: "
        f"{figures['mismatches']} mismatches",
    ]
    if figures["first_mismatch"]:
        lines.append(f"first tensor that differs: {figures['first_mismatch']}")
    if figures["cycles"]:
        lines += [
            f"{figures['cycles']:,} cycles for {figures['macs']:,} multiply-accumulates on "
            f"{figures['multipliers']} multipliers: {figures['mac_utilisation']:.1%} utilisation",
            f"{figures['bytes_read']:,} bytes read, {figures['bytes_written']:,} written",
            f"simulated at {figures['sim_cycles_per_second']:,.0f} cycles a second",
        ]
    return "\n".join(lines)

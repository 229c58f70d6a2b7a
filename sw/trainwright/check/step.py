"""Bit-exactness: one training step on the golden model and on another back end, compared whole.

The golden model itself is held to its readable interpreter, which shares no code with the C kernel
that executes its programs.

Compared with ``==``: every row that any engine writes to the scratchpad, in order, with its
address; the whole external memory; every statistics slot.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import log2, prod
from typing import Any

import numpy as np
import torch

from trainwright.accelerator import Accelerator, AcceleratorError, Counters
from trainwright.check.comparison import (
    Comparison,
    Mismatch,
    RunProgram,
    closing_lines,
    compare_runs,
)
from trainwright.compiler import CompiledStep
from trainwright.compiler.base.compiled import AUTO
from trainwright.compiler.base.memory import Buffer
from trainwright.driver import Driver, QuantisedModel, Results, StepInputs
from trainwright.fixed.quantise import extremes
from trainwright.fixed.random_bits import step_seeds
from trainwright.fixed.scale import Scales
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import Network
from trainwright.support.arguments import require_seed
from trainwright.support.text import amount

HARDWARE = "the back end against the golden model"
KERNEL = "the golden model's C kernel against its interpreter"
"""Values of ``StepCheck.compared``."""
MOST_SEED = (1 << 63) - 1
"""Greatest seed of random operands that torch and numpy both take."""
MASKS = 0
"""Seed of the masks of dropout in a check."""


def programs_of(step: CompiledStep) -> list[RunProgram]:
    """Return the programs of a step by their names, to name what wrote a value."""
    p = step.parameters
    return [RunProgram(name, each.descriptors, p) for name, each in step.programs.items()]


def compare_memory(
    step: CompiledStep, golden: Accelerator, other: Accelerator, results: Results | None = None
) -> Comparison:
    """Compare every buffer of the external memory but the programs, value by value.

    ``results`` are those of the other accelerator: they tell when a value was stored.
    """
    result = compare_buffers(step.buffers, golden, other, step.parameters.lanes)
    for name in step.buffers:
        if at := result.places.get(f"{name} in memory"):
            result.places[at.tensor] = _stored(step, at, results)
    return result


def compare_buffers(
    buffers: Mapping[str, Buffer], golden: Accelerator, other: Accelerator, lanes: int
) -> Comparison:
    """Compare the values of buffers but the programs, in rows of ``lanes`` values."""
    result = Comparison()
    for name, buffer in buffers.items():
        if name.startswith("program."):
            continue
        ours = golden.read(buffer.address, buffer.size).view(buffer.dtype)
        theirs = other.read(buffer.address, buffer.size).view(buffer.dtype)
        result.add_arrays(f"{name} in memory", ours, theirs, lanes, buffer.address)
    return result


def _stored(step: CompiledStep, at: Mismatch, results: Results | None) -> Mismatch:
    """Name the descriptor that stored a value last, by its address."""
    for program, done in reversed([*zip(programs_of(step), results or (), strict=False)]):
        named = program.stored(at, done.run)
        if named.descriptor is not None:
            return named
    return at


def random_inputs(network: Network, driver: Driver, seed: int) -> StepInputs:
    """Return seeded operands over the whole range of their formats, with calibrated scales."""
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
    if driver.input_exponent == 0:  # digits of words, all of them 0 or 1
        low, high = 0, 1
    inputs = torch.randint(low, high + 1, (batch, network.input_size), generator=generator)
    inputs = shortened(network, inputs)
    gradient = torch.randn(batch, network.output_size, generator=generator).double() / batch
    exponents = [_factor_exponents(network, number) for number in range(len(network.layers))]
    model = QuantisedModel(network, factors, exponents, biases)
    scales = Scales()
    driver.calibrate(inputs, lambda logits: gradient, model, scales)
    return StepInputs(model, inputs, gradient, scales)


def shortened(network: Network, inputs: torch.Tensor) -> torch.Tensor:
    """Pad sequences to all lengths from 1 token on, the first ones as short as can be."""
    if not network.padding:
        return inputs
    lengths = 1 + torch.arange(len(inputs)) % network.tokens
    present = torch.arange(network.tokens) < lengths[:, None]
    return (inputs.reshape(len(inputs), network.tokens, -1) * present[:, :, None]).flatten(1)


def _factor_exponents(network: Network, number: int) -> list[int]:
    """Choose exponents of random factors; in a network of tokens they keep the size of values.

    Scores of attention grow with the square of values: softmax of large ones is 1 or 0, and has
    gradients of 0, which test nothing.
    """
    layer, formats = network.layers[number], network.factor_formats(number)
    exponents = [fmt.input_exponent for fmt in formats]
    if network.tokens > 1:
        # The variance of an element: of a uniform word of each factor, times sums over ranks.
        words = [(4**fmt.width / 12) * 4.0**e for fmt, e in zip(formats, exponents, strict=True)]
        variance = prod(words) * prod(layer.ranks)
        columns = 1 if layer.diagonal else layer.input_size
        exponents[0] -= round(log2(variance * columns) / 2)
    return exponents


@dataclass(frozen=True)
class StepCheck:
    """Outcome of a check."""

    comparison: Comparison
    counters: Counters
    seconds: float
    """Wall time of the back end's two runs."""
    step: CompiledStep
    compared: str
    """Text that names both sides."""
    hazards: Comparison | None = None
    """Comparison of the programs in ``check.hazards``, for hardware."""
    underflows: int = 0
    """Values of the step that were closer to 0 than the smallest number of their format."""
    rtl_blocks: tuple[str, ...] = ()
    """Blocks that engine `leaves` simulated as RTL, as no model covers their parameters."""

    @property
    def differing(self) -> int:
        """Values that differ, those of hazards too."""
        return self.comparison.differing + (self.hazards.differing if self.hazards else 0)

    def to_dict(self) -> dict[str, Any]:
        """Return the figures that ``trainwright check --json`` prints."""
        p, cycles = self.step.parameters, self.counters.cycles
        first = self.comparison.first_mismatch
        if first is None and self.hazards is not None:
            first = self.hazards.first_mismatch
        figures: dict[str, Any] = {
            "network": self.step.network.name,
            "ranks": [list(r) for r in self.step.network.ranks],
            "formats": self.step.network.formats,
            "batch": self.step.batch,
            "plan": self.step.plan,
            "tensors": len(self.comparison.tensors),
            "values": self.comparison.values,
            "mismatches": self.differing,
            "hazard_values": 0 if self.hazards is None else self.hazards.values,
            "first_mismatch": first and first.to_dict(),
            "underflows": self.underflows,
            "macs": self.step.macs,
            "multipliers": p.multipliers,
            "seconds": self.seconds,
            "rtl_blocks": list(self.rtl_blocks),
            "cycles": cycles or None,
            "mac_utilisation": self.step.macs / (p.multipliers * cycles) if cycles else None,
            "sim_cycles_per_second": cycles / self.seconds if cycles else None,
        }
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
    """Run a training step of random operands on golden model and ``accelerator``; compare.

    A golden model as ``accelerator`` is compared with its interpreter. Raises ``AcceleratorError``
    where the golden model is interpreted already, because there is no C compiler.
    """
    itself, seed = is_kernel(accelerator), require_seed(seed, MOST_SEED)
    with twins(accelerator, network, batch, plan, interpreted=itself) as (reference, driver):
        operands = random_inputs(network, reference, seed)
        operands = replace(operands, seeds=step_seeds(rounding, seed, 0), masks=MASKS)
        comparison, _, theirs = compare_step(reference, driver, operands)
    forward, backward = theirs
    return StepCheck(
        comparison=comparison,
        counters=forward.counters + backward.counters,
        seconds=forward.seconds + backward.seconds,
        step=driver.step,
        compared=KERNEL if itself else HARDWARE,
        underflows=int(forward.run.underflows.sum() + backward.run.underflows.sum()),
    )


def is_kernel(accelerator: Accelerator) -> bool:
    """Return whether an accelerator is the golden model's C kernel, compared with the interpreter.

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


@contextmanager
def twins(
    accelerator: Accelerator, network: Network, batch: int, plan: str, *, interpreted: bool = False
) -> Iterator[tuple[Driver, Driver]]:
    """Open traced drivers of a golden model and of an accelerator, on memories of zeros.

    Padding that programs never write then compares equal.
    """
    driver = Driver(accelerator, network, batch, plan=plan, trace=True)
    p, size = accelerator.parameters, driver.step.memory_bytes
    accelerator.write(0, np.zeros(size, np.uint8))
    with GoldenAccelerator(p, memory_bytes=size, interpreted=interpreted) as golden:
        yield Driver(golden, network, batch, plan=plan, trace=True), driver


def compare_step(
    golden: Driver, other: Driver, operands: StepInputs
) -> tuple[Comparison, Results, Results]:
    """Run a step on two drivers; return the comparison and both results."""
    ours, theirs = operands.run(golden), operands.run(other)
    comparison = compare_results(other.step, ours, theirs)
    comparison.merge(compare_memory(other.step, golden.accelerator, other.accelerator, theirs))
    return comparison, ours, theirs


def compare_results(step: CompiledStep, golden: Results, other: Results) -> Comparison:
    """Compare both runs of a step."""
    comparison = Comparison()
    for program, named, ours, theirs in zip(
        step.programs.values(), programs_of(step), golden, other, strict=True
    ):
        slots = tuple(tensor.name for tensor in program.tensors)
        comparison.merge(compare_runs(ours.run, theirs.run, slots, named))
    return comparison


def summary(figures: Mapping[str, Any], compared: str = HARDWARE) -> str:
    """Write the figures of a check for people, a line each; ``compared`` says with what."""
    lines = [
        f"network {figures['network']}, ranks {figures['ranks']}, batch {figures['batch']}, "
        f"plan {figures['plan']}",
        f"compared {amount(figures['tensors'], 'tensor')}, "
        f"{amount(figures['values'], 'value')}, {compared}: "
        f"{amount(figures['mismatches'], 'mismatch')}",
    ]
    if figures["hazard_values"]:
        lines.append(f"of programs of hazards: {figures['hazard_values']:,} values more")
    lines += closing_lines(figures)
    if figures["cycles"]:
        lines.append(f"simulated at {figures['sim_cycles_per_second']:,.0f} cycles a second")
    return "\n".join(lines)

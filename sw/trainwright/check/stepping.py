"""A training step of a network with random operands, to be stepped through on the golden model."""

import numpy as np
import numpy.typing as npt

from trainwright.accelerator import Run
from trainwright.check.step import random_inputs
from trainwright.compiler.base.compiled import AUTO
from trainwright.driver import Driver
from trainwright.golden.backend import GoldenAccelerator
from trainwright.golden.stepper import Stepper
from trainwright.network import Network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Program


class _Noted(GoldenAccelerator):
    """Golden model that notes each program, and the memory in which the program found its operands.

    The last program and memory are kept.
    """

    def run(self, program: Program, address: int, *, trace: bool = False) -> Run:
        self.noted: tuple[Program, npt.NDArray[np.uint8]] = program, self._memory.copy()
        return super().run(program, address, trace=trace)


def stepper_of(
    network: Network,
    batch: int = 64,
    *,
    part: str = "forward",
    seed: int = 0,
    plan: str = AUTO,
    parameters: AcceleratorParameters | None = None,
    memory_bytes: int = 1 << 26,
) -> Stepper:
    """Return the forward or the backward program of a step, before its first descriptor.

    Operands are those of ``trainwright trace`` and ``check`` with the same ``seed``.

    >>> from trainwright.network import load_network
    >>> stepper = stepper_of(load_network("digits"), 16)
    >>> step = stepper.run_to(5)
    >>> step.descriptor.operation.name, len(step.rows) == len(step.addresses)
    ('PE3', True)
    """
    if part not in ("forward", "backward"):
        raise ValueError(f"part must be 'forward' or 'backward', not {part!r}")
    p = parameters or AcceleratorParameters(factor_width=network.factor_width)
    accelerator = _Noted(p, memory_bytes=memory_bytes)
    driver = Driver(accelerator, network, batch, plan=plan)
    given = random_inputs(network, driver, seed)
    driver.forward(given.inputs, given.model, given.scales)
    if part == "backward":
        driver.backward(given.gradient, given.scales)
    program, memory = accelerator.noted
    return Stepper(program, memory, p)

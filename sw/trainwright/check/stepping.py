"""A training step of a network with random operands, to be stepped through."""

from typing import Any, cast

import numpy as np
import numpy.typing as npt

from trainwright.accelerator import Accelerator, Run, open_accelerator
from trainwright.accelerator.stepping import Stepping
from trainwright.check.step import random_inputs
from trainwright.compiler.base.compiled import AUTO
from trainwright.driver import Driver
from trainwright.network import Network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Program

BACKENDS = ("golden", "rtl")


class _Noted:
    """Accelerator that keeps its last program, and a copy of the memory before that program."""

    def __init__(self, accelerator: Accelerator):
        self._accelerator = accelerator

    def __getattr__(self, name: str) -> Any:
        return getattr(self._accelerator, name)

    def run(self, program: Program, address: int, *, trace: bool = False) -> Run:
        memory = self._accelerator.read(0, self._accelerator.memory_bytes)
        self.noted: tuple[Program, int, npt.NDArray[np.uint8]] = program, address, memory
        return self._accelerator.run(program, address, trace=trace)


def stepper_of(
    network: Network,
    batch: int = 64,
    *,
    part: str = "forward",
    seed: int = 0,
    plan: str = AUTO,
    parameters: AcceleratorParameters | None = None,
    memory_bytes: int = 1 << 26,
    backend: str = "golden",
) -> Stepping:
    """Return the forward or the backward program of a step, before its first descriptor.

    Operands are those of ``trainwright trace`` and ``check`` with the same ``seed``. ``backend`` is
    ``golden`` or ``rtl``; raises ``ValueError`` for one that steps through no program.

    >>> from trainwright.network import load_network
    >>> stepper = stepper_of(load_network("digits"), 16)
    >>> step = stepper.run_to(5)
    >>> step.descriptor.operation.name, len(step.rows) == len(step.addresses)
    ('PE3', True)
    """
    if part not in ("forward", "backward"):
        raise ValueError(f"part must be 'forward' or 'backward', not {part!r}")
    if backend not in BACKENDS:
        raise ValueError(f"back end {backend!r} steps through no program: use golden or rtl")
    p = parameters or AcceleratorParameters(factor_width=network.factor_width)
    accelerator: Any = open_accelerator(backend, p, memory_bytes=memory_bytes)
    noted = _Noted(accelerator)
    driver = Driver(cast(Accelerator, noted), network, batch, plan=plan)
    given = random_inputs(network, driver, seed)
    driver.forward(given.inputs, given.model, given.scales)
    if part == "backward":
        driver.backward(given.gradient, given.scales)
    program, address, memory = noted.noted
    accelerator.write(0, memory)
    return accelerator.stepper(program, address)

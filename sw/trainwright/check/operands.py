"""Operands that the first multiplier of each array takes in a training step."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trainwright.check.stepping import stepper_of
from trainwright.golden.compute import first_operands
from trainwright.golden.stepper import Stepper
from trainwright.network import Network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute
from trainwright.program.engines import contraction_of
from trainwright.timing.energy import ToggleEnergy

Pairs = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""First and second operand of each product."""


def multiplied(
    network: Network, batch: int, *, seed: int, plan: str, parameters: AcceleratorParameters
) -> list[Pairs]:
    """Return the pairs that each array's first multiplier takes in a step on random operands."""
    pairs: dict[object, list[Pairs]] = {}
    for part in ("forward", "backward"):
        whole = stepper_of(
            network, batch, part=part, seed=seed, plan=plan, parameters=parameters
        )  # fmt: skip
        memory = whole.state.memory.copy()
        # This run lists the executed descriptors, so that a second one can stop before each.
        numbers = [step.number for step in whole]
        again = Stepper(whole.program, memory, parameters)
        for number in numbers:  # read operands first: the descriptor may overwrite them
            d = whole.program.descriptors[number]
            if isinstance(d, Compute) and (array := contraction_of(d.operation)) is not None:
                taken = first_operands(d, again.state, parameters)
                pairs.setdefault(array.engine, []).append(taken)
            next(again)
    return [
        (np.concatenate([left for left, _ in own]), np.concatenate([right for _, right in own]))
        for own in pairs.values()
    ]


def toggle_energy(
    liberty: Path, network: Network, batch: int, accelerator: Any, *, seed: int, plan: str
) -> ToggleEnergy:
    """Return the energy of multiplications of a step with random operands in a file's cells.

    ``accelerator`` is simulated hardware.
    """
    operands = multiplied(
        network, batch, seed=seed, plan=plan, parameters=accelerator.parameters
    )  # fmt: skip
    low, high, cells, saif = accelerator.multiplication_energy(liberty, operands)
    products = sum(len(left) for left, _ in operands)
    return ToggleEnergy(liberty, (low, high), cells, products, tuple(saif))

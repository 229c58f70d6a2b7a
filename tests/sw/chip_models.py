"""Models and exponents of steps whose weights are a state on the chip."""

from dataclasses import replace

import numpy as np
import torch

from trainwright.compiler.chip.memory import (
    TARGETS,
    ChipMemory,
    LabelGrid,
    classes_in_rows,
    label_kinds,
)
from trainwright.driver import Driver, QuantisedModel
from trainwright.driver.resident import ResidentDriver, lay_out_data
from trainwright.fixed.scale import Scales
from trainwright.network import Layer, load_network
from trainwright.onchip.samples import target_rows
from trainwright.onchip.schedule import Entry
from trainwright.onchip.state import ChipState
from trainwright.train.chip_update import ChipModel

RANKED = replace(
    load_network("digits"),
    layers=(
        Layer((4, 8, 4), (1, 8, 8), (4, 20)),
        Layer((2, 8), (16, 8), (17,), relu=False),
    ),
)
"""Network with ranks of more columns than a row has lanes."""
ENTRY = Entry(rate=11, rate_shift=5, weight=200, weight_exponent=-14)


def model_of(state: ChipState) -> QuantisedModel:
    """Return the model as forward and backward pass read it."""
    return ChipModel(state.layout.network, state).operands()


def put_batch(driver: ResidentDriver, inputs: torch.Tensor, labels: np.ndarray) -> None:
    """Write inputs and targets of the next steps of a driver without a data set."""
    driver._put_inputs(inputs, None)
    driver._write(TARGETS, targets(driver.memory, labels))


def targets(memory: ChipMemory, labels: np.ndarray) -> np.ndarray:
    """Return the rows of ``TARGETS`` for the main head's labels (batch,) or (batch, tokens)."""
    network, lanes = memory.step.network, memory.layout.lanes
    if not classes_in_rows(network, lanes):
        return target_rows(labels, network.classes, lanes)
    grid = LabelGrid.of(next(iter(label_kinds(network).values())), memory.step.batch, lanes)
    words = np.full((grid.sequences, grid.blocks * lanes), -1)
    words[:, : grid.samples] = labels.reshape(grid.sequences, grid.samples)
    return words.reshape(-1, lanes)


def calibrated(
    driver: Driver, model: QuantisedModel, inputs: torch.Tensor, labels: np.ndarray, classes: int
) -> Scales:
    """Return exponents with which a step of these operands neither saturates nor vanishes."""
    scales = Scales()

    def gradient_of(logits: torch.Tensor) -> torch.Tensor:
        chosen = torch.from_numpy(labels)
        shares = torch.softmax(logits[:, :classes], 1)
        shares[torch.arange(len(chosen)), chosen] -= 1
        return torch.nn.functional.pad(shares, (0, logits.shape[1] - classes)) / len(chosen)

    driver.calibrate(inputs, gradient_of, model, scales)
    return scales


def place_data(accelerator, records: np.ndarray, *run: int, before: int | None = None):
    """Write records where ``lay_out_data`` places those of a batch, a seed and bits of a pixel."""
    data = lay_out_data(accelerator, records, *run, before=before)
    accelerator.write(data.address, records)
    return data

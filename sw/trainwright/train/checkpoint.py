"""Checkpoints: one safetensors file with the whole training state, JSON in its header, no code.

Tensors: ``factor.L.N``, ``bias.L``, each with ``.first`` and ``.second`` (Adam), and the history;
with an update on the chip its state instead, ``chip.NAME`` (``trainwright.onchip.state``).
The header's ``trainwright`` entry holds network, present ranks, settings, exponents, step and a
SHA-256 over the tensors, so that a flipped bit is detected before training goes on.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from trainwright.fixed.scale import Scales
from trainwright.network import Network, network_from_dict
from trainwright.onchip.layout import make_layout
from trainwright.onchip.state import ChipState
from trainwright.support.errors import errors_as
from trainwright.support.files import write_whole
from trainwright.support.plain import NONSENSE, of_plain, typed
from trainwright.support.tensor_file import CheckpointError, decode, encode
from trainwright.support.text import amount
from trainwright.train.adam import Parameter
from trainwright.train.chip_update import ChipModel
from trainwright.train.history import History
from trainwright.train.interfaces import Verification
from trainwright.train.model import Model
from trainwright.train.settings import settings_from_dict
from trainwright.train.state import TrainingState, scale_ranges, scaled
from trainwright.train.stored_values import (
    factor_exponents,
    finite,
    read_parameters,
    shaped,
    tensor_exponents,
)

FORMAT = "trainwright-checkpoint-3"


@dataclass(frozen=True)
class Checkpoint:
    """State of a run with the caller's plain data (``run``) that its continuation needs."""

    state: TrainingState
    run: dict[str, Any] = field(default_factory=dict)


def save_checkpoint(path: Path, state: TrainingState, run: dict[str, Any] | None = None) -> None:
    """Write the state; the file is replaced whole. Raises ``OSError``."""
    tensors = state.history.to_tensors()
    tensors |= _model_tensors(state.model)
    metadata = {
        "format": FORMAT,
        "network": state.network.to_dict(),
        "ranks": state.model.network.ranks,
        "settings": state.settings.to_dict(),
        "factor_exponents": state.model.exponents,
        "bias_exponents": state.model.quantised().bias_exponents,
        "exponents": state.scales.exponents,
        "step": state.step,
        "verification": vars(state.verification),
        "run": run or {},
    }
    write_whole(path, encode(metadata, tensors))


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint. Raises ``CheckpointError``."""
    metadata, tensors = decode(path, FORMAT)
    with errors_as(f"{path} is not a checkpoint of this version", CheckpointError, NONSENSE):
        network = network_from_dict(metadata["network"])
        settings = settings_from_dict(metadata["settings"])
        state = TrainingState(
            network=network,
            settings=settings,
            model=(
                scaled(_model(network, metadata, tensors), settings)
                if settings.chip is None
                else _chip_model(network, metadata, tensors)
            ),
            scales=Scales(scale_ranges(network, settings), tensor_exponents(metadata)),
            step=typed("step", metadata["step"], int),
            history=History.from_tensors(tensors),
            verification=of_plain(Verification, metadata["verification"]),
        )
        # A step's record may stand for several steps, so the numbers must rise but need not be
        # consecutive; the last must be the state's step, or the learning rate would continue from
        # another place.
        recorded = [0, *(record.step for record in state.history.steps)]
        if recorded[-1] != state.step or recorded != sorted(set(recorded)):
            known = recorded[1:]
            raise ValueError(
                f"{amount(state.step, 'step')} with {amount(len(known), 'record')}, the last of "
                f"steps {known[-3:]}"
            )
        return Checkpoint(state, dict(metadata["run"]))


def _model_tensors(model: Model | ChipModel) -> dict[str, torch.Tensor]:
    if isinstance(model, ChipModel):
        arrays = model.state.to_arrays()
        return {f"chip.{name}": torch.from_numpy(array) for name, array in arrays.items()}
    tensors = {}
    for name, parameter in model.parameters():
        tensors[name] = parameter.value
        tensors[f"{name}.first"] = parameter.first
        tensors[f"{name}.second"] = parameter.second
    return tensors


def _chip_model(
    network: Network, metadata: dict[str, Any], tensors: dict[str, torch.Tensor]
) -> ChipModel:
    layout = make_layout(network, metadata["factor_exponents"], metadata["bias_exponents"])
    prefix = "chip."
    arrays = {
        name.removeprefix(prefix): tensor.numpy()
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }
    state = ChipState.from_arrays(layout, arrays)
    return ChipModel(network.with_ranks(state.ranks), state)


def _model(network: Network, metadata: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Model:
    # Ranks may have been cut since the network was described; the factors in the file have those of
    # the metadata.
    network = network.with_ranks(metadata["ranks"])

    def parameter(name: str, shape: tuple[int, ...]) -> Parameter:
        parts = [
            shaped(name, finite(name, tensors[name + suffix]), shape)
            for suffix in ("", ".first", ".second")
        ]
        # Adam takes the root of the second moment: a negative element would turn the weight into
        # NaN at the next step, long after the file was read.
        if bool((parts[2] < 0).any()):
            raise ValueError(f"{name}: its second moment is negative")
        return Parameter(*parts)

    factors, biases = read_parameters(network, parameter)
    return Model(network, factors, factor_exponents(network, metadata), biases)

"""The trained model as a file: integers, exponents and the network description, nothing else."""

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import torch
from msgspec import Meta

from trainwright.data.dataset import Split
from trainwright.data.npz import TEST_PART, cut_off_test
from trainwright.driver import QuantisedModel
from trainwright.driver.model import check_words
from trainwright.fixed.scale import Scales
from trainwright.network import Network, network_from_dict
from trainwright.support.errors import errors_as
from trainwright.support.files import write_whole
from trainwright.support.plain import NONSENSE, of_plain
from trainwright.support.tensor_file import CheckpointError, decode, encode
from trainwright.train.chip_update import ChipModel
from trainwright.train.model import Model, digest
from trainwright.train.stored_values import (
    factor_exponents,
    finite,
    parameter_names,
    read_parameters,
    shaped,
    tensor_exponents,
)

FORMAT = "trainwright-model-2"


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Data that a model was trained on and settings that its programs were compiled with.

    With the same batch, plan and accelerator the same program runs again: the logits have the bits
    they had in training.
    """

    dataset: str
    class_names: tuple[str, ...]
    full_scale: int
    """A pixel's value is its byte divided by this: 0..1, quantised with the input exponent."""
    batch: Annotated[int, Meta(gt=0, lt=1 << 20)]
    """Samples of a program."""
    plan: str
    accelerator: tuple[str, ...] = ()
    """Sizes other than the default, as NAME=N."""
    pixels: int | None = None
    """Bits of a stored pixel; None where the host quantises them (``train.batches``)."""

    preparation: dict[str, Any] | None = None
    """How samples of the user's own become bytes (`data.own`)."""
    data_crc: int | None = None
    """CRC-32 of the training split of such data, to know the same file again."""


def held_back(
    path: Path, images: npt.NDArray[Any], labels: npt.NDArray[Any], data_crc: int | None
) -> npt.NDArray[np.int64] | None:
    """Return the samples that training held back, None if it read others than those of a file."""
    if len(labels) < TEST_PART:
        return None
    train, held = cut_off_test(path, len(labels))
    return held if Split(images[train], labels[train]).crc == data_crc else None


@dataclass(frozen=True)
class TrainedModel:
    """Everything that inference needs: a quantised model and its exponents."""

    model: QuantisedModel
    scales: Scales
    origin: Origin | None
    """Origin of the model, or None where the file does not state one."""
    digest: str
    """SHA-256 of the factors; see ``Model.digest``."""


def save_model(
    path: Path, model: Model | ChipModel, scales: Scales, origin: Origin | None = None
) -> None:
    """Write a safetensors file; network, ranks, exponents and origin are in its header.

    ``factor.L.N`` is int8, or int16 over 8 bits, or float32 in a float32 network; ``bias.L`` is
    float32. Raises ``OSError``.
    """
    quantised = model.quantised()
    biases = [None if bias is None else bias.to(torch.float32) for bias in quantised.biases]
    stored = _stored(model.network)
    factors = [[factor.to(stored) for factor in layer] for layer in quantised.factors]
    tensors = parameter_names(factors, biases)
    metadata = {
        "format": FORMAT,
        "network": model.network.to_dict(),
        "factor_exponents": model.exponents,
        "bias_exponents": quantised.bias_exponents,
        "exponents": scales.exponents,
        "digest": model.digest(),
        "origin": None if origin is None else asdict(origin),
    }
    write_whole(path, encode(metadata, tensors))


def _stored(network: Network) -> torch.dtype:
    """Return the type of the factors in the file: the narrowest that holds their bits."""
    if network.widths.is_float:
        return torch.float32
    return torch.int8 if network.factor_width <= 8 else torch.int16


def load_model(path: Path) -> TrainedModel:
    """Read what ``save_model`` wrote.

    Raises ``CheckpointError``, also where a sound file holds no model: factors of more bits than
    the network's, or of another digest, and numbers that are not finite.
    """
    metadata, tensors = decode(path, FORMAT)
    with errors_as(f"{path} is not a model of this version", CheckpointError, NONSENSE):
        network = network_from_dict(metadata["network"])
        factors, biases = read_parameters(network, partial(_parameter, network, tensors))
        model = QuantisedModel(
            network=network,
            factors=factors,
            factor_exponents=factor_exponents(network, metadata),
            biases=biases,
            bias_exponents=metadata.get("bias_exponents"),
        )
        # The file's own checksum proves that it arrived as written; this digest proves that the
        # factors are those that training ended with.
        if digest(model) != metadata["digest"]:
            raise ValueError("its factors and biases are not those of its digest")
        origin = metadata["origin"]
        return TrainedModel(
            model,
            Scales(exponents=tensor_exponents(metadata)),
            None if origin is None else of_plain(Origin, origin),
            metadata["digest"],
        )


def _parameter(
    network: Network, tensors: dict[str, torch.Tensor], name: str, shape: tuple[int, ...]
) -> torch.Tensor:
    """Return a factor or a bias checked for the network's shape and bits.

    Raises ``ValueError`` or ``LookupError``.
    """
    stored = shaped(name, tensors[name], shape)
    kind, *place = name.split(".")
    if kind == "bias":
        return finite(name, stored).to(torch.float64)
    if network.widths.is_float:
        return finite(name, stored)
    # int8 and int16 files hold the same integers, but only one of the two is what `save_model`
    # writes for this network: the other comes from a file whose header was edited.
    if stored.dtype != _stored(network):
        raise ValueError(f"{name} is {stored.dtype}, not {_stored(network)}")
    factor = stored.to(torch.int64)
    check_words(name, factor, shape, network.factor_format(*map(int, place)))
    return factor

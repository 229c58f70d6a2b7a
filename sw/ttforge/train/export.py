"""The trained model as a file: integers, exponents and the network description, nothing else."""

from dataclasses import dataclass
from pathlib import Path

import torch

from ttforge.driver import QuantisedModel
from ttforge.files import write_whole
from ttforge.fixed.scale import Scales
from ttforge.network import network_from_dict
from ttforge.train.checkpoint import CheckpointError, decode, encode
from ttforge.train.model import Model

FORMAT = "ttforge-model-1"


@dataclass(frozen=True)
class TrainedModel:
    """What inference needs: the quantised model and the exponents it was trained with."""

    model: QuantisedModel
    scales: Scales


def save_model(path: Path, model: Model, scales: Scales) -> None:
    """Write ``factor.L.N`` (int8, or int16 over 8 bits) and ``bias.L`` (float32) to a safetensors
    file; network, ranks and exponents are in its header. Raises ``OSError``.
    """
    quantised = model.quantised()
    kind = torch.int8 if model.network.widths.factor <= 8 else torch.int16
    tensors = {
        f"factor.{n}.{k}": factor.to(kind)
        for n, factors in enumerate(quantised.factors)
        for k, factor in enumerate(factors)
    }
    for n, bias in enumerate(model.biases):
        if bias is not None:
            tensors[f"bias.{n}"] = bias.value
    metadata = {
        "format": FORMAT,
        "network": model.network.to_dict(),
        "factor_exponents": model.exponents,
        "exponents": scales.exponents,
        "digest": model.digest(),
    }
    write_whole(path, encode(metadata, tensors))


def load_model(path: Path) -> TrainedModel:
    """Read what ``save_model`` wrote. Raises ``CheckpointError``."""
    metadata, tensors = decode(path, FORMAT)
    try:
        network = network_from_dict(metadata["network"])
        model = QuantisedModel(
            network=network,
            factors=[
                [tensors[f"factor.{n}.{k}"].to(torch.int64) for k in range(layer.order)]
                for n, layer in enumerate(network.layers)
            ],
            factor_exponents=[tuple(exponents) for exponents in metadata["factor_exponents"]],
            biases=[
                tensors[f"bias.{n}"].to(torch.float64) if layer.bias else None
                for n, layer in enumerate(network.layers)
            ],
        )
        return TrainedModel(model, Scales(exponents=dict(metadata["exponents"])))
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} is not a model of this version: {error}") from None

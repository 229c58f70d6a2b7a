"""Starting from a dense network: its layers as tensor trains, in a file and as a model.

``trainwright compress`` writes the file, ``trainwright train --initial`` reads it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from trainwright.fixed.quantise import dequantise, quantise
from trainwright.formats import Format
from trainwright.network import Layer, Network, network_from_dict
from trainwright.support.errors import errors_as
from trainwright.support.files import write_whole
from trainwright.support.plain import NONSENSE
from trainwright.support.tensor_file import CheckpointError, decode, encode
from trainwright.train.adam import Parameter
from trainwright.train.connect import clip
from trainwright.train.initial import fresh_exponent
from trainwright.train.model import Model
from trainwright.train.stored_values import finite, parameter_names, read_parameters, shaped
from trainwright.tt.trains import TensorTrainError

FORMAT = "trainwright-factors-2"


@dataclass(frozen=True, eq=False)
class Pretrained:
    """Float factors and biases of a network that was trained elsewhere.

    ``factors[l][n]`` is (R_{n-1}, J_n, I_n, R_n), ``biases[l]`` (J,) or None; ``network`` has the
    ranks of the factors.
    """

    network: Network
    factors: Sequence[Sequence[torch.Tensor]]
    biases: Sequence[torch.Tensor | None]


def fit_weight(weight: torch.Tensor, layer: Layer, image: tuple[int, int] | None = None,
               padded: tuple[int, int] | None = None) -> torch.Tensor:  # fmt: skip
    """Return a dense weight (rows, columns) filled up with zeros to a layer's W (J, I).

    With ``image`` and ``padded`` (the first layer) the columns are pixels of an image that the
    network pads at the bottom and the right; otherwise zeros follow the given columns. Raises
    ``TensorTrainError`` for a weight that does not fit.
    """
    if weight.dim() != 2:
        raise TensorTrainError(f"a weight has 2 dimensions, not {weight.dim()}")
    rows, columns = weight.shape
    if rows > layer.output_size or columns > layer.input_size:
        raise TensorTrainError(
            f"a weight {rows} x {columns} does not fit into a layer of {layer.output_size} x "
            f"{layer.input_size}: give a network with layers of these sizes, and a weight with a "
            "row for each output, as in torch"
        )
    # Padding an image inserts columns within each row of pixels; zeros at the end would shift every
    # row but the first.
    if image and padded and columns == image[0] * image[1] != layer.input_size:
        grid = weight.new_zeros(rows, *padded)
        grid[:, : image[0], : image[1]] = weight.reshape(rows, *image)
        weight = grid.reshape(rows, -1)
    result = weight.new_zeros(layer.output_size, layer.input_size)
    result[:rows, : weight.shape[1]] = weight
    return result


def quantisation(value: torch.Tensor, fmt: Format) -> int:
    """Return the exponent at which a float factor loses least in a format.

    The candidates lie around the exponent for the standard deviation of a fresh factor.
    """
    deviation = float(value.to(torch.float64).square().mean().sqrt())
    if deviation == 0:
        return 0
    middle = fresh_exponent(deviation, fmt)

    def loss(exponent: int) -> float:
        words = quantise(value, exponent, fmt)
        error = dequantise(words, exponent, fmt) - value.to(torch.float64)
        return float(error.square().sum())

    # More candidates below than above: clipping a few outliers costs less than a coarser step.
    return min(range(middle - 3, middle + 3), key=loss)


def pretrained_model(given: Pretrained) -> Model:
    """Return the model to start from in the formats of ``given.network``.

    Master weights are clipped to their bits; those of a network in float32 stay as they are.
    """
    factors: list[list[Parameter]] = []
    exponents: list[tuple[int, ...]] = []
    for number, layer in enumerate(given.factors):
        if given.network.widths.is_float:
            exponents.append((0,) * len(layer))
            factors.append([Parameter.of(factor) for factor in layer])
            continue
        formats = given.network.factor_formats(number)
        scales = tuple(quantisation(*operands) for operands in zip(layer, formats, strict=True))
        exponents.append(scales)
        clipped = (clip(*operands) for operands in zip(layer, scales, formats, strict=True))
        factors.append([Parameter.of(factor) for factor in clipped])
    biases = [None if bias is None else Parameter.of(bias) for bias in given.biases]
    return Model(given.network, factors, exponents, biases)


def save_pretrained(path: Path, given: Pretrained) -> None:
    """Write ``factor.L.N`` and ``bias.L`` as float32, the network in the header. ``OSError``."""
    named = parameter_names(given.factors, given.biases)
    tensors = {name: values.to(torch.float32) for name, values in named.items()}
    write_whole(path, encode({"format": FORMAT, "network": given.network.to_dict()}, tensors))


def load_pretrained(path: Path) -> Pretrained:
    """Read what ``save_pretrained`` wrote. Raises ``CheckpointError``."""
    metadata, tensors = decode(path, FORMAT)
    with errors_as(f"{path} is not of trainwright compress", CheckpointError, NONSENSE):
        network = network_from_dict(metadata["network"])
        factors, biases = read_parameters(
            network, lambda name, shape: shaped(name, finite(name, tensors[name]), shape)
        )
        return Pretrained(network, factors, biases)

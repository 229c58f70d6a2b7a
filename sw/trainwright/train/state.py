"""The state of a training run: all that the next step depends on."""

from dataclasses import dataclass, field, replace

from trainwright.fixed.scale import ScaleRanges, Scales, ranges_of
from trainwright.network import Network
from trainwright.train.chip_update import ChipModel, chip_model
from trainwright.train.history import History
from trainwright.train.interfaces import Verification
from trainwright.train.model import Model, fixed_bias_exponents, initial_model
from trainwright.train.settings import TrainSettings


@dataclass
class TrainingState:
    """Everything a run needs to go on to the same bits.

    There is no generator state: the order of the batches is a function of seed and step.
    """

    network: Network
    """Network as it was described, with initial ranks; ``model.network`` has the present ones."""
    settings: TrainSettings
    model: Model | ChipModel
    scales: Scales
    step: int = 0
    """Number of steps done."""
    history: History = field(default_factory=History)
    verification: Verification = field(default_factory=Verification)


def initial_state(
    network: Network, settings: TrainSettings, model: Model | None = None
) -> TrainingState:
    """Return the state before the first step, of a fresh model where none is given.

    Raises ``ValueError`` for formats that an update on the chip does not take.
    """
    if settings.chip is not None and not any(network.ranks):
        # Programs of the prior cannot be empty, and layers without bonds have no column to shrink.
        settings = replace(settings, prior=None)
    model = scaled(model or initial_model(network, settings.seed, settings.spread), settings)
    return TrainingState(
        network=network,
        settings=settings,
        model=model if settings.chip is None else chip_model(model),
        scales=Scales(scale_ranges(network, settings)),
    )


def scale_ranges(network: Network, settings: TrainSettings) -> ScaleRanges:
    """Return the ranges in which automatic scales hold the means of a network's tensors."""
    every = () if network.widths.is_float else range(len(network.layers))
    coded = any(fmt.coded for n in every for fmt in network.factor_formats(n))
    ranges = ranges_of(settings.scale_range, coded_factors=coded)
    return replace(ranges, by_means=settings.chip is not None)


def scaled(model: Model, settings: TrainSettings) -> Model:
    """Return the model with its biases' exponents set as the settings have them."""
    if settings.scales == "all-frozen" and not model.network.widths.is_float:
        model.bias_exponents = fixed_bias_exponents(model.network)
    return model

"""A trained model from a file: that of a finished run, or a checkpoint."""

from pathlib import Path

from trainwright.support.errors import errors_as
from trainwright.support.plain import NONSENSE, of_plain
from trainwright.support.tensor_file import CheckpointError, decode
from trainwright.train.checkpoint import FORMAT as CHECKPOINT
from trainwright.train.checkpoint import load_checkpoint
from trainwright.train.export import FORMAT as MODEL
from trainwright.train.export import Origin, TrainedModel, load_model


def load_trained(path: Path) -> tuple[TrainedModel, Origin]:
    """Return the model of a ``model.safetensors`` or ``checkpoint.safetensors``, and its origin.

    Raises ``CheckpointError`` for any other file, and for a model without its origin.
    """
    metadata, _ = decode(path, MODEL, CHECKPOINT)
    trained = load_model(path) if metadata["format"] == MODEL else _of_checkpoint(path)
    if trained.origin is None:
        raise CheckpointError(f"{path} does not say on what data and how it was trained")
    return trained, trained.origin


def _of_checkpoint(path: Path) -> TrainedModel:
    checkpoint = load_checkpoint(path)
    state = checkpoint.state
    with errors_as(f"{path}: not of trainwright train", CheckpointError, NONSENSE):
        origin = of_plain(Origin, checkpoint.run["origin"])
    return TrainedModel(state.model.quantised(), state.scales, origin, state.model.digest())

"""Rounding a trained model: TT rounding of its layers, and what that does to the accuracy."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from trainwright.data import DataSet
from trainwright.fixed.quantise import dequantise
from trainwright.train.chip_update import ChipModel
from trainwright.train.history import with_flat_ranks
from trainwright.train.host_engine import HostEngine
from trainwright.train.interfaces import DriverFactory
from trainwright.train.model import Model
from trainwright.train.pretrained import Pretrained, pretrained_model
from trainwright.train.state import TrainingState, initial_state
from trainwright.train.trainer import Trainer
from trainwright.tt import balance, ranks_of, tt_round

TOLERANCES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
"""Tolerances that are tried in addition to the one asked for."""


@dataclass(frozen=True)
class Rounded:
    """A rounded model on the test split."""

    tolerance: float
    """Most that each layer's matrix may change, relative, before it is quantised again."""
    ranks: tuple[tuple[int, ...], ...]
    model_bits: int
    accuracy: float
    """Accuracy right after rounding; R2 of a regression, as in each accuracy."""
    tuned: float | None
    """Accuracy after further training at these ranks; None where there was none."""


def rounded_model(model: Model | ChipModel, tolerance: float) -> Model:
    """Return the quantised layers rounded to ``tolerance`` in the balanced gauge, quantised again.

    Moments start at 0. The arithmetic is float64.
    """
    # Round the quantised factors, not the master weights: the accuracy that is known is theirs, and
    # a user with only the model file has no others.
    quantised = model.quantised()
    layers = []
    for number, factors in enumerate(quantised.factors):
        if model.network.widths.is_float:  # the factors are values, not words
            values = [factor.to(torch.float64) for factor in factors]
        else:
            formats = model.network.factor_formats(number)
            words = zip(factors, quantised.factor_exponents[number], formats, strict=True)
            values = [dequantise(*operands) for operands in words]
        # The balanced gauge gives neighbouring factors equal norms; rounding alone leaves all of
        # the norm in one factor, whose few levels would then have to span it.
        layers.append(balance(tt_round(values, tolerance=tolerance)))
    network = model.network.with_ranks([ranks_of(layer) for layer in layers])
    biases = [None if b is None else b.to(torch.float32) for b in quantised.biases]
    return pretrained_model(
        Pretrained(network, [[f.to(torch.float32) for f in layer] for layer in layers], biases)
    )


def _state(trained: TrainingState, model: Model, epochs: int) -> TrainingState:
    settings = replace(
        trained.settings,
        epochs=max(1, epochs),
        steps=None,
        prior=None,
        learning_rate=trained.settings.learning_rate / 4,
    )
    return initial_state(model.network, settings, model)


def round_trained(
    trained: TrainingState,
    data: DataSet,
    open_driver: DriverFactory,
    tolerances: Sequence[float],
    *,
    epochs: int,
    test_samples: int | None,
    progress: Callable[[int, int], None],
    stop: Callable[[], bool],
) -> list[tuple[Rounded, TrainingState]]:
    """Return the model at each tolerance, classified through the accelerator, with its state.

    ``epochs`` of further training follow each rounding, without prior and at a quarter of the
    learning rate. Equal ranks are done once. The trained state stays as it is.
    """
    by_ranks: dict[tuple[tuple[int, ...], ...], tuple[float, float | None, TrainingState]] = {}
    results: list[tuple[Rounded, TrainingState]] = []
    for number, tolerance in enumerate(tolerances, 1):
        if stop():
            break
        model = rounded_model(trained.model, tolerance)
        ranks = model.network.ranks
        if ranks not in by_ranks:
            state = _state(trained, model, epochs)
            engine = HostEngine(open_driver)
            trainer = Trainer(state, data, engine, test_samples=test_samples, stop=stop)
            trainer.calibrate()
            accuracy, tuned = trainer.evaluate_test().accuracy, None
            if epochs:
                if not trainer.run():
                    break
                tuned = trainer.evaluate_test().accuracy
            by_ranks[ranks] = accuracy, tuned, state
        accuracy, tuned, state = by_ranks[ranks]
        bits = state.model.network.model_bits
        results.append((Rounded(tolerance, ranks, bits, accuracy, tuned), state))
        progress(number, len(tolerances))
    return results


@dataclass(frozen=True)
class PriorPoint:
    """A point of the run itself: what the rank prior had reached after a step."""

    step: int
    model_bits: int
    accuracy: float


def prior_points(trained: TrainingState) -> list[PriorPoint]:
    """Return size and test accuracy after every evaluation of the run."""
    ranks = {record.step: record.ranks for record in trained.history.steps}
    last = trained.history.steps[-1].step if trained.history.steps else 0
    points = []
    for record in trained.history.evaluations:
        if record.step not in ranks:
            continue
        network = (
            trained.model.network
            # Ranks in a record are those of its step, before the cut that may follow; the last
            # record's network may have been cut since, and the model knows.
            if record.step == last
            else with_flat_ranks(trained.network, ranks[record.step])
        )
        points.append(PriorPoint(record.step, network.model_bits, record.accuracy))
    return points

"""Loss and update as the accelerator does them, in integers (``trainwright.onchip``)."""

from collections.abc import Iterator

import numpy as np
import torch

from trainwright.driver import BackwardResult, QuantisedModel, fitting_exponent
from trainwright.fixed.quantise import quantise
from trainwright.network import Network
from trainwright.onchip.layout import LANES, Layout, make_layout
from trainwright.onchip.loss import LOSSES
from trainwright.onchip.prior import cut_distance
from trainwright.onchip.rates import RateTable, make_rates
from trainwright.onchip.state import State, Step, limits
from trainwright.train.interfaces import BatchLoss
from trainwright.train.model import Model, digest, fixed_bias_exponents
from trainwright.train.settings import TrainSettings


class ChipModel:
    """A model whose weights are the state on the chip; the counterpart of ``train.model.Model``."""

    def __init__(self, network: Network, state: State) -> None:
        """``network`` has the ranks that are left in ``state``."""
        self.network = network
        self.state = state
        parts = {(part.layer, part.index): part.exponent for part in state.layout.parts}
        self.exponents = [
            tuple(parts[number, n] for n in range(layer.order))
            for number, layer in enumerate(network.layers)
        ]
        self.bias_exponents = [parts.get((number, -1), 0) for number in range(len(network.layers))]

    def quantised(self) -> QuantisedModel:
        """The model at the ranks left: integer factors, biases at their fixed exponents."""
        return self._quantised(self.network, self.state.quantised())

    @property
    def compiled(self) -> Network:
        """The network whose programs compute a step."""
        ranks = [list(layer) for layer in self.state.layout.network.ranks]
        for bond, columns in zip(self.state.layout.bonds, self.state.compiled, strict=True):
            ranks[bond.layer][bond.index] = len(columns)
        return self.network.with_ranks(ranks)

    def operands(self) -> QuantisedModel:
        """What these programs read."""
        return self._quantised(self.compiled, self.state.operands())

    def _quantised(self, network: Network, parts: list[np.ndarray]) -> QuantisedModel:
        factors: list[list[torch.Tensor]] = [[] for _ in network.layers]
        biases: list[torch.Tensor | None] = [None] * len(network.layers)
        for part, values in zip(self.state.layout.parts, parts, strict=True):
            found = torch.from_numpy(values)
            if part.index < 0:
                biases[part.layer] = found.to(torch.float64) * 2.0**part.exponent
            else:
                factors[part.layer].append(found)
        return QuantisedModel(network, factors, self.exponents, biases, self.bias_exponents)

    def digest(self) -> str:
        """SHA-256 over the quantised factors; see ``train.model.digest``."""
        return digest(self.quantised())


def operands_of(model: Model | ChipModel) -> QuantisedModel:
    """What the programs of a step read."""
    return model.operands() if isinstance(model, ChipModel) else model.quantised()


def ranks_left(model: Model | ChipModel) -> tuple[int, ...]:
    """The ranks of all layers after the last step."""
    ranks = model.state.ranks if isinstance(model, ChipModel) else model.network.ranks
    return tuple(rank for layer in ranks for rank in layer)


def layout_of(model: Model | ChipModel) -> Layout:
    """Where the parameters of a model lie on the chip.

    Raises ``ValueError`` for coded and for wide formats.
    """
    if isinstance(model, ChipModel):
        return model.state.layout
    if model.network.coded_used:
        named = ", ".join(f"{name}={fmt}" for name, fmt in model.network.coded_used)
        raise ValueError(
            f"an update on the chip is of fixed point alone, not of {named}: give fixed formats, "
            "or use --update host"
        )
    if model.network.singles:
        named = ", ".join(name for name, _ in model.network.singles)
        raise ValueError(
            f"an update on the chip has one format of all factors, not others of {named}: leave "
            "these out, or use --update host"
        )
    return make_layout(model.network, model.exponents, fixed_bias_exponents(model.network))


def chip_model(model: Model) -> ChipModel:
    """The master weights of ``model`` as weights on the chip: to nearest, saturated."""
    layout = layout_of(model)
    weights = np.zeros((layout.rows, LANES), np.int64)
    for part in layout.parts:
        source = model.biases[part.layer] if part.index < 0 else None
        if source is None:
            source = model.factors[part.layer][part.index]
        values = quantise(source.value, part.exponent - part.hidden, 32).numpy()
        weights.ravel()[part.places] = values.ravel().clip(*limits(part))
    return ChipModel(model.network, State(layout, weights))


class ChipUpdate:
    """Implements ``train.interfaces.Update`` on the state of a ``ChipModel``.

    ``total`` steps, ``samples`` of training data. Raises ``ValueError`` where the schedule does not
    fit its table.
    """

    def __init__(
        self, model: ChipModel, settings: TrainSettings, *, total: int, samples: int, classes: int
    ) -> None:
        assert settings.chip is not None
        if len(model.network.heads) > 1:
            raise ValueError(
                f"the update on the chip is of one head, network {model.network.name!r} has "
                f"{len(model.network.heads)}: leave {', '.join(model.network.heads[1:])} away, or "
                "update on the host"
            )
        self._model, self._settings, self._chip = model, settings, settings.chip
        self._classes = classes
        self._keeps = self._chip.cut_programs == "kept"
        if self._keeps:
            layout = model.state.layout
            model.state.compile_for([np.arange(bond.left.columns) for bond in layout.bonds])
        self.rates: RateTable = make_rates(
            total,
            lambda step: settings.rate_at(step, total),
            lambda step: settings.prior_weight_at(step, total, samples),
        )

    def loss(self, logits: torch.Tensor, labels: torch.Tensor) -> BatchLoss:
        """Loss of ``logits`` float64 (batch, outputs): integers of 16 bits times a power of two."""
        exponent = fitting_exponent(logits, 16)
        integers = (logits * 2.0**-exponent).to(torch.int64).numpy()
        found = LOSSES[self._chip.loss](integers, exponent, labels.numpy(), self._classes)
        gradient = torch.from_numpy(found.gradient).to(torch.float64) * 2.0**found.exponent
        return BatchLoss(found.mean, found.correct, gradient, found.exponent)

    def step(self, backward: BackwardResult, number: int, total: int) -> tuple[float, float]:
        """One update; returns the learning rate and the prior weight used."""
        gradients, exponents = zip(*self._gradients(backward), strict=True)
        self._model.state.step(gradients, exponents, self.what(number))
        return self.rates_used(number)

    def what(self, number: int) -> Step:
        """What step ``number`` needs beside the gradients."""
        entry = self.rates.at(number)
        distance = None
        prior = self._settings.prior
        if prior and self._keeps and number % prior.interval == 0:
            distance = cut_distance(prior.threshold)
        return Step(number, self._settings.seed, entry, self._chip.optimiser, distance)

    def rates_used(self, number: int) -> tuple[float, float]:
        """Learning rate and prior weight of a step."""
        entry = self.rates.at(number)
        return entry.rate * 2.0**-entry.rate_shift, entry.weight * 2.0**entry.weight_exponent

    def _gradients(self, backward: BackwardResult) -> Iterator[tuple[np.ndarray, int]]:
        """The accelerator's integers of every part's gradient, and their exponent."""
        for part in self._model.state.layout.parts:
            if part.index < 0:
                value, exponent = backward.biases[part.layer], backward.bias_exponents[part.layer]
            else:
                value = backward.factors[part.layer][part.index]
                exponent = backward.factor_exponents[part.layer][part.index]
            assert value is not None and exponent is not None
            yield (value * 2.0**-exponent).numpy().astype(np.int64), exponent

    def cut(self) -> Network | None:
        """Zero weak columns, where a step did not; the network with the ranks left, or None where
        nothing was cut.
        """
        prior, model = self._settings.prior, self._model
        assert prior is not None
        if not self._keeps and not model.state.cut(cut_distance(prior.threshold)):
            return None
        network = model.network.with_ranks(model.state.ranks)
        if network.ranks == model.network.ranks:
            return None
        model.network = network
        return network

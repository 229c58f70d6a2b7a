"""Loss and update as the accelerator does them, in integers (``trainwright.onchip``)."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from trainwright.driver import BackwardResult, QuantisedModel, fitting_exponent
from trainwright.fixed.quantise import quantise
from trainwright.network import Network
from trainwright.onchip.layout import LANES, WeightLayout, make_layout
from trainwright.onchip.loss import Loss, batch_loss
from trainwright.onchip.prior import cut_distance
from trainwright.onchip.samples import label_words
from trainwright.onchip.schedule import RateTable, make_rates
from trainwright.onchip.state import ChipState, UpdateStep
from trainwright.train.interfaces import BatchLoss
from trainwright.train.loss import head_logits
from trainwright.train.model import Model, digest, fixed_bias_exponents
from trainwright.train.settings import ChipSettings, TrainSettings


class ChipModel:
    """A model whose weights are the state on the chip; the counterpart of ``train.model.Model``."""

    def __init__(self, network: Network, state: ChipState) -> None:
        """Hold ``state``, whose remaining ranks ``network`` has."""
        self.network = network
        self.state = state
        parts = {(part.layer, part.index): part.read_exponent for part in state.layout.parts}
        self.exponents = [
            tuple(parts[number, n] for n in range(layer.order))
            for number, layer in enumerate(network.layers)
        ]
        self.bias_exponents = [parts.get((number, -1), 0) for number in range(len(network.layers))]

    def quantised(self) -> QuantisedModel:
        """Return the model at the remaining ranks: integer factors, biases at fixed exponents."""
        return self._quantised(self.network, self.state.quantised())

    @property
    def compiled(self) -> Network:
        """The network whose programs compute a step."""
        return self.network.with_ranks(self.state.layout.ranks(self.state.compiled))

    def operands(self) -> QuantisedModel:
        """Return the operands of the programs of ``compiled``, padded to their ranks."""
        return self._quantised(self.compiled, self.state.quantised(self.state.compiled))

    def _quantised(self, network: Network, parts: list[np.ndarray]) -> QuantisedModel:
        factors: list[list[torch.Tensor]] = [[] for _ in network.layers]
        biases: list[torch.Tensor | None] = [None] * len(network.layers)
        for part, values in zip(self.state.layout.parts, parts, strict=True):
            values_read = torch.from_numpy(values)
            if part.index < 0:
                biases[part.layer] = values_read.to(torch.float64) * 2.0**part.exponent
            else:
                factors[part.layer].append(values_read)
        return QuantisedModel(network, factors, self.exponents, biases, self.bias_exponents)

    def digest(self) -> str:
        """Return the SHA-256 over the quantised factors; see ``train.model.digest``."""
        return digest(self.quantised())


def operands_of(model: Model | ChipModel) -> QuantisedModel:
    """Return the operands that the programs of a step read."""
    return model.operands() if isinstance(model, ChipModel) else model.quantised()


def programs_of(model: Model | ChipModel) -> Network:
    """Return the network that the programs of a step are compiled for."""
    return model.compiled if isinstance(model, ChipModel) else model.network


def ranks_left(model: Model | ChipModel) -> tuple[int, ...]:
    """Return the ranks of all layers after the last step, flat."""
    ranks = model.state.ranks if isinstance(model, ChipModel) else model.network.ranks
    return tuple(rank for layer in ranks for rank in layer)


def layout_of(model: Model | ChipModel) -> WeightLayout:
    """Return the placement of a model's parameters on the chip.

    Raises ``ValueError`` for wide formats, and for factors of several formats.
    """
    if isinstance(model, ChipModel):
        return model.state.layout
    if model.network.singles:
        named = ", ".join(name for name, _ in model.network.singles)
        raise ValueError(
            f"an update on the chip has one format of all factors, not others of {named}: leave "
            "these out, or use --update host"
        )
    return make_layout(model.network, model.exponents, fixed_bias_exponents(model.network))


def chip_model(model: Model) -> ChipModel:
    """Return the master weights of ``model`` as weights on the chip: to nearest, saturated."""
    layout = layout_of(model)
    weights = np.zeros((layout.rows, LANES), np.int64)
    for part in layout.parts:
        source = model.biases[part.layer] if part.index < 0 else None
        if source is None:
            source = model.factors[part.layer][part.index]
        # A weight on the chip has hidden bits below the factor's own step: small updates collect
        # there until they move the quantised factor.
        values = quantise(source.value, part.exponent - part.hidden, 32).numpy()
        weights.ravel()[part.places] = values.ravel().clip(*part.limits)
    return ChipModel(model.network, ChipState(layout, weights))


def loss_name(network: Network, chip: ChipSettings) -> str:
    """Return the loss on the chip: of a regression the squared error, else the chosen one."""
    return "squared-error" if network.is_regression else chip.loss


class ChipUpdate:
    """Implements ``train.interfaces.Update`` on the state of a ``ChipModel``.

    ``total`` steps, ``samples`` of training data. Raises ``ValueError`` where the schedule does not
    fit its table.
    """

    def __init__(
        self, model: ChipModel, settings: TrainSettings, *, total: int, samples: int
    ) -> None:
        assert settings.chip is not None
        self._model, self._settings, self._chip = model, settings, settings.chip
        self._keeps = self._chip.cut_programs == "kept"
        if self._keeps:
            layout = model.state.layout
            model.state.compiled = [np.arange(bond.left.columns) for bond in layout.bonds]
        self.rates: RateTable = make_rates(
            total,
            lambda step: settings.rate_at(step, total),
            lambda step: settings.prior_weight_at(step, total, samples),
        )

    def loss(self, logits: torch.Tensor, labels: torch.Tensor) -> BatchLoss:
        """Return the loss of ``logits`` float64 (batch, outputs), the sum of those of all heads.

        The logits of a head are 16-bit integers x 2^exponent.
        """
        network = self._model.network
        heads = {name: self._loss(name, logits, labels) for name in network.heads}
        gradients = [
            torch.from_numpy(loss.gradient).to(torch.float64) * 2.0**loss.exponent
            for loss in heads.values()
        ]
        # Words and lines are divided by different counts of labels: each has its own exponent.
        exponents = tuple(loss.exponent for loss in heads.values())
        main, total = heads[network.main], sum(loss.total for loss in heads.values())
        return BatchLoss(
            replace(main, total=total).mean, main.correct, torch.cat(gradients, 1),
            exponents if network.is_joint else main.exponent,
            main.samples if network.labels > 1 else 0,
        )  # fmt: skip

    def _loss(self, name: str, logits: torch.Tensor, labels: torch.Tensor) -> Loss:
        """Return the loss of a head, by the ``logits`` and ``labels`` of all."""
        network = self._model.network
        logits, labels = head_logits(network, name, logits), network.labels_of(name, labels)
        # The vector engine reads logits as 16-bit words of one exponent; host and chip must start
        # from the same integers to agree in every bit.
        exponent = fitting_exponent(logits, 16)
        integers = (logits * 2.0**-exponent).to(torch.int64).numpy()
        classes = network.classes_of(name)
        loss, numbers = loss_name(network, self._chip), label_words(labels.numpy())
        return batch_loss(loss, integers, exponent, numbers, classes)

    def step(self, backward: BackwardResult, number: int, total: int) -> tuple[float, float]:
        """Update the weights once; return the learning rate and the prior weight used."""
        gradients, exponents = zip(*self._gradients(backward), strict=True)
        self._model.state.step(gradients, exponents, self.step_operands(number))
        return self.rates_used(number)

    def step_operands(self, number: int) -> UpdateStep:
        """Return the operands of step ``number`` apart from the gradients."""
        entry = self.rates.at(number)
        distance = None
        # With kept programs the cut is part of the step itself, as the chip does it alone; fitted
        # programs cut afterwards, in `cut`, because they have to be compiled again.
        prior = self._settings.prior
        if prior and self._keeps and number % prior.interval == 0:
            distance = cut_distance(prior.threshold)
        return UpdateStep(number, self._settings.seed, entry, self._chip.optimiser, distance)

    def rates_used(self, number: int) -> tuple[float, float]:
        """Return the learning rate and prior weight of a step as the chip's table holds them."""
        entry = self.rates.at(number)
        return entry.rate * 2.0**-entry.rate_shift, entry.weight * 2.0**entry.weight_exponent

    def _gradients(self, backward: BackwardResult) -> Iterator[tuple[np.ndarray, int]]:
        """Yield every part's gradient as the accelerator's integers, and its exponent."""
        for part in self._model.state.layout.parts:
            if part.index < 0:
                value, exponent = backward.biases[part.layer], backward.bias_exponents[part.layer]
            else:
                value = backward.factors[part.layer][part.index]
                exponent = backward.factor_exponents[part.layer][part.index]
            assert value is not None and exponent is not None
            yield (value * 2.0**-exponent).numpy().astype(np.int64), exponent

    def cut(self) -> Network | None:
        """Cut weak columns unless the step did.

        Return the new network, or None if nothing was cut.
        """
        prior, model = self._settings.prior, self._model
        assert prior is not None
        # A step of kept programs has zeroed the columns already: `state.cut` would find nothing and
        # the ranks alone tell.
        if not self._keeps and not model.state.cut(cut_distance(prior.threshold)):
            return None
        network = model.network.with_ranks(model.state.ranks)
        if network.ranks == model.network.ranks:
            return None
        model.network = network
        return network

"""Loss and update on the host: cross-entropy in float64, Adam in float32, the prior, the cuts."""

from collections.abc import Sequence

import numpy as np
import torch

from trainwright.driver import BackwardResult, fitting_exponent
from trainwright.network import Network
from trainwright.train.interfaces import BatchLoss
from trainwright.train.loss import head_logits, heads_loss, words_of
from trainwright.train.model import Model
from trainwright.train.ranks import cut_ranks, prior_gradients
from trainwright.train.settings import TrainSettings
from trainwright.train.storage import store_master, store_moments

RESCALE_INTERVAL = 10
"""Steps between two updates of the factors' scales, for ``factor_scales`` that follow the data."""


class HostUpdate:
    """Implements ``train.interfaces.Update`` on a model of float32 master weights."""

    def __init__(self, model: Model, settings: TrainSettings, *, samples: int) -> None:
        self._model, self._settings, self._samples = model, settings, samples

    def loss(self, logits: torch.Tensor, labels: torch.Tensor) -> BatchLoss:
        """Return the mean loss of ``logits`` float64 (batch, outputs), of all heads together.

        Cross-entropy of classes, int64; squared error of a regression's targets, float64.
        """
        network = self._model.network
        mean, gradient = heads_loss(network, logits, labels)
        correct, words = 0, 0
        count, labels = len(labels), network.labels_of(network.main, labels)
        if labels.dim() == 2:
            every, kept = words_of(head_logits(network, network.main, logits), labels)
            best = every[..., : network.classes].argmax(2)
            correct, words = int((best == labels)[kept].sum()), int(kept.sum())
        elif not labels.is_floating_point():
            correct = int((logits[:, : network.classes].argmax(1) == labels).sum())
        exponent = None
        if self._settings.scales == "all-frozen" and not network.widths.is_float:
            most = torch.tensor(1 / count, dtype=torch.float64)  # of |p - 1| / batch
            exponent = fitting_exponent(most, network.format("gradient"))
        return BatchLoss(mean, correct, gradient, exponent, words)

    def step(self, backward: BackwardResult, number: int, total: int) -> tuple[float, float]:
        """Update all master weights by Adam; return the learning rate and the prior weight used."""
        model, settings = self._model, self._settings
        rate = settings.rate_at(number, total)
        weight = settings.prior_weight_at(number, total, self._samples)
        for layer, gradients in zip(model.factors, backward.factors, strict=True):
            pulls: Sequence[torch.Tensor | None] = [None] * len(layer)
            if weight and settings.prior:
                pulls = prior_gradients([f.value for f in layer], weight, settings.prior.form)
            for factor, gradient, pull in zip(layer, gradients, pulls, strict=True):
                factor.step(gradient if pull is None else gradient + pull, rate, number + 1)
        for bias, gradient in zip(model.biases, backward.biases, strict=True):
            if bias is not None and gradient is not None:
                bias.step(gradient, rate, number + 1)
        # Exponents lag behind the weights by up to ten steps: a step moves a weight by a fraction
        # of a quantisation step, and each move of a scale changes every quantised factor.
        if (number + 1) % RESCALE_INTERVAL == 0:
            if settings.factor_scales == "automatic":
                model.rescale()
            elif settings.factor_scales == "blocks":
                model.balance()
        # After the scales have moved, so that weights are held in the range they will be quantised
        # in.
        model.clip()
        self._store(number + 1)
        return rate, weight

    def _store(self, number: int) -> None:
        """Round master weights and moments to their storage."""
        settings = self._settings
        # Seeded by the step, not continued from step to step: a resumed run draws the same numbers.
        # Streams 0 and 1 of a seed belong to the initial factors and the order of the samples.
        random = np.random.RandomState([settings.seed, 2, number])
        for _, parameter in self._model.parameters():
            store_master(parameter, settings.master_weights)
            store_moments(parameter, settings.moments, random)

    def cut(self) -> Network | None:
        """Remove weak columns; see ``train.ranks.cut_ranks``."""
        prior = self._settings.prior
        assert prior is not None
        return cut_ranks(self._model, prior.threshold, prior.form)

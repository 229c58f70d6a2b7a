"""Ranks while training: the gradient of the chosen prior, and the cutting of weak columns."""

from collections.abc import Sequence
from itertools import pairwise

import torch

from trainwright.network import Network
from trainwright.train.model import Model
from trainwright.train.prior import prior_gradient, rank_parameters
from trainwright.train.storage_prior import storage_gradients, storage_strengths


def prior_gradients(
    factors: Sequence[torch.Tensor], weight: float, form: str
) -> list[torch.Tensor | None]:
    """What the weighted prior adds to the gradient of each factor of a layer."""
    if form == "storage":
        return list(storage_gradients(factors, weight))
    return [*(prior_gradient(factor, weight) for factor in factors[:-1]), None]


def strengths(left: torch.Tensor, right: torch.Tensor, form: str) -> torch.Tensor:
    """How much each column of a bond is used: lambda for the paper's prior; float64 (R_n,)."""
    return storage_strengths(left, right) if form == "storage" else rank_parameters(left)


def kept_columns(strength: torch.Tensor, threshold: float) -> torch.Tensor:
    """Indices (int64) of the columns of at least ``threshold`` times the largest strength.

    Never empty: the largest is always among them.
    """
    return torch.nonzero(strength >= threshold * strength.max()).flatten()


def cut_ranks(model: Model, threshold: float, form: str) -> Network | None:
    """Remove weak columns of G_n with the matching rows of G_{n+1}, moments included.

    The model is changed in place. Returns its new network, or None where nothing was cut.
    """
    cut = False
    ranks: list[list[int]] = []
    for factors in model.factors:
        for left, right in pairwise(factors):
            kept = kept_columns(strengths(left.value, right.value, form), threshold)
            if len(kept) == left.value.shape[3]:
                continue
            left.select(3, kept)
            right.select(0, kept)
            cut = True
        ranks.append([f.value.shape[3] for f in factors[:-1]])
    if not cut:
        return None
    model.network = model.network.with_ranks(ranks)
    return model.network

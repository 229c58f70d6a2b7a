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
    """Return the weighted prior's addition to the gradient of each factor of a layer.

    None for a factor that the prior leaves alone.
    """
    if form == "storage":
        return list(storage_gradients(factors, weight))
    # The paper's prior sees a bond only in the factor at its left; the last factor has none there.
    return [*(prior_gradient(factor, weight) for factor in factors[:-1]), None]


def strengths(left: torch.Tensor, right: torch.Tensor, form: str) -> torch.Tensor:
    """Return how much each column of a bond is used, float64 (R_n,).

    The paper's prior measures it by lambda.
    """
    return storage_strengths(left, right) if form == "storage" else rank_parameters(left)


def kept_columns(strength: torch.Tensor, threshold: float) -> torch.Tensor:
    """Return the indices (int64) of columns of at least ``threshold`` times the largest strength.

    The indices are never empty: the largest strength is among them.
    """
    return torch.nonzero(strength >= threshold * strength.max()).flatten()


def cut_ranks(model: Model, threshold: float, form: str) -> Network | None:
    """Remove weak columns of G_n with the matching rows of G_{n+1}, moments included.

    The model is changed in place. Returns its new network, or None where nothing was cut.
    """
    cut = False
    ranks: list[list[int]] = []
    for factors in model.factors:
        # Bonds go from left to right, so that a bond's right factor has lost columns only at bonds
        # to its left when it is judged; rows that were cut were the weak ones.
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

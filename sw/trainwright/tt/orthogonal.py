"""Orthogonalising a tensor train from the left or from the right, by QR of its factors."""

import torch

from trainwright.tt.numbers import Numbers
from trainwright.tt.trains import Factors, check_factors

_DEFAULT = Numbers()


def orthogonalise_left(factors: Factors, *, numbers: Numbers = _DEFAULT) -> list[torch.Tensor]:
    """The same train with all factors but the last left-orthogonal.

    Unfolded to (R_(n-1) J_n I_n, R_n) such a factor has orthonormal columns. A rank greater than
    the rows of its unfolding is cut to them. The norm of W is that of the last factor.
    """
    check_factors(factors)
    result = [numbers.store(factor) for factor in factors]
    for n in range(len(result) - 1):
        left, j, i, right = result[n].shape
        q, r = numbers.qr_any(result[n].reshape(left * j * i, right))
        result[n] = q.reshape(left, j, i, q.shape[1])
        following = result[n + 1]
        product = numbers.matmul(r, following.reshape(right, -1))
        result[n + 1] = product.reshape(q.shape[1], *following.shape[1:])
    return result


def orthogonalise_right(factors: Factors, *, numbers: Numbers = _DEFAULT) -> list[torch.Tensor]:
    """The same train with all factors but the first right-orthogonal: the mirror image."""
    return mirrored(orthogonalise_left(mirrored(factors), numbers=numbers))


def mirrored(factors: Factors) -> list[torch.Tensor]:
    """The train read from right to left: each (R_(n-1), J_n, I_n, R_n) as (R_n, J_n, I_n, R_(n-1)).

    Raises ``TensorTrainError`` where the factors are no train.
    """
    check_factors(factors)
    return [factor.permute(3, 1, 2, 0) for factor in reversed(factors)]

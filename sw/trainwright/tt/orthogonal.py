"""Orthogonalising a tensor train from the left or from the right, by QR of its factors."""

import torch

from trainwright.support.arguments import require_kind
from trainwright.support.graphs import library_call
from trainwright.tt.numbers import Numbers
from trainwright.tt.scaling import restored
from trainwright.tt.trains import Factors, check_factors

_DEFAULT = Numbers()


@library_call
def orthogonalise_left(factors: Factors, *, numbers: Numbers = _DEFAULT) -> list[torch.Tensor]:
    """Return the same train with all factors but the last left-orthogonal.

    Unfolded to (R_(n-1) J_n I_n, R_n) such a factor has orthonormal columns. A rank greater than
    the rows of its unfolding is cut to them. The norm of W is that of the last factor. Raises
    ``TensorTrainError`` where the last factor over- or underflows the storage format.

    >>> from trainwright.tt import tt_svd
    >>> factors = orthogonalise_left(tt_svd(torch.randn(6, 6), (2, 3), (3, 2)))
    >>> first = factors[0].flatten(0, 2)
    >>> bool((first.mT @ first - torch.eye(first.shape[1])).norm() < 1e-13)
    True
    """
    result, exponent = left_orthogonal(factors, numbers)
    result[-1] = restored(result[-1], exponent, numbers.precision.storage, "the last factor")
    return result


@library_call
def orthogonalise_right(factors: Factors, *, numbers: Numbers = _DEFAULT) -> list[torch.Tensor]:
    """Return the train with all factors but the first right-orthogonal: the mirror image.

    >>> from trainwright.tt import tt_svd
    >>> factors = orthogonalise_right(tt_svd(torch.randn(6, 6), (2, 3), (3, 2)))
    >>> last = factors[-1].flatten(1)
    >>> bool((last @ last.mT - torch.eye(len(last))).norm() < 1e-13)
    True
    """
    result, exponent = right_orthogonal(factors, numbers)
    result[0] = restored(result[0], exponent, numbers.precision.storage, "the first factor")
    return result


def left_orthogonal(factors: Factors, numbers: Numbers) -> tuple[list[torch.Tensor], int]:
    """Run ``orthogonalise_left`` with the last factor near 1, and the exponent that it lacks."""
    check_factors(factors)
    require_kind("numbers", numbers, Numbers)
    result: list[torch.Tensor] = []
    exponent = 0
    for factor in factors:
        scaled, power = numbers.near_one(factor)
        result.append(scaled)
        exponent += power
    for n in range(len(result) - 1):
        left, j, i, right = result[n].shape
        q, r = numbers.qr_any(result[n].reshape(left * j * i, right))
        result[n] = q.reshape(left, j, i, q.shape[1])
        following = result[n + 1]
        product = numbers.matmul(r, following.reshape(right, -1))
        # Rank 200 grows a product by up to 2^8: a hundred factors would leave the range.
        product, power = numbers.near_one(product)
        exponent += power
        result[n + 1] = product.reshape(q.shape[1], *following.shape[1:])
    return result, exponent


def right_orthogonal(factors: Factors, numbers: Numbers) -> tuple[list[torch.Tensor], int]:
    """Run ``orthogonalise_right`` with the first factor near 1, and the exponent that it lacks."""
    result, exponent = left_orthogonal(mirrored(factors), numbers)
    return mirrored(result), exponent


def mirrored(factors: Factors) -> list[torch.Tensor]:
    """Read the train from right to left: (R_(n-1), J_n, I_n, R_n) becomes (R_n, J_n, I_n, R_(n-1)).

    Raises ``TensorTrainError`` where the factors are no train.
    """
    check_factors(factors)
    return [factor.permute(3, 1, 2, 0) for factor in reversed(factors)]

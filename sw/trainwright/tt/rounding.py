"""TT-SVD of a matrix, TT rounding of a train, and the gauge that suits few bits."""

import math
from collections.abc import Sequence

import torch

from trainwright.support.arguments import is_size, plain, plain_sizes, require_kind, require_plain
from trainwright.support.graphs import library_call
from trainwright.tt.numbers import Numbers
from trainwright.tt.orthogonal import right_orthogonal
from trainwright.tt.scaling import restored
from trainwright.tt.trains import Factors, TensorTrainError, check_factors, to_tensor

_DEFAULT = Numbers()
_LARGEST_LOG = 700.0
"""Logarithm of about the greatest (and the reciprocal of the least) normal float64."""


def _bounds(ranks: int | Sequence[int] | None, bonds: int) -> list[int | None]:
    if ranks is None:
        return [None] * bonds
    ranks = plain_sizes(ranks)
    given = list(ranks) if isinstance(ranks, Sequence) else [ranks] * bonds
    if len(given) != bonds or not all(is_size(r) for r in given):
        raise TensorTrainError(f"ranks must be {bonds} numbers of at least 1, not {ranks!r}")
    return list(given)


def _check_tolerance(tolerance: float | None) -> None:
    if tolerance is None:
        return
    if not isinstance(plain(tolerance), (int, float)) or not 0 <= tolerance < 1:
        raise TensorTrainError(f"tolerance must be in [0, 1), not {tolerance!r}")


def kept_rank(s: torch.Tensor, allowed: float, bound: int | None) -> int:
    """Return the least rank, from 1, that drops singular values of a norm up to ``allowed``."""
    rank, tail = len(s), 0.0
    for value in reversed(s.tolist()):
        tail = math.hypot(tail, value)  # squares of small values would underflow to 0
        if tail > allowed:
            break
        rank -= 1
    return max(1, rank if bound is None else min(rank, bound))


@library_call
def tt_svd(
    matrix: torch.Tensor,
    outputs: Sequence[int],
    inputs: Sequence[int],
    *,
    ranks: int | Sequence[int] | None = None,
    tolerance: float | None = None,
    numbers: Numbers = _DEFAULT,
) -> list[torch.Tensor]:
    """Factorise a dense W (J, I), J = J_1 ... J_d, I = I_1 ... I_d (TT-SVD).

    ``tolerance`` bounds ||W - TT||_F / ||W||_F (beyond the precision of ``numbers``), ``ranks``
    the ranks; both may be given. All factors but the last are left-orthogonal. Elements may be of
    any magnitude. Raises ``TensorTrainError``, also where the last factor, whose norm is that of W,
    over- or underflows the storage format.

    >>> factors = tt_svd(torch.ones(6, 6), (2, 3), (3, 2), tolerance=1e-6)
    >>> [tuple(factor.shape) for factor in factors]
    [(1, 2, 3, 1), (1, 3, 2, 1)]
    """
    require_kind("numbers", numbers, Numbers)
    tensor = to_tensor(matrix, outputs, inputs)
    require_plain("matrix", matrix)
    if not bool(matrix.isfinite().all()):
        raise TensorTrainError("the matrix has NaN or infinite elements")
    bounds = _bounds(ranks, len(outputs) - 1)
    _check_tolerance(tolerance)
    rest, exponent = numbers.near_one(tensor)
    allowed = _allowed(rest, tolerance, len(bounds))
    factors: list[torch.Tensor] = []
    left = 1
    for j, i, bound in zip(outputs, inputs, bounds, strict=False):
        u, s, vt = numbers.svd(rest.reshape(left * j * i, -1))
        rank = kept_rank(s, allowed, bound)
        factors.append(u[:, :rank].reshape(left, j, i, rank))
        rest = numbers.store(numbers.store(s[:rank, None]) * vt[:rank])
        left = rank
    last = restored(rest, exponent, numbers.precision.storage, "the last factor")
    factors.append(last.reshape(left, outputs[-1], inputs[-1], 1))
    return factors


def _allowed(x: torch.Tensor, tolerance: float | None, bonds: int) -> float:
    """Return the norm that each bond may drop; without a tolerance only exact zeros."""
    size = float(torch.linalg.vector_norm(x.to(torch.float64)))
    return (tolerance or 0.0) * size / math.sqrt(max(1, bonds))


@library_call
def tt_round(
    factors: Factors,
    *,
    ranks: int | Sequence[int] | None = None,
    tolerance: float | None = None,
    numbers: Numbers = _DEFAULT,
) -> list[torch.Tensor]:
    """Cut ranks of the train as far as ``tolerance`` (relative, of W) and ``ranks`` allow.

    The train is orthogonalised from the right, then cut from the left by SVDs of single factors:
    as accurate as TT-SVD of the dense W, which is never formed. All factors but the last are
    left-orthogonal.

    >>> from trainwright.tt import distance, ranks_of
    >>> factors = tt_svd(torch.randn(64, 64, dtype=torch.float64), (4, 4, 4), (4, 4, 4))
    >>> smaller = tt_round(factors, tolerance=0.5)
    >>> ranks_of(smaller) < ranks_of(factors), distance(factors, smaller) <= 0.5
    (True, True)
    """
    check_factors(factors)
    bounds = _bounds(ranks, len(factors) - 1)
    _check_tolerance(tolerance)
    result, exponent = right_orthogonal(factors, numbers)
    allowed = _allowed(result[0], tolerance, len(bounds))
    for n, bound in enumerate(bounds):
        left, j, i, right = result[n].shape
        u, s, vt = numbers.svd(result[n].reshape(left * j * i, right))
        rank = kept_rank(s, allowed, bound)
        result[n] = u[:, :rank].reshape(left, j, i, rank)
        following = result[n + 1]
        scaled = numbers.store(numbers.store(s[:rank, None]) * vt[:rank])
        product = numbers.matmul(scaled, following.reshape(right, -1))
        result[n + 1] = product.reshape(rank, *following.shape[1:])
    result[-1] = restored(result[-1], exponent, numbers.precision.storage, "the last factor")
    return result


@library_call
def balance(factors: Factors) -> list[torch.Tensor]:
    """Put W into the symmetric gauge: every bond's singular values split evenly, float64.

    Both sides of a bond then carry the importance of its columns, and all factors one norm, which
    is what factors of few bits need: an orthogonal factor spends its levels on columns that
    hardly matter.

    >>> from trainwright.tt import tt_svd
    >>> factors = balance(tt_svd(torch.randn(6, 6), (2, 3), (3, 2)))
    >>> sizes = [float(factor.norm()) for factor in factors]
    >>> abs(sizes[0] - sizes[1]) < 1e-12 * sizes[0]
    True
    """
    result, exponent = right_orthogonal(factors, _DEFAULT)
    before = result[0].new_ones(1)
    for n in range(len(result) - 1):
        left, j, i, right = result[n].shape
        u, s, vt = torch.linalg.svd(result[n].reshape(left * j * i, right), full_matrices=False)
        keep = max(1, int((s > s[0] * 1e-14).sum()))
        u, s, vt = u[:, :keep], s[:keep], vt[:keep]
        root = s.sqrt() if float(s[0]) > 0 else torch.ones_like(s)
        core = u.reshape(left, j, i, keep)
        result[n] = core / before[:, None, None, None] * root
        result[n + 1] = torch.einsum("rs,sjit->rjit", s[:, None] * vt, result[n + 1])
        before = root
    result[-1] = result[-1] / before[:, None, None, None]
    norms = [float(torch.linalg.vector_norm(factor)) for factor in result]
    if min(norms) == 0:
        return result
    mean = (sum(map(math.log, norms)) + exponent * math.log(2)) / len(norms)
    if abs(mean) > _LARGEST_LOG:
        raise TensorTrainError(
            f"{len(norms)} factors of e^{mean:.0f} each are outside float64's range: scale W"
        )
    return [factor * (math.exp(mean) / norm) for factor, norm in zip(result, norms, strict=True)]

"""Tensor trains of matrices (TTM): factors G_n (R_(n-1), J_n, I_n, R_n), R_0 = R_d = 1."""

from collections.abc import Sequence
from itertools import pairwise
from math import prod

import torch

from trainwright.support.arguments import is_size, plain_sizes, require_dense, require_plain
from trainwright.support.errors import UserError
from trainwright.support.text import amount

Factors = Sequence[torch.Tensor]


class TensorTrainError(UserError, ValueError):
    """Factors, shapes, ranks or tolerances that do not make a tensor train."""


def check_factors(factors: Factors, *, differentiable: bool = False) -> None:
    """Raise ``TensorTrainError`` where the factors are not a tensor train of a matrix.

    Raises ``RuntimeError`` in a transform of torch, unless ``differentiable``.
    """
    if not isinstance(factors, Sequence):
        raise TensorTrainError(f"a tensor train is a list of factors, not {type(factors).__name__}")
    if not factors:
        raise TensorTrainError("a tensor train has at least one factor")
    for n, factor in enumerate(factors, 1):
        if not isinstance(factor, torch.Tensor):
            raise TensorTrainError(f"factor {n} is no tensor but {type(factor).__name__}")
        require_dense(f"factor {n}", factor)
        if not differentiable:
            require_plain(f"factor {n}", factor)
        if factor.dim() != 4:
            raise TensorTrainError(f"factor {n} has {amount(factor.dim(), 'dimension')} and not 4")
        if not factor.numel():
            raise TensorTrainError(f"factor {n} {list(factor.shape)} has no elements")
        if factor.is_complex():
            raise TensorTrainError(f"factor {n} is {factor.dtype}, not of real numbers")
        if not bool(factor.isfinite().all()):
            raise TensorTrainError(f"factor {n} has NaN or infinite elements")
    for n, (left, right) in enumerate(pairwise(factors), 1):
        if left.shape[3] != right.shape[0]:
            raise TensorTrainError(
                f"bond {n}: factor {n} ends in rank {left.shape[3]}, factor {n + 1} begins with "
                f"rank {right.shape[0]}"
            )
    if factors[0].shape[0] != 1 or factors[-1].shape[3] != 1:
        raise TensorTrainError("the outer ranks of a tensor train are 1")


def ranks_of(factors: Factors) -> tuple[int, ...]:
    """Return R_1 .. R_(d-1).

    >>> ranks_of([torch.zeros(1, 2, 2, 3), torch.zeros(3, 2, 2, 1)])
    (3,)
    """
    return tuple(factor.shape[3] for factor in factors[:-1])


def parameters_of(factors: Factors) -> int:
    """Count the elements of all factors.

    >>> parameters_of([torch.zeros(1, 2, 2, 3), torch.zeros(3, 2, 2, 1)])
    24
    """
    return sum(factor.numel() for factor in factors)


def to_tensor(matrix: torch.Tensor, outputs: Sequence[int], inputs: Sequence[int]) -> torch.Tensor:
    """Return W (J, I) as (J_1 I_1, J_2 I_2, ...): the tensor whose train the factors are.

    Raises ``TensorTrainError`` where the shapes do not fit, or the elements are no real numbers.
    """
    if not isinstance(matrix, torch.Tensor) or matrix.is_complex():
        kind = matrix.dtype if isinstance(matrix, torch.Tensor) else type(matrix).__name__
        raise TensorTrainError(f"a matrix is a tensor of real numbers, not {kind}")
    require_dense("matrix", matrix)
    outputs, inputs = plain_sizes(outputs), plain_sizes(inputs)
    for what, sizes in (("outputs", outputs), ("inputs", inputs)):
        if not isinstance(sizes, Sequence) or not all(is_size(size) for size in sizes):
            raise TensorTrainError(f"{what} are integers of at least 1, not {sizes!r}")
    if len(outputs) != len(inputs) or not outputs:
        raise TensorTrainError(
            f"outputs {list(outputs)} and inputs {list(inputs)} differ in length"
        )
    if matrix.dim() != 2 or tuple(matrix.shape) != (prod(outputs), prod(inputs)):
        raise TensorTrainError(
            f"a matrix {list(matrix.shape)} is not {prod(outputs)} x {prod(inputs)}, as outputs "
            f"{list(outputs)} and inputs {list(inputs)} say"
        )
    order = len(outputs)
    pairs = [axis for n in range(order) for axis in (n, order + n)]
    tensor = matrix.reshape(*outputs, *inputs).permute(pairs)
    return tensor.reshape([j * i for j, i in zip(outputs, inputs, strict=True)])

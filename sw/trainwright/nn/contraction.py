"""Differentiable contraction of factors (R_{n-1}, J_n, I_n, R_n) to the matrix of a layer.

W(j, i) = sum over k of Left(p, u, k) Right(k, v, q), with j = (p, q) and i = (u, v): the factors
before and after a bond are merged, and one product gives W in the order (p, u, v, q). For every p
that is a matrix (I, q), which inputs are multiplied with as it lies; its gradient has the same
order. Both are made for a few p at a time, so that they stay in the cache and nothing of the size
of W is ever stored.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import Any

import torch

from trainwright.nn.untyped import (
    in_forward_mode,
    node,
    refuse_second_gradients,
    traced,
    without_batch_dim,
)

CHUNK = 1 << 17
"""Elements of W that are made at once, in a CPU's cache."""
DENSE = 1 << 26
"""Elements of W that a GPU makes and stores whole. Each launch costs as much there as a product of
a million elements: parts of W took 2.5 to 4 times as long at 768 x 3072."""


def _merge(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Merge factors (a, p, u, k) and (k, q, v, b) into one (a, p q, u v, b)."""
    a, p, u, k = left.shape
    _, q, v, b = right.shape
    product = left.reshape(-1, k) @ right.reshape(k, -1)
    return product.reshape(a, p, u, q, v, b).transpose(2, 3).reshape(a, p * q, u * v, b)


def _best_bond(factors: Sequence[torch.Tensor]) -> int:
    """Return the bond, from 1, at which the last product and the merged factors are cheapest."""
    sizes = [prod([f.shape[1] * f.shape[2] for f in factors[:n]]) for n in range(len(factors) + 1)]

    def cost(bond: int) -> int:
        left = sizes[bond]
        return factors[bond].shape[0] * (sizes[-1] + left + sizes[-1] // left)

    costs = [cost(bond) for bond in range(1, len(factors))]
    return 1 + costs.index(min(costs))


class _Apply(torch.autograd.Function):
    """x W^T of x (B, I), Left (p u, k) and Right (k, v q): (p, B, q)."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, left: torch.Tensor, right: torch.Tensor, p: int, q: int
    ) -> torch.Tensor:
        ctx.save_for_backward(x, left, right)
        y = x.new_empty(p, len(x), q)
        for chunk, rows, w in _chunks(p, left, right):
            torch.mm(left[rows], right, out=w)
            matrices = w.view(-1, x.shape[1], q)
            torch.bmm(x.expand(len(matrices), *x.shape), matrices, out=y[chunk])
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        refuse_second_gradients()
        x, left, right = ctx.saved_tensors
        dy, size = gradients[0], x.shape[1]  # (p, B, q)
        if without_batch_dim(dy) is not None:  # nothing of ordinary tensors may be written
            matrices = (left @ right).view(len(dy), size, dy.shape[2])
            dw = (x.T @ dy).reshape(len(left), right.shape[1])
            return (dy @ matrices.transpose(1, 2)).sum(0), dw @ right.T, left.T @ dw, None, None
        dx = torch.zeros_like(x) if ctx.needs_input_grad[0] else None
        dleft, dright = torch.empty_like(left), torch.zeros_like(right)
        for chunk, rows, w in _chunks(len(dy), left, right):
            part, matrices = dy[chunk], w.view(-1, size, dy.shape[2])
            if dx is not None:
                torch.mm(left[rows], right, out=w)
                samples = part.transpose(0, 1).reshape(
                    len(x), len(part) * part.shape[2]
                )  # (B, p q)
                dx.addmm_(samples, matrices.transpose(1, 2).reshape(-1, size))
            torch.bmm(x.T.expand(len(part), *x.T.shape), part, out=matrices)  # gradient of W
            torch.mm(w, right.T, out=dleft[rows])
            dright.addmm_(left[rows].T, w)
        return dx, dleft, dright, None, None


def _chunks(
    p: int, left: torch.Tensor, right: torch.Tensor
) -> Iterator[tuple[slice, slice, torch.Tensor]]:
    """Yield ranges of p, and of the rows (p u) of Left, for which W has at most ``CHUNK`` elements.

    All ranges share one buffer for their part of W, (rows, v q).
    """
    u = len(left) // p
    step = min(p, max(1, CHUNK // (u * right.shape[1])))
    memory = left.new_empty(step * u, right.shape[1])
    for start in range(0, p, step):
        end = min(p, start + step)
        yield slice(start, end), slice(start * u, end * u), memory[: (end - start) * u]


@dataclass(frozen=True, eq=False)
class Matrix:
    """W as ``left`` (p, u, k) and ``right`` (k, v, q)."""

    left: torch.Tensor
    right: torch.Tensor

    def dense(self) -> torch.Tensor:
        """Return W (J, I), rows (p, q) and columns (u, v)."""
        (p, u, k), (_, v, q) = self.left.shape, self.right.shape
        w = self.left.reshape(p * u, k) @ self.right.reshape(k, v * q)
        return w.reshape(p, u * v, q).transpose(1, 2).reshape(p * q, u * v)

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        """Return x W^T, (..., J), of x (..., I); ``RuntimeError`` for gradients of gradients."""
        whole = x.is_cuda and self.left.numel() * self.right[0].numel() <= DENSE * len(self.right)
        # Products that torch can record and transform.
        if whole or traced() or in_forward_mode():
            return x @ self.dense().T
        (p, u, k), (_, v, q) = self.left.shape, self.right.shape
        flat = x.reshape(-1, u * v)
        y = node(_Apply, flat, self.left.reshape(p * u, k), self.right.reshape(k, v * q), p, q)
        return y.transpose(0, 1).reshape(*x.shape[:-1], p * q)


def contract(factors: Sequence[torch.Tensor]) -> Matrix:
    """Return the matrix of a tensor train; a single factor is joined to a factor of a single 1."""
    if len(factors) == 1:
        factors = factors[0].new_ones(1, 1, 1, 1), factors[0]
    bond = _best_bond(factors)
    left = reduce(_merge, factors[:bond])
    right = reduce(lambda done, factor: _merge(factor, done), reversed(factors[bond:]))
    return Matrix(left[0], right[..., 0].transpose(1, 2))

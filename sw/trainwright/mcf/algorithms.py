"""The named algorithms of the MCTensor paper, corrected, on component tensors (..., nc).

``docs/reference/mcf.md`` compares each with the paper's version. Plain operands ``v`` have no
component dimension. All components have one type: float16, bfloat16, float32 or float64.
"""

import torch
from torch import Tensor

from trainwright.mcf import products
from trainwright.mcf.arithmetic import (
    add_mcn,
    div_mcn,
    div_n,
    grow_exp_n,
    mult_mcn,
    scaling_n,
    square_mcn,
)
from trainwright.mcf.errorfree import fast_two_sum, split, two_prod, two_prod_fma, two_sum
from trainwright.mcf.expansion import distilled, finished, stacked, terms_of, vec_sum
from trainwright.mcf.functions import exp as exp_mcn

__all__ = [
    "add_mcn",
    "addmm_mcn",
    "bmm_mcn",
    "div_mcn",
    "div_n",
    "dot_mcn",
    "exp_mcn",
    "fast_two_sum",
    "grow_exp_n",
    "matmul_mcn",
    "mm_4d_mcn",
    "mm_mcn",
    "mult_mcn",
    "mv_mcn",
    "renormalize",
    "scaling_n",
    "simple_renorm",
    "split",
    "square_mcn",
    "two_prod",
    "two_prod_fma",
    "two_sum",
    "vec_sum",
]


def renormalize(x: Tensor, r_nc: int | None = None) -> Tensor:
    """Normalise components of any order and overlap to r_nc components (algorithm 6, Priest).

    Sums from small to large, in as many passes as there are terms, and keeps the last sum. Default
    r_nc: unchanged count.
    """
    terms = terms_of(x)
    count = len(terms) if r_nc is None else r_nc
    _check_count(count, len(terms))
    return finished(distilled(terms, count, len(terms)), x[..., 0])


def simple_renorm(x: Tensor, r_nc: int | None = None) -> Tensor:
    """Normalise ordered components with zeros and slight overlap to r_nc (algorithm 7).

    One pass merges overlapping components, then zeros move to the end. All terms take part.
    """
    terms = terms_of(x)
    count = len(terms) if r_nc is None else r_nc
    _check_count(count, len(terms))
    merged = stacked(vec_sum(terms))
    order = torch.sort((merged == 0).to(torch.int8), dim=-1, stable=True).indices
    return finished(terms_of(merged.gather(-1, order))[:count], x[..., 0])


def _check_count(r_nc: int, terms: int) -> None:
    if not 1 <= r_nc <= terms:
        raise ValueError(f"r_nc must be from 1 to {terms}, the number of components, not {r_nc}")


def dot_mcn(x: Tensor, v: Tensor) -> Tensor:
    """Multiply components (k, nc) by plain (k) to components (nc) (algorithm 16)."""
    return _product(x, v, 1, 1)


def mv_mcn(x: Tensor, v: Tensor) -> Tensor:
    """Multiply components (n, k, nc) by plain (k) to components (n, nc) (algorithm 17)."""
    return _product(x, v, 2, 1)


def mm_mcn(x: Tensor, v: Tensor) -> Tensor:
    """Multiply components (n, k, nc) by plain (k, p) to components (n, p, nc) (algorithm 18)."""
    return _product(x, v, 2, 2)


def bmm_mcn(x: Tensor, v: Tensor) -> Tensor:
    """Multiply components (b, n, k, nc) by plain (b, k, p) (algorithm 19)."""
    return _product(x, v, 3, 3)


def mm_4d_mcn(x: Tensor, v: Tensor) -> Tensor:
    """Multiply components (a, b, n, k, nc) by plain (c, d, k, p), broadcasting (algorithm 20)."""
    return _product(x, v, 4, 4)


def _product(x: Tensor, v: Tensor, dims_x: int, dims_v: int) -> Tensor:
    if (x.dim() - 1, v.dim()) != (dims_x, dims_v):
        raise ValueError(
            f"needed are {dims_x} and {dims_v} dimensions, not shapes {tuple(x.shape[:-1])} and "
            f"{tuple(v.shape)}"
        )
    return products.matmul(x, v.unsqueeze(-1))


def addmm_mcn(y: Tensor, x: Tensor, v: Tensor, beta: float = 1, alpha: float = 1) -> Tensor:
    """Compute beta y + alpha x v with a plain v (algorithm 21).

    Shapes: y (n, p, nc) or (p, nc), x (n, k, nc), v (k, p). ``beta`` and ``alpha`` are rounded to
    the components' type.
    """
    factors = (None if f == 1 else x.new_tensor([f]) for f in (beta, alpha))
    products.check_matmul(x.shape[:-1], v.shape)
    return products.addmm(y, x, v.unsqueeze(-1), *factors)


def matmul_mcn(x: Tensor, v: Tensor) -> Tensor:
    """Multiply components by a plain tensor with torch's rules for every shape (algorithm 22)."""
    return products.matmul(x, v.unsqueeze(-1))

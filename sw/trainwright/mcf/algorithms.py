"""The named algorithms of the MCTensor paper, corrected, on component tensors (..., nc).

``docs/mcf.md`` sets each beside what the paper prints. Plain operands ``v`` have no component
dimension. All components are of one type: float16, bfloat16, float32 or float64.
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
    """Components of any order and overlap as r_nc normalised ones (algorithm 6, Priest).

    From small to large, as often as there are terms; the last sum is stored. Default r_nc: as many.
    """
    terms = terms_of(x)
    count = len(terms) if r_nc is None else r_nc
    _check_count(count, len(terms))
    return finished(distilled(terms, count, len(terms)), x[..., 0])


def simple_renorm(x: Tensor, r_nc: int | None = None) -> Tensor:
    """Components in order, with zeros among them and slight overlap, as r_nc (algorithm 7).

    One pass merges what overlaps; then zeros move to the end. All terms take part.
    """
    terms = terms_of(x)
    count = len(terms) if r_nc is None else r_nc
    _check_count(count, len(terms))
    merged = stacked(vec_sum(terms))
    order = torch.sort((merged == 0).to(torch.int8), dim=-1, stable=True).indices
    return finished(terms_of(merged.gather(-1, order))[:count], x[..., 0])


def _check_count(r_nc: int, terms: int) -> None:
    if not 1 <= r_nc <= terms:
        raise ValueError(f"r_nc must be from 1 to the {terms} components there are, not {r_nc}")


def dot_mcn(x: Tensor, v: Tensor) -> Tensor:
    """The product of components (k, nc) and plain (k): components (nc) (algorithm 16)."""
    return _product(x, v, 1, 1)


def mv_mcn(x: Tensor, v: Tensor) -> Tensor:
    """Components (n, k, nc) times plain (k): components (n, nc) (algorithm 17)."""
    return _product(x, v, 2, 1)


def mm_mcn(x: Tensor, v: Tensor) -> Tensor:
    """Components (n, k, nc) times plain (k, p): components (n, p, nc) (algorithm 18)."""
    return _product(x, v, 2, 2)


def bmm_mcn(x: Tensor, v: Tensor) -> Tensor:
    """Components (b, n, k, nc) times plain (b, k, p) (algorithm 19)."""
    return _product(x, v, 3, 3)


def mm_4d_mcn(x: Tensor, v: Tensor) -> Tensor:
    """Components (a, b, n, k, nc) times plain (c, d, k, p), batches broadcast (algorithm 20)."""
    return _product(x, v, 4, 4)


def _product(x: Tensor, v: Tensor, dims_x: int, dims_v: int) -> Tensor:
    if (x.dim() - 1, v.dim()) != (dims_x, dims_v):
        raise ValueError(
            f"needed are {dims_x} and {dims_v} dimensions, not shapes {tuple(x.shape[:-1])} and "
            f"{tuple(v.shape)}"
        )
    return products.matmul(x, v.unsqueeze(-1))


def addmm_mcn(y: Tensor, x: Tensor, v: Tensor, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta y + alpha x v: y (n, p, nc) or (p, nc), x (n, k, nc), plain v (k, p) (algorithm 21).

    ``beta`` and ``alpha`` are rounded to the components' type.
    """
    factors = (None if f == 1 else x.new_tensor([f]) for f in (beta, alpha))
    products.check_matmul(x.shape[:-1], v.shape)
    return products.addmm(y, x, v.unsqueeze(-1), *factors)


def matmul_mcn(x: Tensor, v: Tensor) -> Tensor:
    """Components times plain, with torch's rules for every shape (algorithm 22)."""
    return products.matmul(x, v.unsqueeze(-1))

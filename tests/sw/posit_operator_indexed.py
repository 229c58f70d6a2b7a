"""Cases of sums of values that share a place."""

import torch
import torch.nn.functional as F
from posit_operator_bench import registry

CASES, case = registry()
PLACES = [4, 0, 2, 0, 4, 4, 0, 4, 4]
"""Rows with one, three and five terms, and two without."""


def summed(b, rows, places, count, start=None):
    """Sum rows (E, D) by place, each in order and from its start."""
    sums = torch.zeros(count, rows.shape[1], dtype=torch.int64) if start is None else start.clone()
    for place in set(places):
        terms = [rows[i] for i, at in enumerate(places) if at == place]
        sums[place] = b.total(torch.stack(terms if start is None else [start[place], *terms]), 0)
    return sums


@case
def embeddings(b):
    table, index = b.some(6, 2), torch.tensor(PLACES).reshape(3, 3)
    p = b.posits(table, grad=True)
    g = b.some(3, 3, 2)
    rows = g.reshape(9, 2)
    y = F.embedding(index, p)
    yield y, table[index]
    sums = summed(b, rows, PLACES, 6)
    yield torch.autograd.grad(y, p, b.posits(g))[0], sums
    padded = sums.clone()
    padded[2] = 0
    y = F.embedding(index, p, padding_idx=2)
    yield torch.autograd.grad(y, p, b.posits(g))[0], padded
    counts = b.number([3.0, 1.0, 1.0, 1.0, 5.0, 1.0]).unsqueeze(1)
    y = F.embedding(index, p, scale_grad_by_freq=True)
    yield torch.autograd.grad(y, p, b.posits(g))[0], b.div(sums, counts)
    shrunk = b.posits(table)
    F.embedding(torch.tensor([1, 3, 3]), shrunk, max_norm=0.5)
    lengths, limit = b.sqrt(b.dot(table, table)), b.number(0.5)
    want = table.clone()
    for i in (1, 3):
        if b.value(lengths[i]) > b.value(limit):
            factor = b.div(limit, b.add(lengths[i], b.number(1e-7)))
            want[i] = b.mul(table[i], factor)
    yield shrunk, want


@case
def sums_by_place(b):
    x, rows = b.some(6, 2), b.special(b.some(9, 2))
    index = torch.tensor(PLACES)
    p, q = b.posits(x, rows)
    want = summed(b, rows, PLACES, 6, x)
    yield p.index_add(0, index, q), want
    yield p.clone().index_add_(0, index, q), want
    half = b.number(0.3)
    yield p.index_add(0, index, q, alpha=0.3), summed(b, b.mul(rows, half), PLACES, 6, x)
    yield p.index_put((index,), q, accumulate=True), want
    yield p.clone().index_put_((index,), q, accumulate=True), want
    wide = index.unsqueeze(1).expand(9, 2)
    yield p.scatter_add(0, wide, q), want
    yield p.clone().scatter_add_(0, wide, q), want
    yield p.t().scatter_add(-1, wide.t()[:1], q.t()), torch.stack([want[:, 0], x[:, 1]])
    g = b.some(9, 2)
    r = b.posits(x, grad=True)
    zero = torch.zeros_like(x)
    for y in (r[index], r.index_select(0, index), r.gather(0, wide)):
        (gradient,) = torch.autograd.grad(y, r, b.posits(g))
        yield gradient, summed(b, g, PLACES, 6, zero)

"""Random words and arithmetic on codes for the cases of posit operators."""

import torch
from posit_cases import generator

from trainwright import posit
from trainwright.posit import PositTensor


def registry():
    """Return a table of cases by name, and the decorator that fills the table."""
    cases = {}

    def case(function):
        cases[function.__name__] = function
        return function

    return cases, case


class Bench:
    """Random posits, and arithmetic on codes, in one format and mode."""

    def __init__(self, fmt, mode):
        self.fmt, self.mode, self.g = fmt, mode, generator(1)

    def some(self, *shape, scale=1.0):
        x = torch.randn(shape, generator=self.g, dtype=torch.float64) * scale
        return posit.encode(x, self.fmt)

    def posits(self, *codes, grad=False):
        tensors = [PositTensor.from_codes(c, self.fmt).requires_grad_(grad) for c in codes]
        return tensors if len(tensors) > 1 else tensors[0]

    def number(self, x):
        return posit.encode(torch.tensor(x, dtype=torch.float64), self.fmt)

    def add(self, a, b):
        return posit.add(a, b, self.fmt)

    def sub(self, a, b):
        return posit.sub(a, b, self.fmt)

    def mul(self, a, b):
        return posit.mul(a, b, self.fmt)

    def div(self, a, b):
        return posit.div(a, b, self.fmt)

    def neg(self, a):
        return self.sub(torch.zeros_like(a), a)

    def dot(self, a, b):
        return posit.dot(a, b, self.fmt, self.mode)

    def matmul(self, a, b):
        return posit.matmul(a, b, self.fmt, self.mode)

    def total(self, a, *dims):
        kept = [d for d in range(a.dim()) if d not in dims]
        lines = a.permute(*kept, *dims).reshape([*(a.shape[d] for d in kept), -1])
        return self.dot(lines, self.number(1.0).expand(lines.shape))

    def apply(self, name, a):
        return posit.encode(getattr(torch, name)(posit.decode(a, self.fmt)), self.fmt)

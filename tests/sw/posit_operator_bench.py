"""Random words and arithmetic on codes for the cases of posit operators."""

import torch
from posit_cases import generator
from posit_reference import nearest, reciprocal_root, value

from trainwright import posit
from trainwright.posit import PositTensor
from trainwright.posit.operators.functions import apply
from trainwright.posit.rounding import round_to


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

    def special(self, codes):
        """Put 0, NaR, both extremes and both smallest values into random places."""
        nar, changed = self.fmt.nar, codes.flatten().clone()
        words = torch.tensor([0, nar, nar - 1, nar + 1, 1, self.fmt.mask])
        changed[torch.randperm(len(changed), generator=self.g)[: len(words)]] = words
        return changed.reshape(codes.shape)

    def number(self, x):
        return self.number_of(torch.tensor(x, dtype=torch.float64))

    def number_of(self, values):
        return posit.encode(values, self.fmt)

    def value(self, codes):
        return posit.decode(codes, self.fmt)

    def clamp(self, codes, low, high):
        ends = (self.value(self.number(end)).item() for end in (low, high))
        return self.number_of(self.value(codes).clamp(*ends))

    def fma(self, a, b, c):
        return posit.fma(a, b, c, self.fmt)

    def sqrt(self, a):
        return posit.sqrt(a, self.fmt)

    def powers(self, a, exponent):
        n, es = self.fmt.n, self.fmt.es
        words = [
            self.fmt.nar
            if code == self.fmt.nar or (code == 0 and exponent < 0)
            else nearest(value(code, n, es) ** exponent, n, es)
            for code in a.flatten().tolist()
        ]
        return torch.tensor(words).reshape(a.shape)

    def apply_power(self, a, exponent):
        """Raise to a number, which ``test_posit_functions`` holds against exact arithmetic."""
        return posit.encode(
            apply("power", round_to(self.value(a), self.fmt), self.fmt, exponent), self.fmt
        )

    def rsqrt(self, a):
        n, es = self.fmt.n, self.fmt.es
        words = [reciprocal_root(code, n, es) for code in a.flatten().tolist()]
        return torch.tensor(words).reshape(a.shape)

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

    def matmul(self, a, b, right=False):
        """Multiply matrices; ``right``: by the transposed right one."""
        return posit.matmul(a, b.transpose(-1, -2) if right else b, self.fmt, self.mode)

    def total(self, a, *dims):
        kept = [d for d in range(a.dim()) if d not in dims]
        lines = a.permute(*kept, *dims).reshape([*(a.shape[d] for d in kept), -1])
        return self.dot(lines, self.number(1.0).expand(lines.shape))

    def apply(self, name, a):
        """Apply a function that ``test_posit_functions`` holds against exact arithmetic."""
        return posit.encode(apply(name, round_to(self.value(a), self.fmt), self.fmt), self.fmt)

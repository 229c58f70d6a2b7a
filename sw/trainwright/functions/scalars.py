"""Derive how a kernel's constants and the exponent of its result follow from exponents.

A host calls ``FunctionKernel.bound`` in every step. An accelerator that trains alone only adds and
subtracts exponents of its file, so each rule must be a sum of exponents and a number.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

from trainwright.functions.record import FunctionError, FunctionKernel, Scaling

REACH = range(-80, 81, 16)
"""Exponents at which a rule is compared with the sum that is derived from it."""
FAR = 300
"""Distance in exponents after which every rule that has bounds is at one of them."""

Exponents = tuple[int, ...]


@dataclass(frozen=True)
class ExponentSum:
    """Sum of exponents, each times 1, 0 or -1, and ``offset``, clamped to least .. most."""

    signs: tuple[int, ...]
    """Sign of each operand's exponent, in order; for a constant also that of the result's, last."""
    offset: int
    least: int
    most: int

    def at(self, exponents: Exponents) -> int:
        """Return the sum for these exponents."""
        value = self.offset + sum(
            sign * e for sign, e in zip(self.signs, exponents, strict=True)
        )  # fmt: skip
        return min(max(value, self.least), self.most)


@dataclass(frozen=True)
class KernelScalars:
    """Rules of a kernel: exponent of the result (if automatic, its least one), and constants."""

    exponent: ExponentSum
    constants: tuple[ExponentSum, ...]


@lru_cache(512)
def scalars_of(kernel: FunctionKernel, width: int) -> KernelScalars:
    """Return the rules of a kernel whose result has ``width`` bits.

    Raises ``FunctionError`` for a kernel whose scale is no sum of exponents.
    """

    def bound(variables: Exponents) -> Scaling:
        return kernel.bound(variables[:-1], width, variables[-1] if kernel.automatic else None)

    cases = list(product(REACH, repeat=kernel.operands + kernel.automatic))
    if not kernel.automatic:
        cases = [(*case, 0) for case in cases]
    results = [bound(case) for case in cases]
    exponent = _sum(kernel, cases, [r.floor for r in results], lambda v: bound(v).floor)
    # Where a result is raised to its least exponent, its constants follow from the raised one and
    # not from the one asked for: such cases would hide the rule.
    free = [n for n, (v, r) in enumerate(zip(cases, results, strict=True))
            if not kernel.automatic or r.exponent == v[-1]]  # fmt: skip
    constants = [
        _sum(
            kernel,
            [cases[n] for n in free],
            [results[n].constants[number] for n in free],
            lambda v, number=number: bound(v).constants[number],
        )
        for number in range(len(results[0].constants))
    ]
    return KernelScalars(exponent, tuple(constants))


def _sum(
    kernel: FunctionKernel, cases: list[Exponents], values: list[int],
    rule: Callable[[Exponents], int],
) -> ExponentSum:  # fmt: skip
    """Derive a rule from its values, and check the rule in all cases."""
    for case, value in zip(cases, values, strict=True):
        if min(values) < value < max(values) or min(values) == max(values):
            signs = tuple(rule(moved) - value for moved in _moved(case))
            offset = value - sum(s * e for s, e in zip(signs, case, strict=True))
            least, most = (
                rule(tuple(e + far * s for e, s in zip(case, signs, strict=True)))
                for far in (-FAR, FAR)
            )
            total = ExponentSum(signs, offset, least, most)
            if set(signs) <= {-1, 0, 1} and values == [total.at(other) for other in cases]:
                return total
    raise FunctionError(
        f"{kernel.function.definition.place}: the scale of {kernel.text} is no sum of exponents, "
        "so an accelerator cannot compute it alone: let the host start each step, with "
        "--accelerator exponents=0"
    )


def _moved(case: Exponents) -> Iterator[Exponents]:
    """Yield a copy of the exponents for each exponent, with this one raised by 1."""
    for n, value in enumerate(case):
        yield (*case[:n], value + 1, *case[n + 1 :])

"""Exponents: what every rounding of a graph divides by, from the exponents wanted."""

from collections.abc import Mapping
from dataclasses import dataclass

from trainwright.fixed.requantise import MAX_SHIFT
from trainwright.graph.ir import Add, Einsum, Graph, Mask, View


@dataclass(frozen=True)
class Shifts:
    """Of one operation: bits to the right of its exact sum, to the left of each operand before."""

    result: int
    x: int = 0
    y: int = 0


@dataclass(frozen=True)
class Binding:
    """``exponents`` of all tensors, the ``floors`` (of exact sums) and ``shifts`` of those made."""

    exponents: dict[str, int]
    floors: dict[str, int]
    shifts: dict[str, Shifts]


def bind(
    graph: Graph, wanted: Mapping[str, int], given: Mapping[str, int], *, most_alignment: int
) -> Binding:
    """The shifts that give the tensors made the ``wanted`` exponents.

    ``given`` are the exponents of what the graph reads. A tensor gets its wanted exponent, or its
    floor where that is larger: no shift goes to the left. Operands of an addition are shifted to
    the left by ``most_alignment`` bits at most. The exponent of a bias is moved to within that of
    the sum it is added to; ``exponents`` has it as used.
    """
    exponents, floors, shifts = dict(given), {}, {}
    for op in graph.ops:
        x, y = 0, 0
        match op:
            case View():
                exponents[op.out] = exponents[op.x]
                continue
            case Einsum():
                floor = sum(exponents[name] for name in op.operands)
            case Add():
                near = exponents[op.x]
                other = min(max(exponents[op.y], near - most_alignment), near + most_alignment)
                if op.y in graph.makers:
                    other = exponents[op.y]
                exponents[op.y] = other
                floor = min(near, other)
                x, y = near - floor, other - floor
            case Mask():
                floor = exponents[op.x]
        exponent = floor if isinstance(op, Mask) else max(floor, wanted.get(op.out, floor))
        exponent = min(exponent, floor + MAX_SHIFT)
        exponents[op.out], floors[op.out] = exponent, floor
        shifts[op.out] = Shifts(exponent - floor, x, y)
    return Binding(exponents, floors, shifts)

"""Bind a graph to exponents: the shift of every rounding, worked out apart from the compiler."""

from collections.abc import Mapping
from dataclasses import dataclass

from trainwright.fixed.align import Alignment, aligned
from trainwright.formats.rounding import MAX_SHIFT
from trainwright.functions import FunctionKernel
from trainwright.graph.ir import Einsum, Graph, Kernel, Op, Unfold, View
from trainwright.program.elementwise import MASK


@dataclass(frozen=True)
class Shifts:
    """Shifts of one operation: of its sum to the right, of its operands to the left before."""

    result: int
    x: int = 0
    y: int = 0
    constants: tuple[int, ...] = ()
    """Constants of a kernel."""


@dataclass(frozen=True)
class Binding:
    """Exponents of all tensors, and of each result its floor (of the exact sum) and its shifts."""

    exponents: dict[str, int]
    floors: dict[str, int]
    shifts: dict[str, Shifts]


def bind(
    graph: Graph, wanted: Mapping[str, int], given: Mapping[str, int], *, most_alignment: int
) -> Binding:
    """Find the shifts that give results the ``wanted`` exponents.

    ``given`` are the exponents of the tensors that the graph reads, constants left out. A result
    gets its wanted exponent, or its floor where the floor is larger: no sum is shifted left.
    Exponents of operands of an addition are brought within ``most_alignment`` bits of each other;
    the binding has the exponents as used.
    """
    constants = {t.name: t.constant[1] for t in graph.tensors.values() if t.constant}
    return aligned(lambda w, g: _bound(graph, w, g, most_alignment), wanted, {**constants, **given})


def _bound(
    graph: Graph, wanted: Mapping[str, int], given: Mapping[str, int], most_alignment: int
) -> Binding:
    exponents, floors, shifts = dict(given), {}, {}
    makers = {op.out: op.operands[0] if _passes(op) else op.out for op in graph.ops}
    alignment = Alignment(makers, exponents, most_alignment)
    for op in graph.ops:
        x, y = 0, 0
        match op:
            case View() | Unfold():
                exponents[op.out] = exponents[op.x]
                continue
            case Kernel(body=FunctionKernel() as body):
                each = [exponents[name] for name in op.operands]
                width = graph.tensors[op.out].width
                scaling = body.bound(each, width, wanted.get(op.out))
                floors[op.out], exponents[op.out] = scaling.floor, scaling.exponent
                shifts[op.out] = Shifts(0, constants=scaling.constants)
                if body.automatic:
                    alignment.limit(op.out, scaling.floor + MAX_SHIFT, op.operands)
                continue
            case Einsum():
                floor = sum(exponents[name] for name in op.operands)
            case Kernel(operands=(first, _), body=body) if body == MASK:
                floor = exponents[first]
            case Kernel(operands=(first, second)):
                alignment.align(first, second)
                floor = min(exponents[first], exponents[second])
                x, y = exponents[first] - floor, exponents[second] - floor
        still = is_mask(op) or graph.tensors[op.out].exact
        exponent = floor if still else max(floor, wanted.get(op.out, floor))
        exponent = min(exponent, floor + MAX_SHIFT)
        exponents[op.out], floors[op.out] = exponent, floor
        if not still:
            alignment.limit(op.out, floor + MAX_SHIFT, op.operands)
        shifts[op.out] = Shifts(exponent - floor, x, y)
    return Binding(exponents, floors, shifts)


def _passes(op: Op) -> bool:
    """Return whether a result has the exponent of its operand."""
    if isinstance(op, Kernel) and isinstance(op.body, FunctionKernel):
        return op.body.keeps_exponent
    return isinstance(op, View | Unfold) or is_mask(op)


def is_mask(op: Op) -> bool:
    """Return whether an operation is a mask, which rounds nothing."""
    return isinstance(op, Kernel) and op.body == MASK

"""A step whose backward pass makes products again instead of keeping them in outer memory."""

from collections.abc import Sequence
from dataclasses import replace

from trainwright.graph.ir import Einsum, Op
from trainwright.graph.order import Order
from trainwright.graph.step import StepGraph, split

MARK = "'"
"""Behind the name of a product that is made again: a tensor with an exponent of its own."""


def ordered_small(step: StepGraph, orders: Sequence[Order]) -> StepGraph:
    """Order a step so that no partial result of ``orders`` crosses between its passes.

    Both passes compute such a partial result, the backward pass where it is first read.
    """
    found, kept = step.ordered(orders), {op.out for op in step.whole.ops}
    whole, ahead = found.whole, {op.out: op for op in found.forward.ops}
    tensors, ops = dict(whole.tensors), list[Op]()

    def there(name: str) -> str:
        op = ahead.get(name)
        if not isinstance(op, Einsum) or name in kept:
            return name
        again = name + MARK
        if again not in tensors:
            tensors[again] = replace(tensors[name], name=again)
            ops.append(replace(op, out=again, operands=tuple(map(there, op.operands))))
        return again

    for op in whole.ops:
        if op.out not in ahead and isinstance(op, Einsum):
            op = replace(op, operands=tuple(map(there, op.operands)))
        ops.append(op)
    whole = replace(whole, tensors=tensors, ops=tuple(ops))
    return split(whole, step.forward.results, step.backward.results)

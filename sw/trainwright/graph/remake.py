"""A step whose backward pass makes products again instead of keeping them in outer memory."""

from collections.abc import Sequence
from dataclasses import replace

from trainwright.graph.ir import Op
from trainwright.graph.order import Order
from trainwright.graph.step import StepGraph, split

MARK = "'"
"""Suffix of a product that is made again: a tensor with an exponent of its own."""


def ordered_small(step: StepGraph, orders: Sequence[Order]) -> StepGraph:
    """Order a step so that no partial result of ``orders`` crosses between its passes.

    Both passes compute such a partial result, the backward pass where it is first read.
    """
    ordered, kept = step.ordered(orders), {op.out for op in step.whole.ops}
    whole, ahead = ordered.whole, {op.out: op for op in ordered.forward.ops}
    tensors, ops = dict(whole.tensors), list[Op]()

    def remade(name: str) -> str:
        # Operations of the graph before ordering stay: activations are needed by the host or the
        # layers around; only the products that the order introduced are made again.
        op = ahead.get(name)
        if op is None or not op.sums or name in kept:
            return name
        again = name + MARK
        # Another name, as the product made again has an exponent of its own.
        if again not in tensors:
            tensors[again] = replace(tensors[name], name=again)
            ops.append(replace(op, out=again, operands=tuple(map(remade, op.operands))))
        return again

    for op in whole.ops:
        # An operation of the backward pass alone.
        if op.out not in ahead and op.sums:
            op = replace(op, operands=tuple(map(remade, op.operands)))
        ops.append(op)
    whole = replace(whole, tensors=tensors, ops=tuple(ops))
    return split(whole, step.forward.results, step.backward.results)

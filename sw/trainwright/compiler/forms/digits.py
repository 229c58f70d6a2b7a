"""Decide into how many digits each tensor is cut on an accelerator with narrow words.

The digits of a row are rows of their own (``compiler.base.digits``), so that a tensor of n digits
has n times as many rows; a product takes a pass for each pair of digits of its operands.
"""

from collections.abc import Mapping
from dataclasses import replace

from trainwright.compiler.base.digits import require_weights
from trainwright.compiler.base.errors import CompileError
from trainwright.compiler.forms.passes import require_engine
from trainwright.graph.ir import Graph, Kernel, Op, Tensor
from trainwright.graph.step import StepGraph
from trainwright.network import Network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import DIGIT_WIDTH, digit_count
from trainwright.program.elementwise import MASK


def between_width(network: Network, p: AcceleratorParameters) -> int:
    """Return the bits that a partial result of a contraction order may have.

    They are the bits of a word, or the bits of intermediate results where these are cut into
    digits; two digits at most, so that a partial result can meet any other tensor.
    """
    fmt = network.format("intermediate")
    if not p.wide_tensors or fmt.coded:
        return p.word_width
    return max(p.word_width, min(fmt.width, 2 * DIGIT_WIDTH + 1))


def cost_digits(network: Network, step: StepGraph, p: AcceleratorParameters) -> tuple[int, ...]:
    """Return the values of ``trainwright.graph.order.Cost.digits`` to try.

    A product counts once, and where tensors are cut also once for each pair of digits: neither way
    is always better.
    """
    cut = any(tensor.digits > 1 for tensor in step.whole.tensors.values())
    return (0, digit_count(between_width(network, p))) if cut else (0,)


def in_digits(step: StepGraph, p: AcceleratorParameters) -> StepGraph:
    """Return the step with the digits of every tensor."""
    if not p.narrow:
        return step
    tensors = {
        name: replace(tensor, digits=digit_count(tensor.format.width))
        for name, tensor in step.whole.tensors.items()
    }
    whole, *passes = (
        replace(graph, tensors=tensors) for graph in (step.whole, step.forward, step.backward)
    )
    return StepGraph(whole, *passes)


def require_passes(graph: Graph, p: AcceleratorParameters) -> None:
    """Raise ``CompileError`` for products of two that no passes over digits compute."""
    for op in graph.ops:
        _require(op, graph.tensors, p)


def element_digits(op: Kernel, graph: Graph) -> tuple[int, int]:
    """Return the digits in which an element-wise operation reads its two operands.

    Both have as many, except for a mask of one digit: its sign is all that is read.
    """
    x, g = (graph.tensors[name].digits for name in op.operands)
    if op.body == MASK and g == 1:
        return x, g
    return max(x, g), max(x, g)


def _require(op: Op, tensors: Mapping[str, Tensor], p: AcceleratorParameters) -> None:
    """Raise ``CompileError`` where an operation has no nest over the digits of its operands."""
    if isinstance(op, Kernel):
        require_engine(op, p)
    digits = [tensors[name].digits for name in op.operands]
    if op.sums:
        require_weights(op.out, digits[0], digits[-1] if len(digits) > 1 else 1)
    if p.wide_tensors:
        return
    wide = [name for name, n in zip(op.operands, digits, strict=True) if n > 1]
    if len(wide) > 1:
        raise CompileError(
            f"{op.out}: {' and '.join(wide)} are cut into digits, which only one operand of a "
            "product is on this accelerator: use one with wide_tensors=1"
        )

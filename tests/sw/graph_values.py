"""Evaluate a graph in exact integers, which programs are held to, or in float64."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from graph_shifts import Shifts

from trainwright.functions import FunctionKernel
from trainwright.graph.ir import Graph, Kernel, Op, Tensor
from trainwright.kernels import evaluate as kernel_evaluate
from trainwright.kernels.trace import LANES

Values = npt.NDArray[Any]


@dataclass(frozen=True)
class Counted:
    """Statistics of one tensor: the sum of |word| and how many words saturated."""

    total: int
    saturations: int


def _group_axes(graph: Graph, op: Kernel) -> tuple[str, ...]:
    """List the axes of groups, and behind them those within a group."""
    return *(a for a in graph.tensors[op.out].axes if a not in op.over), *op.over


def _grouped(graph: Graph, op: Kernel, name: str, value: Values) -> Values:
    """Bring the values of each group of a kernel into a row; a gradient may be one for all."""
    axes, every = graph.tensors[name].axes, _group_axes(graph, op)
    order = [axes.index(a) for a in every if a in axes]
    shape = [graph.sizes[a] if a in axes else 1 for a in every]
    whole = np.broadcast_to(value.transpose(order).reshape(shape), [graph.sizes[a] for a in every])
    return whole.reshape(-1, prod(graph.sizes[a] for a in op.over))


def _ungrouped(graph: Graph, op: Kernel, rows: Values) -> Values:
    """Bring the rows of groups back into a tensor."""
    axes, order = graph.tensors[op.out].axes, _group_axes(graph, op)
    value = rows.reshape([graph.sizes[a] for a in order])
    if set(op.over) - set(axes):  # every value of a group has the result
        return value[(..., *(0 for _ in op.over))]
    return value.transpose([order.index(a) for a in axes])


def _kernel(graph: Graph, op: Kernel, values: Mapping[str, Values], shifts: Shifts) -> Values:
    """Evaluate a kernel on integers, in rows as long as the engine's, the last one with zeros."""
    widths = tuple(graph.tensors[name].width for name in op.operands)
    width = graph.tensors[op.out].width
    assert isinstance(op.body, FunctionKernel)
    body = op.body.traced(widths, width)
    if op.body.group:
        groups = {
            f"x{n}": _grouped(graph, op, name, values[name]) for n, name in enumerate(op.operands)
        }
        result = kernel_evaluate(body, groups, constants=shifts.constants, checks=True)
        return _ungrouped(graph, op, result.rows["z"])
    size = graph.count(op.out)
    rows = {
        f"x{n}": np.pad(values[name].ravel(), (0, -size % LANES)).reshape(-1, LANES)
        for n, name in enumerate(op.operands)
    }
    words = kernel_evaluate(body, rows, constants=shifts.constants).rows["z"]
    return words.ravel()[:size].reshape(graph.shape(op.out))


def constants(graph: Graph) -> dict[str, Values]:
    """Return the words of the constants that a graph reads."""
    return {
        name: np.full(graph.shape(name), tensor.constant[0])
        for name in graph.given
        if (tensor := graph.tensors[name]).constant
    }


def _parts(op: Op) -> list[dict[str, slice]]:
    """Return the ranges of axes in each part of a sum; one empty part where the sum is not cut."""
    if not op.parts:
        return [{}]
    return [{axis: slice(*values) for axis, values in cell} for cell in op.parts]


def _within(
    graph: Graph, op: Op, values: Mapping[str, Values], part: Mapping[str, slice]
) -> dict[str, Values]:
    """Cut the operands to the values within a part."""
    whole = slice(None)
    return {
        name: values[name][tuple(part.get(a, whole) for a in graph.tensors[name].axes)]
        for name in op.operands
    }


def _rounded(result: Tensor, exact: Values, shift: int) -> tuple[Values, Values]:
    """Round exact integers to words; return the words, and which of them saturated."""
    rounded, saturated, _ = result.format.encode(
        exact.astype(np.int64), shift, underflow="zero" if result.zero else "never"
    )
    return rounded, saturated


def evaluate(
    graph: Graph, given: Mapping[str, Values], shifts: Mapping[str, Shifts]
) -> tuple[dict[str, Values], dict[str, Counted]]:
    """Compute the words of every tensor, and the statistics of every result.

    ``given`` are words, with the axes of their tensors; constants are left out. The statistics of a
    sum that is taken in parts are those of its last addition.
    """
    words: dict[str, Values] = {**constants(graph), **given}
    integers = {name: graph.tensors[name].format.decode(value) for name, value in words.items()}
    counted: dict[str, Counted] = {}
    for op in graph.ops:
        if op.is_alias:
            words[op.out] = op.exact(graph, words)
            integers[op.out] = op.exact(graph, integers)
            continue
        if isinstance(op, Kernel) and isinstance(op.body, FunctionKernel):
            words[op.out] = integers[op.out] = _kernel(graph, op, integers, shifts[op.out])
            if op.body.automatic:
                result = graph.tensors[op.out].format
                counted[op.out] = Counted(int(result.magnitude(words[op.out]).sum()), 0)
            continue
        shift, result = shifts[op.out], graph.tensors[op.out]
        left = zip(op.operands, (shift.x, shift.y), strict=False)
        shifted = integers | {name: integers[name] << by for name, by in left}
        rounded, saturated = np.zeros(0, np.int64), np.zeros(0, np.bool_)
        for number, part in enumerate(_parts(op)):
            exact = op.exact(graph, _within(graph, op, shifted, part))
            before = rounded
            rounded, saturated = _rounded(result, exact, shift.result)
            if number:
                whole = result.format.decode(before) + result.format.decode(rounded)
                rounded, saturated = _rounded(result, whole, 0)
        words[op.out], integers[op.out] = rounded, result.format.decode(rounded)
        counted[op.out] = Counted(int(result.format.magnitude(rounded).sum()), int(saturated.sum()))
    return words, counted


def _real(graph: Graph, op: Op, values: Mapping[str, Values]) -> Values:
    if not (isinstance(op, Kernel) and isinstance(op.body, FunctionKernel)):
        return op.exact(graph, values)
    operands = [np.asarray(values[name]) for name in op.operands]
    if op.over:
        named = zip(op.operands, operands, strict=True)
        operands = [_grouped(graph, op, name, value) for name, value in named]
    result = op.body.real(*map(torch.from_numpy, operands)).numpy()
    return _ungrouped(graph, op, result) if op.over else result


def evaluate_float(graph: Graph, given: Mapping[str, Values]) -> dict[str, Values]:
    """Compute every tensor in float64, without rounding."""
    values: dict[str, Values] = {
        name: words * 2.0 ** (graph.tensors[name].constant or (0, 0))[1]
        for name, words in constants(graph).items()
    } | dict(given)
    for op in graph.ops:
        values[op.out] = _real(graph, op, values)
    return values

"""The intermediate representation: tensors with named axes, and what is computed from them.

An axis has one size in the whole graph. Every operation but ``View`` computes its result exactly
and rounds it once, to the format of the result at an exponent that is bound later. What a graph
does not show cannot change a bit: tiling, layouts and the array that computes are not in it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from trainwright.fixed.scale import TensorClass
from trainwright.formats import Format
from trainwright.formats.exponents import ExponentRule
from trainwright.functions import Function, FunctionError, FunctionKernel
from trainwright.functions.groups import product
from trainwright.functions.record import STRAIGHT_THROUGH
from trainwright.program.elementwise import MASK, RELU_SUM, ArrayBody
from trainwright.program.engines import ARRAYS, EngineSpec

if TYPE_CHECKING:
    from trainwright.graph.differentiate import Backward

Values = npt.NDArray[Any]
"""Integers, or real numbers, of a tensor: an array with its axes."""


def gradient_name(name: str) -> str:
    """Return the name of the gradient to a tensor: ``l1.G2`` -> ``l1.dG2``."""
    head, _, tail = name.rpartition(".")
    return f"{head}.d{tail}" if head else f"d{tail}"


@dataclass(frozen=True)
class Tensor:
    """A tensor: its axes, outermost first, and how its values are written."""

    name: str
    axes: tuple[str, ...]
    kind: TensorClass
    format: Format
    zero: bool = False
    """Whether values below the smallest number may become 0 (``Format.encode``)."""
    constant: tuple[int, int] | None = None
    """The word and the exponent of all values of a constant, which the host writes."""
    exact: bool = False
    """Whether the format holds every sum of the products: then nothing is ever shifted out."""
    digits: int = 1
    """Words that each value is cut into on the accelerator that the graph is compiled for."""

    @property
    def width(self) -> int:
        """Bits of a value's integer, as it is multiplied."""
        return self.format.decoded_width


Cell = tuple[tuple[str, tuple[int, int]], ...]
"""Axes that are summed, each with a range of its values: the first, and the one after the last."""
Parts = tuple[Cell, ...]
"""Cells that make up all values of some axes, in order."""


class GraphOp:
    """Record of an operation: what graphs, differentiation and the compiler ask of every kind.

    Each kind of operation is a class with its fields, which overrides the members that differ.
    Cycles are those of ``engines`` (``EngineSpec.cycles``) or of the body of a ``Kernel``.
    """

    sums: ClassVar[bool] = False
    """Whether products are summed, over the axes of operands that the result has not."""
    is_alias: ClassVar[bool] = False
    """Whether the result is the operand's own values by other axes: nothing is computed."""
    is_window: ClassVar[bool] = False
    """Whether an alias reads axes as windows: each pass makes its own, and none is stored."""
    over: tuple[str, ...] = ()
    """Axes of the result that are not cut: a value depends on all values along them."""
    site: str = ""
    """Closed network of tensors that a product is a part of; empty for none."""
    parts: Parts | None = None
    """Cells of a sum that is taken in parts."""

    @property
    def engines(self) -> tuple[EngineSpec, ...]:
        """Engines that can compute the operation; none for an alias."""
        return ()

    @property
    def exponents(self) -> ExponentRule:
        """Rule for the exponent of the result; a function binds its own (``bound``)."""
        return ExponentRule()

    def exact(self, graph: "Graph", values: Mapping[str, Values]) -> Values:
        """Return the result of the operands' integers, which is rounded once when it is stored."""
        raise NotImplementedError

    def gradient(self, back: "Backward", upper: str) -> None:
        """Add the operands' gradients to ``back``; ``upper`` names the gradient to the result."""
        raise ValueError(f"{upper}: a {type(self).__name__} has no gradient of its own")


@dataclass(frozen=True)
class Einsum(GraphOp):
    """``out`` = the product of ``operands``, summed over every axis that ``out`` has not.

    Operands of one ``site`` are one closed network of tensors, in which partial products are
    shared. With ``parts`` a sum is taken in parts: that of each cell is rounded to the format and
    exponent of ``out``; they are added in the order given, and each of these sums is rounded, too.
    """

    out: str
    operands: tuple[str, ...]
    site: str = ""
    parts: Parts | None = None
    sums = True

    @property
    def engines(self) -> tuple[EngineSpec, ...]:
        """Arrays, each of which can compute every contraction."""
        return tuple(ARRAYS.values())

    def exact(self, graph: "Graph", values: Mapping[str, Values]) -> Values:
        """Return the sums in float64, exact up to 2^53: accumulators have 48 bits at most."""
        names = (*self.operands, self.out)
        axes = dict.fromkeys(axis for name in names for axis in graph.tensors[name].axes)
        numbers = {axis: number for number, axis in enumerate(axes)}
        places = [[numbers[axis] for axis in graph.tensors[name].axes] for name in names]
        operands = [values[name].astype(np.float64) for name in self.operands]
        pairs: Any = zip(operands, places, strict=False)
        return np.einsum(*chain(*pairs), places[-1], optimize=True)

    def gradient(self, back: "Backward", upper: str) -> None:
        """Add, for each operand, the product of the others and the gradient to the result."""
        # A tensor that occurs twice in a product gets one gradient, as in the forward pass it is
        # one leaf.
        for name in dict.fromkeys(self.operands):
            if name in back.needed:
                self._factor(back, name, upper)

    def _factor(self, back: "Backward", name: str, upper: str) -> None:
        """Add the gradient to one operand.

        If the operand is an unfolding, add the gradient to the unfolded tensor instead.
        """
        rest, site = tuple(n for n in self.operands if n != name), self.site
        if len(rest) == 1 and set(back.tensors[rest[0]].axes) == set(back.tensors[upper].axes):
            self._scale(back, name, rest[0], upper)
            return
        # Adding up overlapping windows of the gradient would round each window before the sum. An
        # unfolding of the upper gradient makes each value one sum, rounded once.
        if name in back.graph.windows:
            window = back.graph.windows[name]
            slides = tuple(slide.adjoint for slide in window.slides)
            upper, site = back.windows(upper, slides), f"{site}.dx" if site else ""
            name = window.x
        back.ops.append(Einsum(back.part(name), (*rest, upper), site))

    @staticmethod
    def _scale(back: "Backward", name: str, x: str, upper: str) -> None:
        """Add the gradient to the scales of values: products of each value, then their sum."""
        axes = back.tensors[name].axes
        group = product.make().sized(prod(back.graph.sizes[axis] for axis in axes))
        part = back.part(name)  # of several where values share the scales
        products = back.tensor(f"{part}.products", x)
        back.ops.append(Kernel(products, (upper, x), group.forward, over=axes))
        back.ops.append(Einsum(part, (products,)))


@dataclass(frozen=True)
class Kernel(GraphOp):
    """``out`` = ``body`` of one value of each operand; operands have the axes of ``out``.

    With axes ``over`` a value depends on all values of its group: those that differ by these axes.
    """

    out: str
    operands: tuple[str, ...]
    body: ArrayBody | FunctionKernel
    source: Function | None = None
    """Function with the gradient; None: not differentiable, or a sum."""
    over: tuple[str, ...] = ()
    """Axes of a group; none where the function is element-wise."""

    @property
    def engines(self) -> tuple[EngineSpec, ...]:
        """Engine of the body."""
        return (self.body.spec,)

    @property
    def exponents(self) -> ExponentRule:
        """Exponent rule of an array's body; functions have rules of their own."""
        assert isinstance(self.body, ArrayBody)
        return self.body.exponents

    def exact(self, graph: "Graph", values: Mapping[str, Values]) -> Values:
        """Return the results of an array's body, whose second operand may lack axes.

        The integers of a function are those of its own text (``trainwright.kernels.evaluate``).
        """
        assert isinstance(self.body, ArrayBody)
        (x, y), wanted = self.operands, graph.tensors[self.out].axes
        axes = graph.tensors[y].axes
        spread = values[y].transpose([axes.index(axis) for axis in wanted if axis in axes])
        lacking = tuple(n for n, axis in enumerate(wanted) if axis not in axes)
        return self.body.exact(values[x], np.expand_dims(spread, lacking))

    def gradient(self, back: "Backward", upper: str) -> None:
        """Add the gradient to the operand: another kernel, of the gradient to the result.

        The gradient to a sum is that to each operand. The second operand of a function is a mask,
        which the host gives and which has no gradient.
        """
        x, source, body = self.operands[0], self.source, self.body
        kernel = source.backward if source else None
        if source and kernel is not None:
            seconds = {"operand": (x,), "result": (self.out,), "mask": self.operands[1:], "": ()}
            second = seconds[source.reads]
            back.ops.append(Kernel(back.part(x), (upper, *second), kernel, over=self.over))
            return
        straight = source is not None and source.definition.gradient == STRAIGHT_THROUGH
        if isinstance(body, FunctionKernel) and not straight:
            raise FunctionError(
                f"{body.function.definition.place}: {body.text} has no gradient: give its kernel "
                f'one, or gradient="{STRAIGHT_THROUGH}"'
            )
        # The mask reads the result of the ReLU, as the sum before the ReLU is never stored.
        if body == RELU_SUM:
            new = back.tensor(gradient_name(f"{self.out.rpartition('.')[0]}.y"), self.out)
            back.ops.append(Kernel(new, (upper, self.out), MASK))
            upper = new
        for name in self.operands:
            if name not in back.needed:
                continue
            # An operand with the axes of the result has the upper gradient itself, without a copy.
            # Other operands were broadcast along axes that they lack: the gradient is summed there.
            if set(back.tensors[name].axes) == set(back.tensors[self.out].axes):
                back.parts[name].append(upper)
            else:
                back.ops.append(Einsum(back.part(name), (upper,)))


@dataclass(frozen=True)
class Alias(GraphOp):
    """``out`` = values of ``x`` by other axes. Nothing is rounded."""

    out: str
    x: str
    is_alias = True

    @property
    def operands(self) -> tuple[str, ...]:
        """Names of the operands."""
        return (self.x,)


@dataclass(frozen=True)
class View(Alias):
    """``out`` = ``x`` by other axes: the same values in row-major order."""

    def exact(self, graph: "Graph", values: Mapping[str, Values]) -> Values:
        """Return the values of the operand by the axes of the result."""
        return values[self.x].reshape(graph.shape(self.out))

    def gradient(self, back: "Backward", upper: str) -> None:
        """Read the gradient to the result by the axes of the operand."""
        back.ops.append(View(back.part(self.x), upper))


@dataclass(frozen=True)
class Slide:
    """Axis of a tensor that windows read by two axes, a position and an offset.

    Position p and offset k read the value ``(p * stride + k * step + first) / spread`` of the
    axis, and 0 where the axis has no such value.
    """

    axis: str
    position: str
    offset: str
    stride: int
    step: int
    first: int
    spread: int = 1

    @property
    def adjoint(self) -> "Slide":
        """Slide that reads positions from values of the axis, for gradients."""
        # A spread slide skips positions; no operation of a network makes one in the forward pass.
        assert self.spread == 1
        # p and k of the forward slide give axis value v = p * stride + k * step + first; solved for
        # p, that is (v - k * step - first) / stride: a slide over the axis that is spread by the
        # stride.
        return Slide(self.position, self.axis, self.offset, 1, -self.step, -self.first, self.stride)


@dataclass(frozen=True)
class Unfold(Alias):
    """Unfolding of ``x`` to ``out``: some axes read by two each, as windows."""

    slides: tuple[Slide, ...]
    is_window = True

    def exact(self, graph: "Graph", values: Mapping[str, Values]) -> Values:
        """Return the windows of the operand, with zeros where they leave its axes."""
        value, axes = values[self.x], list(graph.tensors[self.x].axes)
        for slide in self.slides:
            place, at = axes.index(slide.axis), [slide.position, slide.offset]
            p, k = (np.arange(graph.sizes[axis]) for axis in at)
            index = p[:, None] * slide.stride + k * slide.step + slide.first
            source, rest = np.divmod(index, slide.spread)
            inside = (rest == 0) & (source >= 0) & (source < graph.sizes[slide.axis])
            value = np.take(value, np.where(inside, source, 0), place)
            value = value * inside.reshape(*index.shape, *[1] * (value.ndim - place - 2))
            axes[place : place + 1] = at
        return value.transpose([axes.index(axis) for axis in graph.tensors[self.out].axes])


Op = Einsum | Kernel | View | Unfold


@dataclass(frozen=True)
class Graph:
    """Operations in an order in which they can be computed.

    ``given`` are tensors that the host writes, ``results`` those that it reads.
    """

    sizes: Mapping[str, int]
    tensors: Mapping[str, Tensor]
    ops: tuple[Op, ...]
    given: tuple[str, ...]
    results: tuple[str, ...]

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the sizes of the axes of a tensor."""
        return tuple(self.sizes[axis] for axis in self.tensors[name].axes)

    def count(self, name: str) -> int:
        """Count the values of a tensor."""
        return prod(self.shape(name))

    @cached_property
    def makers(self) -> dict[str, Op]:
        """Operation that makes each tensor that is not given."""
        return {op.out: op for op in self.ops}

    @cached_property
    def origins(self) -> dict[str, str]:
        """Tensor that each tensor is a view or an unfolding of: itself where it is none."""
        origins = {name: name for name in self.tensors}
        # In the order of computation: `x` of a view of a view is resolved already.
        for op in self.ops:
            if op.is_alias:
                origins[op.out] = origins[op.operands[0]]
        return origins

    @cached_property
    def windows(self) -> dict[str, Unfold]:
        """Unfoldings, by the tensor that they make."""
        return {op.out: op for op in self.ops if isinstance(op, Unfold)}

    @property
    def work(self) -> int:
        """Multiply-accumulates, each counted once for every pair of words of its operands."""
        return sum(self.work_of(op) for op in self.ops if op.sums)

    def passes(self, op: Op) -> int:
        """Count the pairs of words of a product of two values."""
        return prod(self.tensors[name].digits for name in op.operands)

    def work_of(self, op: Op) -> int:
        """Count the work of one contraction, or the values of what no contraction makes."""
        return self.products(op) * self.passes(op) if op.sums else self.count(op.out)

    def products(self, op: Op) -> int:
        """Count the multiply-accumulates of a contraction, or the values of a sum of one tensor."""
        axes = {axis for name in op.operands for axis in self.tensors[name].axes}
        return prod(self.sizes[axis] for axis in axes)

    def summed(self, op: Op) -> tuple[str, ...]:
        """List the axes that an operation sums over, in the order of its operands."""
        if not op.sums:
            return ()
        out = self.tensors[op.out].axes
        axes = (axis for name in op.operands for axis in self.tensors[name].axes)
        return tuple(dict.fromkeys(axis for axis in axes if axis not in out))

    def part(self, ops: Iterable[Op], given: Iterable[str], results: Iterable[str]) -> "Graph":
        """Return a graph of the same tensors with other operations."""
        return replace(self, ops=tuple(ops), given=tuple(given), results=tuple(results))


def axes_of(graph: Graph, op: Op) -> set[str]:
    """Return the axes of an operation: those of its result, and those that it sums."""
    return {*graph.tensors[op.out].axes, *graph.summed(op)}


def needed(graph: Graph, results: Iterable[str]) -> tuple[Op, ...]:
    """Select the operations that ``results`` need, in their order."""
    wanted = set(results)
    kept = []
    # From the end to the start: readers come before the operations that make what they read.
    for op in reversed(graph.ops):
        if op.out in wanted:
            kept.append(op)
            wanted.update(op.operands)
    return tuple(reversed(kept))


def urgent(graph: Graph, large: float = 1.0) -> Graph:
    """Order operations so that the longest chain of multiply-accumulates starts first.

    An operation with more than the share ``large`` of all multiply-accumulates waits for the
    smaller contractions that can be computed: their results are whole before its slices need them.
    """
    readers: dict[str, list[Op]] = {}
    for op in graph.ops:
        for name in set(op.operands):
            readers.setdefault(name, []).append(op)
    # List scheduling by the critical path: an operation is as urgent as the work that still has to
    # follow it, its own included.
    height: dict[str, int] = {}
    work = {op.out: graph.work_of(op) for op in graph.ops}
    most = large * sum(work.values())
    for op in reversed(graph.ops):
        height[op.out] = work[op.out] + max(
            (height[r.out] for r in readers.get(op.out, ())), default=0
        )
    pending, done, ordered = list(graph.ops), set(graph.given), list[Op]()
    while pending:
        # Quadratic in the number of operations, which is a few hundred at most.
        ready = [op for op in pending if done.issuperset(op.operands)]
        op = max(ready, key=lambda op: height[op.out])
        # A large contraction would hold the arrays for most of the step, and its slices need whole
        # operands: smaller ones fill the time before it.
        if work[op.out] > most:
            small = [other for other in ready if other.sums and work[other.out] <= most]
            op = max(small or ready, key=lambda op: height[op.out])
        pending.remove(op)
        done.add(op.out)
        ordered.append(op)
    return replace(graph, ops=tuple(ordered))

"""The backward pass, by the chain rule on every operation of a graph."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace
from math import prod

from trainwright.functions import FunctionError
from trainwright.functions.groups import product
from trainwright.functions.record import STRAIGHT_THROUGH
from trainwright.graph.ir import Add, Einsum, Graph, Kernel, Mask, Op, Slide, Tensor, Unfold, View


def gradient_name(name: str) -> str:
    """Return the name of the gradient to a tensor: ``l1.G2`` -> ``l1.dG2``."""
    head, _, tail = name.rpartition(".")
    return f"{head}.d{tail}" if head else f"d{tail}"


class _Backward:
    """Backward pass under construction: parts of the gradient to each tensor."""

    def __init__(self, graph: Graph, wanted: Collection[str], like: Tensor):
        self.graph, self.like = graph, like
        self.tensors = dict(graph.tensors)
        self.ops: list[Op] = []
        self.parts: dict[str, list[str]] = defaultdict(list)
        # Gradients are computed only on the way to a tensor that is wanted: inputs and constants
        # usually are not.
        self.needed = set(wanted)
        self.uses: Counter[str] = Counter()
        """How many parts the gradient to each tensor will have."""
        for op in graph.ops:
            if self.needed & set(op.operands):
                self.needed.add(op.out)
            # An unfolding rounds nothing and has no gradient of its own: an operation that reads it
            # counts as a reader of the unfolded tensor, and adds a part of that tensor's gradient.
            if not isinstance(op, Unfold):
                names = set(op.operands)
                self.uses.update(graph.windows[n].x if n in graph.windows else n for n in names)

    def gradient(self, name: str) -> str:
        """Add the parts of the gradient to a tensor; return the name of their sum."""
        # Parts are added pairwise, each sum rounded, in the order in which the backward pass meets
        # the readers: that order is part of the result's bits.
        parts = self.parts[name]
        total = parts[0]
        for number, part in enumerate(parts[1:], 2):
            last = number == len(parts)
            whole = gradient_name(name) if last else f"{gradient_name(name)}.sum{number}"
            self.ops.append(Add(self.tensor(whole, name), total, part))
            total = whole
        return total

    def tensor(self, new: str, like: str) -> str:
        """Add a gradient with the axes of the tensor ``like``; return its name."""
        axes = self.tensors[like].axes
        self.tensors[new] = replace(self.like, name=new, axes=axes)
        return new

    def part(self, to: str) -> str:
        """Add a new part of the gradient to a tensor; return its name."""
        name = gradient_name(to)
        # A single part is the gradient itself and takes its name: no copy, no extra rounding.
        if self.uses[to] > 1:
            name = f"{name}.{len(self.parts[to]) + 1}"
        self.parts[to].append(self.tensor(name, to))
        return name

    def step(self, op: Op) -> None:
        """Add the gradients to the operands of ``op``, given the gradient to its result."""
        upper = self.gradient(op.out)
        match op:
            case Einsum():
                # A tensor that occurs twice in a product gets one gradient, as in the forward pass
                # it is one leaf.
                for name in dict.fromkeys(op.operands):
                    if name in self.needed:
                        self._factor(op, name, upper)
            case View():
                self.ops.append(View(self.part(op.x), upper))
            case Add():
                self._add(op, upper)
            case Kernel():
                self._kernel(op, upper)
            case Mask() | Unfold():
                raise ValueError(f"{op.out}: a mask or an unfolding has no gradient of its own")

    def _factor(self, op: Einsum, name: str, upper: str) -> None:
        """Add the gradient to one operand: the other operands times the gradient to the product.

        If the operand is an unfolding, add the gradient to the unfolded tensor instead.
        """
        rest, site = tuple(n for n in op.operands if n != name), op.site
        if len(rest) == 1 and set(self.tensors[rest[0]].axes) == set(self.tensors[upper].axes):
            self._scale(name, rest[0], upper)
            return
        # Adding up overlapping windows of the gradient would round each window before the sum. An
        # unfolding of the upper gradient makes each value one sum, rounded once.
        if name in self.graph.windows:
            window = self.graph.windows[name]
            slides = tuple(slide.adjoint for slide in window.slides)
            upper, site = self._windows(upper, slides), f"{site}.dx" if site else ""
            name = window.x
        self.ops.append(Einsum(self.part(name), (*rest, upper), site))

    def _windows(self, name: str, slides: tuple[Slide, ...]) -> str:
        axes_of = {slide.axis: (slide.position, slide.offset) for slide in slides}
        axes = [a for axis in self.tensors[name].axes for a in axes_of.get(axis, (axis,))]
        new = f"{name}w"
        self.tensors[new] = replace(self.like, name=new, axes=tuple(axes))
        self.ops.append(Unfold(new, name, slides))
        return new

    def _scale(self, name: str, x: str, upper: str) -> None:
        """Add the gradient to the scales of values: products of each value, then their sum."""
        axes = self.tensors[name].axes
        group = product.make().sized(prod(self.graph.sizes[axis] for axis in axes))
        products = self.tensor(f"{gradient_name(name)}.products", x)
        self.ops.append(Kernel(products, (upper, x), group.forward, over=axes))
        self.ops.append(Einsum(self.part(name), (products,)))

    def _kernel(self, op: Kernel, upper: str) -> None:
        """Add the gradient to a kernel's operand: another kernel, of the gradient to the result.

        A second operand is a mask, which the host gives and which has no gradient.
        """
        x = op.operands[0]
        kernel = op.source.backward if op.source else None
        if kernel is not None:
            assert op.source
            seconds = {"operand": (x,), "result": (op.out,), "mask": op.operands[1:], "": ()}
            second = seconds[op.source.reads]
            self.ops.append(Kernel(self.part(x), (upper, *second), kernel, over=op.over))
        elif op.source and op.source.definition.gradient == STRAIGHT_THROUGH:
            self.parts[x].append(upper)
        else:
            place = op.function.function.definition.place
            raise FunctionError(
                f"{place}: {op.function.text} has no gradient: give its kernel one, or "
                f'gradient="{STRAIGHT_THROUGH}"'
            )

    def _add(self, op: Add, upper: str) -> None:
        # The mask reads the result of the ReLU, as the sum before the ReLU is never stored.
        if op.relu:
            new = self.tensor(gradient_name(f"{op.out.rpartition('.')[0]}.y"), op.out)
            self.ops.append(Mask(new, upper, op.out))
            upper = new
        for name in op.operands:
            if name not in self.needed:
                continue
            # An operand with the axes of the sum has the upper gradient itself, without a copy.
            # Other operands were broadcast along axes that they lack: the gradient is summed there.
            if set(self.tensors[name].axes) == set(self.tensors[op.out].axes):
                self.parts[name].append(upper)
            else:
                self.ops.append(Einsum(self.part(name), (upper,)))


def differentiate(
    graph: Graph, upper: Mapping[str, str], wanted: Collection[str], like: Tensor
) -> Graph:
    """Return the operations that compute the gradient to each tensor of ``wanted``.

    ``upper`` names, for each result of ``graph``, the gradient that the host gives. Gradients have
    the class and the format of ``like``. The returned graph has the tensors of ``graph`` and the
    gradients; its ``given`` are the tensors that it reads from the forward pass or the host.
    """
    back = _Backward(graph, wanted, like)
    for result, name in upper.items():
        back.parts[result].append(back.tensor(name, result))
        back.uses[result] += 1
    # Reversed order meets every reader of a tensor before the operation that makes it, so that all
    # parts are there when they are added.
    for op in reversed(graph.ops):
        if op.out in back.needed and not isinstance(op, Unfold):
            back.step(op)
    results = tuple(back.gradient(name) for name in wanted)
    # Only what the backward pass reads from the forward pass is kept for it in memory.
    results_of_ops = {op.out for op in back.ops}
    read = dict.fromkeys(
        name for op in back.ops for name in op.operands if name not in results_of_ops
    )
    return Graph(graph.sizes, back.tensors, tuple(back.ops), tuple(read), results)

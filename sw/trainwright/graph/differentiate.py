"""The backward pass, by the chain rule on every operation of a graph."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace

from trainwright.graph.ir import Graph, Kernel, Op, Slide, Tensor, Unfold, gradient_name
from trainwright.program.elementwise import SUM


class Backward:
    """Backward pass under construction: parts of the gradient to each tensor.

    Each operation of the graph adds the gradients to its own operands (``ir.GraphOp.gradient``).
    """

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
            if not op.is_window:
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
            sum_name = gradient_name(name) if last else f"{gradient_name(name)}.sum{number}"
            self.ops.append(Kernel(self.tensor(sum_name, name), (total, part), SUM))
            total = sum_name
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

    def windows(self, name: str, slides: tuple[Slide, ...]) -> str:
        """Add an unfolding of a gradient; return its name."""
        axes_of = {slide.axis: (slide.position, slide.offset) for slide in slides}
        axes = [a for axis in self.tensors[name].axes for a in axes_of.get(axis, (axis,))]
        new = f"{name}w"
        self.tensors[new] = replace(self.like, name=new, axes=tuple(axes))
        self.ops.append(Unfold(new, name, slides))
        return new


def differentiate(
    graph: Graph, upper: Mapping[str, str], wanted: Collection[str], like: Tensor
) -> Graph:
    """Return the operations that compute the gradient to each tensor of ``wanted``.

    ``upper`` names, for each result of ``graph``, the gradient that the host gives. Gradients have
    the class and the format of ``like``. The returned graph has the tensors of ``graph`` and the
    gradients; its ``given`` are the tensors that it reads from the forward pass or the host.
    """
    back = Backward(graph, wanted, like)
    for result, name in upper.items():
        back.parts[result].append(back.tensor(name, result))
        back.uses[result] += 1
    # Reversed order meets every reader of a tensor before the operation that makes it, so that all
    # parts are there when they are added.
    for op in reversed(graph.ops):
        if op.out in back.needed and not op.is_window:
            op.gradient(back, back.gradient(op.out))
    results = tuple(back.gradient(name) for name in wanted)
    # Only what the backward pass reads from the forward pass is kept for it in memory.
    results_of_ops = {op.out for op in back.ops}
    read = dict.fromkeys(
        name for op in back.ops for name in op.operands if name not in results_of_ops
    )
    return Graph(graph.sizes, back.tensors, tuple(back.ops), tuple(read), results)

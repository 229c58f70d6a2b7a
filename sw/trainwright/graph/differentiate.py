"""The backward pass, by the chain rule on every operation of a graph."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace

from trainwright.graph.ir import Add, Einsum, Graph, Mask, Op, Tensor, View


def gradient_name(name: str) -> str:
    """Name of the gradient to a tensor: ``l1.G2`` -> ``l1.dG2``."""
    head, _, tail = name.rpartition(".")
    return f"{head}.d{tail}" if head else f"d{tail}"


class _Backward:
    """Gradients of one tensor by those of what is made from it."""

    def __init__(self, graph: Graph, wanted: Collection[str], like: Tensor):
        self.graph, self.like = graph, like
        self.tensors = dict(graph.tensors)
        self.ops: list[Op] = []
        self.parts: dict[str, list[str]] = defaultdict(list)
        self.needed = set(wanted)
        for op in graph.ops:
            if self.needed & set(op.operands):
                self.needed.add(op.out)
        self.names: dict[str, str] = {}
        for op in graph.ops:  # the gradient before a ReLU goes by the layer's own short name
            if isinstance(op, Add) and op.x.endswith(".y"):
                self.names[op.x] = gradient_name(op.x)

    def gradient(self, name: str) -> str:
        """The sum of the parts of the gradient to a tensor."""
        parts = self.parts[name]
        total = parts[0]
        for number, part in enumerate(parts[1:], 2):
            last = number == len(parts)
            whole = gradient_name(name) if last else f"{gradient_name(name)}.{number}"
            self.ops.append(Add(self.tensor(whole, name), total, part))
            total = whole
        return total

    def tensor(self, new: str, like: str) -> str:
        """A gradient of the axes of the tensor ``like``."""
        axes = self.tensors[like].axes
        self.tensors[new] = replace(self.like, name=new, axes=axes)
        return new

    def part(self, to: str, name: str = "") -> str:
        """A new part of the gradient to a tensor."""
        name = name or gradient_name(to)
        while name in self.tensors:
            name += "'"
        self.parts[to].append(self.tensor(name, to))
        return name

    def step(self, op: Op) -> None:
        """The gradients of the operands of ``op`` from that of its result."""
        upper = self.gradient(op.out)
        match op:
            case Einsum():
                for name in dict.fromkeys(op.operands):
                    if name in self.needed:
                        others = tuple(other for other in op.operands if other != name)
                        self.ops.append(Einsum(self.part(name), (*others, upper), op.site))
            case View():
                self.ops.append(View(self.part(op.x), upper))
            case Add():
                self._add(op, upper)
            case Mask():
                raise ValueError(f"{op.out}: a mask has no gradient")

    def _add(self, op: Add, upper: str) -> None:
        if op.relu:
            new = self.tensor(f"{gradient_name(op.x)}", op.out)
            self.ops.append(Mask(new, upper, op.out))
            upper = new
        for name in op.operands:
            if name not in self.needed:
                continue
            if set(self.tensors[name].axes) == set(self.tensors[op.out].axes):
                self.parts[name].append(upper)
            else:
                self.ops.append(Einsum(self.part(name), (upper,)))


def differentiate(
    graph: Graph, upper: Mapping[str, str], wanted: Collection[str], like: Tensor
) -> Graph:
    """The operations that give the gradient to each tensor of ``wanted``.

    ``upper`` names, for each result of ``graph``, the gradient that the host gives. Gradients have
    the class and the format of ``like``. The result's tensors are those of ``graph`` and the
    gradients; what it reads of the forward pass is in ``given``.
    """
    back = _Backward(graph, wanted, like)
    for result, name in upper.items():
        back.parts[result].append(back.tensor(name, result))
    for op in reversed(graph.ops):
        if op.out in back.needed:
            back.step(op)
    results = tuple(back.gradient(name) for name in wanted)
    made = {op.out for op in back.ops}
    read = dict.fromkeys(name for op in back.ops for name in op.operands if name not in made)
    return Graph(graph.sizes, back.tensors, tuple(back.ops), tuple(read), results)

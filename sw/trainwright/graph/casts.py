"""Fixed point around functions, in networks whose tensors have coded or narrow formats.

Functions are passes of the vector engine, which reads and writes integers of 16 bits. So every
tensor that a function reads or makes is in fixed point of 16 bits: what makes it rounds to that
format. Products of two tensors and more go on taking coded operands: a *cast*, a sum over no axis,
rounds such a tensor to the format of its class at an exponent of its own.
"""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from trainwright.formats import Fixed
from trainwright.functions import FunctionKernel
from trainwright.graph.ir import Alias, Einsum, Graph, Kernel, Op, Tensor
from trainwright.program.elementwise import MASK
from trainwright.support.memo import CachedMethod

WORD = Fixed(16)
"""Format of tensors that functions read or make."""


def with_casts(whole: Graph, fixed: Collection[str] = ()) -> Graph:
    """Return a step with coded tensors around functions, and those ``fixed``, in fixed point.

    What the host writes keeps its format unless it is named.
    """
    plain = _fixed(whole, fixed)
    return _Casts(whole, plain, _coded(whole, fixed)).graph() if plain else whole


def in_words(whole: Graph, names: Collection[str]) -> Graph:
    """Return a step whose fixed-point tensors among ``names`` have words of 16 bits.

    Loss and update on the accelerator read and write two bytes for each of their values.
    """
    origins = whole.origins
    alike = [{origins[name] for name in _alike(whole, op)} for op in whole.ops]
    wide = {origins[name] for name in names}
    # Tensors of one operation that have one format all get words if one of them does.
    while more := {name for group in alike if group & wide for name in group} - wide:
        wide |= more
    return replace(whole, tensors={
        name: t if t.format.coded or origins[name] not in wide else replace(t, format=WORD)
        for name, t in whole.tensors.items()
    })  # fmt: skip


def _coded(graph: Graph, names: Collection[str]) -> set[str]:
    """Return the coded ones among tensors, or among those that the tensors are views of."""
    origins = {graph.origins[name] for name in names}
    return {name for name in origins if graph.tensors[name].format.coded}


def _alike(graph: Graph, op: Op) -> tuple[str, ...]:
    """List the tensors of an operation that must have one format, because it rounds nothing."""
    if isinstance(op, Kernel) and op.body == MASK:
        return (op.operands[0], op.out)
    copied = isinstance(op, Einsum) and graph.tensors[op.out].exact
    return (*op.operands, op.out) if copied else ()


def _function(op: Op) -> str:
    """Return the name of the function of an operation, empty for none."""
    body = op.body if isinstance(op, Kernel) else None
    return body.function.definition.name if isinstance(body, FunctionKernel) else ""


def _fixed(graph: Graph, names: Collection[str]) -> set[str]:
    """Return the coded tensors that have to be in fixed point, views left out."""
    functions = [op for op in graph.ops if _function(op)]
    touched = _coded(graph, [n for op in functions for n in (op.out, *op.operands)])
    touched |= _coded(graph, names)
    groups = [group for op in graph.ops if (group := _coded(graph, _alike(graph, op)))]
    while more := {n for group in groups if group & touched for n in group} - touched:
        touched |= more
    return touched


@dataclass
class _Casts:
    """Graph under construction: operations in order, each cast right after the tensor it reads."""

    whole: Graph
    fixed: set[str]
    """Coded tensors that are to be in fixed point; the rest keep their formats."""
    named: set[str]
    """Tensors of ``fixed`` that are in fixed point even if the host writes them."""
    casts: dict[str, list[Op]] = field(default_factory=lambda: defaultdict(list))
    """Operations that follow the one that makes a tensor, or the host's tensors (``""``)."""

    def __post_init__(self) -> None:
        self.tensors = dict(self.whole.tensors)
        # `_raised` adds a bit, so that zeros of padding are the least value: take a bit less first.
        functions = [op for op in self.whole.ops if _function(op) in ("_raised", "_lowered")]
        self.narrow = _coded(self.whole, [n for op in functions for n in (op.out, *op.operands)])
        # Tensors that the host writes keep the format in which it writes them.
        self.written = self.fixed.intersection(self.whole.given) - self.named
        for name, origin in self.whole.origins.items():
            if origin in self.fixed - self.written:
                self.tensors[name] = self._plain(name)

    def graph(self) -> Graph:
        """Return the graph with its casts."""
        ops = [self._reading(op) for op in self.whole.ops]
        ordered = list(self.casts[""])
        for op in ops:
            ordered += [op, *self.casts[op.out]]
        # Drop views that nothing reads, because casts have replaced them.
        return replace(self.whole, tensors=self.tensors, ops=tuple(ordered))

    def _plain(self, name: str) -> Tensor:
        """Return a tensor in fixed point."""
        fmt = Fixed(WORD.width - 1) if self.whole.origins[name] in self.narrow else WORD
        return replace(self.whole.tensors[name], format=fmt, zero=False)

    def _reading(self, op: Op) -> Op:
        """Return an operation that reads each operand in the format that it takes."""
        if isinstance(op, Alias):
            return op
        # What copies values, as of windows, has them in one format; no sum is rounded twice.
        coded = op.sums and len(op.operands) > 1 and not self.tensors[op.out].exact
        return replace(op, operands=tuple(self._in_format(n, coded) for n in op.operands))

    def _in_format(self, name: str, coded: bool) -> str:
        """Return a tensor's name in coded or in fixed point, added where there is none yet."""
        origin = self.whole.origins[name]
        if origin not in self.fixed or coded == (origin in self.written):
            return name
        return self._added(name, coded)

    @CachedMethod
    def _added(self, name: str, coded: bool) -> str:
        new = f"{name}_{'coded' if coded else 'fixed'}"
        like = self.whole.tensors[name] if coded else self._plain(name)
        self.tensors[new] = replace(like, name=new, exact=False)
        maker = self.whole.makers.get(name)
        if isinstance(maker, Alias):
            # Behind the original view, whose operand and its cast come before it.
            op: Op = replace(maker, out=new, x=self._in_format(maker.x, coded))
        else:
            op = Einsum(new, (name,))
        self.casts[name if maker else ""].append(op)
        return new

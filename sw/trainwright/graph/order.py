"""The contraction order: products of many tensors as trees of products of two, by search.

The contractions of a site (a layer, forward and backward) are one closed network. The leaves of the
network are tensors, such as factors, the input and the gradient to the output. Each contraction
needs all leaves but one. A product of some leaves is a partial result, written as the set (mask) of
its leaves, and computed once even if two contractions use it. The search improves the tree of one
contraction after another, from several starts. While it improves a tree, partial results of the
other trees cost nothing.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from trainwright.fixed.scale import TensorClass
from trainwright.formats import Fixed, sum_width
from trainwright.graph.fill import Arrays
from trainwright.graph.ir import Einsum, Graph, Op, Tensor
from trainwright.support.memo import CachedMethod

LEAST_WIDTH = 8
"""Fewest bits of an operand that is narrowed so that sums fit an accumulator."""
UNCOMPUTABLE = 1e6
"""Factor on the cost of a product that no array can compute.

The factor makes every computable order cheaper, and, being finite, leaves costs comparable.
"""
MOST_VARIED = 4
"""Best families of trees whose neighbours (one product changed) are searched too.

With ``Cost.remade`` the search goes on until none of these has a neighbour among the best: a family
can differ from the starts in several products of which none pays alone.
"""
MOST_SHAPES = 256
"""Shapes of sites whose families are cached: far more than a network has different layers."""

Tree = dict[int, tuple[int, int]]
"""Two operands, as masks of leaves, of each partial result, by its own mask."""


@dataclass(frozen=True)
class Cost:
    """Cost model of contraction orders, in multiply-accumulates."""

    held: int = 0
    """Values of a tensor that fit the scratchpad at once; 0: any number. A larger tensor is
    consumed in slices, along axes that all its readers have, or computed again for each further
    reader."""
    arrays: Arrays | None = None
    """Arrays whose idle multipliers count too: a product costs the multiply-accumulates that the
    arrays could compute in its cycles. None: a product costs its own multiply-accumulates."""
    digits: int = 0
    """Words of a value of a partial result of the forward pass: a product counts once for each
    pair of words of its operands; 0: every product counts once."""
    pairs: bool = True
    """Whether both values of a product may have several words."""
    remade: bool = False
    """Whether the backward pass makes large partial results of the forward pass again, and costs
    include ``Site.waited``."""


class Site:
    """Closed network of a layer: its leaves, and the set of leaves of each contraction."""

    def __init__(self, graph: Graph, contractions: Sequence[Einsum], cost: Cost):
        self.graph, self.cost, self.name = graph, cost, contractions[0].site
        self.contractions = tuple(contractions)
        self.leaves = tuple(dict.fromkeys(n for op in contractions for n in op.operands))
        bit = {name: 1 << n for n, name in enumerate(self.leaves)}
        self.wanted = {op.out: sum(bit[name] for name in op.operands) for op in contractions}
        self.axes_of = {bit[name]: graph.tensors[name].axes for name in self.leaves}
        self.whole = (1 << len(self.leaves)) - 1
        # These axes must not be summed inside the site, although no other leaf has them.
        self.open = frozenset(
            axis
            for out, mask in self.wanted.items()
            if mask == self.whole
            for axis in graph.tensors[out].axes
        )
        """Axes of results that need all leaves: no leaf outside has them."""
        self.given_later = sum(
            bit[name] for name in self.leaves if graph.tensors[name].kind is TensorClass.GRADIENT
        )
        """Leaves that only the backward pass has."""

    @property
    def shape(self) -> tuple:
        """Key of a search: everything that the search depends on, with axes by number."""
        # Names of axes differ from layer to layer, but the search depends only on their sizes and
        # on the leaves that share them. Numbers in order of appearance let equal layers share a
        # search.
        number: dict[str, int] = {}
        for axes in (*self.axes_of.values(), sorted(self.open)):
            for axis in axes:
                number.setdefault(axis, len(number))
        return (
            tuple(tuple(number[axis] for axis in axes) for axes in self.axes_of.values()),
            tuple(self.graph.sizes[axis] for axis in number),
            frozenset(number[axis] for axis in self.open),
            frozenset(self.wanted.values()),
            self.given_later,
            tuple(self.digits_of(bit) for bit in self.axes_of),
            self.cost,
        )

    @CachedMethod
    def result_axes(self, mask: int) -> frozenset[str]:
        """Return the axes of a partial result: the axes of its leaves that are not summed yet."""
        inside = {a for bit, axes in self.axes_of.items() if bit & mask for a in axes}
        outside = {a for bit, axes in self.axes_of.items() if not bit & mask for a in axes}
        return frozenset(inside & (outside | self.open))

    def leaf_axes(self, mask: int) -> frozenset[str]:
        """Return the axes of a partial result, or of a leaf."""
        return frozenset(self.axes_of[mask]) if mask in self.axes_of else self.result_axes(mask)

    @CachedMethod
    def cost_of(self, first: int, second: int) -> float:
        """Return the cost of a product of two partial results."""
        sizes = self.graph.sizes
        axes = self.leaf_axes(first) | self.leaf_axes(second)
        macs = prod(sizes[axis] for axis in axes) / self._fill(first, second)
        # The cycles of partly idle arrays decide between orders, not the multiplications: a product
        # of thin factors keeps few multipliers busy.
        return macs * self._passes(first, second)

    @CachedMethod
    def digits_of(self, mask: int) -> int:
        """Return the words of a value of a leaf or a partial result."""
        leaves = [self.graph.tensors[n] for b, n in enumerate(self.leaves) if mask >> b & 1]
        # A partial result with the gradient among its leaves has as many words as the gradient.
        gradients = [leaf for leaf in leaves if leaf.kind is TensorClass.GRADIENT]
        deciding = leaves if len(leaves) == 1 else gradients
        return deciding[0].digits if deciding else max(1, self.cost.digits)

    def _passes(self, first: int, second: int) -> float:
        """Return the passes of a product: one for each pair of words of its operands."""
        a, b = self.digits_of(first), self.digits_of(second)
        penalty = UNCOMPUTABLE if min(a, b) > 1 and not self.cost.pairs else 1
        return penalty * (a * b if self.cost.digits else 1)

    def _fill(self, first: int, second: int) -> float:
        """Return the share of the multipliers that a product of two partial results keeps busy."""
        if self.cost.arrays is None:
            return 1.0
        a, b, kept = self.leaf_axes(first), self.leaf_axes(second), self.result_axes(first | second)

        def sizes(axes: Iterable[str]) -> tuple[int, ...]:
            return tuple(sorted(self.graph.sizes[axis] for axis in axes))

        return self.cost.arrays.fill(sizes(a - b), sizes(b - a), sizes((a & b) - kept))

    def recomputed(self, tree: Tree) -> float:
        """Return the cost of partial results that further readers compute again.

        A partial result is computed again if it neither fits the scratchpad nor can be consumed in
        slices. The backward pass loads results of the forward pass from external memory.
        """
        total = 0.0
        # Without a bound nothing is ever computed again.
        for mask, (a, b) in tree.items() if self.cost.held else ():
            if not self._large(mask):
                continue
            # A large result is consumed slice by slice if all its readers have the axes along which
            # the result is sliced; otherwise each further reader computes the result again.
            made_from = [m for m, parts in tree.items() if mask in parts]
            if not mask & self.given_later:
                # A result of the forward pass is in external memory when the backward pass reads
                # it, or is made again there.
                ahead = [m for m in made_from if not m & self.given_later]
                if self.cost.remade and ahead and len(ahead) < len(made_from):
                    total += self.cost_of(a, b)
                made_from = ahead
            if len(made_from) < 2:
                continue
            common = self.result_axes(mask).intersection(*(self.result_axes(m) for m in made_from))
            if self.values(self.result_axes(mask)) // self.values(common) > self._held(mask):
                total += self.cost_of(a, b) * (len(made_from) - 1)
        return total

    def _held(self, mask: int) -> int:
        """Return the values of a partial result that can be held at once."""
        return self.cost.held // self.digits_of(mask)

    @CachedMethod
    def _large(self, mask: int) -> bool:
        """Return whether a partial result cannot be held at once."""
        return self.values(self.result_axes(mask)) > self._held(mask)

    def values(self, axes: Iterable[str]) -> int:
        """Count the values of a tensor with these axes."""
        return prod(self.graph.sizes[axis] for axis in axes)

    def total(self, tree: Tree) -> float:
        """Return the cost of all partial results of a tree."""
        products = sum(self.cost_of(a, b) for a, b in tree.values())
        return products + self.recomputed(tree) + self.waited(tree)

    def waited(self, tree: Tree) -> float:
        """Return the cost of multipliers that wait for large partial results, with ``remade``.

        A large partial result lies as one array reads it. Meanwhile the other array makes the
        partial result, or computes another product of it, and idles for the rest of the time.
        """
        if not self.cost.remade or self.cost.arrays is None:
            return 0.0
        p, total = self.cost.arrays.p, 0.0
        for mask, (a, b) in tree.items():
            if not self._large(mask):
                continue
            # Its rows go through the scratchpad in slices, which delays both arrays.
            total += self.values(self.result_axes(mask)) / p.lanes * p.multipliers
            readers = [m for m, parts in tree.items() if mask in parts]
            behind = [m for m in readers if m & self.given_later]
            ahead = [m for m in readers if m not in behind]
            # The forward pass and the backward pass are programs of their own.
            for group in (ahead, behind):
                costs = [self.cost_of(*tree[m]) for m in group]
                is_made_here = group is (behind if mask & self.given_later else ahead)
                beside = sum(costs) + (self.cost_of(a, b) if is_made_here else 0.0)
                total += max(0.0, 2 * max(costs, default=0.0) - beside)
        return total

    def splits(self, mask: int) -> Iterable[tuple[int, int]]:
        """Yield every division of a set of leaves in two."""
        # The lowest leaf stays in the first half, so that every division comes once; `(part - 1) &
        # rest` counts through the subsets of the rest.
        first = mask & -mask
        rest = part = mask ^ first
        while part:
            part = (part - 1) & rest
            yield part | first, mask ^ part ^ first

    @CachedMethod
    def products(self, mask: int) -> list[tuple[float, int, int]]:
        """Return the products that make a set of leaves: cost and both factors of each."""
        return [(self.cost_of(a, b), a, b) for a, b in self.splits(mask)]

    @CachedMethod
    def tree(self, target: int, free: frozenset[int]) -> Tree:
        """Return the cheapest tree of a target, where partial results of ``free`` cost nothing."""
        best, costs = Tree(), dict.fromkeys(free, 0.0)

        def solve(mask: int) -> float:
            least = float("inf")
            for total, a, b in self.products(mask):
                # Operands only add to the cost: a product that is not cheaper by itself cannot be
                # the best. This cuts most subsets.
                if total < least:
                    # A mask with one bit is a leaf and costs nothing.
                    if a & (a - 1):
                        total += costs[a] if a in costs else solve(a)
                    if b & (b - 1):
                        total += costs[b] if b in costs else solve(b)
                    if total < least:
                        least, best[mask] = total, (a, b)
            costs[mask] = least
            return least

        if target & (target - 1) and target not in free:
            solve(target)
        return _needed(best, target)


def _tree(site: Site, target: int, free: Iterable[int]) -> Tree:
    """Find the cheapest tree of a target, where partial results of ``free`` cost nothing."""
    # Different starts ask for the same trees: nine of ten are in the cache.
    return site.tree(target, frozenset(mask for mask in free if mask & target == mask))


def _joined(trees: Mapping[int, Tree]) -> Tree:
    """Join trees to the partial results of all of them."""
    return {mask: split for tree in trees.values() for mask, split in tree.items()}


def _improved(site: Site, targets: Sequence[int], free: Sequence[int]) -> dict[int, Tree]:
    """Find trees of all targets; improve each until none gets cheaper.

    At the start the partial results ``free`` cost nothing. Otherwise, changing one tree at a time,
    the search would miss families of trees that share an expensive partial result.
    """
    trees: dict[int, Tree] = {}
    given: Tree = {mask: (0, 0) for mask in free}
    # One target after another, each using what the earlier ones computed.
    for target in targets:
        trees[target] = _tree(site, target, given | _joined(trees))
    for mask in free:
        # The partial result that was free at the start has to be computed after all.
        tree_of_free = _tree(site, mask, {m: s for m, s in _joined(trees).items() if m != mask})
        trees = {target: tree_of_free | tree for target, tree in trees.items()}
    trees = {target: _needed(_joined(trees), target) for target in targets}
    now = site.total(_joined(trees))
    while True:
        for target in targets:
            # Partial results that other trees need stay, also those that only this tree computed.
            rest = {t: _needed(_joined(trees), t) for t in trees if t != target}
            fixed = _joined(rest)
            trial = rest | {target: _tree(site, target, fixed)}
            # Strictly less, so that the loop ends.
            if site.total(_joined(trial)) < now:
                trees = trial
        total = site.total(_joined(trees))
        if total >= now:
            return trees
        now = total


def _needed(joined: Tree, target: int) -> Tree:
    """Return the tree of one target, out of joined trees."""
    tree: Tree = {}
    pending = [target]
    while pending:
        mask = pending.pop()
        if mask in joined and mask not in tree:
            tree[mask] = joined[mask]
            pending += joined[mask]
    return tree


@dataclass(frozen=True)
class Order:
    """Contraction order of a site: a tree of products of two for each contraction."""

    site: str
    graph: Graph
    """Graph of the site, with a tensor for each partial result."""
    products: tuple[Einsum, ...]
    """Products in an order in which they can be computed."""
    cost: float
    recomputed: float = 0.0
    """Part of ``cost`` for partial results that are computed again."""

    @property
    def macs(self) -> int:
        """Multiply-accumulates."""
        return sum(self.graph.products(op) for op in self.products)

    @cached_property
    def text(self) -> str:
        """Text for people: ``l1.G1.x = l1.G1 l1.x; l1.y = l1.G1.x l1.G2``."""
        return "; ".join(f"{op.out} = {' '.join(op.operands)}" for op in self.products)


def search(graph: Graph, contractions: Sequence[Einsum], *, cost: Cost, most: int) -> list[Tree]:
    """Find the cheapest families of trees, at most ``most`` of them, the best first."""
    site = Site(graph, contractions, cost)
    shape = site.shape
    if shape not in _FOUND:
        # Drop the oldest shape: the order of insertion is close enough to the order of use.
        while len(_FOUND) >= MOST_SHAPES:
            del _FOUND[next(iter(_FOUND))]
        _FOUND[shape] = _families(site)
    return _FOUND[shape][:most]


_FOUND: dict[tuple, list[Tree]] = {}
"""Families of trees by the shape of a site: equal layers are searched once."""


def _families(site: Site) -> list[Tree]:
    """Search families of trees, the cheapest first."""
    targets = sorted(set(site.wanted.values()))
    families: dict[tuple, tuple[float, Tree]] = {}
    # At the start of a search one partial result is free, or none. A target is computed in any
    # case: making it free would lead to nothing new.
    masks = range(1, site.whole)
    partial = [(m,) for m in masks if m & (m - 1) and m not in site.wanted.values()]
    for free in [(), *partial]:
        trees = _improved(site, targets, free)
        _keep(site, families, united(_joined(trees), targets))
    done = set[tuple]()
    while True:
        best = sorted(families, key=lambda key: families[key][0])[:MOST_VARIED]
        new = [key for key in best if key not in done]
        for key in new:
            for other in varied(site, families[key][1], targets):
                _keep(site, families, other)
        done.update(new)
        if not new or not site.cost.remade:
            break
    return [tree for _, tree in sorted(families.values(), key=lambda pair: pair[0])]


def _keep(site: Site, families: dict[tuple, tuple[float, Tree]], tree: Tree) -> None:
    key = tuple(sorted(tree.items()))
    if key not in families:
        families[key] = site.total(tree), tree


def united(joined: Tree, targets: Sequence[int]) -> Tree:
    """Select the partial results that any target needs."""
    united: Tree = {}
    for target in targets:
        united |= _needed(joined, target)
    return united


def varied(site: Site, tree: Tree, targets: Sequence[int]) -> Iterable[Tree]:
    """Yield the families in which one partial result is another product.

    A free partial result at the start can steer a search past the best family; its neighbours
    include families that no start leads to.
    """
    for mask in tree:
        for a, b in site.splits(mask):
            if (a, b) != tree[mask]:
                rest = {m: parts for m, parts in tree.items() if m != mask}
                grown = _tree(site, a, rest) | rest | {mask: (a, b)}
                grown |= _tree(site, b, grown)
                yield united(grown, targets)


class _Names:
    """Names, axes and formats of the partial results of a site."""

    def __init__(self, site: Site, name: str, word: int):
        self.site, self.name, self.word = site, name, word
        self.names = {mask: out for out, mask in site.wanted.items()}
        for n, leaf in enumerate(site.leaves):
            self.names[1 << n] = leaf

    def of(self, mask: int) -> str:
        """Name a partial result by its leaves: ``l1.G1.G2.x``."""
        if mask not in self.names:
            tails = [
                leaf.rpartition(".")[2] for n, leaf in enumerate(self.site.leaves) if mask >> n & 1
            ]
            self.names[mask] = f"{self.name}.{'.'.join(tails)}"
        return self.names[mask]

    def tensor(self, mask: int, tree: Tree, graph: Graph) -> Tensor:
        """Describe a partial result, in the format of its class."""
        name = self.of(mask)
        if name in graph.tensors:
            return graph.tensors[name]
        leaves = [graph.tensors[leaf] for n, leaf in enumerate(self.site.leaves) if mask >> n & 1]
        axes = tuple(a for a in self._axes() if a in self.site.result_axes(mask))
        gradients = [leaf for leaf in leaves if leaf.kind is TensorClass.GRADIENT]
        if gradients:
            return replace(gradients[0], name=name, axes=axes)
        # Coded formats apply to whole classes: a partial result has the format of the results of
        # its site. A product of factors alone stays fixed point: its integers are small, and its
        # exponent is at least that of exact products, so a coded word would keep two or three bits.
        of_factors = all(
            leaf.kind is TensorClass.INTERMEDIATE and leaf.name in graph.given for leaf in leaves
        )
        for result in (graph.tensors[out] for out in self.site.wanted if not of_factors):
            if result.kind is TensorClass.INTERMEDIATE and result.format.coded:
                return replace(result, name=name, axes=axes)
        # A partial result that fits its word exactly needs no shift, and loses nothing.
        bits = self._bits(mask, tree)
        fmt, exact = Fixed(min(self.word, bits)), bits <= self.word
        return Tensor(name, axes, TensorClass.INTERMEDIATE, fmt, exact=exact)

    def _axes(self) -> tuple[str, ...]:
        """Sort the axes of the site by letter: ranks, outputs, inputs, samples."""
        axes = dict.fromkeys(a for names in self.site.axes_of.values() for a in names)
        # Layouts can then join axes of factors without gaps.
        return tuple(sorted(axes, key=lambda axis: "rjis".find(axis.rpartition(".")[2][:1])))

    def _bits(self, mask: int, tree: Tree) -> int:
        """Return the bits that hold every value of a partial result exactly."""
        if not mask & (mask - 1):
            return self.site.graph.tensors[self.of(mask)].format.decoded_width
        a, b = tree[mask]
        axes = (self.site.leaf_axes(a) & self.site.leaf_axes(b)) - self.site.result_axes(mask)
        terms = prod(self.site.graph.sizes[axis] for axis in axes)
        # The product of signed operands of a and b bits is at most 2^(a+b-2), which only the two
        # most negative words reach. The sum needs a sign bit in addition.
        bits = min(self.word, self._bits(a, tree)) + min(self.word, self._bits(b, tree)) - 2
        return (terms << bits).bit_length() + 1


def ordered(
    graph: Graph,
    contractions: Sequence[Einsum],
    *,
    cost: Cost | None = None,
    most: int = 1,
    word: int = 16,
    accumulator: int = 48,
) -> list[Order]:
    """Find orders of the contractions of one site by products of two, the cheapest first.

    A partial result with a gradient among its leaves has the format of that gradient. Another is
    coded if results of the site are, unless only factors are multiplied. Otherwise it is fixed
    point of at most ``word`` bits, and fewer if sums would need more than ``accumulator`` bits.
    """
    cost = cost or Cost()
    site = Site(graph, contractions, cost)
    trees = search(graph, contractions, cost=cost, most=most)
    return [order_of(site, tree, word=word, accumulator=accumulator) for tree in trees]


def order_of(site: Site, tree: Tree, *, word: int = 16, accumulator: int = 48) -> Order:
    """Make the order of a tree; ``ordered`` explains ``word`` and ``accumulator``."""
    graph, name = site.graph, site.name
    names = _Names(site, name, word)
    tensors, products = dict(graph.tensors), []
    # Partial results of fewer leaves first: operands come before their product.
    for mask in sorted(tree, key=lambda mask: (mask.bit_count(), mask)):
        tensor = names.tensor(mask, tree, graph)
        tensors[tensor.name] = tensor
        first, second = tree[mask]
        products.append(Einsum(tensor.name, (names.of(first), names.of(second)), name))
    new = Graph(graph.sizes, tensors, tuple(products), graph.given, graph.results)
    new = narrowed(new, set(graph.tensors), accumulator)
    return Order(name, new, tuple(products), site.total(tree), site.recomputed(tree))


def narrowed(graph: Graph, fixed: Container[str], accumulator: int) -> Graph:
    """Return the graph with fewer bits for operands whose sums would overflow an accumulator.

    Tensors of ``fixed``, and tensors in coded formats, keep their formats.
    """
    tensors = dict(graph.tensors)
    for op in graph.ops:
        assert isinstance(op, Einsum)
        terms = graph.products(op) // graph.count(op.out)
        x, g = (tensors[name].format for name in op.operands)
        excess = sum_width(terms, x, g) - accumulator
        free = [name for name in op.operands if name not in fixed]
        free = [name for name in free if not tensors[name].format.coded]
        if excess > 0 and free:
            # Narrow the widest operand: relative to its range it loses least.
            name = max(free, key=lambda name: tensors[name].width)
            width = max(LEAST_WIDTH, tensors[name].width - excess)
            tensors[name] = replace(tensors[name], format=Fixed(width), exact=False)
    return replace(graph, tensors=tensors)


def replaced(graph: Graph, orders: Sequence[Order]) -> Graph:
    """Replace the contractions of each site by the products of its order."""
    by_target: dict[str, list[Einsum]] = {}
    tensors = dict(graph.tensors)
    for order in orders:
        tensors |= order.graph.tensors
        # A partial result that contractions share is computed before the first of them.
        done: set[str] = set()
        makers = {op.out: op for op in order.products}
        for op in graph.ops:
            if op.site == order.site:
                by_target[op.out] = _needed_by(op.out, makers, done)
    ops: list[Op] = []
    for op in graph.ops:
        ops += by_target.get(op.out, [op])
    return Graph(graph.sizes, tensors, tuple(ops), graph.given, graph.results)


def _needed_by(name: str, makers: Mapping[str, Einsum], done: set[str]) -> list[Einsum]:
    """List the products that a tensor needs and that are not computed yet."""
    if name not in makers or name in done:
        return []
    done.add(name)
    op = makers[name]
    before = [p for operand in op.operands for p in _needed_by(operand, makers, done)]
    return [*before, op]

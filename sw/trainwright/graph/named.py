"""Contraction orders of a layer that have names: the paper's order, and the orders of one bond.

Leaves are the factors G_1 .. G_d, the input X and the gradient Y' to the output. The search finds
these orders too if they are best; this module writes them down for comparison.
"""

from collections.abc import Iterator, Sequence

from trainwright.graph.ir import Einsum, Graph
from trainwright.graph.order import Cost, Order, Site, Tree, order_of, united


class _Leaves:
    """Masks of a site's leaves by their roles."""

    def __init__(self, site: Site):
        place = {name: 1 << n for n, name in enumerate(site.leaves)}
        factors = sorted(name for name in place if _is_factor(name))
        self.factors = [place[name] for name in factors]
        # The forward contraction is the one that reads every factor; what else it reads is X, or
        # values whose outer product is X.
        forward = next(op for op in site.contractions if {*factors} < {*op.operands})
        self.values = [place[name] for name in forward.operands if name not in factors]
        self.x = sum(self.values)
        self.upper = sum(place.values()) - sum(self.factors) - self.x
        """Mask of the upper gradient; 0 in a site without a backward pass."""

        self.tree = Tree()
        """Tree of X alone."""
        _chain(self.tree, self.values[0], self.values[1:])


def _is_factor(name: str) -> bool:
    tail = name.rpartition(".")[2]
    return tail.startswith("G") and tail[1:].isdigit()


def _chain(tree: Tree, first: int, rest: Sequence[int]) -> int:
    """Multiply ``first`` by the masks ``rest``, one after another, and return the product."""
    for other in rest:
        product = first | other
        # Pairs have the lowest leaf first, as in the search: trees are compared by their pairs.
        lowest = product & -product
        tree[product] = (first, other) if first & lowest else (other, first)
        first = product
    return first


def paper_tree(site: Site) -> Tree:
    """Make the paper's tree: forward X by G_d .. G_1, and the gradient of W as X Y'.

    The gradient of G_n is the gradient of W by G_d .. G_{n+1}, then by G_1 .. G_{n-1}. The gradient
    of X is Y' by G_1 .. G_d.
    """
    leaves = _Leaves(site)
    tree = leaves.tree
    factors = leaves.factors
    _chain(tree, leaves.x, factors[::-1])
    if leaves.upper:
        # The gradient of the whole W, which the paper makes first, is the largest tensor of the
        # layer, and the reason why other orders are faster.
        gradient = _chain(tree, leaves.x, [leaves.upper])
        for n in range(len(factors)):
            _chain(tree, _chain(tree, gradient, factors[:n:-1]), factors[:n])
        _chain(tree, leaves.upper, factors)
    return united(tree, list(site.wanted.values()))


def bond_tree(site: Site, bond: int, *, rebuilt: bool) -> Tree:
    """Make the tree of the products at both sides of a bond.

    Left is the product of G_1 .. G_bond, Right that of the other factors. With ``rebuilt`` the
    tree has W = Left Right, and the gradient of W. Otherwise Right is multiplied by X and Left by
    Y', and the gradients of Left and Right are made of these two products.
    """
    leaves = _Leaves(site)
    tree = leaves.tree
    left = _chain(tree, leaves.factors[0], leaves.factors[1:bond])
    right = _chain(tree, leaves.factors[bond], leaves.factors[bond + 1 :])
    x, upper = leaves.x, leaves.upper
    if rebuilt:
        _chain(tree, _chain(tree, left, [right]), [x])
    else:
        _chain(tree, _chain(tree, x, [right]), [left])
    if upper:
        if rebuilt:
            gradient = _chain(tree, x, [upper])
            sides = {left: _chain(tree, gradient, [right]), right: _chain(tree, gradient, [left])}
        else:
            sides = {left: _chain(tree, x | right, [upper]),
                     right: _chain(tree, _chain(tree, upper, [left]), [x])}  # fmt: skip
        for side, above in sides.items():
            factors = [bit for bit in leaves.factors if bit & side]
            for n in range(len(factors)):
                _chain(tree, _chain(tree, above, factors[:n:-1]), factors[:n])
        if rebuilt:
            _chain(tree, left | right, [upper])
        else:
            _chain(tree, upper, [left, right])
    # Drop products that no contraction reads, which chains make in passing.
    return united(tree, list(site.wanted.values()))


def paper_order(
    graph: Graph, contractions: Sequence[Einsum], *, cost: Cost, **widths: int
) -> Order:
    """Make the paper's order; ``widths`` are keyword arguments of ``order_of``."""
    site = Site(graph, contractions, cost)
    return order_of(site, paper_tree(site), **widths)


def named_orders(
    graph: Graph, contractions: Sequence[Einsum], *, cost: Cost, **widths: int
) -> Iterator[tuple[str, Order]]:
    """Yield the orders of a site that have names, with their names."""
    yield "the paper's", paper_order(graph, contractions, cost=cost, **widths)
    site = Site(graph, contractions, cost)
    order = len(_Leaves(site).factors)
    for bond in range(1, order):
        for rebuilt, name in ((False, "both sides of"), (True, "W rebuilt from")):
            tree = bond_tree(site, bond, rebuilt=rebuilt)
            yield f"{name} bond {bond}", order_of(site, tree, **widths)

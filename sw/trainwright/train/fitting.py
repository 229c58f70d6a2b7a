"""Network for data that comes without one: a hidden layer of tensor trains of the right size."""

import re
from math import prod

from trainwright.data import DataSet
from trainwright.network import Network, network_from_dict, rank_bounds

LANES = 16
"""Last mode of factorisations: the accelerator's default lanes, so that none is empty. Few outputs
have a smaller one."""
MOST_RANK = 16
"""Initial TT ranks, as `fashion` has; the rank prior cuts what is not needed."""
FLAT_GROUPS = 32
"""Inputs / 16 above which the hidden layer has three modes in place of two: with two, the first
factor alone would have more parameters than the rest of the network."""
MOST_PADDING = 32
"""Columns of zeros, fewer than which may be added to the inputs for an even split into modes."""


def fitting_network(data: DataSet, name: str) -> Network:
    """Return a network with one hidden layer for a data set's inputs and classes."""
    rows, columns = data.image
    options = [
        (inputs, padded)
        for padded in range(columns, columns + MOST_PADDING)
        if (inputs := _modes(rows * padded)) is not None
    ]
    inputs, padded = min(options, key=lambda option: (sum(option[0]), option[1]))
    hidden = [8, LANES] if len(inputs) == 2 else [4, 4, LANES]
    # Gradients of outputs that pad are zeros, and exponents follow means: with 15 of 16 zeros
    # gradients saturated, and regressions on the chip ended at an R2 of 0.
    lanes = min(LANES, 1 << (data.classes - 1).bit_length())
    outputs = [-(-data.classes // lanes), lanes]
    shapes = ((hidden, inputs), (outputs, [prod(hidden) // LANES, LANES]))
    layers = [
        {
            "outputs": outs,
            "inputs": ins,
            "ranks": [min(MOST_RANK, bound) for bound in rank_bounds(outs, ins)],
        }
        for outs, ins in shapes
    ]
    plain = re.sub(r"[^\w.+ -]+", "-", name, flags=re.ASCII).strip("-+. ")[:64] or "own"
    return network_from_dict(
        {
            "name": plain,
            "classes": data.classes,
            "image": [rows, columns],
            "padded": [rows, padded],
            "layers": layers,
        }
    )


def _modes(size: int) -> list[int] | None:
    """Return the most even modes that multiply to `size` and end in `LANES`, if there are some."""
    groups, rest = divmod(size, LANES)
    if rest:
        return None
    if groups <= FLAT_GROUPS:
        return [groups, LANES]
    first = max(n for n in range(1, int(groups**0.5) + 1) if groups % n == 0)
    return [first, groups // first, LANES]

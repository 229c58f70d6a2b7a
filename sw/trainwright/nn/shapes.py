"""Factor shapes, padding and ranks chosen for a matrix."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import islice, pairwise, product
from math import log, prod
from typing import Any

from trainwright.network import NetworkError, rank_bounds
from trainwright.network.layer import MOST_FACTORS, MOST_SIZE
from trainwright.support.arguments import is_size, plain_sizes
from trainwright.support.text import shown

LAST = 16
"""Size of the last factor's outputs and inputs: the lanes of the largest accelerator."""
START_RANK = 16
"""Greatest rank that ``"auto"`` starts with."""
_LARGEST_PRIME = 7
_MOST_PAIRS = 300_000
"""Pairs of outputs and inputs to choose among, at most: two seconds."""


def _primes(value: int) -> list[int]:
    primes: list[int] = []
    divisor = 2
    while divisor * divisor <= value:
        while value % divisor == 0:
            primes.append(divisor)
            value //= divisor
        divisor += 1
    return [*primes, value] if value > 1 else primes


def require_sizes(**sizes: object) -> None:
    """Raise ``NetworkError`` unless each is an integer of at least 1 and at most ``MOST_SIZE``."""
    for name, size in sizes.items():
        if not is_size(size):
            raise NetworkError(f"{name} must be an integer of at least 1, not {size!r}")
        if is_size(size, MOST_SIZE + 1):  # factors of larger sizes would be searched for hours
            raise NetworkError(
                f"{name} is at most {MOST_SIZE:,}, not {shown(size)}: make the layer smaller"
            )


def require_kept(module: object, name: str, value: object) -> None:
    """Raise ``NetworkError`` for another value of a size that a layer's parameters have."""
    kept: object = vars(module).get(name, value)
    if plain_sizes(value) != kept:
        raise NetworkError(
            f"{name} is {kept} in the parameters of this {type(module).__name__}, and cannot "
            f"become {shown(value)}: make a new layer"
        )


def padded_size(size: int) -> int:
    """Return the least multiple of ``LAST`` from ``size`` on with other prime factors of at most 7.

    >>> [padded_size(size) for size in (10, 784, 100, 1000)]
    [16, 784, 112, 1008]
    """
    blocks = -(-size // LAST)
    while max(_primes(blocks), default=1) > _LARGEST_PRIME:
        blocks += 1
    return blocks * LAST


def _products(value: int, parts: int, least: int = 1) -> Iterator[tuple[int, ...]]:
    """Yield every way to write ``value`` as a product of ``parts`` factors, which ascend."""
    if parts == 1:
        yield (value,)
        return
    first = least
    while first**parts <= value:
        if value % first == 0:
            for rest in _products(value // first, parts - 1, first):
                yield (first, *rest)
        first += 1


def _arrangements(sizes: Counter[int]) -> Iterator[tuple[int, ...]]:
    """Yield every order of ``sizes`` once, ascending."""
    if not sizes:
        yield ()
    for first in sorted(sizes):
        for rest in _arrangements(sizes - Counter([first])):
            yield (first, *rest)


def _splits(value: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Yield the most even ways to write ``value`` as an ordered product, ascending."""
    return merge(*(_arrangements(Counter(sizes)) for sizes in _most_even(_products(value, parts))))


def _elements(outputs: Sequence[int], inputs: Sequence[int], rank: int) -> int:
    bonds = (1, *(min(rank, bound) for bound in rank_bounds(outputs, inputs)), 1)
    return sum(
        left * j * i * right
        for (left, right), j, i in zip(pairwise(bonds), outputs, inputs, strict=True)
    )


def _unevenness(sizes: Sequence[int]) -> float:
    return round(sum(log(size) ** 2 for size in sizes), 9)


def default_order(rows: int, columns: int) -> int:
    """Return the number d of factors of a padded matrix, at least 2.

    Dimensions but the last are then about 8.

    >>> default_order(128, 64), default_order(512, 784)
    (2, 3)
    """
    return 1 + max(1, round(log(max(rows, columns) / LAST, 8)))


def factor_sizes(
    rows: int, columns: int, *, rank: int = START_RANK, order: int | None = None
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return outputs J_1..J_d and inputs I_1..I_d for a matrix (rows, columns), padded if needed.

    Both end in ``LAST``; the remaining sizes are as even as can be, then of fewest elements in
    factors of ``rank``.

    >>> factor_sizes(512, 784)
    ((8, 4, 16), (7, 7, 16))
    >>> factor_sizes(10, 512)
    ((1, 1, 16), (4, 8, 16))
    """
    require_sizes(rows=rows, columns=columns)
    rows, columns = padded_size(rows), padded_size(columns)
    wanted = _order(order, default_order(rows, columns))
    outputs, inputs = (
        ((*sizes, LAST) for sizes in _splits(size // LAST, wanted - 1)) for size in (rows, columns)
    )
    return _best(outputs, inputs, rank)


def likely(rank: int | Sequence[int] | str, order: int | None) -> tuple[int, int | None]:
    """Return the rank that sizes are chosen for, and the order that a list of ranks asks for."""
    _require_rank(rank)
    if isinstance(rank, int | str):
        return rank if isinstance(rank, int) else START_RANK, order
    return max(rank, default=START_RANK), len(rank) + 1 if order is None else order


def _best(
    outputs: Iterator[tuple[int, ...]], inputs: Iterator[tuple[int, ...]], rank: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the pair of fewest elements of the most even outputs and the most even inputs."""
    outs, ins = _most_even(outputs), _most_even(inputs)
    order, pairs = len(outs[0]), len(outs) * len(ins)
    if pairs > _MOST_PAIRS:
        raise NetworkError(
            f"order {order} leaves {pairs:,} ways to factor a matrix {prod(outs[0])} x "
            f"{prod(ins[0])}: give a lower order, or outputs and inputs"
        )
    return min(product(outs, ins), key=lambda sizes: _elements(*sizes, rank))


def _most_even(sizes: Iterable[tuple[int, ...]]) -> list[tuple[int, ...]]:
    kept = list(islice(sizes, _MOST_PAIRS + 1))
    least = min(map(_unevenness, kept))
    return [s for s in kept if _unevenness(s) == least]


def _order(order: int | None, default: int) -> int:
    wanted = default if order is None else order
    if not is_size(wanted, 2):
        raise NetworkError(f"order must be an integer of at least 2, not {order!r}")
    if wanted > MOST_FACTORS:
        raise NetworkError(
            f"order is at most {MOST_FACTORS}, not {shown(wanted)}: give a lower one"
        )
    return wanted


def kernel_sizes(
    outputs: int, kernel: int, channels: int, *, rank: int = START_RANK, order: int | None = None
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return outputs and inputs of a convolution, nothing padded; inputs begin with ``kernel``.

    ``kernel`` is kh kw; the other inputs multiply to ``channels``.

    >>> kernel_sizes(16, 9, 3), kernel_sizes(64, 9, 16)
    (((4, 4), (9, 3)), ((4, 4, 4), (9, 4, 4)))
    """
    require_sizes(out_channels=outputs, in_channels=channels)
    wanted = _order(order, 1 + max(1, round(log(max(outputs, channels), 16))))
    behind = ((kernel, *rest) for rest in _splits(channels, wanted - 1))
    return _best(_splits(outputs, wanted), behind, rank)


def image_sizes(
    rows: int, image: tuple[int, int, int], *, rank: int = START_RANK, order: int | None = None
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return outputs and inputs of a layer that reads images (channels, rows, columns), flattened.

    Inputs are not padded, and some of them, from the first on, multiply to the channels.

    >>> image_sizes(10, (16, 7, 7))
    ((1, 1, 16), (16, 7, 7))
    """
    if len(image) != 3 or not all(map(is_size, image)):
        raise NetworkError(
            f"in_features must be an integer or (channels, rows, columns), not {image!r}"
        )
    channels, pixels = image[0], image[1] * image[2]
    require_sizes(out_features=rows, in_features=channels * pixels)
    wanted = _order(order, default_order(padded_size(rows), channels * pixels))
    outputs = ((*sizes, LAST) for sizes in _splits(padded_size(rows) // LAST, wanted - 1))
    inputs = (
        (*ins, *other)
        for first in range(1, wanted)
        for ins in _splits(channels, first)
        for other in _splits(pixels, wanted - first)
    )
    return _best(outputs, inputs, rank)


def check_sizes(name: str, sizes: Any, least: int) -> tuple[int, ...]:
    """Return ``sizes`` as a tuple; ``NetworkError`` unless they multiply to at least ``least``."""
    # A set has no order, and text would be its digits.
    is_ordered = isinstance(sizes, Sequence)
    parts: Any = sizes
    given: tuple[int, ...] = tuple(parts) if is_ordered else ()
    if not given or not all(map(is_size, given)) or prod(given) < least:
        raise NetworkError(
            f"{name} must be integers of at least 1 that multiply to at least {least}, "
            f"not {list(given) if given else sizes!r}"
        )
    return given


def bond_ranks(
    rank: int | Sequence[int] | str, outputs: Sequence[int], inputs: Sequence[int]
) -> tuple[int, ...]:
    """Return R_1..R_{d-1}: a number is cut to each bond's bound, a list is taken unchanged.

    ``"auto"`` starts with the bound, at most ``START_RANK``; prior and cutting do the rest.

    >>> bond_ranks(16, (8, 2, 16), (1, 1, 16)), bond_ranks("auto", (8, 16), (4, 16))
    ((8, 16), (16,))
    """
    bounds = rank_bounds(outputs, inputs)
    _require_rank(rank)
    if isinstance(rank, int | str):
        wanted = rank if isinstance(rank, int) else START_RANK
        return tuple(min(wanted, bound) for bound in bounds)
    return tuple(rank)


def _require_rank(rank: object) -> None:
    """Raise ``NetworkError`` unless ``rank`` is one; ranks of a list are compared with bounds."""
    parts: Any = rank
    several = type(parts) in (list, tuple) and all(type(r) is int for r in parts)
    if not (is_size(rank, 1) or several or (isinstance(rank, str) and rank == "auto")):
        raise NetworkError(f'rank must be at least 1, a list of ranks or "auto", not {rank!r}')

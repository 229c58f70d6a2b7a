"""Dimensions that a function reduces, checked as torch checks them."""

from collections.abc import Sequence


def reduced(dims: Sequence[int] | int | None, shape: Sequence[int]) -> list[int]:
    """Return the dimensions to reduce, from 0 on and ascending; all dimensions for none.

    A number without dimensions takes 0 and -1, and has none. Raises ``IndexError`` for a dimension
    that is out of range, ``RuntimeError`` for one that is repeated.

    >>> reduced(-1, (2, 3)), reduced(None, (2, 3)), reduced(0, ())
    ([1], [0, 1], [])
    """
    size = max(len(shape), 1)
    chosen: list[int] = []
    for d in [dims] if isinstance(dims, int) else dims or ():
        if not -size <= d < size:
            raise IndexError(f"dimension {d} is out of range for shape {tuple(shape)}")
        if d % size in chosen:
            raise RuntimeError(f"dimension {d} is repeated in {dims} for shape {tuple(shape)}")
        chosen.append(d % size)
    if not shape:
        return []
    return sorted(chosen) or list(range(len(shape)))

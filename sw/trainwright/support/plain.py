"""Dataclasses from plain data that was read, every field of the type that it is declared with."""

from collections.abc import Mapping
from typing import Any, TypeVar, get_type_hints

import msgspec

from trainwright.support.text import shown

NONSENSE = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""Errors that reading plain data of the wrong kind raises."""
MOST_INTEGER = (1 << 63) - 1

Kind = TypeVar("Kind")


def of_plain(kind: type[Kind], values: Any) -> Kind:
    """Make an object of a dataclass from a JSON object.

    Raises ``TypeError`` for anything else, fields that there are not, and values of other types;
    numbers are finite, integers of 64 bits. Lists stand for tuples.
    """
    if not isinstance(values, Mapping):
        raise TypeError(f"{kind.__name__} is {shown(values)}, not an object")
    hints = get_type_hints(kind, include_extras=True)
    if unknown := values.keys() - hints:
        raise TypeError(f"{kind.__name__} has no field {shown(min(unknown))}")
    return kind(**{name: typed(name, value, hints[name]) for name, value in values.items()})


def typed(name: str, value: Any, kind: type[Kind]) -> Kind:
    """Return plain data as a ``kind``, also of several parts; the error names it. ``TypeError``."""
    try:
        read = msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise TypeError(f"{name} is {shown(value)}: {error}") from None
    if isinstance(value, int | float) and not abs(value) <= MOST_INTEGER:  # NaN among them
        raise TypeError(f"{name} is {shown(value)}, not a finite number of 64 bits")
    return read

"""Dataclasses from plain data that was read, every field of the type that it is declared with."""

from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from trainwright.support.text import shown

NONSENSE = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What reading plain data of the wrong kind raises."""
MOST_INTEGER = (1 << 63) - 1

Kind = TypeVar("Kind")


def of_plain(kind: type[Kind], values: Any) -> Kind:
    """An object of a dataclass from a JSON object.

    Raises ``TypeError`` for anything else, fields that there are not, and values of other types;
    numbers are finite, integers of 64 bits. Lists stand for tuples; what is in them is not checked.
    """
    if not isinstance(values, Mapping):
        raise TypeError(f"{kind.__name__} is {shown(values)}, not an object")
    hints = get_type_hints(kind)
    for name, value in values.items():
        if name not in hints:
            raise TypeError(f"{kind.__name__} has no field {shown(name)}")
        if not _fits(value, hints[name]):
            raise TypeError(f"{name} is {shown(value)}, not of {hints[name]}")
    return kind(**values)


def _fits(value: Any, hint: Any) -> bool:
    if get_origin(hint) in (Union, UnionType):
        return any(_fits(value, one) for one in get_args(hint))
    if hint in (int, float):
        kinds = (int,) if hint is int else (int, float)
        right = isinstance(value, kinds) and not isinstance(value, bool)
        return right and abs(value) <= MOST_INTEGER  # which no NaN is
    plain = get_origin(hint) or (NoneType if hint is None else hint)
    return isinstance(value, (list, tuple) if plain is tuple else plain)

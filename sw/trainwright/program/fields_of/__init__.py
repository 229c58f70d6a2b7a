"""From a descriptor to the values of its encoded fields and back, a file for each kind.

A field whose value is an attribute of the descriptor is encoded and decoded by its entry in the
table of ``program.fields`` alone; the files here have what is left, such as levels.
"""

from collections.abc import Iterable, Mapping
from dataclasses import fields as dataclass_fields
from enum import IntEnum, IntFlag
from functools import cache
from typing import Any, get_type_hints

from trainwright.program.fields import Field


def plain_fields(d: Any, layout: Iterable[Field]) -> dict[str, int]:
    """Return the fields that are integers of the descriptor."""
    values = ((field, getattr(d, field.source, None)) for field in layout)
    return {field.name: field.encoded(int(v)) for field, v in values if isinstance(v, int)}


@cache
def _kinds(kind: type) -> dict[str, type]:
    """Types of a descriptor's attributes that are integers."""
    hints, names = get_type_hints(kind), {field.name for field in dataclass_fields(kind)}
    integers = (int, IntEnum, IntFlag)
    return {
        name: hint
        for name, hint in hints.items()
        if name in names and isinstance(hint, type) and issubclass(hint, integers)
    }


def plain_values(kind: type, layout: Iterable[Field], f: Mapping[str, int]) -> dict[str, Any]:
    """Return the attributes of a descriptor that are fields: the inverse of ``plain_fields``."""
    kinds = _kinds(kind)
    return {
        field.source: kinds[field.source](field.decoded(f[field.name]))
        for field in layout
        if field.source in kinds
    }

"""Descriptors as records of 64-bit integers, as C kernels read them: numpy types and C header.

A record has the attributes of a descriptor by their names; a repeated one is a number of elements
and an array of them. ``golden/native/isa.h`` has the same records as a tagged union, and the places
of all fields in the encoding: ``python -m trainwright.program.records`` writes the file.
"""

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from trainwright.program import engines, exponents, fields, vector
from trainwright.program.descriptors import CLASSES, DIGIT_WIDTH, Compute
from trainwright.program.table import Attribute, Described, packed

HEADER = Path(__file__).parents[1] / "golden" / "native" / "isa.h"

KINDS = tuple(dict.fromkeys(CLASSES.values()))
"""Classes of descriptors."""

WORKING = ("overlaps", "repeats", "x_width", "g_width")
"""Members of ``Compute`` that validation fills, 0 before: whether the command writes rows that it
reads in another tile, whether it writes a row twice, and the most bits of each operand."""

Member = tuple[str, int, type[Described] | None]
"""Name, elements of an array (0: one number), and the class of an element."""


def members(kind: type[Described]) -> Iterator[Member]:
    """Yield the members of a record: numbers, then numbers of elements, then arrays."""
    arrays = [row for row in kind.table if row.count]
    yield from ((name, 0, None) for name in _numbers_of(kind))
    yield from ((row.name, 0, None) for row in kind.tuples)
    for row in arrays:
        yield row.element, row.count, None if row.field else row.kind
    if issubclass(kind, Compute):
        yield from ((name, 0, None) for name in WORKING)


def _numbers_of(kind: type[Described]) -> list[str]:
    return [row.name for row in kind.table if row.field and not row.count]


@cache
def record_type(kind: type[Described]) -> np.dtype[Any]:
    """Return the numpy type of a record."""
    word = np.int64
    types: list[Any] = []
    for name, count, element in members(kind):
        shape = [(row.name, word) for row in element.table] if element else word
        types.append((name, shape, (count,)) if count else (name, shape))
    return np.dtype(types)


def record_column(kind: type[Described], name: str) -> int:
    """Return the number of the integer that a member of a record begins with."""
    places: Any = record_type(kind).fields
    return places[name][1] // np.dtype(np.int64).itemsize


def record(d: Described) -> list[int]:
    """Return the integers of a descriptor's record, its working members left out."""
    numbers, arrays = _getters(type(d))
    words = [*numbers(d), *(len(getattr(d, row.name)) for row in d.tuples)]
    for name, size, element_words in arrays:
        end = len(words) + size
        for element in getattr(d, name):
            words += element_words(element)
        words += [0] * (end - len(words))
    return words


Getter = Callable[[Any], Sequence[int]]


@cache
def _getters(kind: type[Described]) -> tuple[Getter, list[tuple[str, int, Getter]]]:
    """Return what gives the numbers of a record, and for each array name, size and elements."""
    return attrgetter(*_numbers_of(kind)), [
        (row.name, row.count * (1 if row.field else len(row.kind.table)), _element_getter(row))
        for row in kind.table
        if row.count
    ]


def _element_getter(row: Attribute) -> Getter:
    if not row.field:
        return attrgetter(*(inner.name for inner in row.kind.table))
    if row.of_numbers:
        return lambda element: (element,)
    return lambda element: (packed(element),)


# ---- C header ----------------------------------------------------------------------------------

_SIZES: Mapping[str, int] = {
    "NEST_LEVELS": fields.NEST_LEVELS,
    "TRANSFER_LEVELS": fields.TRANSFER_LEVELS,
    "REGISTERS": fields.REGISTERS,
    "ORDER_BITS": fields.ORDER_WIDTH,
    "DIGIT_WIDTH": DIGIT_WIDTH,
    "LEAST_OF_FILE": exponents.LEAST,
    "GREATEST_OF_FILE": exponents.GREATEST,
    "MOST_SHIFT": exponents.MOST_SHIFT,
    "MOST_POWER": exponents.MOST_POWER,
    "SHIFTS": exponents.SHIFTS,
    "WIDTH": vector.WIDTH,
    "FACTOR_WIDTH": vector.FACTOR_WIDTH,
    "VECTOR_REGISTERS": vector.REGISTERS,
    "THREADS": vector.THREADS,
    "STREAMS": vector.STREAMS,
    "CODE_DEPTH": vector.CODE_DEPTH,
}
"""Sizes that kernels use, by their names in C."""
OPERATIONS = max(fields.Operation) + 1
"""Codes of operations, unused ones included."""


def _enumerations(kinds: Sequence[type[Described]]) -> Iterator[type[IntEnum]]:
    """Yield the enumerations of attributes, those of elements included."""
    for kind in kinds:
        for row in kind.table:
            if isinstance(row.kind, type) and issubclass(row.kind, Described):
                yield from _enumerations([row.kind])
            elif isinstance(row.kind, type) and issubclass(row.kind, IntEnum):
                yield row.kind


def _c_enumeration(kind: type[IntEnum]) -> str:
    prefix = "" if kind is fields.Operation else f"{_upper(kind.__name__)}_"
    names = (f"{prefix}{choice.name} = {int(choice)}" for choice in kind)
    return f"enum {{ {', '.join(names)} }};"


def _upper(name: str) -> str:
    return "".join(f"_{c}" if c.isupper() and n else c for n, c in enumerate(name)).upper()


def _places(kind: type[Described]) -> list[str]:
    """Return the places of fields, and the bits from one element to the next."""
    lines: list[str] = []
    prefix, position = _upper(kind.__name__), 0
    command_bits = sum(spec.width for spec in kind.layout if not spec.resident)
    lines.append(f"    {prefix}_COMMAND_BITS = {command_bits},  /* what engines see */")
    for row in kind.table:
        first = position
        for spec in row.fields:
            if not spec.number:
                name = f"{prefix}_{_upper(spec.stem or spec.name)}"
                lines.append(f"    {name} = {position}, {name}_BITS = {spec.width},")
            position += spec.width
        if row.count:
            step = (position - first) // row.count
            lines.append(f"    {prefix}_{_upper(row.element)}_STEP = {step},")
    return lines


def _element(kind: type[Described], number: str) -> str:
    names = ", ".join(row.name for row in kind.table)
    return f"typedef struct {{\n    {number} {names};\n}} {kind.__name__};"


def _unpack(kind: type[Described]) -> str:
    """Return the function that decodes an element of one word."""
    lines, position = [], 0
    for spec in kind.layout:
        most = (1 << spec.width) - 1
        lines.append(f"    element.{spec.name} = (int)(word >> {position} & {most});")
        position += spec.width
    body = "\n".join(lines)
    name = kind.__name__
    return (
        f"static inline {name} unpacked_{name.lower()}(uint64_t word)\n{{\n    {name} element;\n"
        f"{body}\n    return element;\n}}"
    )


def _struct(kind: type[Described]) -> str:
    lines: list[str] = []
    for name, count, element in members(kind):
        number = f"{element.__name__ if element else 'int64_t'} {name}"
        lines.append(f"    {number}[{count}];" if count else f"    {number};")
    return "\n".join(["typedef struct {", *lines, f"}} {kind.__name__};"])


def _engines() -> list[str]:
    """Return what kernels ask the records of engines, by operation."""
    second, traces = [0] * OPERATIONS, [-1] * OPERATIONS
    for operation, spec in engines.SPEC_OF.items():
        if engines.contraction_of(operation):
            second[operation] = 2 if spec.along_lanes else 1
        if spec.writes:
            traces[operation] = engines.TRACED.index(spec.unit)
    return [
        f"enum {{ OPERATIONS = {OPERATIONS}, TRACES = {len(engines.TRACED)} }};",
        "/* The second operand: rows, groups of words, or entries, one for each lane. */\n"
        "enum { BY_ROWS, BY_GROUPS, BY_ENTRIES };",
        *(
            f"static inline int {name}(int64_t operation)\n{{\n    static const signed char of[] = "
            f"{{{', '.join(map(str, values))}}};\n    return of[operation];\n}}"
            for name, values in (("second_operand", second), ("trace_of", traces))
        ),
    ]


def header(kinds: Sequence[type[Described]] = KINDS) -> str:
    """Return the C header of these classes."""
    repeats = [row for kind in kinds for row in kind.table if row.count and not row.of_numbers]
    words = dict.fromkeys(row.kind for row in repeats if row.field and not row.derived)
    plain = dict.fromkeys(row.kind for row in repeats if not row.field)
    sizes = ", ".join(f"{name} = {value}" for name, value in _SIZES.items())
    parts = [
        *map(_c_enumeration, dict.fromkeys(_enumerations(kinds))),
        *_engines(),
        f"enum {{ {sizes} }};",
        "/* First bit and width of each field in the encoding, of repeated ones of number 0. */",
        *("\n".join(["enum {", *_places(kind), "};"]) for kind in [*kinds, *words] if kind.layout),
        "/* Descriptors as records: their attributes, not their encoding. */",
        *(_element(kind, "int64_t") for kind in plain),
        *(_element(kind, "int") for kind in words),
        *map(_unpack, words),
        *map(_struct, kinds),
        "\n".join(
            [
                "typedef union {",
                "    int64_t operation; /* says which */",
                *(f"    {kind.__name__} {_upper(kind.__name__).lower()};" for kind in kinds),
                "} Descriptor;",
            ]
        ),
    ]
    text = "\n\n".join(parts)
    return (
        "/* The instruction set, written by ``python -m trainwright.program.records``. */\n"
        "#ifndef TRAINWRIGHT_ISA_H\n#define TRAINWRIGHT_ISA_H\n\n#include <stdint.h>\n\n"
        f"#define ISA_DIGEST {zlib.crc32(text.encode())}u\n\n"
        "#ifdef __cplusplus\nnamespace isa {\n#endif\n\n"
        f"{text}\n\n#ifdef __cplusplus\n}}\n#endif\n\n#endif\n"
    )


def digest() -> int:
    """Return ``ISA_DIGEST`` of the present table."""
    return int(header().split("ISA_DIGEST ")[1].split("u\n")[0])


if __name__ == "__main__":
    HEADER.write_text(header())

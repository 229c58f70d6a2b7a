"""Classes that are the instruction set's table: an attribute is written once, with its bits.

A class lists its fields from bit 0 upwards: ``name: type = bits(width, meaning)``. Dataclass,
encoder, decoder, range checks, records of the golden model, C header, hardware layouts and
reference come from that list.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, replace
from enum import IntEnum
from typing import (
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Self,
    TypeVar,
    dataclass_transform,
    get_args,
    overload,
)

from trainwright.parameters import AcceleratorParameters
from trainwright.program.errors import ProgramError
from trainwright.program.fields import Engine, Operation
from trainwright.support.errors import errors_as

T = TypeVar("T", bound="Described")

# ---- Fields ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Limits:
    """Accelerator that a program is checked for, and the statistics slots that it may name."""

    parameters: AcceleratorParameters
    slots: int


Most = int | Callable[[Any, Limits], int] | None
"""Greatest value: a number, or a function of descriptor and machine; None: all bits are 1."""


class Field(NamedTuple):
    """Field of a layout: the widths of the fields before it give its place."""

    name: str
    width: int
    meaning: str
    least: int = 0
    """Least value that is encoded."""
    lowest: int = 0
    """Least value of a program; encoder and decoder take less."""
    most: Most = None
    signed: bool = False
    """Whether the value is in two's complement."""
    wraps: bool = False
    """Whether a signed value may also be given without its sign, modulo the width."""
    plus: int = 0
    """Amount by which the encoded value exceeds the attribute's."""
    codes: tuple[int, ...] = ()
    """Values of the attribute by their codes, where these differ."""
    resident: bool = False
    """Whether the field needs an exponent file: no engine sees it, and it is behind all others."""
    register: str = ""
    """Field that names the register added to this address."""
    stem: str = ""
    """Name without the number, of a field that is repeated."""
    number: int | None = None
    """Number of the level, register or stream, of a field that is repeated."""

    def encoded(self, value: int) -> int:
        """Return the bits of an attribute's value."""
        if self.codes:
            return self.codes.index(value) if value in self.codes else -1
        return value % (1 << self.width) if self.signed else int(value) + self.plus

    def decoded(self, code: int) -> int:
        """Return the value that ``encoded`` turns into these bits."""
        if self.codes:
            return self.codes[code]
        sign = 1 << (self.width - 1)
        return (code ^ sign) - sign if self.signed else code - self.plus

    @property
    def limits(self) -> tuple[int, int]:
        """Least and greatest value of an attribute that any accelerator can take."""
        half = 1 << (self.width - 1)
        low = -half if self.signed else max(self.least, self.lowest) - self.plus
        if isinstance(self.most, int):
            return low, self.most
        return low, half - 1 if self.signed and not self.wraps else 2 * half - 1 - self.plus

    def at(self, number: int) -> "Field":
        """Return the field of element ``number`` of a repeated attribute."""
        return self._replace(name=f"{self.name}{number}", stem=self.name, number=number)


@dataclass(frozen=True)
class Attribute:
    """Attribute of a class, with the field that holds its value."""

    field: Field | None = None
    """``None``: elements of a class, which has the fields, or no range."""
    name: str = ""
    count: int = 0
    """Elements of a repeated attribute; 0: the attribute is one value."""
    element: str = ""
    """Name of an element in records and messages."""
    several: str = ""
    """Name of the elements in messages."""
    least: int = 0
    """Least number of elements."""
    kind: Any = int
    """Type of the value, or of an element."""
    counted: str = ""
    """Field with the number of elements."""
    joint: bool = False
    """Whether the class itself encodes the attribute, together with others."""
    derived: bool = False
    """Whether the attribute follows from others."""
    checked: bool = False
    """Whether a program file is refused if its value of a derived attribute is another one."""
    stored: bool = True
    """Whether the value is encoded: else its field gives the range alone."""
    constant: Any = None
    """The only value that the attribute may have; None: any in range."""
    before: str = ""
    """Attribute before whose fields these are; default: the order of declarations."""
    fields: tuple[Field, ...] = ()
    """Fields in the encoding, those of an element repeated."""

    @property
    def of_numbers(self) -> bool:
        """Whether elements are numbers with a field each."""
        return self.field is not None and self.kind is int

    def named(self, attribute: str, kind: Any) -> "Attribute":
        """Complete a declaration by what the class says of the attribute."""
        kind = get_args(kind)[0] if self.count and not self.derived else kind
        spec = self.field
        if spec and not spec.name:
            spec = spec._replace(name=attribute)
        fields: tuple[Field, ...] = ()
        if self.stored:
            fields = (spec,) if spec else kind.layout
        if self.count:
            fields = tuple(f.at(n) for n in range(self.count) for f in fields)
        names = {"name": attribute, "several": self.several or attribute}
        return replace(self, field=spec, kind=kind, fields=fields, **names)


Range = tuple[str, int, int, Callable[[Any, Limits], int] | None]
"""Attribute, least and greatest value, and a function of descriptor and machine that returns the
greatest value instead; None: it is the same for all machines."""

# ---- Declarations ------------------------------------------------------------------------------


class Derived:
    """Attribute that follows from others and has a field; ``derived`` makes one of a method."""

    def __init__(self, method: Callable[[Any], Any], row: Attribute):
        self._method, self.row = method, row
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, obj: None, kind: type) -> Self: ...
    @overload
    def __get__(self, obj: object, kind: type) -> int: ...
    def __get__(self, obj: object | None, kind: type) -> Any:
        return self if obj is None else self._method(obj)


def bits(
    width: int, meaning: str, *, name: str = "", default: Any = MISSING, before: str = "",
    **more: Any,
) -> Any:  # fmt: skip
    """Declare an attribute that is a field.

    ``name`` is the field's, where it has another one; ``before`` says which attribute follows in
    the encoding, where that is not the next one declared. The rest is as in ``Field``, but for
    ``least``, which is the attribute's.
    """
    spec = Field(name, width, meaning, **more)
    return _declared(
        Attribute(spec._replace(least=spec.least + spec.plus), before=before), default=default
    )


OPERATION = "what the descriptor does"
ENGINES = int(Engine.ALL).bit_length()
"""Bits of a mask of engines."""
WAIT = f"engines that must be idle first: {', '.join(f'{e.value} {e.name}' for e in Engine)}"


def only(
    value: Any, width: int = 4, meaning: str = OPERATION, *, init: Literal[False] = False
) -> Any:
    """Declare an attribute whose field, by default the operation, has one value in this class."""
    return _declared(Attribute(Field("", width, meaning), constant=value), init=init, default=value)


def repeated(
    count: int, element: str, meaning: str = "", *, width: int = 0, default: Any = MISSING,
    several: str = "", least: int = 0, counted: str = "", joint: bool = False, **more: Any,
) -> Any:  # fmt: skip
    """Declare a tuple of ``least`` to ``count`` elements.

    Elements are numbers of ``width`` bits, or of a class that is packed in ``width`` bits; without
    a ``width`` each element has the fields of its class.
    """
    spec = Field(element, width, meaning, **more) if width else None
    row = Attribute(
        spec,
        count=count,
        element=element,
        several=several,
        least=least,
        counted=counted,
        joint=joint,
    )
    return _declared(row, default=default)


def unencoded(*, width: int = 0, default: Any = MISSING, **more: Any) -> Any:
    """Declare an attribute without bits; with a ``width``, a number in the range of a field."""
    spec = Field("", width, "", **more) if width else None
    return _declared(Attribute(spec, stored=False, joint=True), default=default)


def derived(
    width: int, meaning: str, *, name: str = "", count: int = 0, checked: bool = False, **more: Any
) -> Callable[[Callable[[Any], Any]], Derived]:
    """Declare a method as an attribute with a field, of ``count`` numbers where that is given."""
    row = Attribute(Field(name, width, meaning, **more), count=count, element=name, derived=True)
    return lambda method: Derived(method, replace(row, checked=checked))


def _declared(row: Attribute, *, default: Any, **more: Any) -> Any:
    if default is not MISSING:
        more["default"] = default
    return field(metadata={"row": row}, **more)


@dataclass_transform(
    kw_only_default=True,
    frozen_default=True,
    field_specifiers=(bits, only, repeated, unencoded),
)
class Described:
    """Frozen dataclass whose attributes are declared with their bits."""

    table: ClassVar[tuple[Attribute, ...]] = ()
    layout: ClassVar[tuple[Field, ...]] = ()
    ranges: ClassVar[tuple[Range, ...]] = ()
    """Ranges of attributes that are numbers."""
    tuples: ClassVar[tuple[Attribute, ...]] = ()
    """Repeated attributes."""
    residents: ClassVar[tuple[str, ...]] = ()
    """Attributes that need an exponent file where they are not 0."""

    def __init_subclass__(cls, *, kw_only: bool = True) -> None:
        super().__init_subclass__()
        rows = {row.name: row for row in cls.table}
        for name, value in list(vars(cls).items()):
            row = getattr(value, "metadata", {}).get("row") or getattr(value, "row", None)
            if isinstance(row, Attribute):
                rows[name] = row.named(name, cls.__annotations__.get(name, int))
        order = list(rows)
        for name, row in rows.items():
            if row.before:
                order.remove(name)
                order.insert(order.index(row.before), name)
        cls.table = tuple(rows[name] for name in order)
        cls.layout = tuple(f for row in cls.table for f in row.fields)
        cls.tuples = tuple(row for row in cls.table if row.count and not row.derived)
        cls.residents = tuple(
            row.name
            for row in cls.table
            if row.fields and not row.derived and all(spec.resident for spec in row.fields)
        )
        cls.ranges = tuple(
            (row.name, *row.field.limits, row.field.most if callable(row.field.most) else None)
            for row in cls.table
            if row.field and not (row.count or row.field.codes) and row.constant is None
        )
        dataclass(frozen=True, kw_only=kw_only)(cls)

    def encoded_jointly(self) -> dict[str, int]:
        """Return the fields that several attributes give together."""
        return {}

    @classmethod
    def decoded_jointly(cls, f: Mapping[str, int], values: dict[str, Any]) -> dict[str, Any]:
        """Return attributes that several fields give together; ``values`` are the others."""
        return {}

    def limited_jointly(self, machine: Limits) -> "Iterator[Limited]":
        """Yield numbers that are no attributes, with their ranges."""
        yield from ()


class Header(Described):
    """Fields that each descriptor starts with."""

    operation: Operation = bits(4, OPERATION)
    wait: Engine = bits(ENGINES, WAIT, default=Engine.NONE)
    wait_older: Engine = bits(
        ENGINES,
        "engines that must have done all commands but the last one: 4 PE1, 8 PE2",
        default=Engine.NONE,
    )


# ---- Encoding ----------------------------------------------------------------------------------


def name_of(d: Any) -> str:
    """Return what messages call a descriptor: its tensor, or its operation."""
    return getattr(d, "tensor", "") or d.operation.name


def packed(element: Described) -> int:
    """Return the word of an element whose fields are each within their bits."""
    word, position = 0, 0
    for row in element.table:
        assert row.field
        word |= int(getattr(element, row.name)) << position
        position += row.field.width
    return word


def unpacked(layout: tuple[Field, ...], word: int) -> dict[str, int]:
    """Return the bits of each field of a word."""
    fields: dict[str, int] = {}
    for f in layout:
        fields[f.name] = word & ((1 << f.width) - 1)
        word >>= f.width
    return fields


def encoded_fields(d: Described) -> dict[str, int]:
    """Return the bits of each field of a descriptor."""
    fields, joint = {}, d.encoded_jointly()
    for row in d.table:
        value = getattr(d, row.name)
        if row.count and len(value) > row.count:
            raise ProgramError(
                f"{name_of(d)}: {len(value)} {row.several}, at most {row.count} fit a descriptor"
            )
        if row.joint:
            continue
        if row.count:
            codes = [code for element in value for code in _element_codes(row, element)]
            codes += [0] * (len(row.fields) - len(codes))
            fields.update((f.name, code) for f, code in zip(row.fields, codes, strict=True))
        elif row.field:
            fields[row.field.name] = row.field.encoded(value)
    return fields | joint


def _element_codes(row: Attribute, element: Any) -> list[int]:
    if row.field:
        return [row.field.encoded(element) if row.of_numbers else packed(element)]
    return [inner.field.encoded(getattr(element, inner.name)) for inner in row.kind.table]


def decoded(kind: type[T], f: Mapping[str, int], *, suffix: str = "") -> T:
    """Return the descriptor of fields that passed ``check_codes``; an element's have ``suffix``.

    Raises ``ProgramError`` where fields contradict each other, ``ValueError`` for a number that
    an enumeration does not have.
    """
    values: dict[str, Any] = {}
    for row in kind.table:
        if row.joint or row.derived or row.constant is not None:
            continue
        if row.count:
            values[row.name] = tuple(_decoded_elements(row, f))
        elif row.field:
            values[row.name] = row.kind(row.field.decoded(f[row.field.name + suffix]))
    d = kind(**values | kind.decoded_jointly(f, values))
    for row in kind.table:
        if row.checked and row.field and f[row.field.name] != (due := getattr(d, row.name)):
            name, code = row.field.name, f[row.field.name]
            raise ProgramError(f"{name_of(d)}: {name} = {code} must be {due}")
    return d


def _decoded_elements(row: Attribute, f: Mapping[str, int]) -> Iterator[Any]:
    for n in range(f[row.counted] if row.counted else row.count):
        if not row.field:
            yield decoded(row.kind, f, suffix=str(n))
        elif row.of_numbers:
            yield row.field.decoded(f[f"{row.field.name}{n}"])
        else:
            with errors_as(Operation(f["operation"]).name, ProgramError, ValueError):
                yield decoded(row.kind, unpacked(row.kind.layout, f[f"{row.field.name}{n}"]))


def check_codes(kind: type[Described], f: Mapping[str, int]) -> None:
    """Raise ``ProgramError`` for bits of a field that mean nothing."""
    name = Operation(f["operation"]).name
    for spec in kind.layout:
        code = f[spec.name]
        if code < spec.least:
            raise ProgramError(f"{name}: {spec.name} = {code}, it must be at least {spec.least}")
    for row in kind.table:
        spec = row.field
        if row.counted and f[row.counted] > row.count:
            raise ProgramError(f"{name}: {f[row.counted]} {row.several}, at most {row.count} fit")
        if spec is None or row.count or not row.stored:
            continue
        code = f[spec.name]
        if row.constant not in (None, code):
            raise ProgramError(f"{name}: {spec.name} = {code} must be {int(row.constant)}")
        most = len(spec.codes) - 1 if spec.codes else spec.most
        is_unknown = issubclass(row.kind, IntEnum) and code not in (*row.kind,)
        if is_unknown or (spec.codes and code >= len(spec.codes)):
            raise ProgramError(f"{name}: {spec.name} = {code} is not from 0 to {most}")


# ---- Ranges ------------------------------------------------------------------------------------

Limited = tuple[str, int, tuple[int, int]]
"""Name, value and range."""


def beyond(d: Described, machine: Limits) -> Limited | None:
    """Return a number of a descriptor or an element that is out of its range."""
    for name, value, (low, high) in d.limited_jointly(machine):
        if not low <= value <= high:
            return name, value, (low, high)
    for row in d.tuples:  # before ranges that depend on their lengths
        length = len(getattr(d, row.name))
        if not row.least <= length <= row.count:
            return row.name, length, (row.least, row.count)
    for name, low, high, most in d.ranges:
        value = getattr(d, name)
        if most is not None:
            high = most(d, machine)
        if not low <= value <= high:
            return name, value, (low, high)
    for row in d.tuples:
        for element in getattr(d, row.name):
            if violation := _beyond_element(row, element, machine):
                return violation
    return None


def _beyond_element(row: Attribute, element: Any, machine: Limits) -> Limited | None:
    if row.field and row.of_numbers:
        low, high = row.field.limits
        return None if low <= element <= high else (row.element, element, (low, high))
    if violation := beyond(element, machine):
        return f"{row.element}'s {violation[0]}", *violation[1:]
    return None


def is_within(d: Described, names: Sequence[str], machine: Limits) -> bool:
    """Tell whether these attributes of a descriptor are in range."""
    ranges = [entry for entry in d.ranges if entry[0] in names]
    return all(
        low <= getattr(d, name) <= (most(d, machine) if most else high)
        for name, low, high, most in ranges
    )

"""Settings as dataclasses: an annotation holds a field's limits and option, its docstring the help.

A field is written once. Checks, options of the command line, help and comparisons follow from it:

>>> class Pace(SettingsModel):
...     rate: Annotated[float, Meta(gt=0, lt=1)] = 0.5
...     steps: Positive | None = None
...     def __post_init__(self):
...         check(self)
>>> Pace(rate=2)
Traceback (most recent call last):
ValueError: rate must be between 0 and 1, not 2
"""

import ast
import inspect
from collections.abc import Callable, Iterable
from dataclasses import MISSING, dataclass, fields
from functools import cache
from itertools import pairwise
from math import isfinite
from types import ModuleType, NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from msgspec import Meta

from trainwright.support.arguments import plain
from trainwright.support.errors import UserError
from trainwright.support.text import shown

Kind = TypeVar("Kind")
Positive = Annotated[int, Meta(ge=1)]
Natural = Annotated[int, Meta(ge=0)]
Threads = Annotated[int, Meta(ge=1, le=1024)]
"""Threads of torch, which ends in an error of its own where a system starts no more."""
POWERS = {"powers": True}
"""``Meta(extra=POWERS)``: powers of two only, and 0 where the least value is 0."""


@dataclass_transform(frozen_default=True, kw_only_default=True)
class SettingsModel:
    """Base of settings classes: a subclass is a frozen dataclass whose fields are keywords.

    ``@dataclass`` above such a class is too much, and fails.
    """

    given: ClassVar[frozenset[str]] = frozenset()
    """Fields whose options a command line has, also those with the value of the default."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)


@dataclass(frozen=True)
class OneOf:
    """Values that a field takes."""

    values: tuple[Any, ...]


@dataclass(frozen=True)
class Option:
    """Form of a field's option, where it does not follow from name and type."""

    name: str = ""
    """Name without dashes; by default the field's."""
    metavar: str | None = None
    parse: Callable[[str], Any] | None = None
    """Reader of the text; raises ``ValueError``."""
    arguments: dict[str, Any] | None = None
    """Further arguments of ``argparse``."""
    note: str = ""
    """Text that the help adds to the docstring."""
    into: str = ""
    """Field that the option's values go to in place of its own."""
    hidden: bool = False
    """Whether the help leaves the option out."""
    internal: bool = False
    """Whether the field has no option, because a caller sets it."""
    positional: bool = False
    only: tuple[str, ...] = ()
    """Parts of a command outside of which the option has no effect; () for none."""


@dataclass(frozen=True)
class SettingField:
    """Field of a settings class, with everything that its annotation says."""

    name: str
    default: Any
    kind: type
    """Plain type of a value; of one item where several are given."""
    owner: type | None = None
    """Class of the field."""
    choices: tuple[Any, ...] = ()
    limits: Meta | None = None
    option: Option = Option()
    optional: bool = False
    several: bool = False

    @property
    def help(self) -> str:
        """Docstring of the field, on one line."""
        return docstrings(self.owner).get(self.name, "") if self.owner else ""

    @property
    def flag(self) -> str:
        """Option without its dashes."""
        return self.option.name or self.name.replace("_", "-")

    @property
    def dest(self) -> str:
        """Attribute of the parsed options."""
        return self.flag.replace("-", "_")

    def fault(self, value: object) -> str | None:
        """Return the fault of a value that the setting does not take, as "must be ..., not ..."."""
        if value is None and self.optional:
            return None
        # 16.0 and True equal integers, but are other text in fingerprints, programs and reports.
        if self.kind is int and not (isinstance(value, int) and not isinstance(value, bool)):
            return f"must be an integer, not {shown(value)}"
        if self.kind is bool and not isinstance(value, int):
            return f"must be 0 or 1, not {shown(value)}"
        if self.kind is float and not _is_number(value):
            wanted = self.range if value != value and self.limits else "a finite number"
            return f"must be {wanted}, not {shown(value)}"
        if issubclass(self.kind, SettingsModel):
            is_right = isinstance(value, self.kind)
            return None if is_right else f"must be a {self.kind.__name__}, not {shown(value)}"
        inside = value in self.choices if self.choices else _inside(self.limits, value)
        return None if inside else f"must be {self.range}, not {value!r}"

    @property
    def range(self) -> str:
        """Values that the setting takes, as text."""
        if self.choices:
            *most, last = map(str, self.choices)
            if all(isinstance(choice, str) for choice in self.choices):
                return f"one of {', '.join((*most, last))}"
            return f"{', '.join(most)} or {last}" if most else last
        if (m := self.limits) is None:
            return self.kind.__name__
        powers = "a power of two " if m.extra else ""
        if powers and m.ge == 0:
            powers = "0 or a power of two "
        if m.ge is not None and m.le is not None:
            return f"{powers}from {m.ge} to {m.le}"
        if m.ge is not None and m.lt is not None:
            return f"at least {m.ge} and less than {m.lt}"
        if m.gt is not None and m.lt is not None:
            return f"between {m.gt} and {m.lt}"
        return f"over {m.gt}" if m.gt is not None else f"at least {m.ge}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _inside(limits: Meta | None, value: Any) -> bool:
    if limits is None:
        return True
    ends = (
        (limits.ge, lambda end: value >= end), (limits.gt, lambda end: value > end),
        (limits.le, lambda end: value <= end), (limits.lt, lambda end: value < end),
    )  # fmt: skip
    power = not limits.extra or not value & (value - 1)
    return power and all(holds(end) for end, holds in ends if end is not None)


@cache
def settings_of(kind: type) -> tuple[SettingField, ...]:
    """List the fields of a settings class in their order."""
    hints = get_type_hints(kind, include_extras=True)
    return tuple(
        setting_of(
            hints[field.name],
            field.name,
            field.default_factory() if field.default_factory is not MISSING else field.default,
            kind,
        )
        for field in fields(kind)
    )


def setting_of(
    hint: Any, name: str = "", default: Any = None, owner: type | None = None
) -> SettingField:
    """Make a setting of an annotation."""
    limits, option, optional, several, choices = None, Option(), False, False, ()
    while (origin := get_origin(hint)) is not None:
        arguments = get_args(hint)
        if origin is Annotated:
            limits = next((m for m in arguments[1:] if isinstance(m, Meta)), limits)
            option = next((m for m in arguments[1:] if isinstance(m, Option)), option)
            choices = next((m.values for m in arguments[1:] if isinstance(m, OneOf)), choices)
            hint = arguments[0]
        elif origin in (Union, UnionType):
            optional = optional or NoneType in arguments
            hint = next(member for member in arguments if member is not NoneType)
        elif origin is tuple and arguments[-1] is ... and not optional and not several:
            several, hint = True, arguments[0]
        else:
            hint = origin
    return SettingField(name, default, hint, owner, choices, limits, option, optional, several)


def check(settings: Any) -> None:
    """Check every field against its annotation, numpy's scalars as numbers of Python's.

    Raises ``ValueError``.
    """
    for setting in settings_of(type(settings)):
        value = getattr(settings, setting.name)
        if value is not (number := plain(value)):
            value = number
            object.__setattr__(settings, setting.name, number)  # the class is frozen
        if not setting.several and (fault := setting.fault(value)):
            raise ValueError(f"{setting.name} {fault}")


def is_given(settings: Any, setting: SettingField) -> bool:
    """Return whether a command line or a caller gave a value."""
    value = getattr(settings, setting.name)
    return setting.name in settings.given or value != setting.default


def require_effect(settings: Any, parts: Iterable[str]) -> None:
    """Raise ``UserError`` for a setting that was given and that no chosen part reads."""
    chosen = set(parts)
    for setting in settings_of(type(settings)):
        only = setting.option.only
        if only and not chosen & {*only} and is_given(settings, setting):
            raise UserError(f"--{setting.flag} only applies to {', '.join(only)}: omit it")


def require_unset(settings: Any, names: Iterable[str], why: str) -> None:
    """Raise ``UserError`` for a named setting that was given."""
    fields = {setting.name: setting for setting in settings_of(type(settings))}
    for setting in map(fields.__getitem__, names):
        if is_given(settings, setting):
            raise UserError(f"--{setting.flag} {why}")


def part_of(kind: type[Kind], settings: Any) -> Kind:
    """Return those settings that are fields of ``kind``, a base of their class."""
    return kind(**{s.name: getattr(settings, s.name) for s in settings_of(kind)})


@cache
def docstrings(kind: type) -> dict[str, str]:
    """Return the docstring below each field of a class and of its bases, on one line."""
    texts: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if base is object:
            continue
        body = _classes(inspect.getmodule(base)).get(base.__name__, [])
        for before, after in pairwise(body):
            if isinstance(before, ast.AnnAssign) and isinstance(after, ast.Expr):
                texts[ast.unparse(before.target)] = " ".join(ast.literal_eval(after.value).split())
    return texts


@cache
def _classes(module: ModuleType | None) -> dict[str, list[ast.stmt]]:
    """Return the bodies of a module's classes by name."""
    try:
        body = ast.parse(inspect.getsource(module)).body if module else []
    except OSError:  # an installation without sources: commands work, their help is shorter
        return {}
    return {node.name: node.body for node in body if isinstance(node, ast.ClassDef)}

"""Commands from settings classes: fields become options, docstrings become the help.

The docstring of the class is the text above the options; from its first line that ends in a colon
on, such as "examples:", it stands below them.
"""

import argparse
import inspect
import math
import re
from collections.abc import Callable, Container
from dataclasses import MISSING, is_dataclass
from typing import Any, TypeVar

from trainwright.cli.command import CommandBody
from trainwright.support.once import SwitchOnce
from trainwright.support.settings import Natural, Positive, SettingField, setting_of, settings_of
from trainwright.support.text import read_integer, read_number

Kind = TypeVar("Kind")
_METAVARS: dict[type, str] = {int: "N", float: "X"}
_READERS: dict[type, Callable[[str], Any]] = {int: read_integer, float: read_number}


def reader(setting: SettingField) -> Callable[[str], Any]:
    """Return the argparse type of a setting, which rejects values outside its limits."""

    def read(text: str) -> Any:
        try:
            if setting.option.parse:
                return setting.option.parse(text)
            value = _READERS.get(setting.kind, setting.kind)(text)
        except ValueError as error:
            noun = {int: "an integer", float: "a number"}.get(setting.kind)
            message = f"must be {noun}, not {text!r}" if noun else str(error)
            raise argparse.ArgumentTypeError(message) from None
        if isinstance(value, float) and not math.isfinite(value):
            raise argparse.ArgumentTypeError(f"must be a number, not {text!r}")
        if not setting.choices and (fault := setting.fault(value)):
            raise argparse.ArgumentTypeError(fault)
        return value

    return read


positive, natural, number = (reader(setting_of(hint)) for hint in (Positive, Natural, float))
"""Types of options that no settings class declares."""


def add_options(
    parser: Any, kind: type, *, title: str = "", text: str = "", given: bool = False,
    only: Container[str] | None = None,
) -> None:  # fmt: skip
    """Declare the options of a settings class, in a group of their own if it has a title.

    ``given``: an option that is not given is None, whatever its default. ``only`` names the
    settings to declare; None stands for all.
    """
    group = parser.add_argument_group(title, text or None) if title else parser
    for setting in _own_first(kind):
        chosen = only is None or setting.name in only
        if chosen and not (is_dataclass(setting.kind) or setting.option.internal):
            _add(group, setting, given=given)


def _own_first(kind: type) -> list[SettingField]:
    """Sort the settings for the help: those of the class itself before those of its bases."""
    return sorted(settings_of(kind), key=lambda setting: setting.name not in kind.__annotations__)


def _add(group: Any, setting: SettingField, *, given: bool) -> None:
    option, default = setting.option, setting.default
    required = default is MISSING
    arguments: dict[str, Any] = {"help": _help(setting), "dest": option.into or setting.dest}
    if setting.kind is bool:
        optional = SwitchOnce if setting.optional else "store_true"
        arguments |= {"action": optional}
    else:
        arguments |= {"type": reader(setting), "choices": setting.choices or None}
        metavar = option.metavar or _METAVARS.get(setting.kind, setting.dest.upper())
        arguments |= {} if setting.choices else {"metavar": metavar}
        if not (required or given or default in (None, ())):
            arguments["default"] = default
        if setting.several and not (option.arguments or {}).get("nargs"):
            arguments["action"] = "append"
        if setting.kind is str and not option.parse:
            del arguments["type"]
    if option.positional:
        del arguments["dest"]
        arguments |= {} if required else {"nargs": "?"}
        group.add_argument(setting.name, **arguments | (option.arguments or {}))
        return
    if required and not given:
        arguments["required"] = True
    arguments |= option.arguments or {}
    if "const" in arguments:  # takes no value
        arguments = {n: v for n, v in arguments.items() if n not in ("type", "choices", "metavar")}
    group.add_argument(f"--{setting.flag}", **arguments)


def _help(setting: SettingField) -> str:
    if setting.option.hidden:
        return argparse.SUPPRESS
    text = (setting.help + setting.option.note).replace("%", "%%").replace("``", "")
    default, arguments = setting.default, setting.option.arguments or {}
    if not (default is False or default in (None, (), "", MISSING) or "default" in text):
        text += f" (default: {default})"
    repeatable = setting.several and "epeatable" not in text and not arguments
    return text + (" (repeatable)" if repeatable else "")


def given_values(kind: type, args: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of a settings class that options gave, by name."""
    pairs = [
        (s, getattr(args, s.dest, None))
        for s in settings_of(kind)
        if not (is_dataclass(s.kind) or s.option.into)
    ]
    return {s.name: tuple(v) if s.several else v for s, v in pairs if v is not None}


def read_options(kind: type[Kind], args: argparse.Namespace) -> Kind:
    """Return the settings that options gave."""
    settings = kind(**given_values(kind, args))
    # argparse stores a positional argument that is not given, too, by the same action.
    noted = getattr(args, "given_values", {})
    given = {s.name for s in settings_of(kind) if s.dest in noted and not s.option.positional}
    object.__setattr__(settings, "given", frozenset(given))  # the class is frozen
    return settings


def command(
    kind: type[Kind], run: Callable[[Kind], int], name: str = "", help: str = "", *,
    epilog: str = "",
) -> CommandBody:  # fmt: skip
    """Make a command of a settings class and a function that runs with its values.

    Bases of ``kind`` with a ``TITLE`` have their options below it.
    """
    grouped: dict[str, type] = {}
    for part in kind.__mro__[1:]:
        if title := vars(part).get("TITLE"):
            grouped.setdefault(title, part)
    hidden = {s.name for part in grouped.values() for s in settings_of(part)}

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        describe(parser, kind, epilog)
        for setting in _own_first(kind):
            if setting.name not in hidden and not setting.option.internal:
                _add(parser, setting, given=False)
        for title, part in grouped.items():
            add_options(parser, part, title=title, text=getattr(part, "EXPLAINED", str)())

    return CommandBody(add_arguments, lambda args: run(read_options(kind, args)), name, help)


def describe(parser: argparse.ArgumentParser, kind: type, epilog: str = "") -> None:
    """Set the texts above and below the options by the docstring of a settings class."""
    text = re.sub(
        r"\n(\w+)\n-+\n", lambda m: f"\n{m[1].lower()}:\n", inspect.cleandoc(kind.__doc__ or "")
    )
    above, *below = re.split(r"\n\n(?=[a-z][^\n]*:\n)", text, maxsplit=1)
    parser.description = above + "\n"
    parser.epilog = "\n\n".join(filter(None, (*below, epilog))) or None

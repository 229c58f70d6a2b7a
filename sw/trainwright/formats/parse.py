"""Formats by name, and a format for each class of tensor."""

import re
from collections.abc import Mapping, Sequence

from trainwright.formats.base import Format, FormatError
from trainwright.formats.coded import Coded
from trainwright.support.errors import errors_as
from trainwright.support.text import suggestion

CLASSES = ("factor", "activation", "intermediate", "gradient")
"""Classes of tensors that share a format."""


def allowed() -> str:
    """Return the spellings of all number formats, for messages."""
    return "; ".join(kind.allowed for kind in Format.kinds)


def parse_format(text: str) -> Format:
    """Read a format such as ``fixed(8)``, ``posit(8,0)`` or ``posit(8,1)c``.

    Raises ``FormatError`` naming the text and what is allowed, or two classes with its spelling.
    """
    spelled = [
        (kind, match)
        for kind in Format.kinds
        if isinstance(text, str) and (match := kind.spelling.fullmatch(text.strip()))
    ]
    if not spelled:
        raise FormatError(f"no number format {text!r}; there are {allowed()}")
    if len(spelled) > 1:  # the first would hide the others
        names = " and ".join(f"{kind.__module__}.{kind.__qualname__}" for kind, _ in spelled)
        raise FormatError(f"{text!r} spells formats of {names}: let one have another spelling")
    kind, match = spelled[0]
    try:
        return kind.read(*match.groups())
    except FormatError as error:
        raise FormatError(f"no number format {text!r} ({error}); there are {allowed()}") from None


def parse_formats(
    given: str | Mapping[str, object] | Sequence[tuple[str, object]],
    known: Sequence[str] = CLASSES,
) -> dict[str, Format]:
    """Read the formats of classes of tensors, or of tensors: of those that ``known`` names.

    ``given`` is a text such as ``factor=posit(4,0),activation=fixed(8)``, its pairs, or the table
    ``[formats]`` of a TOML file. Raises ``FormatError`` for an unknown class or format, and for a
    class that is named twice.
    """
    formats: dict[str, Format] = {}
    if isinstance(given, Mapping):
        given = list(given.items())
    for name, text in format_pairs(given) if isinstance(given, str) else given:
        if name not in known:
            what = "tensor" if "." in name else "class of tensors"
            own = ", ".join(tensor for tensor in known if tensor not in CLASSES)
            tensors = f", and the tensors {own}" if own else ""
            raise FormatError(
                f"no {what} {name!r}; there are {', '.join(CLASSES)}{tensors}"
                f"{suggestion(name, known)}"
            )
        if name in formats:
            raise FormatError(f"{name} has two formats, {formats[name]} and {text}: leave one")
        with errors_as(name, FormatError, FormatError):
            formats[name] = parse_format(text)  # type: ignore[arg-type]
    return formats


def parse_list(text: str) -> list[Format]:
    """Read a list such as ``posit(8,0),posit(8,1)c``; none of an empty text."""
    return [parse_format(entry) for entry in _entries(text)] if text.strip() else []


def parse_coded(text: str) -> list[Coded]:
    """Read a list of formats that are decoded. Raises ``FormatError`` for fixed point."""
    formats: list[Coded] = []
    for fmt in parse_list(text):
        if not isinstance(fmt, Coded):
            raise FormatError(
                f"formats lists coded formats only, fixed point is always there; leave out {fmt}"
            )
        formats.append(fmt)
    return formats


def _entries(text: str) -> list[str]:
    """Split at commas outside of parentheses."""
    return re.split(r",(?![^()]*\))", text)


def format_pairs(text: str) -> list[tuple[str, str]]:
    """Read the entries of a text, as (class, format)."""
    pairs = []
    for entry in _entries(text):
        name, equals, value = entry.partition("=")
        if not equals:
            raise FormatError(
                f"formats are written CLASS=FORMAT,... as in activation=posit(8,0), not {entry!r}"
            )
        pairs.append((name.strip(), value.strip()))
    return pairs

"""Formats by name, and a format for each class of tensor."""

import re
from collections.abc import Mapping, Sequence

from trainwright.formats.base import Format, FormatError
from trainwright.formats.fixed import WIDTHS, Fixed
from trainwright.formats.posit import EXPONENT_BITS, SIZES, Posit
from trainwright.support.text import suggestion

CLASSES = ("factor", "activation", "intermediate", "gradient")
"""Classes of tensors that share a format."""

ALLOWED = (
    "fixed(W) with W from {} to {}, posit(N,ES) with N from {} to {} and ES from {} to {}, and "
    "posit(N,ES)c, which saturates at the largest posit that fits an operand of 18 bits"
).format(*WIDTHS, *SIZES, *EXPONENT_BITS)


def parse_format(text: str) -> Format:
    """The format that ``fixed(8)``, ``posit(8,0)`` or ``posit(8,1)c`` names.

    Raises ``FormatError`` naming the text and what is allowed.
    """
    found = isinstance(text, str) and re.fullmatch(
        r"\s*(?:fixed\s*\(\s*(?P<bits>\d+)\s*\)"
        r"|posit\s*\(\s*(?P<n>\d+)\s*,\s*(?P<es>\d+)\s*\)(?P<clamped>c?))\s*",
        text,
    )
    if not found:
        raise FormatError(f"no number format {text!r}; there are {ALLOWED}")
    try:
        if found["bits"]:
            return Fixed(int(found["bits"]))
        return Posit(int(found["n"]), int(found["es"]), clamped=bool(found["clamped"]))
    except FormatError as error:
        raise FormatError(f"no number format {text!r} ({error}); there are {ALLOWED}") from None


def parse_formats(
    given: str | Mapping[str, object] | Sequence[tuple[str, object]],
    known: Sequence[str] = CLASSES,
) -> dict[str, Format]:
    """The formats by class of tensor, or tensor, of those that are named; ``known`` can be.

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
            own = ", ".join(one for one in known if one not in CLASSES)
            tensors = f", and the tensors {own}" if own else ""
            raise FormatError(
                f"no {what} {name!r}; there are {', '.join(CLASSES)}{tensors}"
                f"{suggestion(name, known)}"
            )
        if name in formats:
            raise FormatError(f"{name} has two formats, {formats[name]} and {text}: leave one")
        try:
            formats[name] = parse_format(text)  # type: ignore[arg-type]
        except FormatError as error:
            raise FormatError(f"{name}: {error}") from None
    return formats


def parse_list(text: str) -> list[Format]:
    """The formats that ``posit(8,0),posit(8,1)c`` lists; none for an empty text."""
    return [parse_format(entry) for entry in _entries(text)] if text.strip() else []


def _entries(text: str) -> list[str]:
    """What is between commas outside of parentheses."""
    return re.split(r",(?![^()]*\))", text)


def format_pairs(text: str) -> list[tuple[str, str]]:
    """The entries of a text, as (class, format)."""
    pairs = []
    for entry in _entries(text):
        name, equals, value = entry.partition("=")
        if not equals:
            raise FormatError(
                f"formats are written CLASS=FORMAT,... as in activation=posit(8,0), not {entry!r}"
            )
        pairs.append((name.strip(), value.strip()))
    return pairs

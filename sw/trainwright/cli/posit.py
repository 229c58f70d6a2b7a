"""``trainwright posit``: a number as a posit or a takum, field by field."""

import sys
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any

from trainwright.cli.declare import command as make_command
from trainwright.cli.errors import OptionError
from trainwright.cli.options import JsonOptions
from trainwright.cli.output import show
from trainwright.support.settings import Option
from trainwright.support.tables import table
from trainwright.support.text import read_integer

if TYPE_CHECKING:
    from trainwright.posit.explain import Explanation


def _code(text: str) -> int:
    try:
        return read_integer(text, 0)
    except ValueError:
        raise ValueError(f"must be an integer, not {text!r}") from None


def _format(text: str) -> Any:
    from trainwright.posit.explain import parse_format

    return parse_format(text)


class PositOptions(JsonOptions):
    """Round a number to a posit or takum format, exactly, and show the word.

    The fields are shown with their meaning, the error, and the neighbours on the number line.

    Examples
    --------
      trainwright posit 3.14159 --format 16,2
      trainwright posit --code 0x4c91 --format 16,2
      trainwright posit --format 8,0 -- -1/3
      trainwright posit 3.14159 --format 16,2 --format takum16
    """

    number: Annotated[str | None, Option(positional=True)] = None
    """such as 3.14159, 1e-7, 1/3 or nar; read without rounding"""
    code: Annotated[int | None, Option(metavar="WORD", parse=_code)] = None
    """a word instead: 19601, 0x4c91 or 0b100110010010001"""
    format: Annotated[tuple[Any, ...], Option(metavar="N,ES|takumN", parse=_format)] = ()
    """bits of a word and of its exponent, or a linear takum such as takum16; repeatable, for a
    table side by side (default: 16,2)"""


def _run(options: PositOptions) -> int:
    from trainwright.posit.explain import beside, explain, explain_code, lines, parse_number

    formats = options.format or (_format("16,2"),)
    if options.number is not None and options.code is None:
        number = parse_number(options.number)
        explained = [explain(number, fmt) for fmt in formats]
    elif options.number is None and options.code is not None:
        explained = [explain_code(options.code, fmt) for fmt in formats]
    else:
        raise OptionError("give a number or --code WORD, one of the two")
    if len(explained) == 1:
        return show(options.json, _content(explained[0]), "\n".join(lines(explained[0])))
    head, *body = beside(explained)
    return show(options.json, {"formats": list(map(_content, explained))}, table(head, body))


def _content(explained: "Explanation") -> dict[str, Any]:
    from trainwright.posit.explain import rows

    values = {name: getattr(explained, name) for name in ("value", "error", "below", "above")}
    return {
        "format": str(explained.fmt),
        "code": explained.code,
        "fields": {name: bits for name, bits, _ in rows(explained)},
        **{name: _number(value, exactly=name != "error") for name, value in values.items()},
    }


def _number(x: Fraction | None, *, exactly: bool) -> float | str | None:
    """Return a float64: the nearest one, or the exact fraction as text where no float64 is it."""
    if x is None:
        return None
    # Takums of 64 bits have 59 digits behind the first: their neighbours would all be themselves.
    if abs(x) > sys.float_info.max or (exactly and Fraction(float(x)) != x):
        return str(x)
    return float(x)


command = make_command(PositOptions, _run)

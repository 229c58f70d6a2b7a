"""``trainwright posit``: what a number becomes in a posit format, field by field."""

import argparse
import sys
from fractions import Fraction

from trainwright.cli.command import CommandBody
from trainwright.cli.options import posit_format

EPILOG = """\
examples:
  trainwright posit 3.14159 --format 16,2
  trainwright posit --code 0x4c91 --format 16,2
  trainwright posit --format 8,0 -- -1/3
"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Round a number to a posit format, exactly, and show the word: sign, regime, exponent and "
        "fraction with their meaning, the error, and the neighbours on the number line."
    )
    parser.epilog = EPILOG
    parser.add_argument(
        "number", nargs="?", help="such as 3.14159, 1e-7, 1/3 or nar; read without rounding"
    )
    parser.add_argument("--code", type=_code, metavar="WORD",
                        help="a word instead: 19601, 0x4c91 or 0b100110010010001")  # fmt: skip
    parser.add_argument("--format", type=posit_format, default="16,2", metavar="N,ES",
                        help="default: 16,2")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON")


def _code(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be an integer, not {text!r}") from None


def _run(args: argparse.Namespace) -> int:
    from trainwright.cli.errors import OptionError
    from trainwright.cli.output import to_json
    from trainwright.posit.explain import explain, explain_code, lines, parse_number, rows

    if (args.number is None) == (args.code is None):
        raise OptionError("give a number or --code WORD, one of the two")
    if args.code is None:
        found = explain(parse_number(args.number), args.format)
    else:
        found = explain_code(args.code, args.format)
    if not args.json:
        print("\n".join(lines(found)))
        return 0

    def number(x: Fraction | None) -> float | None:
        """The nearest float64; none beyond the greatest."""
        return None if x is None or abs(x) > sys.float_info.max else float(x)

    print(
        to_json(
            {
                "format": str(args.format),
                "code": found.code,
                "fields": {name: bits for name, bits, _ in rows(found)},
                "value": number(found.value),
                "error": number(found.error),
                "below": number(found.below),
                "above": number(found.above),
            }
        )
    )
    return 0


command = CommandBody(_add_arguments, _run)

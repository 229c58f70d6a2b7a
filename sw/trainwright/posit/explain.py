"""Explanation of a number as a posit or a takum, field by field, in exact rational arithmetic."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from trainwright.posit import takum, word
from trainwright.posit.format import PositError, PositFormat
from trainwright.posit.takum import TakumFields, TakumFormat
from trainwright.posit.word import Fields
from trainwright.support.text import amount, shown

Format = PositFormat | TakumFormat
_CODECS: dict[type, Any] = {PositFormat: word, TakumFormat: takum}
"""Modules with ``fields``, ``value`` and ``round_exact`` of a kind of format."""

MOST_DIGITS = 2000
"""Maximum digits of a number as text: far beyond every posit, the largest of which is 2^480."""


def parse_format(text: str) -> Format:
    """Return the format named ``16,2`` or ``takum16``. Raises ``PositError``."""
    return TakumFormat.parse(text) if "takum" in text else PositFormat.parse(text)


@dataclass(frozen=True)
class Explanation:
    """A number, the posit or takum that it rounds to, and the neighbours of that value."""

    fmt: Format
    given: Fraction | None
    """Number before rounding; ``None`` if it is not a real number."""
    code: int
    fields: Fields | TakumFields | None
    """Fields of the magnitude's word; ``None`` for 0 and NaR."""
    value: Fraction | None
    """Value after rounding; ``None`` for NaR."""
    below: Fraction | None
    """Next lower posit on the number line; ``None`` where that neighbour is NaR."""
    above: Fraction | None

    @property
    def error(self) -> Fraction | None:
        """Rounding error, value - given; ``None`` if either is not a real number."""
        return None if self.value is None or self.given is None else self.value - self.given


def _of_hexadecimal(text: str) -> Fraction:
    """Read digits that a float64 may not hold.

    ``float.fromhex`` raises the errors for text that is no number, or one out of range.
    """
    float.fromhex(text)
    digits, _, power = text.replace("0x", "").partition("p")
    whole, _, rest = digits.partition(".")
    return int(whole + rest, 16) * Fraction(2) ** (int(power or 0) - 4 * len(rest))


def parse_number(text: str) -> Fraction | None:
    """Parse a number written ``3.14159``, ``1e-7``, ``1/3`` or ``0x1.8p1``; ``None`` for NaR.

    Raises ``PositError``, also for numbers that take more than ``MOST_DIGITS`` digits to write out.
    """
    number = text.strip().lower()
    fits = len(number) <= MOST_DIGITS
    if fits and "0x" not in number and (power := re.search(r"e([+-]?\d+(_\d+)*)$", number)):
        fits = abs(int(power[1])) <= MOST_DIGITS
    if not fits:
        raise PositError(
            f"a number has at most {MOST_DIGITS} digits, exponent included, not {shown(text)}"
        )
    if number.lstrip("+-") in ("nar", "nan", "inf", "infinity"):
        return None
    try:
        if not number.isascii():  # digits of other scripts, which Fraction takes
            raise ValueError
        return _of_hexadecimal(number) if "0x" in number else Fraction(number)
    except (ValueError, ZeroDivisionError, OverflowError):
        raise PositError(
            f"a number is written 3.14159, 1e-7, 1/3 or nar, not {shown(text)}"
        ) from None


def nearest(x: Fraction | None, fmt: Format) -> int:
    """Return the code nearest to an exact number.

    The number is cut at 64 digits or more with a sticky last bit, which leaves the rounding
    correct.
    """
    if x is None:
        return fmt.nar
    shift = 64 + max(0, x.denominator.bit_length() - x.numerator.bit_length())
    size, rest = divmod(abs(x.numerator) << shift, x.denominator)
    size |= rest != 0
    return _CODECS[type(fmt)].round_exact(-size if x < 0 else size, -shift, fmt)


def explain(x: Fraction | None, fmt: Format) -> Explanation:
    """Explain how ``x`` rounds to the format."""
    return _explanation(x, nearest(x, fmt), fmt)


def explain_code(code: int, fmt: Format) -> Explanation:
    """Explain the meaning of a word. Raises ``PositError`` for codes outside the format."""
    return _explanation(_CODECS[type(fmt)].value(code, fmt), code, fmt)


def _explanation(given: Fraction | None, code: int, fmt: Format) -> Explanation:
    codec = _CODECS[type(fmt)]
    sides = (codec.value((code + step) & fmt.mask, fmt) for step in (-1, 1))
    below, above = sides if code != fmt.nar else (None, None)
    parts = codec.fields(code, fmt)
    return Explanation(fmt, given, code, parts, codec.value(code, fmt), below, above)


def spell(x: Fraction) -> str:
    """Write a number in decimal: all digits if 17 suffice, else 12 and dots.

    Assumes a denominator that is a power of two, as posits have.
    """
    exact = format(float(x), ".17g")
    return exact if Fraction(exact) == x else f"{float(x):.12g}..."


def rows(explanation: Explanation) -> list[tuple[str, str, str]]:
    """Return (field, bits, meaning) from the sign to the fraction; one row for 0 and NaR."""
    fmt, parts = explanation.fmt, explanation.fields
    if parts is None:
        return [
            (
                "word",
                format(explanation.code, f"0{fmt.n}b"),
                "0" if explanation.code == 0 else "NaR",
            )
        ]
    negative = "negative: the rest is of the two's complement" if parts.negative else "positive"
    sign = ("sign", str(int(parts.negative)), negative)
    if isinstance(parts, TakumFields):
        return [sign, *_takum_rows(parts)]
    assert isinstance(fmt, PositFormat)
    useed = 1 << (1 << fmt.es)
    run = len(parts.regime.rstrip("0" if parts.k >= 0 else "1"))
    kind = "one" if parts.k >= 0 else "zero"
    exponent = parts.scale - (parts.k << fmt.es)
    cut = fmt.es - len(parts.exponent)
    digits = parts.fraction
    return [
        sign,
        ("regime", parts.regime, f"{amount(run, kind)}: k = {parts.k}, "
         f"times {useed}^{parts.k}"),
        ("exponent", parts.exponent or "-", f"times 2^{exponent}" + _cut_off(cut)),
        ("fraction", digits or "-", f"times 1 + {int(digits or '0', 2)}/{1 << len(digits)}"),
    ]  # fmt: skip


def _cut_off(bits: int) -> str:
    return f", {amount(bits, 'bit')} cut off" if bits else ""


def _takum_rows(parts: TakumFields) -> list[tuple[str, str, str]]:
    above = parts.direction == "1"
    regime = int(parts.regime.ljust(3, "0"), 2)
    count, digits = regime if above else 7 - regime, parts.mantissa
    missing = count - len(parts.characteristic)
    return [
        ("direction", parts.direction, "1 and above" if above else "below 1"),
        ("regime", parts.regime or "-", f"{count} characteristic bits"
         + _cut_off(3 - len(parts.regime))),
        ("charact.", parts.characteristic or "-", f"times 2^{parts.scale}" + _cut_off(missing)),
        ("mantissa", digits or "-", f"times 1 + {int(digits or '0', 2)}/{1 << len(digits)}"),
    ]  # fmt: skip


def lines(explanation: Explanation) -> list[str]:
    """Format the explanation as lines of text."""
    fmt = explanation.fmt
    table = rows(explanation)
    wide = max(len(bits) for _, bits, _ in table)
    digits = (fmt.n + 3) // 4
    text = [f"{fmt}: word {explanation.code:#0{digits + 2}x} = {explanation.code:0{fmt.n}b}"]
    text += [f"  {name:9} {bits:{wide}}  {meaning}" for name, bits, meaning in table]
    if explanation.value is not None and explanation.fields is not None:
        scale, sign = explanation.fields.scale, "-" if explanation.fields.negative else ""
        ones = abs(explanation.value) / Fraction(2) ** scale
        text.append(f"value       {sign}2^{scale} x {spell(ones)} = {spell(explanation.value)}")
    if explanation.error:
        text.append(f"error       {_error(explanation)}")
    if explanation.value is not None:
        sides = [("nar" if x is None else spell(x)) for x in (explanation.below, explanation.above)]
        text.append(f"neighbours  {sides[0]} and {sides[1]}")
    return text


def beside(explanations: Sequence[Explanation]) -> list[tuple[str, ...]]:
    """Return rows of a table: names, and one column for each explanation."""
    return list(zip(*[_NAMES, *map(_column, explanations)], strict=True))


_NAMES = ("", "word", "fields", "scale", "fraction bits", "value", "error", "below", "above",
          "smallest", "largest")  # fmt: skip


def _column(explanation: Explanation) -> tuple[str, ...]:
    fmt, parts, given = explanation.fmt, explanation.fields, explanation.given
    fields = " ".join(bits for _, bits, _ in rows(explanation))
    scale = "-" if parts is None else f"2^{parts.scale}"
    fraction = parts.mantissa if isinstance(parts, TakumFields) else parts.fraction if parts else ""
    error = "-"
    if explanation.error is not None and given:
        error = f"{_number(explanation.error / given):+.3g} of the number"
    numbers = explanation.value, explanation.below, explanation.above
    value, *sides = ("nar" if x is None else spell(x) for x in numbers)
    ends = (_CODECS[type(fmt)].value(code, fmt) for code in (1, fmt.nar - 1))
    return (
        str(fmt), f"{explanation.code:#0{(fmt.n + 3) // 4 + 2}x}", fields, scale,
        str(len(fraction)) if parts else "-", value, error, *sides,
        *(f"{float(x):.3g}" for x in ends),
    )  # fmt: skip


def _error(explanation: Explanation) -> str:
    assert explanation.error is not None and explanation.given is not None
    size = f"{_number(explanation.error):+.4g}"
    if explanation.given == 0:
        return size
    fmt, note = explanation.fmt, ""
    smallest, largest = (_CODECS[type(fmt)].value(code, fmt) for code in (1, fmt.nar - 1))
    if abs(explanation.given) > largest:
        note = "; beyond maxpos, which nothing exceeds"
    elif abs(explanation.given) < smallest:
        note = "; below minpos, for nothing becomes 0"
    return f"{size}, {_number(explanation.error / explanation.given):+.3g} of the number{note}"


def _number(x: Fraction) -> float | Decimal:
    """Convert to float64, or to a decimal if float64 overflows."""
    try:
        return float(x)
    except OverflowError:
        return Decimal(x.numerator) / Decimal(x.denominator)

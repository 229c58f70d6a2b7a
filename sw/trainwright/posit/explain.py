"""One number in one format, field by field, in exact rational arithmetic."""

import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from trainwright.posit.format import PositError, PositFormat
from trainwright.posit.word import Fields, check_code, fields, round_exact, value
from trainwright.support.text import shown

MOST_DIGITS = 2000
"""Of a number: far beyond every posit, the largest of which is 2^480."""


@dataclass(frozen=True)
class Explanation:
    """What a number becomes, and why."""

    fmt: PositFormat
    given: Fraction | None
    """``None`` for what is no real number."""
    code: int
    fields: Fields | None
    """Of the magnitude's word; ``None`` for 0 and NaR."""
    value: Fraction | None
    """``None`` for NaR."""
    below: Fraction | None
    """The neighbour on the number line, ``None`` where it is NaR."""
    above: Fraction | None

    @property
    def error(self) -> Fraction | None:
        """value - given."""
        return None if self.value is None or self.given is None else self.value - self.given


def parse_number(text: str) -> Fraction | None:
    """A number as it is written: ``3.14159``, ``1e-7``, ``1/3``, ``0x1.8p1``; ``None`` for NaR.

    Raises ``PositError``, also for numbers that take more than ``MOST_DIGITS`` digits to write out.
    """
    word = text.strip().lower()
    fits = len(word) <= MOST_DIGITS
    if fits and "0x" not in word and (power := re.search(r"e([+-]?\d+(_\d+)*)$", word)):
        fits = abs(int(power[1])) <= MOST_DIGITS
    if not fits:
        raise PositError(
            f"a number has at most {MOST_DIGITS} digits, exponent included, not {shown(text)}"
        )
    if word.lstrip("+-") in ("nar", "nan", "inf", "infinity"):
        return None
    try:
        return Fraction(float.fromhex(word)) if "0x" in word else Fraction(word)
    except (ValueError, ZeroDivisionError, OverflowError):
        raise PositError(
            f"a number is written 3.14159, 1e-7, 1/3 or nar, not {shown(text)}"
        ) from None


def nearest(x: Fraction | None, fmt: PositFormat) -> int:
    """The code nearest to an exact number. It is cut at 64 digits or more, the last made odd."""
    if x is None:
        return fmt.nar
    shift = 64 + max(0, x.denominator.bit_length() - x.numerator.bit_length())
    size, rest = divmod(abs(x.numerator) << shift, x.denominator)
    size |= rest != 0
    return round_exact(-size if x < 0 else size, -shift, fmt)


def explain(x: Fraction | None, fmt: PositFormat) -> Explanation:
    """What ``x`` is rounded to."""
    return _of(x, nearest(x, fmt), fmt)


def explain_code(code: int, fmt: PositFormat) -> Explanation:
    """What a word means. Raises ``PositError`` for one that the format does not have."""
    check_code(code, fmt)
    return _of(value(code, fmt), code, fmt)


def _of(given: Fraction | None, code: int, fmt: PositFormat) -> Explanation:
    sides = (value((code + step) & fmt.mask, fmt) for step in (-1, 1))
    below, above = sides if code != fmt.nar else (None, None)
    return Explanation(fmt, given, code, fields(code, fmt), value(code, fmt), below, above)


def spell(x: Fraction) -> str:
    """In decimal, all digits if they are few; a denominator is a power of two."""
    exact = format(float(x), ".17g")
    return exact if Fraction(exact) == x else f"{float(x):.12g}..."


def rows(found: Explanation) -> list[tuple[str, str, str]]:
    """(field, bits, meaning) from the sign to the fraction; one row for 0 and NaR."""
    fmt, parts = found.fmt, found.fields
    if parts is None:
        return [("word", format(found.code, f"0{fmt.n}b"), "0" if found.code == 0 else "NaR")]
    useed = 1 << (1 << fmt.es)
    run = len(parts.regime.rstrip("0" if parts.k >= 0 else "1"))
    kind = "one" if parts.k >= 0 else "zero"
    exponent = parts.scale - (parts.k << fmt.es)
    cut = fmt.es - len(parts.exponent)
    digits = parts.fraction
    table = [
        ("sign", str(int(parts.negative)), "negative: the rest is of the two's complement"
         if parts.negative else "positive"),
        ("regime", parts.regime, f"{run} {kind}{'s' if run > 1 else ''}: k = {parts.k}, "
         f"times {useed}^{parts.k}"),
        ("exponent", parts.exponent or "-", f"times 2^{exponent}"
         + (f", {cut} bit{'s' if cut > 1 else ''} cut off" if cut else "")),
        ("fraction", digits or "-", f"times 1 + {int(digits or '0', 2)}/{1 << len(digits)}"),
    ]  # fmt: skip
    return table


def lines(found: Explanation) -> list[str]:
    """The explanation as text."""
    fmt = found.fmt
    table = rows(found)
    wide = max(len(bits) for _, bits, _ in table)
    digits = (fmt.n + 3) // 4
    text = [f"{fmt}: word {found.code:#0{digits + 2}x} = {found.code:0{fmt.n}b}"]
    text += [f"  {name:9} {bits:{wide}}  {meaning}" for name, bits, meaning in table]
    if found.value is not None and found.fields is not None:
        scale, sign = found.fields.scale, "-" if found.fields.negative else ""
        ones = abs(found.value) / Fraction(2) ** scale
        text.append(f"value       {sign}2^{scale} x {spell(ones)} = {spell(found.value)}")
    if found.error:
        text.append(f"error       {_error(found)}")
    if found.value is not None:
        sides = [("nar" if x is None else spell(x)) for x in (found.below, found.above)]
        text.append(f"neighbours  {sides[0]} and {sides[1]}")
    return text


def _error(found: Explanation) -> str:
    assert found.error is not None and found.given is not None
    size = f"{_number(found.error):+.4g}"
    if found.given == 0:
        return size
    largest = Fraction(2) ** found.fmt.max_scale
    note = ""
    if abs(found.given) > largest:
        note = "; beyond maxpos, which nothing exceeds"
    elif abs(found.given) < 1 / largest:
        note = "; below minpos, for nothing becomes 0"
    return f"{size}, {_number(found.error / found.given):+.3g} of the number{note}"


def _number(x: Fraction) -> float | Decimal:
    """In float64, or beyond its greatest in decimal digits."""
    try:
        return float(x)
    except OverflowError:
        return Decimal(x.numerator) / Decimal(x.denominator)

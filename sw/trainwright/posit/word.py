"""Fields, exact value and rounding of one posit word, in plain integers.

A datapath works in the same three steps: ``unpack``, integer arithmetic, ``round_exact``. Tests
compare both the vectorised arithmetic of this package and the hardware model with this module.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from trainwright.posit.format import PositError, PositFormat, WordFormat
from trainwright.support.text import shown


@dataclass(frozen=True)
class Fields:
    """Fields of a word other than 0 and NaR, as bit strings of the magnitude.

    ``regime`` includes the bit that ends the run, if there is one. ``exponent`` and ``fraction``
    hold the bits that fit after the regime, possibly none.
    """

    negative: bool
    regime: str
    exponent: str
    fraction: str
    k: int
    scale: int
    """k 2^es + exponent; exponent bits that were cut off count as 0."""


def check_code(code: int, fmt: WordFormat) -> int:
    """Return the code. Raises ``PositError`` outside 0 .. 2^n - 1."""
    if not 0 <= code <= fmt.mask:
        raise PositError(f"codes of {fmt} are 0 to {fmt.mask}, not {shown(code)}")
    return code


def fields(code: int, fmt: PositFormat) -> Fields | None:
    """Split a code into its fields; ``None`` for 0 and NaR.

    Raises ``PositError`` for other integers.
    """
    if check_code(code, fmt) in (0, fmt.nar):
        return None
    negative = code >= fmt.nar
    body = format(-code & fmt.mask if negative else code, f"0{fmt.n}b")[1:]  # without the sign
    run = len(body) - len(body.lstrip(body[0]))
    k = run - 1 if body[0] == "1" else -run
    rest = body[run + 1 :]
    exponent, fraction = rest[: fmt.es], rest[fmt.es :]
    scale = (k << fmt.es) + int(exponent.ljust(fmt.es, "0") or "0", 2)
    return Fields(negative, body[: run + 1], exponent, fraction, k, scale)


def unpack(code: int, fmt: PositFormat) -> tuple[int, int] | None:
    """Return (significand, exponent) with value = significand * 2^exponent; ``None`` for NaR.

    The significand is signed and includes the hidden bit; 0 is (0, 0).
    """
    parts = fields(code, fmt)
    if parts is None:
        return (0, 0) if code == 0 else None
    significand = int("1" + parts.fraction, 2)
    exponent = parts.scale - len(parts.fraction)
    return (-significand if parts.negative else significand), exponent


def value(code: int, fmt: PositFormat) -> Fraction | None:
    """Return the exact value of a code; ``None`` for NaR."""
    parts = unpack(code, fmt)
    return None if parts is None else parts[0] * Fraction(2) ** parts[1]


def round_exact(significand: int, exponent: int, fmt: PositFormat) -> int:
    """Return the code nearest to significand * 2^exponent, for any integers.

    The word is written out at full length (regime, exponent, all fraction bits) and cut to n bits:
    to nearest, ties to the even word. A magnitude above maxpos becomes maxpos; a nonzero magnitude
    below minpos becomes minpos, never 0 or NaR.
    """
    return round_by_word(significand, exponent, fmt, _word)


def round_by_word(
    significand: int, exponent: int, fmt: Any, word_of: Callable[[int, int, int, Any], int]
) -> int:
    """Round by ``word_of`` (size, length, scale, fmt), the word of 2^scale size / 2^length.

    ``fmt`` has codes in two's complement, 0 as 00..0 and NaR as 10..0; no number becomes these.
    """
    if significand == 0:
        return 0
    size = abs(significand)
    length = size.bit_length() - 1
    word = min(max(word_of(size, length, length + exponent, fmt), 1), fmt.nar - 1)
    return -word & fmt.mask if significand < 0 else word


def _word(size: int, length: int, scale: int, fmt: PositFormat) -> int:
    if scale >= fmt.max_scale:
        return fmt.nar
    if scale < -fmt.max_scale:
        return 0
    k = scale >> fmt.es
    regime, width = (((1 << (k + 1)) - 1) << 1, k + 2) if k >= 0 else (1, 1 - k)
    tail = ((scale & ((1 << fmt.es) - 1)) << length) | (size - (1 << length))
    long = (regime << (fmt.es + length)) | tail
    return cut(long, width + fmt.es + length - (fmt.n - 1))


def cut(word: int, bits: int) -> int:
    """Drop the last ``bits`` bits, rounding to nearest, ties to even; append zeros if negative."""
    if bits <= 0:
        return word << -bits
    kept, lost, half = word >> bits, word & ((1 << bits) - 1), 1 << (bits - 1)
    return kept + (lost > half or (lost == half and kept & 1 == 1))

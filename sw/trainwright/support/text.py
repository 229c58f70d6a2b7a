"""Text for people that stays short, whatever was read."""

from collections.abc import Iterable
from difflib import get_close_matches

MOST_SHOWN = 100
"""Characters of a value in a message."""


def shortened(text: str, most: int) -> str:
    """Limit text to ``most`` characters: its start, and its end, where the remedy is."""
    if len(text) <= most:
        return text
    gap = f" ... ({len(text):,} characters) ... "
    begin = (most - len(gap)) * 2 // 3
    return text[:begin] + gap + text[len(text) - (most - len(gap) - begin) :]


def shown(value: object) -> str:
    """Return ``repr`` of a value, cut where it is long, for error messages about data read.

    An integer of thousands of digits, whose ``repr`` Python refuses, is described by its bits.
    """
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        bits = f" of {value.bit_length():,} bits" if isinstance(value, int) else ""
        return f"<{type(value).__name__}{bits}>"
    return shortened(text, MOST_SHOWN)


def suggestion(word: object, choices: Iterable[str]) -> str:
    """Return "; did you mean 'ranks'?" for the choice closest to a misspelt word, else ""."""
    if not isinstance(word, str):
        return ""
    known = {choice.lower(): choice for choice in choices}
    close = get_close_matches(word.lower(), known, n=1)
    return f"; did you mean {known[close[0]]!r}?" if close else ""


def read_integer(text: str, base: int = 10) -> int:
    """Read an integer in digits 0 to 9, where ``int`` takes those of other scripts, too.

    Raises ``ValueError``.
    """
    return int(_ascii(text), base)


def read_number(text: str) -> float:
    """Read a number in digits 0 to 9, as `read_integer`. Raises ``ValueError``."""
    return float(_ascii(text))


def _ascii(text: str) -> str:
    if not text.isascii():
        raise ValueError(f"must be a number in digits 0 to 9, not {shown(text)}")
    return text


def plural(count: float, noun: str) -> str:
    """Return the form of a noun after a count: "sample", "samples", "batches", "entries".

    >>> plural(1, "batch"), plural(0, "batch"), plural(2, "entry"), plural(2, "day")
    ('batch', 'batches', 'entries', 'days')
    >>> plural(2, "matrix")
    'matrices'
    """
    if count == 1:
        return noun
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return noun[:-1] + "ies"
    if noun.endswith("ix"):
        return noun[:-2] + "ices"
    return noun + ("es" if noun.endswith(("s", "x", "z", "sh", "tch", "nch")) else "s")


def amount(count: float, noun: str) -> str:
    """Return a count with its noun: "1 sample", "1,000 samples".

    >>> amount(1, "training step"), amount(1797, "sample"), amount(0.5, "epoch")
    ('1 training step', '1,797 samples', '0.5 epochs')
    """
    number = f"{count:g}" if isinstance(count, float) else f"{count:,}"
    return f"{number} {plural(count, noun)}"

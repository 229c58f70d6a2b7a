"""Text for people that stays short, whatever was read."""

from collections.abc import Iterable
from difflib import get_close_matches

MOST_SHOWN = 100
"""Characters of a value in a message."""


def shortened(text: str, most: int) -> str:
    """Limit text to so many characters: its start, and its end, where the remedy is."""
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


def suggestion(word: str, choices: Iterable[str]) -> str:
    """Return "; did you mean 'ranks'?" for the choice closest to a misspelt word, else ""."""
    known = {choice.lower(): choice for choice in choices}
    close = get_close_matches(word.lower(), known, n=1)
    return f"; did you mean {known[close[0]]!r}?" if close else ""

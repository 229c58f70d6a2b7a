"""Text for people that stays short, whatever was read."""

MOST_SHOWN = 60
"""Characters of a value in a message."""


def shown(value: object) -> str:
    """``repr`` of a value, cut where it is long: for error messages about what was read.

    An integer of thousands of digits, whose ``repr`` Python refuses, is told by its bits.
    """
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        bits = f" of {value.bit_length():,} bits" if isinstance(value, int) else ""
        return f"<{type(value).__name__}{bits}>"
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}... ({len(text):,} characters)"

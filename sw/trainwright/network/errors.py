"""Errors of a network's description, which name the value and the remedy."""

from collections.abc import Sequence

from trainwright.support.errors import UserError
from trainwright.support.text import shown


class NetworkError(UserError, ValueError):
    """An invalid network description, with the offending value and the remedy.

    >>> import trainwright.nn as tnn
    >>> tnn.TTLinear(64, 0)
    Traceback (most recent call last):
    trainwright.network.errors.NetworkError: out_features must be an integer of at least 1, not 0
    """


def require(condition: bool, message: str) -> None:
    """Raise ``NetworkError`` unless a condition holds."""
    if not condition:
        raise NetworkError(message)


def row(sizes: Sequence[int]) -> str:
    """Write sizes as people read them."""
    return shown(list(sizes))

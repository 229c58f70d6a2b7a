"""Types of option values, and options that several commands share."""

import argparse
from collections.abc import Sequence
from typing import Any

from ttforge.cli.errors import OptionError
from ttforge.parameters import AcceleratorParameters


def positive(text: str) -> int:
    """An integer of at least 1."""
    value = _integer(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {text}")
    return value


def natural(text: str) -> int:
    """An integer of at least 0."""
    value = _integer(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"must be at least 0, not {text}")
    return value


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be an integer, not {text!r}") from None


def number(text: str) -> float:
    """A finite number."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not abs(value) < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number, not {text!r}")
    return value


def add_accelerator_options(parser: Any) -> None:
    """Options that say what accelerator to make; read by ``accelerator_parameters``."""
    parser.add_argument(
        "--accelerator",
        metavar="NAME=N",
        action="append",
        help="a size of the accelerator other than its default, such as lanes=8 (repeatable)",
    )


def accelerator_parameters(given: Sequence[str] | None, factor_width: int) -> AcceleratorParameters:
    """The accelerator asked for, with factors as wide as the network has them.

    Raises ``OptionError`` for an unknown name or a value out of range.
    """
    values: dict[str, Any] = {"factor_width": factor_width}
    known = AcceleratorParameters.__dataclass_fields__
    for item in given or []:
        name, separator, text = item.partition("=")
        if not separator or not text.strip().isdecimal():
            raise OptionError(f"--accelerator takes NAME=N, such as lanes=8, not {item!r}")
        if name not in known:
            raise OptionError(f"--accelerator: no {name!r}; there are {', '.join(known)}")
        values[name] = int(text)
    try:
        return AcceleratorParameters(**values)
    except ValueError as error:
        raise OptionError(f"--accelerator: {error}") from None

"""Types of option values, and options that several commands share."""

import argparse
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from trainwright.cli.errors import OptionError
from trainwright.data.own import TASKS
from trainwright.formats.parse import ALLOWED
from trainwright.network import Network, NetworkError, rank_bounds
from trainwright.parameters import (
    CODED_ACCUMULATOR,
    PRESETS,
    AcceleratorParameters,
    parse_overrides,
)

if TYPE_CHECKING:
    from trainwright.posit.format import PositFormat


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


def posit_format(text: str) -> "PositFormat":
    """A posit format such as ``16,2``."""
    from trainwright.posit.format import PositError, PositFormat

    try:
        return PositFormat.parse(text)
    except PositError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def number(text: str) -> float:
    """A finite number."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not abs(value) < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number, not {text!r}")
    return value


def add_data_options(parser: Any) -> None:
    """``--data`` and ``--download``: where a data set's files are."""
    parser.add_argument(
        "--data",
        metavar="DIR",
        help="folder of the data set's files (default: TRAINWRIGHT_DATA), or data of your own: "
        ".npz, .csv, .tsv, .parquet, .txt, a folder of pictures (docs/guide/data.md)",
    )
    parser.add_argument(
        "--download", action="store_true", help="fetch the data set's files where they are not"
    )


def image_size(text: str) -> tuple[int, int]:
    """Rows and columns as ``28x28``."""
    rows, _, columns = text.lower().partition("x")
    if not (rows.isdecimal() and columns.isdecimal() and 0 < int(rows) * int(columns) <= 1 << 20):
        raise argparse.ArgumentTypeError(f"must be ROWSxCOLUMNS such as 28x28, not {text!r}")
    return int(rows), int(columns)


def add_own_data_options(parser: Any) -> None:
    """Declare what a user may say of tables and pictures of their own."""
    group = parser.add_argument_group("data of your own (docs/guide/data.md)")
    group.add_argument(
        "--target",
        metavar="COLUMN",
        help="of a table: what to predict (default: target, label, class, or the last column)",
    )
    group.add_argument(
        "--task",
        choices=TASKS,
        help="of a table: predict a class or a number (default: a number where the targets have "
        "fractions or are over 256 different numbers)",
    )
    group.add_argument(
        "--ignore", metavar="COLUMN", action="append", help="of a table: leave out (repeatable)"
    )
    group.add_argument(
        "--category",
        metavar="COLUMN",
        action="append",
        help="of a table: numbers that are names, an input each (repeatable)",
    )
    group.add_argument(
        "--image-size",
        type=image_size,
        metavar="ROWSxCOLUMNS",
        help="resize pictures (default: as they are, all of one size)",
    )


def add_network_argument(parser: argparse.ArgumentParser) -> None:
    """The network as a positional argument."""
    parser.add_argument(
        "network",
        nargs="?",
        default="digits",
        metavar="NETWORK",
        help="digits, fashion or a TOML file (default: digits)",
    )


def add_plan_option(parser: argparse.ArgumentParser) -> None:
    """Which plan to compile by."""
    parser.add_argument(
        "--plan",
        default="auto",
        metavar="PLAN",
        help="auto: contraction orders, layouts and tiling searched, see `trainwright plan`; "
        "paper: the contraction order of the paper, the rest searched; small: as auto, with less "
        "external memory, as the backward pass makes partial products again (default: auto)",
    )


def check_chip_plan(plan: str) -> None:
    """Raise ``OptionError`` for plans whose programs an update on the chip does not go with."""
    from trainwright.compiler.base.compiled import IN_ROWS

    if plan not in IN_ROWS:
        raise OptionError(
            f"--update chip takes --plan {' or '.join(IN_ROWS)}, not {plan}: leave --plan away"
        )


def ranks(text: str) -> tuple[tuple[int, ...], ...]:
    """Ranks as ``12,5,13|16``: a layer's separated by commas, layers by bars; or one for all."""
    try:
        return tuple(tuple(int(rank) for rank in layer.split(",")) for layer in text.split("|"))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"must be ranks such as '12,5,13|16', a layer's separated by commas, layers by bars, "
            f"not {text!r}"
        ) from None


def add_ranks_option(parser: argparse.ArgumentParser) -> None:
    """Ranks other than the network's own; read by ``with_ranks``."""
    parser.add_argument(
        "--ranks",
        type=ranks,
        metavar="R",
        help="other TT ranks, such as '12,5,13|16': a layer's separated by commas, layers by bars; "
        "a single one is of every bond that can have it",
    )


def with_ranks(network: Network, given: tuple[tuple[int, ...], ...] | None) -> Network:
    """The network with the ranks asked for; a single one is of all bonds, none over its bound."""
    if given is None:
        return network
    if len(given) == len(given[0]) == 1 and given[0][0] >= 1:
        bounds = (rank_bounds(layer.outputs, layer.inputs) for layer in network.layers)
        given = tuple(tuple(min(given[0][0], bound) for bound in layer) for layer in bounds)
    return network.with_ranks(given)


def add_formats_option(parser: Any) -> None:
    """Number formats other than the network's own; read by ``with_formats``."""
    parser.add_argument(
        "--formats",
        metavar="F",
        help="number formats of classes of tensors (factor, activation, intermediate, gradient), "
        "or of single factors and activations by name, such as "
        "'activation=posit(8,0),l1.G2=fixed(8)'; and underflow=never, zero or gradients. Formats: "
        f"{ALLOWED}",
    )


def with_formats(network: Network, given: str | None) -> Network:
    """The network with the formats asked for. Raises ``OptionError``."""
    if given is None:
        return network
    try:
        return network.with_formats(given)
    except NetworkError as error:
        raise OptionError(f"--formats: {str(error).removeprefix('formats: ')}") from None


def _default_sizes(network: Network) -> dict[str, Any]:
    """Sizes of an accelerator that follow from a network."""
    sizes: dict[str, Any] = {"factor_width": network.factor_width}
    if network.coded_used:
        sizes["formats"] = tuple(dict.fromkeys(str(fmt) for _, fmt in network.coded_used))
        try:
            AcceleratorParameters(formats=sizes["formats"])
        except ValueError as error:
            raise OptionError(f"--formats: {error}") from None
    return sizes


def add_accelerator_options(parser: Any, *, explained: bool = False) -> None:
    """Options that say what accelerator to make; read by ``accelerator_parameters``.

    ``explained``: in a group of their own, with all sizes and presets.
    """
    where = "see `trainwright check --help`"
    if explained:
        from trainwright.cli.sizes import describe_sizes

        parser = parser.add_argument_group("the accelerator", describe_sizes())
        where = "see the list above"
    parser.add_argument(
        "--accelerator",
        metavar="NAME=N",
        action="append",
        help="a size of the accelerator other than its default, such as lanes=8 (repeatable); "
        f"names, ranges and presets: {where}",
    )
    parser.add_argument(
        "--preset",
        metavar="DEVICE",
        dest="accelerator",
        action="append",
        type="preset={}".format,
        help=f"the sizes for a device: {', '.join(PRESETS)} (default: {next(iter(PRESETS))})",
    )


ALONE = {"vector_engine": 1, "exponents": 64, "sample_loads": 1}
"""Sizes of an accelerator that trains alone: it updates, repeats steps and fetches samples."""

_UPDATES = {
    "alone": "the accelerator trains alone, as it has "
    + ", ".join(f"{name}={value}" for name, value in ALONE.items())
    + "; vector_engine=0 leaves loss and update to the host",
    "engine": "the accelerator's vector engine computes loss and update, and the host starts each "
    "step; exponents=64 and sample_loads=1 let the accelerator train alone",
    "host": "the host computes loss and update, as the accelerator has no vector engine; "
    "vector_engine=1 adds one",
}


_ASKED = "--update chip asks for vector_engine=1, and vector_engine=0 leaves it to the host"


def update_place(p: AcceleratorParameters) -> str:
    """Return where ``--update chip`` computes on this accelerator: alone, engine or host."""
    if not p.vector_engine:
        return "host"
    return "alone" if p.exponents and p.sample_loads else "engine"


def tell_update_place(p: AcceleratorParameters) -> None:
    """Print one line to the standard error: where ``--update chip`` computes."""
    print(f"trainwright: --update chip: {_UPDATES[update_place(p)]}", file=sys.stderr)


def accelerator_parameters(
    given: Iterable[str] | None,
    network: Network | None = None,
    *,
    stochastic: bool = False,
    alone: bool = False,
) -> AcceleratorParameters:
    """Return the accelerator asked for, by default with the factor width and posits of ``network``.

    ``stochastic`` is the default of its ``stochastic_rounding``. ``alone`` (``--update chip``):
    the defaults are ``ALONE``, unless a preset says what a device has or ``vector_engine`` is 0.
    A network with element-wise functions asks for a vector engine likewise.
    Raises ``OptionError`` for an unknown name or a value out of range.
    """
    items = list(given or ())
    default: dict[str, Any] = {} if network is None else _default_sizes(network)
    if stochastic and default.get("formats"):
        raise OptionError(
            f"--rounding-mode: stochastic rounding is of fixed point alone, the network has "
            f"{', '.join(default['formats'])}: choose nearest, or formats such as fixed(8)"
        )
    if network is not None and network.functions and default.get("formats"):
        raise OptionError(
            f"--formats: {network.functions[0].text} works with fixed point only, the network has "
            f"{', '.join(default['formats'])}: choose formats such as fixed(8), or leave the "
            "function out"
        )
    default |= {"stochastic_rounding": 1} if stochastic else {}
    try:
        overrides = parse_overrides(items)
        preset = any(item.startswith("preset=") for item in items)
        if network is not None and network.functions and not preset:
            default |= {"vector_engine": 1}
        if alone and not preset and overrides.get("vector_engine", 1):
            default |= ALONE
        sizes = default | overrides
        if network is not None and not any(item.startswith("factor_width") for item in items):
            word_width = sizes.get("word_width", AcceleratorParameters.word_width)
            sizes["factor_width"] = min(sizes["factor_width"], word_width)
        if sizes.get("formats") and not any(item.startswith("accumulator_width") for item in items):
            width = sizes.get("accumulator_width", AcceleratorParameters.accumulator_width)
            sizes["accumulator_width"] = max(width, CODED_ACCUMULATOR)
        return AcceleratorParameters(**sizes)
    except ValueError as error:
        option = "--preset" if "preset" in str(error) else "--accelerator"
        asked = "vector_engine" in str(error) and not any("vector_engine" in item for item in items)
        functions = network.functions if network else ()
        reason = _ASKED if alone else f"{functions[0].text} needs it" if functions else ""
        place = f"; {reason}" if asked else ""
        raise OptionError(f"{option}: {error}{place}") from None

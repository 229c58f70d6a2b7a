"""Options that several commands share, and what follows from them."""

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

from trainwright.cli.errors import OptionError
from trainwright.formats.parse import allowed
from trainwright.network import Network, NetworkError, load_network, rank_bounds
from trainwright.parameters import (
    CODED_ACCUMULATOR,
    PRESETS,
    WORD_WIDTHS,
    AcceleratorParameters,
    parse_overrides,
)
from trainwright.support.errors import errors_as
from trainwright.support.settings import Natural, OneOf, Option, Positive, SettingsModel, Threads
from trainwright.support.text import read_integer

if TYPE_CHECKING:
    from trainwright.posit.format import PositFormat

Ranks = tuple[tuple[int, ...], ...]


def parse_posit(text: str) -> "PositFormat":
    """Read a posit format such as ``16,2``."""
    from trainwright.posit.format import PositFormat

    return PositFormat.parse(text)


PositOption = Annotated[Any, Option(metavar="N,ES", parse=parse_posit)]


def parse_ranks(text: str) -> Ranks:
    """Read ranks as ``12,5,13|16``: a layer's separated by commas, layers by bars."""
    try:
        ranks = tuple(
            tuple(map(read_integer, layer.split(","))) if layer.strip() else ()
            for layer in text.split("|")
        )
        if not any(ranks) or min(min(layer, default=1) for layer in ranks) < 1:
            raise ValueError
        return ranks
    except ValueError:
        raise ValueError(
            "must be ranks such as '12,5,13|16', each at least 1, a layer's separated by commas, "
            f"layers by bars, not {text!r}"
        ) from None


class DataOptions(SettingsModel):
    """Place of a data set's files."""

    data: Annotated[str | None, Option(metavar="DIR")] = None
    """folder of the data set's files (default: TRAINWRIGHT_DATA), or data of your own: .npz, .csv,
    .tsv, .parquet, .txt, a folder of pictures or text (docs/guide/data.md)"""
    download: bool = False
    """fetch the data set's files where they are not"""


class NumberOptions(SettingsModel):
    """Number formats other than the network's own."""

    formats: Annotated[str | None, Option(metavar="F", note=f" Formats: {allowed()}")] = None
    """number formats of classes of tensors (factor, activation, intermediate, gradient), or of
    single factors and activations by name, such as 'activation=posit(8,0),l1.G2=fixed(8)'; for
    posits underflow=never, zero or gradients."""


class FormOptions(NumberOptions):
    """Ranks and number formats other than the network's own."""

    ranks: Annotated[Ranks | None, Option(metavar="R", parse=parse_ranks)] = None
    """other TT ranks, such as '12,5,13|16': a layer's separated by commas, layers by bars; a single
    rank applies to every bond that can have it"""

    def network_named(self, name: str) -> Network:
        """Load a network in the form asked for. Raises ``OptionError``, ``NetworkError``."""
        return with_ranks(with_formats(load_network(name), self.formats), self.ranks)


class AcceleratorOptions(SettingsModel):
    """Sizes of the accelerator; read by ``accelerator_parameters``."""

    accelerator: Annotated[tuple[str, ...], Option(metavar="NAME=N")] = ()
    """size of the accelerator other than its default, such as lanes=8 (repeatable); names, ranges
    and presets: see `trainwright check --help`"""
    preset: Annotated[
        tuple[str, ...],
        Option(
            metavar="DEVICE",
            into="accelerator",
            parse="preset={}".format,
            note=f": {', '.join(PRESETS)} (default: {next(iter(PRESETS))})",
        ),
    ] = ()
    """sizes for a device"""


class NetworkOptions(SettingsModel):
    """Network as the first argument, and samples of a batch."""

    network: Annotated[str, Option(metavar="NETWORK", positional=True)] = "digits"
    """built-in network, such as digits or fashion, or a TOML file"""
    batch: Positive = 64
    """samples of a batch"""


class PlanOptions(SettingsModel):
    """Plan to compile by."""

    plan: str = "auto"
    """auto: contraction orders, layouts and tiling searched, see `trainwright plan`; paper: the
    contraction order of the paper, the rest searched; small: like auto with less external memory,
    because the backward pass makes partial products again"""


class StepOptions(NetworkOptions, FormOptions, PlanOptions, AcceleratorOptions):
    """Training step to compile, and the accelerator to compile for."""


class UpdateOptions(SettingsModel):
    """Place of loss and update in the step that a command looks at."""

    update: Annotated[str, OneOf(("host", "chip"))] = "host"
    """chip: a step with loss and update on the accelerator, as in `train --update chip`"""


class SeedOptions(SettingsModel):
    """Seed of a command's random operands."""

    seed: Natural = 0
    """seed of the random operands"""


class WideOptions(SettingsModel):
    """Tables that are not fitted to the terminal."""

    wide: bool = False
    """print all columns, a line a row, by the names that programs and --json have"""

    def __post_init__(self) -> None:
        if self.wide and getattr(self, "json", False):
            raise OptionError(
                "--wide only applies to tables, and --json prints none: omit one of them"
            )


class JsonOptions(SettingsModel):
    """Results for programs."""

    json: bool = False
    """print one JSON object, and no tables"""


class ThreadOptions(SettingsModel):
    """Processor threads of a measurement."""

    threads: Threads = 1
    """processor threads of torch"""


def check_chip_plan(plan: str) -> None:
    """Reject plans whose programs do not go with an update on the chip."""
    from trainwright.compiler.base.compiled import IN_ROWS

    if plan not in IN_ROWS:
        raise OptionError(
            f"--update chip takes --plan {' or '.join(IN_ROWS)}, not {plan}: omit --plan"
        )


def accelerator_and_place(
    options: Any, network: Network, *, stochastic: bool = False
) -> tuple[AcceleratorParameters, str]:
    """Return the accelerator of a step, and its place of loss and update (``check.parts.PARTS``).

    ``options`` are ``StepOptions`` with ``update``, host or chip. Raises ``OptionError`` for chip
    and an accelerator that leaves loss and update to the host.
    """
    on_chip = options.update == "chip"
    p = accelerator_parameters(options.accelerator, network, stochastic=stochastic, alone=on_chip)
    if not on_chip:
        return p, "host"
    from trainwright.compiler.step.rows import require_chip

    check_chip_plan(options.plan)
    require_chip(network, p)
    if update_place(p) == "host":
        raise OptionError(
            f"--update chip takes an accelerator that trains alone: give {sizes_alone(network)} "
            "with --accelerator, or omit --update chip"
        )
    tell_update_place(p, network)
    return p, "alone"


def with_ranks(network: Network, given: Ranks | None) -> Network:
    """Return the network with ranks; a single rank applies to all bonds, up to their bounds."""
    if given is None:
        return network
    if len(given) == len(given[0]) == 1 and given[0][0] >= 1:
        bounds = (rank_bounds(layer.outputs, layer.inputs) for layer in network.layers)
        given = tuple(tuple(min(given[0][0], bound) for bound in layer) for layer in bounds)
    return network.with_ranks(given)


def with_formats(network: Network, given: str | None) -> Network:
    """Return the network with number formats. Raises ``OptionError``."""
    if given is None:
        return network
    try:
        return network.with_formats(given)
    except NetworkError as error:
        raise OptionError(f"--formats: {str(error).removeprefix('formats: ')}") from None


def _default_sizes(network: Network) -> dict[str, Any]:
    """Return the sizes of an accelerator that follow from a network."""
    sizes: dict[str, Any] = {"factor_width": network.factor_width}
    if network.coded_used:
        sizes["formats"] = tuple(dict.fromkeys(str(fmt) for _, fmt in network.coded_used))
        with errors_as("--formats", OptionError, ValueError):
            AcceleratorParameters(formats=sizes["formats"])
    return sizes


ALONE = {"vector_engine": 1, "exponents": 64, "sample_loads": 1}
"""Sizes of an accelerator that trains alone: it updates, repeats steps and fetches samples."""
_TOKENS = {"exponents": 256, "statistics_depth": 128}
"""Fewest slots of the default for networks of tokens; more where a network needs more."""

_UPDATES = {
    "alone": "the accelerator trains alone, as it has {}; exponents=0 leaves loss and update to "
    "the host",
    "host": "the host computes loss and update; {} let the accelerator train alone",
    "parts": "the host computes loss and update, as it adds the gradients of --micro-batches",
}


_ASKED = "--update chip asks for vector_engine=1, and vector_engine=0 leaves it to the host"


def _alone(network: Network | None) -> dict[str, int]:
    """Return the sizes with which an accelerator trains a network alone."""
    if network is None:
        return ALONE
    from trainwright.compiler.chip.exponents import slots_lacking

    sizes = ALONE | (_TOKENS if network.tokens > 1 else {})
    return sizes | slots_lacking(network, sizes)


def sizes_alone(network: Network) -> str:
    """Return the sizes of an accelerator that trains a network alone, for messages."""
    return ", ".join(f"{name}={value}" for name, value in _alone(network).items())


def update_place(p: AcceleratorParameters) -> str:
    """Return where ``--update chip`` computes on this accelerator: alone, or on the host."""
    return "alone" if all(getattr(p, name) for name in ALONE) else "host"


def tell_update_place(p: AcceleratorParameters, network: Network, *, parts: bool = False) -> None:
    """Print one line to the standard error: where ``--update chip`` computes."""
    kind = "parts" if parts else update_place(p)
    sizes = ", ".join(f"{name}={int(getattr(p, name))}" for name in ALONE)
    sizes = sizes if kind == "alone" else sizes_alone(network)
    print(f"trainwright: --update chip: {_UPDATES[kind].format(sizes)}", file=sys.stderr)


def accelerator_parameters(
    given: Iterable[str] | None,
    network: Network | None = None,
    *,
    stochastic: bool = False,
    alone: bool = False,
    narrow: bool = False,
) -> AcceleratorParameters:
    """Return the accelerator asked for, by default with the factor width and posits of ``network``.

    ``stochastic`` is the default of its ``stochastic_rounding``. ``alone`` (``--update chip``):
    the defaults train alone, unless a preset says what a device has or ``vector_engine`` is 0.
    ``narrow`` (``--product``): words of 8 bits, and results of 16 on these.
    A network with functions or scales asks for a vector engine likewise.
    Raises ``OptionError`` for an unknown name or a value out of range.
    """
    items = list(given or ())
    default: dict[str, Any] = {} if network is None else _default_sizes(network)
    if stochastic and default.get("formats"):
        raise OptionError(
            f"--rounding-mode: stochastic rounding is for fixed point only, the network has "
            f"{', '.join(default['formats'])}: choose nearest, or formats such as fixed(8)"
        )
    default |= {"stochastic_rounding": 1} if stochastic else {}
    try:
        overrides = parse_overrides(items)
        preset = any(item.startswith("preset=") for item in items)
        if network is not None and network.needs_vector_engine and not preset:
            default |= {"vector_engine": 1}
        if alone and not preset and overrides.get("vector_engine", 1):
            default |= _alone(network)
        if narrow:
            default |= {} if preset else {"word_width": min(WORD_WIDTHS)}
            width = (default | overrides).get("word_width", AcceleratorParameters.word_width)
            default |= {"wide_tensors": 1} if width == min(WORD_WIDTHS) else {}
        sizes = default | overrides
        if network is not None and not any(item.startswith("factor_width") for item in items):
            word_width = sizes.get("word_width", AcceleratorParameters.word_width)
            sizes["factor_width"] = min(sizes["factor_width"], word_width)
        if sizes.get("formats") and not any(item.startswith("accumulator_width") for item in items):
            width = sizes.get("accumulator_width", AcceleratorParameters.accumulator_width)
            sizes["accumulator_width"] = max(width, CODED_ACCUMULATOR)
        parameters = AcceleratorParameters(**sizes)
    except ValueError as error:
        option = "--preset" if "preset" in str(error) else "--accelerator"
        asked = "vector_engine" in str(error) and not any("vector_engine" in item for item in items)
        functions = network.functions if network else ()
        reason = _ASKED if alone else f"{functions[0].text} needs it" if functions else ""
        place = f"; {reason}" if asked else ""
        raise OptionError(f"{option}: {error}{place}") from None
    if stochastic and not parameters.stochastic_rounding:
        raise OptionError(
            "--rounding-mode asks for stochastic rounding and --accelerator stochastic_rounding=0 "
            "has none: omit one of them"
        )
    return parameters

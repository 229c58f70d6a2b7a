"""Options of ``trainwright train``, and the settings that they make."""

import argparse
from dataclasses import field
from typing import Annotated, Any

from msgspec import Meta

from trainwright.cli.backend import SimulationOptions
from trainwright.cli.declare import add_options, describe, given_values
from trainwright.cli.errors import OptionError
from trainwright.cli.options import AcceleratorOptions, FormOptions, Threads
from trainwright.data.own import OwnOptions
from trainwright.network import BUILT_IN
from trainwright.support.errors import errors_as
from trainwright.support.settings import Natural, OneOf, Option, Positive, SettingField, settings_of
from trainwright.train.settings import ChipSettings, PriorSettings, TrainSettings

RECIPES: dict[str, dict[str, Any]] = {
    "digits": {"epochs": 20, "learning_rate": 1e-2, "prior_weight": 0.25},
    "fashion-mnist": {"epochs": 30, "learning_rate": 4e-3, "prior_weight": 0.5},
    "": {"epochs": 10, "learning_rate": 4e-3, "prior_weight": 0.5},
}
"""Defaults by data set, "" for any other."""

CHIP_RATES = {"esgd": 0.45, "momentum": 0.5}
"""Default learning rates of an update on the chip, by optimiser: in units of a hidden bit for each
sixteenth of a gradient's integer, and of its value."""

CHIP_INTERVAL = 8
"""Default of steps between two cuts on the chip: where ``onchip.prior.INTERVAL`` divides it, sums
of squares are taken, and coefficients renewed, in only one of eight steps."""

LEAST_SAMPLES = 5700
"""Training samples for each unit of the default prior weight: with fewer it is less. The loss is a
mean over samples and the prior weighs 1 / samples, so that on little data it would outweigh the
loss, cut every rank and leave a network that knows only the most frequent class."""

UPDATES = ("host", "chip")


class RunOptions(OwnOptions):
    """Facts of a run in addition to its settings.

    Only ``dataset``, ``plan`` and ``accelerator`` decide bits: a plan that is searched for other
    sizes may sum in another order.
    """

    dataset: Annotated[str, Option(metavar="NAME")]
    """data set (default: the network's own)"""
    data: Annotated[str | None, Option(metavar="DIR")] = None
    """folder of the data set's files (default: TRAINWRIGHT_DATA), or data of your own: .npz, .csv,
    .tsv, .parquet, .txt, a folder of pictures or text (docs/guide/data.md)"""
    backend: Annotated[str, Option(metavar="NAME")] = "golden"
    """golden (exact model) or rtl (hardware, simulated cycle by cycle)"""
    plan: str = "auto"
    """auto, paper or small, see `trainwright plan`"""
    accelerator: Annotated[tuple[str, ...], Option(internal=True)] = ()
    memory: Annotated[dict[str, float], Option(internal=True)] = field(default_factory=dict)
    engine: Annotated[str | None, Option(internal=True)] = None
    verify: Natural = 0
    """compare every N-th step with the golden model, tensor by tensor (default: 0, never)"""
    test_samples: Positive | None = None
    """classify only the first N test samples"""
    command: Annotated[str, Option(internal=True)] = ""
    """Command line that began the run."""
    log: Annotated[tuple[str, ...], Option(metavar="NAME")] = ()
    """further places of curves: csv (OUT/curves.csv), tensorboard (both stored for --resume), or
    MODULE:CLASS of your own, see docs/guide/sweeps.md"""
    tt_round: Annotated[Annotated[float, Meta(ge=0, lt=1)] | None, Option(metavar="T")] = None
    """TT rounding after training, changing each matrix by at most this part; plots other tolerances
    next to the rank prior"""
    tt_round_epochs: Natural = 0
    """train rounded models further"""
    tt_round_beside: Annotated[tuple[str, ...], Option(metavar="DIR")] = ()
    """show a finished run in the same picture"""


class SessionOptions(FormOptions):
    """Train a network.

    Forward and backward passes run on the accelerator, softmax, Adam and the rank prior on the
    host. Equal options give equal bits on every back end.

    Examples
    --------
      trainwright train --network digits --out runs/digits
      trainwright train --network digits --backend rtl --verify 50
      trainwright train --network fashion --data ~/data --epochs 5 --prior-weight 1.2
      trainwright train --resume --out runs/digits             go on with an interrupted run

    The output folder gets report.html (curves, ranks, cycles, confusion matrix, samples),
    pictures/, model.safetensors, result.json and history.jsonl; while training,
    checkpoint.safetensors and a growing history.jsonl. Ctrl-C finishes the step, leaves a
    checkpoint and says how to go on; twice abandons the step.
    """

    network: Annotated[str | None, Option(metavar="NAME", note=f" {', '.join(BUILT_IN)}")] = None
    """a TOML file (default: digits; one hidden layer of the right size for data of
    your own), or one of"""
    initial: Annotated[str | None, Option(metavar="FILE")] = None
    """start from factors that trainwright compress made"""
    download: bool = False
    """fetch the data set's files where they are not"""
    numbers: Annotated[str | None, OneOf(("fixed", "float32"))] = None
    """fixed: the integers of the accelerator; float32: without an accelerator, to compare with
    (default: fixed)"""
    update: Annotated[str | None, OneOf(UPDATES)] = None
    """loss, optimiser, prior and cuts: in floats on the host, or in integers as the chip does them
    (default: host)"""
    prior: bool | None = None
    """shrink the ranks while training (default: yes)"""
    out: Annotated[str | None, Option(metavar="DIR")] = None
    """folder of the results (default: runs/NETWORK)"""
    prepared: Annotated[str | None, Option(hidden=True)] = None
    """file with the data; given only by sweeps"""
    resume: bool = False
    """continue the run in --out with the options it began with"""
    force: bool = False
    """replace the run in --out"""
    json: bool = False
    """print one JSON object at the end, and nothing else"""
    tensorboard: Annotated[
        tuple[str, ...],
        Option(into="log", arguments={"action": "append_const", "const": "tensorboard"}),
    ] = ()
    """--log tensorboard: event files in OUT/tensorboard"""
    checkpoint_seconds: Annotated[float, Meta(ge=0), Option(metavar="S")] = 30.0
    """seconds between two checkpoints"""
    threads: Threads = 1
    """threads of torch; more are slower on networks this small"""


STORED: tuple[tuple[type, str], ...] = (
    (TrainSettings, ""),
    (PriorSettings, "prior"),
    (ChipSettings, "chip"),
)
"""Settings classes that decide the bits, with the fields of ``TrainSettings`` that hold them."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare all options. A stored option that is not given is None."""
    describe(parser, SessionOptions)
    add_options(parser, SessionOptions)
    add_options(parser, RunOptions, given=True)
    add_settings(parser)
    add_options(parser, SimulationOptions, title=SimulationOptions.TITLE)


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Declare the settings that decide the bits, and those of the accelerator."""
    titles = "training", "rank prior", "update on the chip (--update chip)"
    for title, (kind, _) in zip(titles, STORED, strict=True):
        add_options(
            parser, kind, title=f"{title}; decides the bits, stored for --resume", given=True
        )
    add_options(parser, AcceleratorOptions, title="the accelerator", given=True)
    rates = ", ".join(f"{optimiser} {rate:g}" for optimiser, rate in CHIP_RATES.items())
    notes = {
        "epochs": f"by data set: {_by_data_set('epochs')}",
        "lr": f"by data set: {_by_data_set('learning_rate')}; on the chip {rates}",
        "prior_weight": f"by data set: {_by_data_set('prior_weight')}; at most training samples / "
        f"{LEAST_SAMPLES}",
        "rank_interval": f"{PriorSettings.interval}; on the chip {CHIP_INTERVAL}",
    }
    for action in parser._actions:
        if action.dest in notes:
            text, _, _ = (action.help or "").partition(" (default")
            action.help = f"{text} (default: {notes[action.dest]})"


def _by_data_set(name: str) -> str:
    return ", ".join(f"{data or 'others'} {recipe[name]:g}" for data, recipe in RECIPES.items())


def stored_settings() -> list[tuple[SettingField, str]]:
    """List the settings that decide the bits, each with the field of ``TrainSettings`` it is in."""
    return [
        (s, part)
        for kind, part in STORED
        for s in settings_of(kind)
        if s.name not in ("prior", "chip")
    ]


def make_settings(
    args: argparse.Namespace, dataset: str, samples: int | None = None
) -> TrainSettings:
    """Make the settings asked for, the rest by the data set's recipe. Raises ``OptionError``.

    ``samples`` are those of the train split; before they are known every value can be checked.
    """
    values = dict(RECIPES.get(dataset, RECIPES[""]))
    weight = values.pop("prior_weight")
    if samples is not None:
        weight = min(weight, samples / LEAST_SAMPLES)
    given = {part: given_values(kind, args) for kind, part in STORED}
    if given["chip"] and args.update != "chip":
        option = next(s.flag for s in settings_of(ChipSettings) if s.name in given["chip"])
        raise OptionError(f"--{option} is for an update on the chip: add --update chip")
    cuts = {*given["prior"], *given["chip"]} - {"optimiser", "loss", "pixels"}
    if args.prior is False and cuts:
        option = next(s.flag for s, _ in stored_settings() if s.name in cuts)
        raise OptionError(f"--{option} does not go with --no-prior: omit one of them")
    prior = {"weight": weight}
    if args.update == "chip":
        chip = ChipSettings(**given["chip"])
        values |= {"learning_rate": CHIP_RATES[chip.optimiser], "chip": chip}
        prior["interval"] = CHIP_INTERVAL
    with errors_as("", OptionError, ValueError):
        values["prior"] = None if args.prior is False else PriorSettings(**prior | given["prior"])
        return TrainSettings(**values | given[""])


def check_same_settings(args: argparse.Namespace, stored: TrainSettings) -> None:
    """Raise ``OptionError`` where an option given with --resume differs from the stored run's."""
    pairs = [("update", UPDATES[stored.chip is not None]), ("prior", stored.prior is not None)]
    for setting, part in stored_settings():
        holder = getattr(stored, part) if part else stored
        pairs.append((setting.flag, holder and getattr(holder, setting.name)))
    for flag, value in pairs:
        check_same(flag, getattr(args, flag.replace("-", "_")), value)


OTHER_OPTION = "omit the option, or start over with --force"


def check_same(flag: str, given: object, stored: Any) -> None:
    """Raise ``OptionError`` where an option is given and differs from the stored run's value."""
    if given is not None and given != stored:
        words = {"None": "unset", "False": "off", "True": "on"}
        before, now = (words.get(str(value), value) for value in (stored, given))
        raise OptionError(
            f"--resume: the checkpoint was made with --{flag} {before}, not {now}; {OTHER_OPTION}"
        )

"""Options of ``trainwright train``, and the settings that they make."""

import argparse
from typing import Any

from trainwright.cli.backend import add_simulation_options
from trainwright.cli.errors import OptionError
from trainwright.cli.options import (
    add_accelerator_options,
    add_data_options,
    add_formats_option,
    add_own_data_options,
    add_ranks_option,
    natural,
    number,
    positive,
)
from trainwright.fixed.random_bits import ROUNDINGS
from trainwright.fixed.scale import PRESETS
from trainwright.network import BUILT_IN
from trainwright.onchip.choices import LOSS_NAMES, OPTIMISERS
from trainwright.program.samples import PIXEL_WIDTHS
from trainwright.train.choices import (
    CUT_PROGRAMS,
    FACTOR_SCALES,
    MASTER_WEIGHTS,
    MOMENTS,
    PRIOR_FORMS,
    SCALES,
    SCHEDULES,
)
from trainwright.train.settings import ChipSettings, PriorSettings, TrainSettings

DESCRIPTION = """\
Train a network: forward and backward passes run on the accelerator, softmax, Adam and the rank
prior on the host. Equal options give equal bits on every back end.
"""

EPILOG = """\
examples:
  trainwright train --network digits --out runs/digits
  trainwright train --network digits --backend rtl --verify 50
  trainwright train --network fashion --data ~/data --epochs 5 --prior-weight 1.2
  trainwright train --resume --out runs/digits             go on with an interrupted run

The output folder gets report.html (curves, ranks, cycles, confusion matrix, samples), pictures/,
model.safetensors, result.json and history.jsonl; while training, checkpoint.safetensors and a
growing history.jsonl. Ctrl-C finishes the step, leaves a checkpoint and says how to go on; twice
abandons the step.
"""

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
of squares are taken, and coefficients renewed, in one of eight steps alone."""

LEAST_SAMPLES = 5700
"""Training samples for each unit of the default prior weight: with fewer it is less. The loss is a
mean over samples and the prior weighs 1 / samples, so that on little data it would outweigh the
loss, cut every rank and leave a network that knows the most frequent class alone."""

NUMBERS = ("fixed", "float32")

_DEFAULTS, _PRIOR, _CHIP = TrainSettings(), PriorSettings(), ChipSettings()
UPDATES = ("host", "chip")


def _by_data_set(name: str) -> str:
    return ", ".join(f"{data or 'others'} {values[name]:g}" for data, values in RECIPES.items())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """All options. Those that a checkpoint stores have no default here: None is "not given"."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    _add_what(parser.add_argument_group("what to train, and on what"))
    _add_training(parser.add_argument_group("training (decides the bits; stored for --resume)"))
    _add_prior(parser.add_argument_group("rank prior (stored for --resume)"))
    _add_rounding(parser.add_argument_group("rounding the trained model"))
    _add_output(parser.add_argument_group("output"))
    machine = parser.add_argument_group("the accelerator")
    machine.add_argument(
        "--plan", help="auto, paper or small, see `trainwright plan` (default: auto)"
    )
    add_accelerator_options(machine)
    add_simulation_options(parser)
    add_own_data_options(parser)


def _add_what(group: Any) -> None:
    group.add_argument(
        "--network",
        metavar="NAME",
        help=f"{', '.join(BUILT_IN)} or a TOML file (default: digits; one hidden layer of the "
        "right size for a table or pictures of your own)",
    )
    group.add_argument(
        "--initial", metavar="FILE", help="start from factors that trainwright compress made"
    )
    group.add_argument("--dataset", metavar="NAME", help="data set (default: the network's own)")
    add_data_options(group)
    group.add_argument(
        "--numbers",
        choices=NUMBERS,
        help="fixed: the integers of the accelerator; float32: without an accelerator, to compare "
        "with (default: fixed)",
    )
    add_formats_option(group)
    add_ranks_option(group)
    group.add_argument(
        "--backend",
        metavar="NAME",
        help="golden (exact model, default) or rtl (hardware, simulated cycle by cycle)",
    )
    group.add_argument(
        "--verify",
        type=natural,
        metavar="N",
        help="compare every N-th step with the golden model, tensor by tensor (default: 0, never)",
    )


def _add_training(group: Any) -> None:
    group.add_argument(
        "--epochs", type=positive, metavar="N", help="by data set: " + _by_data_set("epochs")
    )
    group.add_argument("--batch", type=positive, metavar="N", help=f"default: {_DEFAULTS.batch}")
    group.add_argument(
        "--micro-batches",
        type=positive,
        metavar="M",
        help="cut each batch into M parts, which workers under torchrun share (default: 1)",
    )
    group.add_argument("--seed", type=natural, metavar="N", help=f"default: {_DEFAULTS.seed}")
    group.add_argument(
        "--lr",
        type=number,
        metavar="RATE",
        help="of Adam, by data set: "
        + _by_data_set("learning_rate")
        + "; on the chip "
        + ", ".join(f"{name} {rate:g}" for name, rate in CHIP_RATES.items()),
    )
    group.add_argument(
        "--update",
        choices=UPDATES,
        help="loss, optimiser, prior and cuts: in floats on the host, or in integers as the chip "
        "does them (default: host)",
    )
    group.add_argument(
        "--optimiser", choices=OPTIMISERS, help=f"of --update chip (default: {_CHIP.optimiser})"
    )
    group.add_argument(
        "--loss", choices=LOSS_NAMES, help=f"of --update chip (default: {_CHIP.loss})"
    )
    group.add_argument(
        "--pixels",
        type=int,
        choices=PIXEL_WIDTHS,
        help=f"bits in which --update chip stores a pixel (default: {_CHIP.pixels})",
    )
    group.add_argument(
        "--cut-programs",
        choices=CUT_PROGRAMS,
        help="of --update chip: after a cut the programs are kept, so that the accelerator "
        "cuts alone, or others are fitted to the ranks left at once (default: "
        f"{_CHIP.cut_programs})",
    )
    group.add_argument("--schedule", choices=SCHEDULES, help=f"default: {_DEFAULTS.schedule}")
    group.add_argument(
        "--steps", type=positive, metavar="N", help="stop after N steps (default: all epochs)"
    )
    group.add_argument(
        "--scale-range",
        choices=tuple(PRESETS),
        help="range of full scale in which tensors' means are held (default: "
        f"{_DEFAULTS.scale_range})",
    )
    group.add_argument(
        "--scales",
        choices=SCALES,
        help="exponents of the tensors: following their means, or frozen after the first batch, "
        "all-frozen with those of biases and of the gradient to the logits "
        f"(default: {_DEFAULTS.scales})",
    )
    group.add_argument(
        "--spread",
        type=number,
        metavar="STEPS",
        help="standard deviation of the initial factors in quantisation steps, at 4 bits "
        f"(default: {_DEFAULTS.spread})",
    )
    group.add_argument(
        "--factor-scales",
        choices=FACTOR_SCALES,
        help="exponents of the factors: as at the start, following their size, or a scale for "
        "each column of a bond "
        f"(default: {_DEFAULTS.factor_scales})",
    )
    group.add_argument(
        "--master-weights",
        choices=MASTER_WEIGHTS,
        help=f"type of the master weights between steps (default: {_DEFAULTS.master_weights})",
    )
    group.add_argument(
        "--moments",
        choices=MOMENTS,
        help=f"type of Adam's moments between steps (default: {_DEFAULTS.moments})",
    )
    group.add_argument(
        "--rounding-mode",
        choices=ROUNDINGS,
        help="of results on the accelerator: random for none (nearest, the default), for gradients "
        "and all else of backward passes, or for all",
    )


def _add_prior(group: Any) -> None:
    group.add_argument(
        "--prior",
        action=argparse.BooleanOptionalAction,
        help="shrink the ranks while training (default: yes)",
    )
    group.add_argument(
        "--prior-form",
        choices=PRIOR_FORMS,
        help="storage: a column weighs what it costs to store; paper: the paper's equations "
        f"(default: {_PRIOR.form})",
    )
    group.add_argument(
        "--prior-weight",
        type=number,
        metavar="W",
        help="in units of 1 / training samples, by data set: "
        f"{_by_data_set('prior_weight')}; at most training samples / {LEAST_SAMPLES}",
    )
    group.add_argument(
        "--prior-warmup",
        type=number,
        metavar="PART",
        help=f"part of the run in which the weight rises (default: {_PRIOR.warmup})",
    )
    group.add_argument(
        "--rank-threshold",
        type=number,
        metavar="PART",
        help="cut columns below this part of the strongest of their bond "
        f"(default: {_PRIOR.threshold})",
    )
    group.add_argument(
        "--rank-interval",
        type=positive,
        metavar="N",
        help=f"steps between two cuts (default: {_PRIOR.interval}; on the chip {CHIP_INTERVAL})",
    )


def _add_rounding(group: Any) -> None:
    group.add_argument(
        "--tt-round",
        type=number,
        metavar="T",
        help="TT rounding after training, changing each matrix by at most this part; plots other "
        "tolerances beside the rank prior",
    )
    group.add_argument(
        "--tt-round-epochs",
        type=natural,
        default=0,
        metavar="N",
        help="train rounded models further (default: 0)",
    )
    group.add_argument(
        "--tt-round-beside",
        action="append",
        metavar="DIR",
        help="show a finished run in the same picture (repeatable)",
    )


def _add_output(group: Any) -> None:
    group.add_argument("--out", metavar="DIR", help="default: runs/NETWORK")
    group.add_argument("--prepared", help=argparse.SUPPRESS)  # given by sweeps alone
    group.add_argument(
        "--resume", action="store_true", help="go on with the run in --out; options are its own"
    )
    group.add_argument("--force", action="store_true", help="replace the run in --out")
    group.add_argument(
        "--json", action="store_true", help="print one JSON object at the end, and nothing else"
    )
    group.add_argument(
        "--log",
        action="append",
        metavar="NAME",
        help="where curves go too: csv (OUT/curves.csv), tensorboard (both stored for --resume), "
        "or MODULE:CLASS of your own, see docs/guide/sweeps.md (repeatable)",
    )
    group.add_argument(
        "--tensorboard",
        dest="log",
        action="append_const",
        const="tensorboard",
        help="--log tensorboard: event files in OUT/tensorboard",
    )
    group.add_argument(
        "--test-samples", type=positive, metavar="N", help="classify only the first N test images"
    )
    group.add_argument(
        "--checkpoint-seconds", type=number, default=30.0, metavar="S", help="default: 30"
    )
    group.add_argument(
        "--threads",
        type=positive,
        default=1,
        metavar="N",
        help="of torch (default: 1; more are slower on networks this small)",
    )


_SETTING = {
    "epochs": "epochs",
    "batch": "batch",
    "micro_batches": "micro_batches",
    "seed": "seed",
    "lr": "learning_rate",
    "schedule": "schedule",
    "steps": "steps",
    "scale_range": "scale_range",
    "scales": "scales",
    "spread": "spread",
    "factor_scales": "factor_scales",
    "master_weights": "master_weights",
    "moments": "moments",
    "rounding_mode": "rounding",
}
_PRIOR_SETTING = {
    "prior_form": "form",
    "prior_weight": "weight",
    "prior_warmup": "warmup",
    "rank_threshold": "threshold",
    "rank_interval": "interval",
}


_CHIP_SETTING = ("optimiser", "loss", "pixels", "cut_programs")


def option_name(attribute: str) -> str:
    """``--prior-weight`` of ``prior_weight``."""
    return "--" + attribute.replace("_", "-")


def make_settings(
    args: argparse.Namespace, dataset: str, samples: int | None = None
) -> TrainSettings:
    """The settings asked for, the rest by the data set's recipe. Raises ``OptionError``.

    ``samples`` are those of the train split; before they are known every value can be checked.
    """
    values = dict(RECIPES.get(dataset, RECIPES[""]))
    weight = values.pop("prior_weight")
    if samples is not None:
        weight = min(weight, samples / LEAST_SAMPLES)
    chip = _chip_settings(args)
    if chip is not None:
        values |= {"learning_rate": CHIP_RATES[chip.optimiser], "chip": chip}
    values |= {s: v for a, s in _SETTING.items() if (v := getattr(args, a)) is not None}
    prior = {s: v for a, s in _PRIOR_SETTING.items() if (v := getattr(args, a)) is not None}
    if args.prior is False and prior:
        name = next(a for a in _PRIOR_SETTING if getattr(args, a) is not None)
        raise OptionError(f"{option_name(name)} does not go with --no-prior")
    try:
        own: dict[str, Any] = {} if chip is None else {"interval": CHIP_INTERVAL}
        prior = {"weight": weight} | own | prior
        values["prior"] = None if args.prior is False else PriorSettings(**prior)
        return TrainSettings(**values)
    except ValueError as error:
        raise OptionError(str(error)) from None


def _chip_settings(args: argparse.Namespace) -> ChipSettings | None:
    given = {name: v for name in _CHIP_SETTING if (v := getattr(args, name)) is not None}
    if args.update == "chip":
        return ChipSettings(**given)
    for name in given:
        raise OptionError(f"{option_name(name)} is of an update on the chip: add --update chip")
    return None


def check_same_settings(args: argparse.Namespace, stored: TrainSettings) -> None:
    """Raise ``OptionError`` where an option given with --resume differs from the stored run's."""
    pairs = [(a, getattr(stored, s)) for a, s in _SETTING.items()]
    pairs.append(("update", UPDATES[stored.chip is not None]))
    pairs += [(a, stored.chip and getattr(stored.chip, a)) for a in _CHIP_SETTING]
    pairs.append(("prior", stored.prior is not None))
    pairs += [
        (a, None if stored.prior is None else getattr(stored.prior, s))
        for a, s in _PRIOR_SETTING.items()
    ]
    for attribute, value in pairs:
        given = getattr(args, attribute)
        if given is not None and given != value:
            shown = ("off", "on")[value] if isinstance(value, bool) else value
            raise OptionError(
                f"--resume: the checkpoint was made with {option_name(attribute)} {shown}, "
                f"not {given}; leave the option away, or start over with --force"
            )

"""``trainwright formats``: the narrowest width of each tensor that holds a quantisation error."""

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from trainwright.cli.command import CommandBody
from trainwright.cli.errors import OptionError
from trainwright.cli.options import (
    accelerator_parameters,
    add_accelerator_options,
    add_data_options,
    add_network_argument,
    add_own_data_options,
    natural,
    number,
    positive,
)

if TYPE_CHECKING:
    from trainwright.network import Network
    from trainwright.parameters import AcceleratorParameters
    from trainwright.train.adapter import WidthChoice
    from trainwright.train.pretrained import Pretrained

DESCRIPTION = """\
Choose a width for each tensor of a training step: the narrowest fixed point whose rounding has at
most the error given, relative RMS, on a calibration batch. The values are those of a step in 16
bits on the golden model, of the untrained network or of factors from `trainwright compress`.
"""

EPILOG = """\
Factors and hidden activations get formats of their own, the other classes that of their neediest
tensor. The last line is what `--formats` of train, check, plan and build takes. On words of 8 bits
factors of more are computed by digits, in as many passes as the table says; other
tensors are held at 8 bits, and the table says what error they have there.

examples:
  trainwright formats digits --error 0.02
  trainwright formats fashion --error 0.05 --initial factors.safetensors
  trainwright formats digits --error 0.002 --accelerator word_width=8
  trainwright train --network digits --formats "$(trainwright formats digits --text)"
"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    add_network_argument(parser)
    parser.add_argument(
        "--error", type=number, default=0.02, metavar="E", help="relative RMS (default: 0.02)"
    )
    parser.add_argument(
        "--initial", metavar="FILE", help="factors that trainwright compress made, and its network"
    )
    parser.add_argument("--batch", type=positive, default=64, metavar="N", help="default: 64")
    parser.add_argument("--seed", type=natural, default=0, metavar="N", help="default: 0")
    add_data_options(parser)
    add_own_data_options(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON object")
    form.add_argument(
        "--text", action="store_true", help="print what --formats takes, and nothing else"
    )
    add_accelerator_options(parser)


def _run(args: argparse.Namespace) -> int:
    from pathlib import Path

    from trainwright.cli.output import to_json
    from trainwright.network import load_network
    from trainwright.train.adapter import formats_text
    from trainwright.train.pretrained import load_pretrained

    if not 0 < args.error < 1:
        raise OptionError(
            f"--error: choose a part of a tensor's RMS over 0 and under 1, not {args.error}"
        )
    given = load_pretrained(Path(args.initial)) if args.initial else None
    network = load_network(args.network) if given is None else given.network
    p = accelerator_parameters(args.accelerator)
    choices = _choices(args, network, given, p)
    text = formats_text(network, choices)
    if args.text:
        print(text)
        return 0
    if args.json:
        print(to_json({"formats": text, "tensors": [one.to_dict() for one in choices]}))
        return 0
    print(_table(choices) + f"\n--formats '{text}'")
    wide = [one for one in choices if one.passes > 1]
    if wide:
        print(f"{len(wide)} factors take several passes")
    return 0


def _choices(
    args: argparse.Namespace,
    network: "Network",
    given: "Pretrained | None",
    p: "AcceleratorParameters",
) -> "list[WidthChoice]":
    import torch

    from trainwright.data import OwnOptions, load_data_set, own_data
    from trainwright.train.adapter import choose, in_width
    from trainwright.train.batches import (
        ImageQuantiser,
        batch_indices,
        check_data,
        label_tensor,
    )
    from trainwright.train.loss import heads_loss
    from trainwright.train.model import initial_model
    from trainwright.train.pretrained import pretrained_model

    torch.set_num_threads(1)
    wide = in_width(network, 16)
    if given is None:
        model = initial_model(wide, args.seed)
    else:
        model = pretrained_model(replace(given, network=wide))
    own = OwnOptions(
        args.target, tuple(args.ignore or ()), tuple(args.category or ()), args.image_size,
        args.task,
    )  # fmt: skip
    name = own_data(args.data) or network.dataset
    data = load_data_set(name, args.data, fetch=args.download, own=own)
    check_data(network, data, args.batch)
    at = batch_indices(len(data.train), args.batch, args.seed, 0)
    quantiser = ImageQuantiser(wide, data.full_scale, wide.format("activation").input_exponent)
    labels = label_tensor(data.train.labels[at])

    def gradient_of(logits: torch.Tensor) -> torch.Tensor:
        return heads_loss(logits, labels, network.classes, network.head_sizes)[1]

    return choose(model, quantiser(data.train.images[at]), gradient_of, args.error, p)


def _table(choices: "list[WidthChoice]") -> str:
    from trainwright.report.tables import markdown

    head = ("tensor", "class", "bits", "error", "passes", "")
    rows = [
        (
            one.tensor, one.kind, one.width, f"{one.error:.2g}", one.passes,
            "" if one.held else "not held",
        )
        for one in choices
    ]  # fmt: skip
    return markdown(head, rows)


command = CommandBody(_add_arguments, _run)

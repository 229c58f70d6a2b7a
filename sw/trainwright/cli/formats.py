"""``trainwright formats``: the narrowest width of each tensor that holds a quantisation error."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from trainwright.cli import options as shared
from trainwright.cli.declare import command as make_command
from trainwright.cli.errors import OptionError
from trainwright.cli.output import show, tell
from trainwright.data.own import OwnOptions
from trainwright.network import Network, load_network
from trainwright.parameters import AcceleratorParameters
from trainwright.support.settings import Option, Positive, part_of
from trainwright.support.tables import markdown

if TYPE_CHECKING:
    from trainwright.train.adapter import WidthChoice
    from trainwright.train.pretrained import Pretrained


class FormatsOptions(
    shared.DataOptions,
    shared.SeedOptions,
    shared.JsonOptions,
    shared.AcceleratorOptions,
    OwnOptions,
):
    """Choose a width for each tensor of a training step.

    It is the narrowest fixed point whose rounding has at most the error given, relative RMS, on a
    calibration batch. The values are those of a step in 16 bits on the golden model, of the
    untrained network or of factors from `trainwright compress`.

    Examples
    --------
      trainwright formats digits --error 0.02
      trainwright formats fashion --error 0.05 --initial factors.safetensors
      trainwright formats digits --error 0.002 --accelerator word_width=8
      trainwright train --network digits --formats "$(trainwright formats digits --text)"

    Factors and hidden activations get formats of their own, all other classes that of their
    neediest tensor. The last line is the --formats of train, check, plan and build. On words of 8
    bits factors of more are computed by digits, in as many passes as the table says; other tensors
    are held at 8 bits, and the table says what error they have there.
    """

    network: Annotated[str | None, Option(metavar="NETWORK", positional=True)] = None
    """built-in network, such as digits or fashion, or a TOML file (default: that of --initial, or
    digits)"""
    batch: Positive = 64
    """samples of a batch"""
    error: Annotated[float, Meta(gt=0, lt=1), Option(metavar="E")] = 0.02
    """relative RMS"""
    initial: Annotated[str | None, Option(metavar="FILE")] = None
    """factors that trainwright compress made, and their network"""
    text: bool = False
    """print only the text for --formats"""


def _run(options: FormatsOptions) -> int:
    from trainwright.train.adapter import formats_text
    from trainwright.train.pretrained import load_pretrained

    if options.json and options.text:
        raise OptionError("--text does not go with --json: omit one of them")
    given = load_pretrained(Path(options.initial)) if options.initial else None
    network = load_network(options.network or "digits")
    if given is not None:
        if options.network is not None and network.name != given.network.name:
            raise OptionError(f"--initial belongs to {given.network.name!r}, not {network.name!r}")
        network = given.network
    p = shared.accelerator_parameters(options.accelerator)
    choices = _choices(options, network, given, p)
    text = formats_text(network, choices)
    if options.text:
        print(text)
        return 0
    shown = f"{_table(choices)}\n--formats '{text}'"
    if wide := sum(choice.passes > 1 for choice in choices):
        shown += f"\n{wide} factors take several passes"
    return show(options.json, {"formats": text, "tensors": choices}, shown)


def _choices(
    options: FormatsOptions, network: Network, given: "Pretrained | None", p: AcceleratorParameters
) -> "list[WidthChoice]":
    import torch

    from trainwright.data import load_data_set, own_data
    from trainwright.graph.network import input_exponent
    from trainwright.train import batches
    from trainwright.train.adapter import choose, in_width
    from trainwright.train.loss import heads_loss
    from trainwright.train.model import initial_model
    from trainwright.train.pretrained import pretrained_model

    torch.set_num_threads(1)
    wide = in_width(network, 16)
    model = given and pretrained_model(replace(given, network=wide))
    model = model or initial_model(wide, options.seed)
    name = own_data(options.data, sequences=network.tokens > 1) or network.dataset
    data = load_data_set(
        name, options.data, fetch=options.download, own=part_of(OwnOptions, options)
    )
    data = batches.labelled_for(network, data)
    batches.check_data(network, data, options.batch)
    tell(batches.data_notes(network, data))
    at = batches.batch_indices(len(data.train), options.batch, options.seed, 0)
    quantiser = batches.input_quantiser(wide, data.full_scale, input_exponent(wide))
    labels = batches.label_tensor(data.train.labels[at], network.labels)

    def gradient_of(logits: torch.Tensor) -> torch.Tensor:
        return heads_loss(network, logits, labels)[1]

    return choose(model, quantiser(data.train.images[at]), gradient_of, options.error, p)


def _table(choices: "list[WidthChoice]") -> str:
    head = ("tensor", "class", "bits", "error", "passes", "")
    rows = [
        (c.tensor, c.kind, c.width, f"{c.error:.2g}", c.passes, "" if c.held else "not held")
        for c in choices
    ]
    return markdown(head, rows)


command = make_command(FormatsOptions, _run)

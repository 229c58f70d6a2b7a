"""``trainwright compress``: a trained dense network as tensor trains, by TT-SVD."""

from pathlib import Path
from typing import Annotated

from trainwright.cli.declare import command as make_command
from trainwright.cli.errors import OptionError, require_packages
from trainwright.cli.options import JsonOptions
from trainwright.cli.output import show, tell
from trainwright.network import load_network
from trainwright.support.errors import errors_as, file_errors
from trainwright.support.settings import Option, Positive
from trainwright.support.tables import table


class CompressOptions(JsonOptions):
    r"""Turn the weight matrices of a dense network into tensor trains (TT-SVD).

    Matrices smaller than the network's layers are filled up with zeros, so that an image network
    trained on 28 x 28 pixels and 10 classes fits one of 28 x 32 pixels and 16 outputs.

    Examples
    --------
      trainwright compress dense.safetensors --network fashion --out factors.safetensors
      trainwright compress dense.safetensors --network fashion --tolerance 0.3 \
          --low fp16 --cast-level block
      trainwright train --initial factors.safetensors --out runs/fine-tuned
    """

    weights: Annotated[str, Option(metavar="WEIGHTS", positional=True)]
    """safetensors (a torch state_dict) or .npz, no pickles"""
    network: Annotated[str, Option(metavar="NAME")] = "fashion"
    """shapes and ranks"""
    weight: Annotated[tuple[str, ...], Option(metavar="KEY")] = ()
    """name of a layer's matrix, once a layer (default: all matrices in order)"""
    rank: Annotated[Positive | None, Option(metavar="R")] = None
    """greatest rank (default: the network's ranks)"""
    tolerance: Annotated[float | None, Option(metavar="T")] = None
    """relative error allowed to each matrix"""
    method: str = "block"
    """QR: block, householder or tsqr"""
    low: Annotated[str | None, Option(metavar="FORMAT")] = None
    """mixed precision: fp16, bf16, posit16, ..."""
    high: Annotated[str, Option(metavar="FORMAT")] = "fp64"
    """precision of everything else"""
    cast_level: str = "end"
    """cast to low at the end, block or inner level"""
    out: Annotated[str, Option(metavar="FILE")] = "factors.safetensors"
    """file of the factors"""


def _run(options: CompressOptions) -> int:
    import torch

    from trainwright.train.dense import describe, lossy, read_dense
    from trainwright.train.pretrained import save_pretrained
    from trainwright.tt import Numbers

    require_packages("safetensors")
    torch.set_num_threads(1)
    network = load_network(options.network)
    with errors_as("", OptionError, ValueError):
        numbers = Numbers(
            method=options.method, low=options.low, high=options.high, rounding=options.cast_level
        )
    dense = read_dense(Path(options.weights), network, options.weight)
    given, rows = describe(
        dense, network, rank=options.rank, tolerance=options.tolerance, numbers=numbers
    )
    path = Path(options.out)
    with file_errors(f"cannot write {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        save_pretrained(path, given)
    warnings = lossy(rows)
    tell(f"trainwright: warning: {warning}" for warning in warnings)
    head = ("layer", "matrix", "ranks", "elements", "in the train", "relative error")
    text = f"{table(head, rows)}\n{path}; train it with: trainwright train --initial {path}"
    content = {"out": str(path), "precision": str(numbers.precision), "layers": rows,
               "warnings": warnings}  # fmt: skip
    return show(options.json, content, text)


command = make_command(CompressOptions, _run)

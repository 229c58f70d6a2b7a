"""``trainwright compress``: a trained dense network as tensor trains, by TT-SVD."""

import argparse
import sys
from pathlib import Path

from trainwright.cli.command import CommandBody
from trainwright.cli.errors import OptionError
from trainwright.cli.options import number, positive

DESCRIPTION = """\
Turn the weight matrices of a dense network into tensor trains (TT-SVD). Matrices smaller than the
network's layers are filled up with zeros, so that an image network trained on 28 x 28 pixels and
10 classes fits one of 28 x 32 pixels and 16 outputs.
"""

EPILOG = """\
examples:
  trainwright compress dense.safetensors --network fashion --out factors.safetensors
  trainwright compress dense.safetensors --network fashion --tolerance 0.3 \\
      --low fp16 --cast-level block
  trainwright train --initial factors.safetensors --out runs/fine-tuned
"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument(
        "weights", metavar="WEIGHTS", help="safetensors (a torch state_dict) or .npz, no pickles"
    )
    parser.add_argument(
        "--network", default="fashion", metavar="NAME", help="shapes and ranks (default: fashion)"
    )
    parser.add_argument(
        "--weight", action="append", metavar="KEY",
        help="name of a layer's matrix, once a layer (default: all matrices in order)",
    )  # fmt: skip
    parser.add_argument(
        "--rank", type=positive, metavar="R", help="greatest rank (default: the network's ranks)"
    )
    parser.add_argument(
        "--tolerance", type=number, metavar="T", help="relative error allowed to each matrix"
    )
    parser.add_argument(
        "--method", default="block", help="QR: block (default), householder or tsqr"
    )
    parser.add_argument("--low", metavar="FORMAT", help="mixed precision: fp16, bf16, posit16, ...")
    parser.add_argument("--high", default="fp64", metavar="FORMAT", help="default: fp64")
    parser.add_argument(
        "--cast-level", default="end", help="to low at the end (default), block or inner level"
    )
    parser.add_argument("--out", default="factors.safetensors", metavar="FILE")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _run(args: argparse.Namespace) -> int:
    import torch

    from trainwright.cli.dense import describe, lossy, read_dense
    from trainwright.cli.output import to_json
    from trainwright.network import load_network
    from trainwright.report.tables import markdown
    from trainwright.train.pretrained import save_pretrained
    from trainwright.tt import Numbers

    torch.set_num_threads(1)
    network = load_network(args.network)
    try:
        numbers = Numbers(
            method=args.method, low=args.low, high=args.high, rounding=args.cast_level
        )  # fmt: skip
    except ValueError as error:
        raise OptionError(str(error)) from None
    dense = read_dense(Path(args.weights), network, args.weight)
    given, rows = describe(
        dense, network, rank=args.rank, tolerance=args.tolerance, numbers=numbers
    )
    path = Path(args.out)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_pretrained(path, given)
    except OSError as error:
        raise OptionError(f"cannot write {path}: {error.strerror}") from None
    warnings = lossy(rows)
    for warning in warnings:
        print(f"trainwright: warning: {warning}", file=sys.stderr)
    if args.json:
        print(to_json({"out": str(path), "precision": str(numbers.precision),
                       "layers": [vars(row) for row in rows], "warnings": warnings}))  # fmt: skip
        return 0
    head = ("layer", "matrix", "ranks", "elements", "in the train", "relative error")
    print(markdown(head, [tuple(vars(row).values()) for row in rows]), end="")
    print(f"\n{path}; train it with: trainwright train --initial {path}")
    return 0


command = CommandBody(_add_arguments, _run)

"""``trainwright bench posit``: posit arithmetic beside SoftPosit's C and float32."""

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from trainwright.cli.command import SimpleCommand
from trainwright.cli.options import posit_format, positive

if TYPE_CHECKING:
    from trainwright.posit.experiments.peer import SoftPosit


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Additions and products of a million numbers, square matrix products with every operation "
        "rounded (sequential) and with an exact sum (quire), and a training step of LeNet-5, an "
        "image: by the native kernels, by torch alone, and in float32. With a peer, how many times "
        "faster than it, and how many results differ. Processor seconds of one thread, the least "
        "of several."
    )
    parser.add_argument("--format", type=posit_format, default="16,2", metavar="N,ES",
                        help="default: 16,2")  # fmt: skip
    parser.add_argument(
        "--peer", action="append", default=[], metavar="softposit=FOLDER",
        help="a folder with SoftPosit's C sources, such as the unpacked source distribution of the "
        "package softposit; for es = 2",
    )  # fmt: skip
    parser.add_argument("--count", type=positive, default=1_000_000, metavar="N",
                        help="elements; default: 1000000")  # fmt: skip
    parser.add_argument("--size", type=positive, default=256, metavar="N",
                        help="of the matrices; default: 256")  # fmt: skip
    parser.add_argument("--batch", type=positive, default=32, metavar="N",
                        help="images of a training step; default: 32")  # fmt: skip
    parser.add_argument("--repeat", type=positive, default=5, metavar="N", help="default: 5")
    parser.add_argument("--json", action="store_true", help="print JSON and no tables")
    parser.add_argument("--threads", type=positive, default=1, metavar="N", help="default: 1")


def _peer(options: list[str]) -> "SoftPosit | None":
    from trainwright.cli.errors import OptionError
    from trainwright.posit.experiments.peer import SoftPosit

    found = None
    for option in options:
        name, _, folder = option.partition("=")
        if name != "softposit" or not folder:
            raise OptionError(f"--peer must be softposit=FOLDER, not {option!r}")
        found = SoftPosit(Path(folder))
    return found


def _run(args: argparse.Namespace) -> int:
    import torch

    from trainwright.cli.output import teller, to_json
    from trainwright.posit.experiments import speed
    from trainwright.report.tables import markdown

    torch.set_num_threads(args.threads)
    rows = speed.run(
        args.format, args.count, args.size, args.repeat, _peer(args.peer),
        progress=teller("bench posit"),
    )  # fmt: skip
    rows += speed.run_edges(args.format, args.count, args.repeat)
    rows += speed.run_training(args.format, args.repeat, args.batch)
    if args.json:
        conditions = {"format": str(args.format), "threads": args.threads, "repeat": args.repeat}
        print(to_json({**conditions, "torch": torch.__version__, "rows": list(map(asdict, rows))}))
        return 0
    head = ("what", "way", "seconds", "times the peer", "differing")
    print(markdown(head, [tuple(asdict(row).values()) for row in rows]), end="")
    return 0


command = SimpleCommand("posit", "posit arithmetic beside SoftPosit's C", _add_arguments, _run)

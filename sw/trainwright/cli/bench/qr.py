"""``trainwright bench qr``: errors and times beside ``torch.linalg.qr`` and LAPACK's routines."""

import argparse
import re
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from importlib.util import find_spec
from typing import Any

from trainwright.cli.command import SimpleCommand
from trainwright.cli.options import positive


def _size(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d+)x(\d+)", text)
    if not found or not 1 <= int(found[2]) <= int(found[1]):
        raise argparse.ArgumentTypeError(
            f"must be ROWSxCOLUMNS, rows >= columns >= 1, not {text!r}"
        )
    return int(found[1]), int(found[2])


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Q and R of a random matrix in every variant and in LAPACK's blocked routines (geqrf and "
        "orgqr; geqrt and gemqrt, where scipy is installed). Times are the least of several, in "
        "processor seconds of one thread."
    )
    parser.add_argument(
        "--size", type=_size, action="append", metavar="MxN",
        help="default: 2000x200 and 1024x64 (repeatable)",
    )  # fmt: skip
    parser.add_argument("--repeat", type=positive, default=7, metavar="N", help="default: 7")
    parser.add_argument("--json", action="store_true", help="print JSON and no tables")
    parser.add_argument("--threads", type=positive, default=1, metavar="N", help="default: 1")


def _blas_threads(count: int) -> AbstractContextManager[Any]:
    """Holds scipy's LAPACK to as many threads as torch; scikit-learn brings what can do that."""
    if find_spec("threadpoolctl") is None or find_spec("scipy") is None:
        return nullcontext()
    import scipy.linalg  # noqa: F401  the limit holds for what is loaded
    from threadpoolctl import threadpool_limits

    return threadpool_limits(count)


def _run(args: argparse.Namespace) -> int:
    import torch

    from trainwright.cli.output import teller, to_json
    from trainwright.qr.experiments import speed
    from trainwright.report.tables import markdown

    torch.set_num_threads(args.threads)
    rows = []
    with _blas_threads(args.threads):
        for m, n in args.size or ((2000, 200), (1024, 64)):
            rows += speed.run(m, n, args.repeat, progress=teller(f"bench {m} x {n}"))
    if args.json:
        print(to_json({"threads": args.threads, "rows": list(map(asdict, rows))}))
        return 0
    head = ("rows", "columns", "routine", "seconds", "times torch", "residual", "orthogonality")
    print(markdown(head, [tuple(asdict(row).values()) for row in rows]), end="")
    return 0


command = SimpleCommand(
    "qr", "QR factorisations beside torch.linalg.qr and LAPACK", _add_arguments, _run
)

"""``trainwright bench mcf``: multi-component floats beside torch and the published library."""

import argparse
from dataclasses import asdict
from pathlib import Path

from trainwright.cli.command import SimpleCommand
from trainwright.cli.options import positive

OPERATIONS = ("add", "scaling", "multiply", "divide", "dot", "mv", "matmul", "addmm", "bmm")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "The operations of tables 4 and 5 of the MCTensor paper, at its sizes: torch in float32 "
        "and float64, ours with 1 to 3 float32 components, and the published library with 2; "
        "large products by torch's in the components' type. "
        "Medians in processor seconds of one thread. Then the accuracy of every operator: the "
        "worst of many results, in bits, against mpmath."
    )
    parser.add_argument(
        "--peer", type=Path, metavar="FOLDER",
        help="a checkout of the published library (github.com/ydtydr/MCTensor)",
    )  # fmt: skip
    parser.add_argument(
        "--operation", choices=OPERATIONS, action="append", help="only this one (repeatable)"
    )
    parser.add_argument("--size", type=positive, action="append", metavar="N",
                        help="of large products, matmul and mv beyond float64's digits "
                        "(repeatable; default: 512 and 1024)")  # fmt: skip
    parser.add_argument("--results", type=positive, default=1000, metavar="N",
                        help="of which accuracy is the worst (default: 1000)")  # fmt: skip
    parser.add_argument("--repeat", type=positive, default=5, metavar="N", help="default: 5")
    parser.add_argument("--json", action="store_true", help="print JSON and no tables")
    parser.add_argument("--threads", type=positive, default=1, metavar="N", help="default: 1")


def _run(args: argparse.Namespace) -> int:
    import torch

    from trainwright.cli.errors import OptionError
    from trainwright.cli.output import teller, to_json
    from trainwright.mcf.experiments import accuracy, memory, speed
    from trainwright.mcf.experiments.peer import PeerError, Published
    from trainwright.report.tables import markdown

    torch.set_num_threads(args.threads)
    try:
        peer = Published(args.peer) if args.peer else None
    except PeerError as error:
        raise OptionError(f"--peer: {error}") from None
    only = tuple(args.operation or ())
    rows = speed.run(args.repeat, peer, only, progress=teller("bench mcf"))
    peaks = memory.run(peer) if not only or "bmm" in only else []
    worst = [] if only else accuracy.run(args.results, progress=teller("accuracy"))
    sizes = tuple(args.size or (() if only else (512, 1024)))
    products = speed.large(sizes, args.repeat, progress=teller("large products"))
    if args.json:
        conditions = {"threads": args.threads, "repeat": args.repeat, "torch": torch.__version__}
        results = {"rows": list(map(asdict, rows)), "large": list(map(asdict, products)),
                   "bmm_memory": list(map(asdict, peaks)),
                   "accuracy": list(map(asdict, worst))}  # fmt: skip
        print(to_json({**conditions, **results}))
        return 0
    head = ("operation", "way", "seconds", "times the peer", "by float32", "bits")
    print(markdown(head, [tuple(asdict(row).values()) for row in rows]), end="")
    if products:
        head = ("operation", "components", "nc", "n", "seconds", "by torch")
        print("\n" + markdown(head, [tuple(asdict(row).values()) for row in products]), end="")
    for peak in peaks:
        print(f"\nmemory of bmm, {peak.way}: {peak.mebibytes:.0f} MiB at most beyond its operands")
    if worst:
        head = ("operator", "components", "bits", "errors relative to", "results")
        print("\n" + markdown(head, [tuple(asdict(row).values()) for row in worst]), end="")
    return 0


command = SimpleCommand("mcf", "multi-component floats beside torch", _add_arguments, _run)
"""``trainwright bench mcf``."""

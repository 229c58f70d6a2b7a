"""``trainwright bench mcf``: multi-component floats next to torch and the published library."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from trainwright.cli.declare import command as make_command
from trainwright.cli.errors import OptionError
from trainwright.cli.options import JsonOptions, ThreadOptions
from trainwright.support.settings import OneOf, Option, Positive

OPERATIONS = ("add", "scaling", "multiply", "divide", "dot", "mv", "matmul", "addmm", "bmm")


@dataclass(frozen=True, kw_only=True)
class McfOptions(JsonOptions, ThreadOptions):
    """Measure multi-component floats next to torch and the published library.

    The operations of tables 4 and 5 of the MCTensor paper, at its sizes: torch in float32 and
    float64, ours with 1 to 3 float32 components, and the published library with 2; large products
    next to torch's in the components' type. Medians in processor seconds of one thread. Then the
    accuracy of every operator: the worst of many results, in bits, against mpmath.
    """

    peer: Annotated[Path | None, Option(metavar="FOLDER")] = None
    """checkout of the published library (github.com/ydtydr/MCTensor)"""
    operation: Annotated[tuple[str, ...], OneOf(OPERATIONS)] = ()
    """measure only this operation"""
    size: tuple[Positive, ...] = ()
    """rows of large products, matmul and mv beyond float64's digits (default: 512 and 1024)"""
    results: Positive = 1000
    """results whose worst is the accuracy"""
    repeat: Positive = 5
    """measurements of each"""


def _run(options: McfOptions) -> int:
    import torch

    from trainwright.cli.output import plain, rows_of, show, teller
    from trainwright.mcf.experiments import accuracy, memory, speed
    from trainwright.mcf.experiments.peer import PeerError, Published
    from trainwright.report.tables import markdown

    torch.set_num_threads(options.threads)
    try:
        peer = Published(options.peer) if options.peer else None
    except PeerError as error:
        raise OptionError(f"--peer: {error}") from None
    only = options.operation
    rows = speed.run(options.repeat, peer, only, progress=teller("bench mcf"))
    sizes = options.size or (() if only else (512, 1024))
    products = speed.large(sizes, options.repeat, progress=teller("large products"))
    peaks = memory.run(peer) if not only or "bmm" in only else []
    worst = [] if only else accuracy.run(options.results, progress=teller("accuracy"))
    content = {
        "threads": options.threads, "repeat": options.repeat, "torch": torch.__version__,
        "rows": plain(rows), "large": plain(products), "bmm_memory": plain(peaks),
        "accuracy": plain(worst),
    }  # fmt: skip
    head = ("operation", "way", "seconds", "times the peer", "by float32", "bits")
    text = markdown(head, rows_of(rows))
    if products:
        head = ("operation", "components", "nc", "n", "seconds", "by torch")
        text += "\n" + markdown(head, rows_of(products))
    for peak in peaks:
        most = f"{peak.mebibytes:.0f} MiB at most beyond its operands"
        text += f"\nmemory of bmm, {peak.way}: {most}\n"
    if worst:
        head = ("operator", "components", "bits", "errors relative to", "results")
        text += "\n" + markdown(head, rows_of(worst))
    return show(options.json, content, text)


command = make_command(McfOptions, _run, "mcf", "multi-component floats next to torch")
"""``trainwright bench mcf``."""

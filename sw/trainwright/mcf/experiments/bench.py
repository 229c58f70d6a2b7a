"""Speed, memory and accuracy of every operation, by the options of ``trainwright bench mcf``."""

from typing import Any

import torch

from trainwright.mcf.experiments import accuracy, memory, speed
from trainwright.mcf.experiments.peer import Published
from trainwright.support.finding import Finding, Tell
from trainwright.support.settings import require_effect
from trainwright.support.tables import table


def bench(options: Any, tell: Tell) -> Finding:
    """Measure operations; without ``--operation`` fused expressions and accuracy, too."""
    peer = Published(options.peer) if options.peer else None
    only = options.operation
    require_effect(options, () if only else ("all operations",))
    rows = speed.run(options.repeat, peer, only, progress=tell("bench mcf"))
    sizes = options.size or (() if only else (512, 1024))
    products = speed.large(sizes, options.repeat, progress=tell("large products"))
    fused = [] if only else speed.fused(repeat=options.repeat)
    peaks = memory.run(peer) if not only or "bmm" in only else []
    worst = [] if only else accuracy.run(options.results, progress=tell("accuracy"))
    head = ("operation", "way", "seconds", "times the peer", "by float32", "bits")
    text = table(head, rows)
    if products:
        head = ("operation", "components", "nc", "n", "seconds", "by torch")
        text += "\n" + table(head, products)
    if fused:
        head = ("expression", "components", "nc", "elements", "seconds", "times faster fused")
        text += "\n" + table(head, fused)
    for peak in peaks:
        most = f"{peak.mebibytes:.0f} MiB at most beyond its operands"
        text += f"\nmemory of bmm, {peak.way}: {most}\n"
    if worst:
        head = ("operator", "components", "bits", "errors relative to", "results")
        text += "\n" + table(head, worst)
    results = {
        "repeat": options.repeat, "torch": torch.__version__, "rows": rows, "large": products,
        "fused": fused, "bmm_memory": peaks, "accuracy": worst,
    }  # fmt: skip
    return Finding(results, text)

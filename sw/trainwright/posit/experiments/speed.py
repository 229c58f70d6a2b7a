"""Times of operations and matrix products: native, in torch alone, and in SoftPosit's C."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor

from trainwright.posit import codes, grid, products
from trainwright.posit.accumulation import accumulation
from trainwright.posit.experiments.lenet import TrainingArithmetic
from trainwright.posit.experiments.peer import SoftPosit
from trainwright.posit.experiments.training import RunSettings, begin, step
from trainwright.posit.format import PositError, PositFormat
from trainwright.posit.native import usable
from trainwright.posit.products import Mode
from trainwright.posit.rounding import codes_of, decode, round_to
from trainwright.support.finding import Finding, Progress, Tell, silent, tracked
from trainwright.support.native import without
from trainwright.support.stopwatch import least_seconds
from trainwright.support.tables import table

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Timing:
    """Measured time of one task in one implementation."""

    what: str
    way: str
    """``native``, ``torch`` (no compiler), ``float32`` (torch's own, no posits), or the peer."""
    seconds: float
    """CPU seconds, minimum of the repetitions; operands and results are on the grid."""
    speedup: float | None = None
    """Peer's seconds divided by ``seconds``."""
    differing: int | None = None
    """Results that differ from the peer's."""


@dataclass(frozen=True)
class _Task:
    what: str
    ours: Callable[[], Tensor]
    float32: Callable[[], Tensor]
    peers: Callable[[], Tensor] | None

    def rows(self, fmt: PositFormat, repeat: int) -> list[Timing]:
        """Measure every implementation of the task, the peer's first."""
        rows: list[Timing] = []
        peer_seconds = expected = None
        if self.peers is not None:
            expected = SoftPosit.codes(self.peers(), fmt)
            peer_seconds = least_seconds(self.peers, CPU, repeat)
            rows.append(Timing(self.what, SoftPosit.name, peer_seconds, 1.0, 0))

        def measured(way: str, call: Callable[[], Tensor], posits: bool = True) -> Timing:
            seconds = least_seconds(call, CPU, repeat)
            differing = None
            if expected is not None and posits:
                differing = int((codes_of(call(), fmt) != expected).sum())
            return Timing(
                self.what, way, seconds, peer_seconds and peer_seconds / seconds, differing
            )

        if usable(torch.zeros(1)):
            rows.append(measured("native", self.ours))
        with without():
            rows.append(measured("torch", self.ours))
        return [*rows, measured("float32", self.float32, posits=False)]


def _tasks(fmt: PositFormat, count: int, size: int, peer: SoftPosit | None) -> list[_Task]:
    g = torch.Generator().manual_seed(0)
    x, y = (round_to(torch.randn(count, generator=g), fmt) for _ in range(2))
    a, b = (round_to(torch.randn(size, size, generator=g), fmt) for _ in range(2))
    plain = [t.to(torch.float32) for t in (x, y, a, b)]
    words = [SoftPosit.words(codes_of(t, fmt), fmt) for t in (x, y, a, b)]
    tasks = []
    for name, ours in (("add", grid.add), ("mul", grid.mul)):
        theirs = None if peer is None else partial(peer.element_wise, name, *words[:2], fmt)
        native = partial(getattr(torch, name), *plain[:2])
        tasks.append(_Task(f"{name} {count}", partial(ours, x, y, fmt), native, theirs))
    native = partial(torch.matmul, *plain[2:])
    for mode in ("sequential", "quire"):
        theirs = None if peer is None else partial(peer.matmul, mode, *words[2:], fmt)
        ours = partial(products.matmul, a, b, fmt, mode)
        tasks.append(_Task(f"gemm {size} {mode}", ours, native, theirs))
    return tasks


def run(
    fmt: PositFormat,
    count: int = 1_000_000,
    size: int = 256,
    repeat: int = 5,
    peer: SoftPosit | None = None,
    *,
    progress: Progress = silent,
) -> list[Timing]:
    """Measure every implementation of four tasks on standard normal numbers."""
    rows: list[Timing] = []
    for task in tracked(_tasks(fmt, count, size, peer), progress):
        rows += task.rows(fmt, repeat)
    return rows


def run_training(fmt: PositFormat, repeat: int = 5, batch: int = 32) -> list[Timing]:
    """Measure a training step of LeNet-5 (forward, backward, Adam) on random images, per image."""
    g = torch.Generator().manual_seed(0)
    images, labels = torch.rand(batch, 1, 32, 32, generator=g), torch.arange(batch) % 10

    def seconds(kind: TrainingArithmetic) -> float:
        training, x = begin(RunSettings("random", kind.name, batch), kind), kind.entering(images)
        with accumulation(kind.mode):
            return least_seconds(lambda: step(training, x, labels), CPU, repeat) / batch

    kinds = [TrainingArithmetic(mode, fmt, mode) for mode in get_args(Mode)]
    rows: list[Timing] = []
    for kind in kinds:
        what = f"lenet-5 step {kind.mode}, an image of {batch}"
        if usable(torch.zeros(1)):
            rows.append(Timing(what, "native", seconds(kind)))
        with without():
            rows.append(Timing(what, "torch", seconds(kind)))
    plain = TrainingArithmetic("float32", None, "quire")
    return [*rows, Timing(f"lenet-5 step, an image of {batch}", "float32", seconds(plain))]


def run_edges(fmt: PositFormat, count: int = 1_000_000, repeat: int = 5) -> list[Timing]:
    """Measure entering and leaving the grid: rounding, coding, decoding, and a sum of codes."""
    x = torch.randn(count, generator=torch.Generator().manual_seed(0))
    values = round_to(x, fmt)
    words = codes_of(values, fmt)
    calls: dict[str, Callable[[], Tensor]] = {
        "round_to": partial(round_to, x, fmt),
        "codes of values": partial(codes_of, values, fmt),
        "decode": partial(decode, words, fmt),
        "add of codes": partial(codes.add, words, words, fmt),
    }
    way = "native" if usable(torch.zeros(1)) else "torch"
    return [
        Timing(f"{name} {count}", way, least_seconds(call, CPU, repeat))
        for name, call in calls.items()
    ]


def _peer(options: tuple[str, ...]) -> SoftPosit | None:
    peer = None
    for option in options:
        name, _, folder = option.partition("=")
        if name != "softposit" or not folder:
            raise PositError(f"--peer must be softposit=FOLDER, not {option!r}")
        peer = SoftPosit(Path(folder))
    return peer


def bench(options: Any, tell: Tell) -> Finding:
    """Measure every task by the options of ``trainwright bench posit``."""
    fmt, repeat, peer = options.format, options.repeat, _peer(options.peer)
    rows = run(fmt, options.count, options.size, repeat, peer, progress=tell("bench posit"))
    rows += run_edges(fmt, options.count, repeat)
    rows += run_training(fmt, repeat, options.batch)
    conditions = {"format": str(fmt), "repeat": repeat, "torch": torch.__version__}
    head = ("what", "way", "seconds", "times the peer", "differing")
    return Finding({**conditions, "rows": rows}, table(head, rows))

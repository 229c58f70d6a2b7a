"""Progress of a training run: a live display on a terminal, plain lines elsewhere; on stderr."""

import math
import os
import sys
import time
from typing import Any, Self

from trainwright.check.comparison import mismatch_text
from trainwright.network import Network
from trainwright.report.summary import spell_ranks
from trainwright.support.text import amount
from trainwright.train.history import EvaluationRecord, StepRecord
from trainwright.train.interfaces import Observer, Verification

STOPPING = "stopping after this step; Ctrl-C once more abandons it"
RECENT = 20
"""Steps that the shown loss and accuracy are means of, or those of one record if it has more."""


def spell_seconds(seconds: float) -> str:
    """Return a time as ``1:02:03`` or ``2:03``."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


class Progress(Observer):
    """Keeps the numbers to show; subclasses show them. Use as a context manager."""

    def __init__(self) -> None:
        self.total = self.first = 0
        self.network: Network | None = None
        self.recent: list[StepRecord] = []
        self.before = 0
        """Number of the last step before the last record."""
        self.test: EvaluationRecord | None = None
        self.classified = (0, 0)
        """Test samples classified so far, and all of them."""
        self.verification = Verification()
        self.stopping = False
        self._begin = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, *, now: bool = False) -> None:
        """Show the numbers, ``now`` or some time."""

    def stop_requested(self) -> None:
        """Note that Ctrl-C was pressed; may be called from a signal handler."""
        self.stopping = True

    def started(self, step: int, total: int, network: Network) -> None:
        """See ``Observer``."""
        self.first, self.total, self.network = step, total, network
        self._begin = time.monotonic()

    def stepped(self, record: StepRecord) -> None:
        """See ``Observer``."""
        self.before = self.step
        self.recent = [r for r in self.recent if record.step - r.step < RECENT] + [record]
        self.show()

    def cut(self, step: int, network: Network) -> None:
        """See ``Observer``."""
        self.network = network

    def verified(self, total: Verification) -> None:
        """See ``Observer``."""
        self.verification = total

    def evaluated(self, record: EvaluationRecord) -> None:
        """See ``Observer``."""
        self.test = record
        self.show(now=True)

    def evaluating(self, done: int, samples: int) -> None:
        """See ``Observer``."""
        self.classified = (done, samples)
        self.show()

    @property
    def step(self) -> int:
        """Steps done."""
        return self.recent[-1].step if self.recent else self.first

    @property
    def seconds_left(self) -> float:
        """Estimate, from the mean pace so far."""
        done = self.step - self.first
        elapsed = time.monotonic() - self._begin
        return (self.total - self.step) * elapsed / done if done else 0.0

    def facts(self) -> dict[str, str]:
        """Return the facts to show, by short names; loss and accuracy are means of recent steps."""
        facts: dict[str, str] = {}
        recent, v = self.recent, self.verification
        regression = self.network is not None and self.network.is_regression
        if recent:
            samples = max(1, sum(r.samples for r in recent))
            facts["loss"] = f"{sum(r.loss * r.samples for r in recent) / samples:.4f}"
            if not regression:
                facts["accuracy"] = f"{sum(r.correct for r in recent) / samples:.1%}"
        if self.test and regression:
            facts["test R2"] = f"{self.test.accuracy:.4f}"
        elif self.test:
            facts["test"] = f"{self.test.accuracy:.2%}"
        if n := self.network:
            facts["ranks"] = spell_ranks(n.ranks)
            facts["model"] = f"{n.model_bits:,} bits, {n.reduction:.1f}x smaller"
        if recent and recent[-1].cycles:
            facts["cycles a step"] = f"{recent[-1].cycles // (self.step - self.before):,}"
            pace = sum(r.cycles for r in recent) / (sum(r.seconds for r in recent) or math.inf)
            facts["simulated"] = f"{pace:,.0f} cycles/s"
        if v.steps:
            differing = f"{v.mismatches:,} differ from golden"
            facts["verified"] = (
                f"{amount(v.steps, 'step')}, {amount(v.values, 'value')}, {differing}"
            )
        if v.first:
            facts["first mismatch"] = f"step {v.first['step']}: {mismatch_text(v.first)}"
        return facts


class PlainProgress(Progress):
    """A line an epoch, and at least every ``interval`` seconds."""

    def __init__(self, interval: float = 10.0) -> None:
        super().__init__()
        self._interval = interval
        self._told = time.monotonic()

    def stop_requested(self) -> None:
        """See ``Progress``. Written past Python's buffers, which a handler may find locked."""
        super().stop_requested()
        os.write(2, f"trainwright: {STOPPING}\n".encode())

    def _tell(self, text: str) -> None:
        self._told = time.monotonic()
        print(text, file=sys.stderr, flush=True)

    def show(self, *, now: bool = False) -> None:
        """See ``Progress``."""
        if not now and time.monotonic() - self._told <= self._interval:
            return
        done, samples = self.classified
        if done < samples:
            self._tell(f"classifying test samples: {done}/{samples}")
            return
        facts = self.facts()
        shown = ("loss", "accuracy", "test", "test R2", "ranks", "cycles a step", "simulated")
        parts = [f"{name} {facts[name]}" for name in shown if name in facts]
        left = f"{spell_seconds(self.seconds_left)} left"
        self._tell(f"step {self.step}/{self.total}: {', '.join([*parts, left])}")

    def verified(self, total: Verification) -> None:
        """See ``Observer``."""
        known = self.verification.first
        super().verified(total)
        if total.first and not known:
            self._tell(f"first mismatch with golden, {self.facts()['first mismatch']}")


class LiveProgress(Progress):
    """A bar and a table that are redrawn in place."""

    def __init__(self, title: str) -> None:
        super().__init__()
        from rich.console import Console
        from rich.live import Live
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bars

        self._bars = Bars(
            TextColumn("{task.description}"), BarColumn(40), TextColumn("{task.fields[note]}")
        )
        self._train = self._bars.add_task(title, total=None, note="")
        self._test = self._bars.add_task("test", visible=False, note="")
        self._live = Live(
            console=Console(stderr=True), get_renderable=self._render, refresh_per_second=5
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def _render(self) -> Any:
        from rich.console import Group
        from rich.padding import Padding
        from rich.table import Table

        left = f", {spell_seconds(self.seconds_left)} left" if self.recent else ""
        note = STOPPING if self.stopping else f"step {self.step}/{self.total}{left}"
        self._bars.update(self._train, total=self.total or None, completed=self.step, note=note)
        done, all_ = self.classified
        note = f"{done}/{amount(all_, 'sample')}"
        self._bars.update(self._test, completed=done, total=all_, note=note, visible=done < all_)
        table = Table.grid(padding=(0, 2))
        for name, value in self.facts().items():
            table.add_row(f"[dim]{name}", value)
        return Group(self._bars, Padding(table, (0, 0, 0, 2)))

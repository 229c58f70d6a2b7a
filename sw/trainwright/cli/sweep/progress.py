"""Progress of many trials: a bar each on a terminal, a line each elsewhere; on stderr."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec

from trainwright.cli.output import on_terminal
from trainwright.cli.sweep.processes import Failures, train_all
from trainwright.cli.sweep.trials import Progress, Trial

Engine = Callable[[Sequence[Trial], int | None, str | None, Progress], Failures | None]
"""Trains trials: ``trainwright.cli.sweep.processes.train_all``, or that of ``ray_tune``."""


def complete(
    trials: Sequence[Trial], *, jobs: int | None, data: str | None, engine: Engine = train_all
) -> Failures | None:
    """Train trials that are not finished and show how far; report an interrupt and return None."""
    for trial in trials:
        trial.check()
    with _shown(trials) as progress:
        failures = engine(trials, jobs, data, progress)
    if failures is None:
        print("trainwright: interrupted; the same command goes on", file=sys.stderr)
    return failures


@contextmanager
def _shown(runs: Sequence[Trial]) -> Iterator[Progress]:
    """Yield a callback that shows how far the runs are."""
    left = [run for run in runs if not run.finished]
    if len(left) < len(runs):
        print(f"{len(runs) - len(left)} of {len(runs)} runs are finished", file=sys.stderr)
    if on_terminal() and find_spec("rich") is not None:
        yield from _bars(left)
    else:
        yield _lines(left)


def _bars(left: Sequence[Trial]) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import Progress as Bars

    with Bars(console=Console(stderr=True)) as bars:
        all_runs = bars.add_task("all runs", total=len(left))
        tasks = {run: bars.add_task(run.name, visible=False) for run in left}
        parts = dict.fromkeys(left, 0.0)

        def tell(run: Trial, done: int, total: int) -> None:
            parts[run] = done / total
            bars.update(tasks[run], completed=done, total=total, visible=done < total)
            bars.update(all_runs, completed=sum(parts.values()))

        yield tell


def _lines(left: Sequence[Trial]) -> Progress:
    quarters = dict.fromkeys(left, -1)

    def tell(run: Trial, done: int, total: int) -> None:
        quarter = 4 * done // total
        if quarter > quarters[run]:
            quarters[run] = quarter
            print(f"{run.name}: step {done:,} of {total:,}", file=sys.stderr, flush=True)

    return tell

"""Progress of many runs: a bar each on a terminal, a line each elsewhere; on stderr."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec

from trainwright.cli.output import on_terminal
from trainwright.cli.reproduce.table1.runs import Progress, Run


def _name(run: Run) -> str:
    return f"{run.row.name}, seed {run.seed}"


@contextmanager
def shown(runs: Sequence[Run]) -> Iterator[Progress]:
    """A callback that shows how far the runs are."""
    left = [run for run in runs if not run.finished]
    if len(left) < len(runs):
        print(f"{len(runs) - len(left)} of {len(runs)} runs are finished", file=sys.stderr)
    if on_terminal() and find_spec("rich") is not None:
        yield from _bars(left)
    else:
        yield _lines(left)


def _bars(left: Sequence[Run]) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import Progress as Bars

    with Bars(console=Console(stderr=True)) as bars:
        all_runs = bars.add_task("all runs", total=len(left))
        tasks = {run: bars.add_task(_name(run), visible=False) for run in left}
        parts = dict.fromkeys(left, 0.0)

        def tell(run: Run, done: int, total: int) -> None:
            parts[run] = done / total
            bars.update(tasks[run], completed=done, total=total, visible=done < total)
            bars.update(all_runs, completed=sum(parts.values()))

        yield tell


def _lines(left: Sequence[Run]) -> Progress:
    quarters = dict.fromkeys(left, -1)

    def tell(run: Run, done: int, total: int) -> None:
        quarter = 4 * done // total
        if quarter > quarters[run]:
            quarters[run] = quarter
            print(f"{_name(run)}: step {done:,} of {total:,}", file=sys.stderr, flush=True)

    return tell

"""Results of an experiment of a paper: rows, the table and the pictures that show them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from trainwright.support.tables import table

Item = TypeVar("Item")
Progress = Callable[..., None]
"""Show how much is done of how much."""
Tell = Callable[..., Progress]
"""Make a callback that shows progress, from a title and the seconds between two lines."""


@dataclass(frozen=True)
class Finding:
    """Results of one experiment: data for JSON, Markdown, and pictures by file name."""

    results: Any
    text: str
    pictures: Mapping[str, bytes] = field(default_factory=dict)


Experiment = Callable[[Any, Tell], Finding]
"""Run an experiment by the options of its command."""


def finding(
    title: str, head: Sequence[str], rows: Iterable[Any], results: Any,
    pictures: Mapping[str, bytes] | None = None,
) -> Finding:  # fmt: skip
    """Make a finding of one table below its title and of the results."""
    return Finding(results, f"## {title}\n\n{table(head, rows)}", pictures or {})


def silent(done: int, total: int) -> None:
    """Show nothing."""


def tracked(items: Sequence[Item], progress: Progress) -> Iterator[Item]:
    """Yield the items; tell ``progress`` of each when the next one is asked for."""
    for done, item in enumerate(items, 1):
        yield item
        progress(done, len(items))

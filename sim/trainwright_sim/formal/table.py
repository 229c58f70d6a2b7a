"""The results as lines, and as the table of a page."""

from collections.abc import Sequence
from pathlib import Path

from trainwright_sim.formal.check import Result
from trainwright_sim.page import put

COMMAND = "scripts/formal"


def line(result: Result) -> str:
    """One result in one line."""
    row = _row(result)
    return "{status:9}{seconds:7} s  {method} {depth:<3} {name}: {property}".format(**row)


def write(page: Path, results: Sequence[Result]) -> None:
    """Puts the table into the page; raises ``OSError`` where it has no place for it."""
    put(page, COMMAND, markdown(results))


def markdown(results: Sequence[Result]) -> str:
    """The table."""
    head = "| proof | property | block | method | depth | status | seconds |"
    rows = [head, "|---|---|---|---|---:|---|---:|"]
    for result in results:
        row = _row(result)
        row["block"] = str(row["block"]).removeprefix("trainwright_hw.")
        cells = (
            "{name}",
            "{property}",
            "`{block}`",
            "{method}",
            "{depth}",
            "{status}",
            "{seconds}",
        )
        rows.append(f"| {' | '.join(cells)} |".format(**row))
    return "\n".join(rows)


def _row(result: Result) -> dict[str, object]:
    """As in JSON, but with a mark for no depth."""
    row = result.row()
    return {**row, "depth": "-" if row["depth"] is None else row["depth"]}

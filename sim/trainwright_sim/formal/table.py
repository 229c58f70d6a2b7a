"""The results as lines, and as the table of a page."""

from collections.abc import Sequence
from pathlib import Path

from trainwright_sim.formal.check import Result
from trainwright_sim.page import put

COMMAND = "scripts/formal"


def line(result: Result) -> str:
    """Return one line of text for a result."""
    row = _row(result)
    return "{status:9}{seconds:7} s  {method} {depth:<3} {name}: {property}".format(**row)


def write(page: Path, results: Sequence[Result]) -> None:
    """Put the table into the page. Raises ``OSError`` where the page has no place for it."""
    put(page, COMMAND, markdown(results))


def markdown(results: Sequence[Result]) -> str:
    """Return the table in Markdown."""
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
    """Return the figures as for JSON, with a dash for a missing depth."""
    row = result.row()
    return {**row, "depth": "-" if row["depth"] is None else row["depth"]}

"""The results as lines, and as the table of a page."""

from collections.abc import Sequence
from pathlib import Path

from trainwright.support.files import write_whole
from trainwright_sim.formal.check import Result

BEGIN, END = "<!-- begin of scripts/formal -->", "<!-- end of scripts/formal -->"


def line(result: Result) -> str:
    """One result in one line."""
    row = result.row()
    return "{status:9}{seconds:7} s  {method} {depth:<3} {name}: {property}".format(**row)


def write(page: Path, results: Sequence[Result]) -> None:
    """Replaces what is between two comments of the page.

    Raises ``OSError`` where the page cannot be read or has no such comments.
    """
    text = page.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise OSError(f"{page} has no lines {BEGIN!r} and {END!r} to put the table between")
    before, after = text[: text.index(BEGIN)], text[text.index(END) :]
    write_whole(page, f"{before}{BEGIN}\n{markdown(results)}\n{after}")


def markdown(results: Sequence[Result]) -> str:
    """The table."""
    head = "| proof | property | block | method | depth | status | seconds |"
    rows = [head, "|---|---|---|---|---:|---|---:|"]
    for result in results:
        row = result.row()
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

"""Tables that a command writes into a page of the documentation."""

from pathlib import Path

from trainwright.support.files import write_whole


def marks(command: str) -> tuple[str, str]:
    """Return the comments between which a command's table is."""
    return f"<!-- begin of {command} -->", f"<!-- end of {command} -->"


def put(page: Path, command: str, table: str) -> None:
    """Replace the text between the two comments of the page.

    Raises ``OSError`` where the page cannot be read or has no such comments.
    """
    begin, end = marks(command)
    text = page.read_text()
    if text.count(begin) != 1 or text.count(end) != 1:
        raise OSError(f"{page} has no lines {begin!r} and {end!r} to put the table between")
    before, after = text[: text.index(begin)], text[text.index(end) :]
    write_whole(page, f"{before}{begin}\n{table}\n{after}")

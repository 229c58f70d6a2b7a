"""Bitwuzla as the command that smtbmc starts: its wheel has a library and no program.

Reads SMT-LIB from standard input and answers on standard output. Every ``check-sat`` gets a solver
of its own, which is given all commands that still count: the library's ``pop`` takes no more than
what one text has pushed.
"""

import ctypes
import sys
from collections.abc import Iterable, Iterator

from bitwuzla import Option, Options, Parser, TermManager


def commands(lines: Iterable[str]) -> Iterator[str]:
    """Yield whole SMT-LIB commands, which may span several lines."""
    text, depth = "", 0
    for line in lines:
        text += line
        depth += line.count("(") - line.count(")")
        if depth == 0 and text.strip():
            yield text
            text = ""


def solver() -> Parser:
    """Return a solver that can report the values of a model."""
    options = Options()
    options.set(Option.PRODUCE_MODELS, True)
    return Parser(TermManager(), options)


def main() -> None:
    """Answer commands from standard input until ``exit`` or the end of the input."""
    flush = ctypes.CDLL(None).fflush  # the library prints by itself
    asked, frames = solver(), [""]
    later = ""  # definitions since the last check, of what values are asked for
    for text in commands(sys.stdin):
        if text.startswith("(exit)"):
            return
        elif text.startswith("(push"):
            frames.append("")
        elif text.startswith("(pop"):
            frames.pop()
        elif text.startswith("(check-sat"):
            asked, later = solver(), ""
            asked.parse("".join(frames) + text, parse_file=False)
            flush(None)
        elif text.startswith("(get-"):
            asked.parse(later + text, parse_file=False)
            later = ""
            flush(None)
        else:
            frames[-1] += text
            later += text


if __name__ == "__main__":
    if "--help" in sys.argv:
        print("--lang")  # what smtbmc tells the versions apart by
    else:
        main()

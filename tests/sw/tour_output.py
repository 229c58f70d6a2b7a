"""The console blocks of ``docs/reference/tour.md``: their commands, and the output that these give.

``python tests/sw/tour_output.py`` runs every command and writes its output into the document.
"""

import io
import os
import re
import shlex
import subprocess
import sys
from contextlib import chdir, redirect_stdout
from pathlib import Path

from trainwright.cli import main

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "reference" / "tour.md"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^\$ (.*?<<'(\w+)'\n.*?^\2$|.*?$)\n?", re.DOTALL | re.MULTILINE)
SHELL = 'trainwright() { "$PYTHON" -m trainwright.cli "$@"; }; python() { "$PYTHON" "$@"; }\n'


def printed(command: str) -> str:
    """Run a ``trainwright`` command in this process: a new one imports torch for 2.5 s.

    Raises ``CalledProcessError`` if the command fails.
    """
    with chdir(ROOT), redirect_stdout(io.StringIO()) as out:
        status = main(shlex.split(command)[1:])
    if status:
        raise subprocess.CalledProcessError(status, command, out.getvalue())
    return out.getvalue()


def run(command: str) -> str:
    """Return what a command prints in the checkout.

    Raises ``CalledProcessError`` if the command fails.
    """
    given = None
    if command.startswith("trainwright ") and not set("\n>") & set(command):
        first, pipe, rest = command.partition(" | ")
        given, command = printed(first), rest if pipe else "cat"
    environment = os.environ | {"PYTHON": sys.executable}
    script = f"set -o pipefail\n{SHELL}{command}\n"
    done = subprocess.run(
        ["bash", "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True,
        input=given,
    )  # fmt: skip
    if done.returncode not in (0, 141):  # 141: head or grep -m had enough
        raise subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
    return "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())


def examples(text: str) -> list[tuple[str, str]]:
    """Return each command with the output below it, in the document's order."""
    pairs = []
    for block in BLOCK.findall(text):
        starts = list(COMMAND.finditer(block))
        ends = [match.start() for match in starts[1:]] + [len(block)]
        pairs += [(m[1], block[m.end() : end]) for m, end in zip(starts, ends, strict=True)]
    return pairs


def rewritten(text: str) -> str:
    """Return the document with the output that its commands give now."""

    def block(match: re.Match[str]) -> str:
        commands = [command[1] for command in COMMAND.finditer(match[1])]
        return (
            "```console\n" + "".join(f"$ {command}\n{run(command)}" for command in commands) + "```"
        )

    return BLOCK.sub(block, text)


if __name__ == "__main__":
    DOCUMENT.write_text(rewritten(DOCUMENT.read_text()))

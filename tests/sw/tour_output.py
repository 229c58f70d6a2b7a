"""The console blocks of ``docs/tour.md``: their commands, and the output that these give.

``python tests/sw/tour_output.py`` runs every command and writes its output into the document.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "tour.md"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^\$ (.*?<<'(\w+)'\n.*?^\2$|.*?$)\n?", re.DOTALL | re.MULTILINE)
SHELL = 'trainwright() { "$PYTHON" -m trainwright.cli "$@"; }; python() { "$PYTHON" "$@"; }\n'


def run(command: str) -> str:
    """What a command prints in the checkout. Raises ``CalledProcessError`` where it fails."""
    environment = os.environ | {"PYTHON": sys.executable}
    script = f"set -o pipefail\n{SHELL}{command}\n"
    done = subprocess.run(
        ["bash", "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    if done.returncode not in (0, 141):  # 141: head or grep -m had enough
        raise subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
    return "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())


def examples(text: str) -> list[tuple[str, str]]:
    """Every command with the output that stands below it, in the order of the document."""
    found = []
    for block in BLOCK.findall(text):
        starts = list(COMMAND.finditer(block))
        ends = [match.start() for match in starts[1:]] + [len(block)]
        found += [(m[1], block[m.end() : end]) for m, end in zip(starts, ends, strict=True)]
    return found


def rewritten(text: str) -> str:
    """The document with the output that its commands give now."""

    def block(match: re.Match[str]) -> str:
        commands = [found[1] for found in COMMAND.finditer(match[1])]
        return "```console\n" + "".join(f"$ {one}\n{run(one)}" for one in commands) + "```"

    return BLOCK.sub(block, text)


if __name__ == "__main__":
    DOCUMENT.write_text(rewritten(DOCUMENT.read_text()))

"""The way back: a bitstream unpacks to the configuration that it was made from."""

from collections.abc import Iterator
from pathlib import Path

from ttforge_boards.flow import BITSTREAM, CONFIG, Steps
from ttforge_boards.tools import BuildError

UNPACKED = "unpacked.config"


def settings(text: str) -> dict[str, frozenset[str]]:
    """What a textual configuration sets: the lines of each tile and each block of RAM contents."""
    found: dict[str, set[str]] = {}
    place = None
    for line in _lines(text):
        if line.startswith("."):
            place = found.setdefault(line, set()) if not line.startswith(".comment") else None
        elif place is not None:
            place.add(line)
    return {name: frozenset(lines) for name, lines in found.items() if lines}


def _lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if line := " ".join(line.split()):
            yield line


def differences(made: str, unpacked: str) -> list[str]:
    """Settings of one configuration that the other has not, as ``+`` or ``-``, tile and line."""
    ours, theirs = settings(made), settings(unpacked)
    found = []
    for tile in sorted(ours.keys() | theirs.keys()):
        before, after = ours.get(tile, frozenset()), theirs.get(tile, frozenset())
        found += [f"- {tile}: {line}" for line in sorted(before - after)]
        found += [f"+ {tile}: {line}" for line in sorted(after - before)]
    return found


def check_bitstream(steps: Steps) -> int:
    """Unpack ``top.bit`` and compare; the number of tiles that are set.

    Raises ``BuildError`` naming the first difference.
    """
    arguments = ["--input", BITSTREAM, "--textcfg", UNPACKED]
    steps.run("ecpunpack", arguments, remedy="The bitstream may be damaged: build it again.")
    made = (steps.folder / CONFIG).read_text()
    found = differences(made, Path(steps.folder / UNPACKED).read_text())
    if found:
        raise BuildError(
            f"the bitstream in {steps.folder} is not its configuration: {len(found)} differences, "
            f"first {found[0]}"
        )
    return len(settings(made))

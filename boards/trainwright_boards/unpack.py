"""The way back on an ECP5: a bitstream unpacks to the configuration that it was made from."""

from collections.abc import Iterator

from trainwright_boards.job import Steps
from trainwright_boards.tools import BuildError

CONFIG, BITSTREAM = "top.config", "top.bit"
UNPACKED = "unpacked.config"
REPACKED = "repacked.bit"


def settings(text: str) -> dict[str, frozenset[str]]:
    """Return the lines that a textual configuration sets, by tile and RAM block."""
    tiles: dict[str, set[str]] = {}
    place = None
    for line in _lines(text):
        if line.startswith("."):
            place = tiles.setdefault(line, set()) if not line.startswith(".comment") else None
        elif place is not None:
            place.add(line)
    return {name: frozenset(lines) for name, lines in tiles.items() if lines}


def _lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if line := " ".join(line.split()):
            yield line


def differences(expected: str, unpacked: str) -> list[str]:
    """Return settings of one configuration that the other lacks.

    Each is a line of ``+`` or ``-``, the tile and the setting.
    """
    ours, theirs = settings(expected), settings(unpacked)
    lines = []
    for tile in sorted(ours.keys() | theirs.keys()):
        before, after = ours.get(tile, frozenset()), theirs.get(tile, frozenset())
        lines += [f"- {tile}: {line}" for line in sorted(before - after)]
        lines += [f"+ {tile}: {line}" for line in sorted(after - before)]
    return lines


def check_bitstream(steps: Steps) -> int:
    """Unpack ``top.bit`` and pack it again; the number of tiles that are set.

    What is unpacked spells the same bits in other lines (defaults are left out, groups of tiles
    are taken apart), so bits are compared: the configuration and what was unpacked must both pack
    to the bitstream, byte by byte. Raises ``BuildError`` naming the one that does not.
    """
    arguments = ["--input", BITSTREAM, "--textcfg", UNPACKED]
    steps.run("ecpunpack", arguments, remedy="The bitstream may be damaged: build it again.")
    bitstream = (steps.folder / BITSTREAM).read_bytes()
    for name in (CONFIG, UNPACKED):
        arguments = ["--compress", "--input", name, "--bit", REPACKED]
        steps.run("ecppack", arguments, remedy="The bitstream may be damaged: build it again.")
        if (steps.folder / REPACKED).read_bytes() != bitstream:
            raise BuildError(f"the bitstream in {steps.folder} is not that of {name}: build again")
    return len(settings((steps.folder / CONFIG).read_text()))

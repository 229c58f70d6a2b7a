"""The way back on a Gowin part."""

from ttforge_boards.job import Steps


def check_bitstream(steps: Steps, part: str, placed: str, bitstream: str) -> int:
    return 0

"""Loop levels in descriptors: strides become the steps of an address register, modulo its width."""

from collections.abc import Sequence


def steps_of(counts: Sequence[int], strides: Sequence[int], width: int) -> list[int]:
    """Return each level's address step: its advance, less the return of all inner levels to 0."""
    steps, span = [], 0
    for count, stride in zip(reversed(counts), reversed(strides), strict=True):
        steps.append((stride - span) % (1 << width))
        span += (count - 1) * stride
    return steps[::-1]


def strides_of(counts: Sequence[int], steps: Sequence[int], width: int) -> list[int]:
    """Return the strides, signed, of ``steps``: the inverse of ``steps_of``."""
    strides, span = [], 0
    for count, delta in zip(reversed(counts), reversed(steps), strict=True):
        stride = (delta + span) % (1 << width)
        if stride >= 1 << (width - 1):
            stride -= 1 << width
        strides.append(stride)
        span += (count - 1) * stride
    return strides[::-1]

"""Loop levels in descriptors: strides become the steps of an address register, modulo its width."""

from collections.abc import Sequence


def steps_of(counts: Sequence[int], strides: Sequence[int], width: int) -> list[int]:
    """Address step when a level advances and all levels inside it return to zero."""
    steps, span = [], 0
    for count, stride in zip(reversed(counts), reversed(strides), strict=True):
        steps.append((stride - span) % (1 << width))
        span += (count - 1) * stride
    return steps[::-1]


def strides_of(counts: Sequence[int], steps: Sequence[int], width: int) -> list[int]:
    """Inverse of ``steps_of``; strides come back signed."""
    found, span = [], 0
    for count, delta in zip(reversed(counts), reversed(steps), strict=True):
        stride = (delta + span) % (1 << width)
        if stride >= 1 << (width - 1):
            stride -= 1 << width
        found.append(stride)
        span += (count - 1) * stride
    return found[::-1]

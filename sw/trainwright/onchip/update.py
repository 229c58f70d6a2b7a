"""The update of weights in integers: 20 bits of state a parameter, and no second moment.

A gradient's integer g is normalised within its tensor by the automatic scale, so that the step is
that of the integer and not of the value (``esgd``):

    gt = clamp18(g + pull)                                  the pull of the rank prior
    m  = clamp8(m + SR((gt - 16 m) / 2^8))                  the mean over about 16 steps, / 16
    W  = clamp(W - SR(m * rate / 2^shift))                  the factor is W / 2^hidden, halves up

SR is stochastic rounding by the accelerator's generator, of the row's address: a pure function of
seed, step and row. W stays where the factor has all its bits: from -2^(width - 1) to
2^(width - 1) - 1, times 2^hidden. A moment is at its gradient's exponent and is shifted when that
moves. ``momentum`` is plain SGD: its shift follows the gradient's exponent, so that the
step is that of the value.

The vector engine executes ``update_kernel`` on words, a row of the state a row; numpy evaluates the
same arithmetic on weights and moments (``updated_rows``), as ``trainwright.onchip.state`` does. A
word of the state is the lowest hidden + 8 bits of 2^8 W + m. Three identities:

    low = word + 128, its lowest hidden + 8 bits signed  = 2^8 W + m + 128 - factor * 2^(hidden + 8)
    W = floor((factor * 2^(hidden + 8) + low) / 2^8)     as m + 128 is 0 to 255
    m = clamp8(SR((gt + 240 m) / 2^8))                   as 256 m / 2^8 is an integer
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from trainwright.fixed.random_bits import KEYS_A_ROW, STREAM_STEP, mixed, unit_bytes
from trainwright.formats.rounding import limits
from trainwright.kernels import Body, Value, VectorPass, evaluate, lower, trace, where
from trainwright.kernels.library import EVEN
from trainwright.onchip.layout import LANES, MOMENT_WIDTH, WEIGHT_WIDTH, WeightPart, Words
from trainwright.onchip.schedule import RATE, RATE_SHIFT, SHIFT_WIDTH, Entry
from trainwright.program.exponents import MOST_POWER
from trainwright.program.vector import Rounding

DECAY_SHIFT = 4
"""A moment moves by 2^-4 of its distance to gt / 2^4."""
BIAS_RATE_SHIFT = 2
"""A bias moves at a quarter of the rate."""
PASSES = 2
"""Random streams of a step: one for the moments, one for the weights."""


def random_rows(seed: int, step: int, rows: range) -> list[Words]:
    """Return the random bytes of one update, or of the masks of one step, by the number of a row.

    There are bytes (rows, LANES) of each of the ``PASSES`` streams of a run of ``seed``, 32 bits. A
    stream is a register that grows by STREAM_STEP with each pass; the key is the row's, the unit
    its lane.
    """
    keys = KEYS_A_ROW * np.array(rows)
    streams = (seed + (PASSES * step + number) * STREAM_STEP for number in range(PASSES))
    return [unit_bytes(mixed(stream, keys), LANES) for stream in streams]


PULL_WIDTH = 18
"""Bits of a pull."""
SIDES = ("left shift", "left"), ("right shift", "right")
"""Names of the update's streams: shift and coefficient of each column of the bond on a factor's
left (one value in all lanes), and of the bond on its right (a column a lane)."""

STATE, FACTOR, GRADIENT = "state", "factor", "gradient"
"""Streams: words of the state and factors, read and written; gradients."""
WEIGHT, MOMENT = "weight", "moment"
"""Streams of ``values_kernel`` in place of words of the state and factors."""

MOVED_SHIFT = 0
"""Number of the shift that the exponent file gives the pass."""
MOVED_CONSTANT = 0
"""Number of the constant that the exponent file gives the pass with MOVED_SHIFT."""
RATE_CONSTANT = 1
"""Number of the constant from the exponent file that momentum adds to a rate's shift."""
MOST_MOVED = 30
"""Largest shift of a moment: every larger one gives 0 as well."""


def momentum_offset(part: WeightPart) -> int:
    """Return the number that momentum adds to a rate's shift, except the gradient's exponent."""
    return part.exponent - part.hidden - DECAY_SHIFT


@dataclass(frozen=True)
class PartUpdate:
    """Parameters of the update of a part in one step."""

    hidden: int
    """Bits of a weight below its factor."""
    rate_shift: int = 0
    """Number to add to the shift of the entry's rate."""
    left: bool = True
    """Whether a rank prior pulls the columns of a bond on the left."""
    right: bool = True
    """Whether a rank prior pulls the columns of a bond on the right."""
    cuts: bool = False
    """Whether weights and moments become 0 in columns whose shift is under 0."""
    momentum: bool = False
    """Whether constant RATE_CONSTANT is added to the shift of the rate, not ``rate_shift``."""

    def lowered(self) -> VectorPass:
        """Compile the kernel; a machine of 16 lanes executes the pass for each row of the part."""
        return lower(update_kernel, part=self)


def update_kernel(k: Body, part: PartUpdate) -> None:
    """Update weights, moments and factors of a row."""
    bits, low = weight_and_low(k, part.hidden)
    moment = (low + (1 << (MOMENT_WIDTH - 1))).wrap(MOMENT_WIDTH)
    weight, moment = _updated(k, part, bits >> MOMENT_WIDTH, moment)
    k.write(FACTOR, weight.rounded(part.hidden, Rounding.UP))
    k.write(STATE, (weight * (1 << MOMENT_WIDTH) + moment).wrap(part.hidden + MOMENT_WIDTH))


def weight_and_low(k: Body, hidden: int) -> tuple[Value, Value]:
    """Return 2^8 W + m + 128 of a row, and its bits below the factor, signed."""
    bits, most = hidden + MOMENT_WIDTH, 1 << (WEIGHT_WIDTH - 1 - hidden)
    low = (k.read(STATE) + (1 << (MOMENT_WIDTH - 1))).wrap(bits)
    return k.read(FACTOR, -most, most - 1) * (1 << bits) + low, low


def values_kernel(k: Body, part: PartUpdate) -> None:
    """Update weights and moments of a row, each a stream of its own."""
    weight = k.read(WEIGHT, *limits(WEIGHT_WIDTH))
    moment = k.read(MOMENT, *limits(MOMENT_WIDTH))
    weight, moment = _updated(k, part, weight, moment)
    k.write(WEIGHT, weight)
    k.write(MOMENT, moment)


def _updated(k: Body, part: PartUpdate, weight: Value, moment: Value) -> tuple[Value, Value]:
    """Return weight and moment after the update."""
    moment = _moved(k, moment)

    # The gradient, and the pull of the prior.
    pulls, cut = pulls_of(k, part, weight)
    gradient = k.read(GRADIENT)
    if pulls is not None:
        gradient = gradient + pulls
    kept = (1 << 2 * DECAY_SHIFT) - (1 << DECAY_SHIFT)
    moment = (moment * kept + gradient).rounded(2 * DECAY_SHIFT, Rounding.RANDOM)
    moment = moment.clip(MOMENT_WIDTH)

    weight = (weight - _rated(k, part, moment)).clip(WEIGHT_WIDTH)
    weight = weight.at_most((1 << (WEIGHT_WIDTH - 1)) - (1 << part.hidden))
    if cut is not None:  # shifts of columns that are cut are negative
        moment = where(cut.negative, 0, moment)
        weight = where(cut.negative, 0, weight)
    return weight, moment


_traced = lru_cache(maxsize=256)(trace)


def updated_rows(
    part: PartUpdate, rows: Mapping[str, Words], random: Sequence[Words], entry: Entry,
    moved: int, offset: int = 0,
) -> tuple[Words, Words]:  # fmt: skip
    """Return weights and moments after an update, in numpy; all are (rows, LANES).

    ``rows`` are WEIGHT, MOMENT, GRADIENT, and SIDES where the prior pulls; ``random`` are the bytes
    of both random streams. ``moved`` is the gradient's exponent minus the moments', ``offset`` what
    momentum adds to the shift of the rate. Hardware may saturate gradients with their pull to 18
    bits: beyond, a moment is at its limit.
    """
    streams = evaluate(
        _traced(values_kernel, part=part), rows, random=random,
        registers={RATE.number: entry.rate, RATE_SHIFT.number: entry.rate_shift},
        constants=(1 << min(max(-moved, 0), MOST_POWER), offset),
        shifts=(min(max(moved, 0), MOST_MOVED),),
    ).rows  # fmt: skip
    return streams[WEIGHT], streams[MOMENT]


def _moved(k: Body, moment: Value) -> Value:
    """Bring a moment to the exponent of its gradient: half to even, or saturated."""
    scaled = moment * k.given(MOVED_CONSTANT, 1, 1 << MOST_POWER)
    return scaled.rounded(k.given_shift(MOVED_SHIFT), EVEN).clip(MOMENT_WIDTH)


def pulls_of(k: Body, part: PartUpdate, weight: Value) -> tuple[Value | None, Value | None]:
    """Return the prior's pull of a row, and a value that is negative in columns that are cut."""
    sides = [side for side, has in zip(SIDES, (part.left, part.right), strict=True) if has]
    pulls = cut = None
    for shift_name, name in sides:
        shift = k.read(shift_name)
        pull = (k.read(name) * weight).rounded(shift, Rounding.UP).clip(PULL_WIDTH)
        pulls = pull if pulls is None else pulls + pull
        if part.cuts:
            cut = shift if cut is None else cut.at_most(shift)
    return pulls, cut


def _rated(k: Body, part: PartUpdate, moment: Value) -> Value:
    """Return the step of the weights."""
    rate, shift = k.held(RATE), k.held(RATE_SHIFT)
    if part.momentum:
        shift = (shift + k.given(RATE_CONSTANT, -(1 << 10), 1 << 10)).clip(SHIFT_WIDTH + 1)
        shift = where(shift.negative, 0, shift)
    elif part.rate_shift:
        shift = shift + part.rate_shift
    return (moment * rate).rounded(shift, Rounding.RANDOM_NEXT)

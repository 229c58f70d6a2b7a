"""Passes of the vector engine for tests: loss, update, random instructions."""

from dataclasses import dataclass, replace
from itertools import chain
from random import Random

import numpy as np

from trainwright.fixed.random_bits import STREAM_STEP
from trainwright.kernels import lower
from trainwright.network import load_network
from trainwright.onchip import loss as kernels
from trainwright.onchip import update
from trainwright.onchip.layout import LANES, make_layout
from trainwright.onchip.prior import column_costs, make_pulls, pull_words, sums_of_squares
from trainwright.onchip.samples import target_rows
from trainwright.onchip.schedule import RATE, RATE_SHIFT, Entry
from trainwright.onchip.state import ChipState, UpdateStep
from trainwright.onchip.update import BIAS_RATE_SHIFT, SIDES, PartUpdate
from trainwright.program.exponents import Scalar, ScalarKind
from trainwright.program.fields import LOCAL_WIDTH
from trainwright.program.vector import (
    CODE_WORDS,
    CONSTANTS,
    REGISTERS,
    STREAMS,
    THREADS,
    Addend,
    Code,
    Instruction,
    Kind,
    Memory,
    Rounding,
    ShiftBy,
    Stream,
    Total,
    Vector,
    When,
)


@dataclass
class Rows:
    """Rows of a scratchpad, one after another."""

    words: list
    """(rows, lanes) arrays."""
    next: int = 0

    def put(self, rows) -> int:
        """Add rows; the number of the first one."""
        first = self.next
        self.words.append(np.asarray(rows))
        self.next += len(rows)
        return first


WITHOUT_EXPONENTS = tuple(by for by in ShiftBy if by is not ShiftBy.SCALAR)
"""Sources of shifts on an accelerator without an exponent file."""


def loss_pass_of(z, labels, classes, exponent, rows: Rows, loss="cross-entropy", *, counting=False):
    """Return the code and VECTOR of a loss of logits (n, 16), and the place of the gradient.

    Rows of label -1 have no gradient.
    """
    samples, lanes = z.shape
    parts = {
        kernels.LOGITS: z,
        kernels.TARGETS: target_rows(labels, classes, lanes),
        kernels.GRADIENT: np.zeros_like(z),
    }
    at = {name: Stream(rows.put(part), 0, 1) for name, part in parts.items()}
    kernel = kernels.KERNELS[loss]
    loss_pass = lower(kernel, exponent=exponent, counting=counting, main=True)
    d = loss_pass.vector(at, outer=1, inner=samples, tensor="loss")
    return [*codes_of(loss_pass.instructions), d], at[kernels.GRADIENT].base


def codes_of(code) -> list[Code]:
    """CODE descriptors that put instructions into the engine from its first place on."""
    split = CODE_WORDS
    return [Code(first=n, instructions=code[n : n + split]) for n in range(0, len(code), split)]


def rates_kernel(k, entry):
    """Put an entry's rate and shift into registers of every thread."""
    k.keep(RATE, k.constant(entry.rate))
    k.keep(RATE_SHIFT, k.constant(entry.rate_shift))


class UpdateCase:
    """A state of ``digits`` in the middle of a run, and its next step."""

    def __init__(self, seed: int, *, moved: bool = True, weight: int = 200):
        random = np.random.default_rng(seed)
        network = load_network("digits")
        layout = make_layout(network, [[-3, -4], [-2, -3]], [-5, -6])
        weights = np.zeros((layout.rows, LANES), np.int64)
        for part in layout.parts:
            values = (random.normal(size=part.size) * 1200).astype(np.int64)
            weights.ravel()[part.places] = values.clip(*part.limits)
        self.entry = Entry(11, 5, weight, -14 + 3 * (seed % 4))
        self.layout, state = layout, ChipState(layout, weights)

        def gradients():
            scale = 900 * 10 ** random.uniform(-1, 1.3)
            drawn = [random.normal(size=q.shape) * scale for q in state.quantised()]
            return [g.astype(np.int64).clip(-32768, 32767) for g in drawn]

        exponents = random.integers(-22, -14, len(layout.parts))
        state.step(gradients(), exponents.tolist(), UpdateStep(0, 77, self.entry))
        self.before, self.old = state.to_arrays(), exponents
        self.exponents = exponents + random.integers(-3, 4, len(exponents)) * moved
        self.gradients = gradients()
        self.number = 8
        pulls = make_pulls(
            layout, sums_of_squares(layout, state.weights), column_costs(layout, state.kept),
            self.entry,
        )  # fmt: skip
        self.coefficients, self.shifts = pull_words(layout, pulls, self.exponents)
        state.step(self.gradients, self.exponents.tolist(), UpdateStep(self.number, 77, self.entry))
        self.after = state.to_arrays()
        self.stream = (77 + 2 * self.number * STREAM_STEP) & 0xFFFFFFFF

    def passes(self, rows: Rows):
        """Return descriptors of the update, and the first rows of state and factors."""
        layout, rates = self.layout, lower(rates_kernel, entry=self.entry)
        descriptors = [
            *codes_of(rates.instructions),
            rates.vector({}, outer=1, inner=THREADS, tensor="rate"),
        ]
        words = np.zeros((layout.rows, LANES), np.int64)
        for part, gradient in zip(layout.parts, self.gradients, strict=True):
            words.ravel()[part.places] = gradient.ravel()
        state = rows.put(self.before["state"].astype(np.int16))
        factors = rows.put(self.before["factors"])
        gradients = rows.put(words)
        for number, part in enumerate(layout.parts):
            outer = part.blocks
            first = part.row + np.arange(outer) * (part.rows // outer)
            columns = layout.column_of.reshape(2, -1, LANES)
            left, right = columns[0, first, 0], columns[1, part.row]
            place = {}
            for name, words in (("c", self.coefficients), ("s", self.shifts)):
                place[name] = rows.put(np.repeat(words[left][:, None], LANES, axis=1))
                place[f"{name}r"] = rows.put(words[right][None])
            moved = int(self.exponents[number] - self.old[number])
            lowered = PartUpdate(
                part.hidden, BIAS_RATE_SHIFT * (part.index < 0),
                left=self.entry.weight > 0, right=self.entry.weight > 0,
            ).lowered()  # fmt: skip
            # Slot 0 always holds 0, so that a scalar is its offset.
            scalars = (
                Scalar(ScalarKind.POWER, update.MOVED_CONSTANT, offset=-moved),
                Scalar(ScalarKind.SHIFT, update.MOVED_SHIFT, offset=moved),
            )

            def of(base, row=part.row, per=part.rows // outer):
                return Stream(base + row, per, 1)

            streams = {
                update.STATE: of(state),
                update.FACTOR: of(factors),
                update.GRADIENT: of(gradients),
            }
            left = Stream(place["s"], 1), Stream(place["c"], 1)
            pulls = *left, Stream(place["sr"]), Stream(place["cr"])
            streams |= zip(chain(*SIDES), pulls, strict=True)
            d = lowered.vector(
                streams, outer=outer, inner=part.rows // outer, key=part.row, tensor=part.name,
                slot=number, scalars=scalars,
            )  # fmt: skip
            descriptors += [Code(first=3, instructions=lowered.instructions), replace(d, entry=3)]
        return descriptors, state, factors


def random_passes(random: Random, *, rows: int = 256, passes: int = 3, stochastic: bool = True):
    """CODE and VECTOR descriptors that read the lower half of ``rows`` rows, write the upper one.

    Every register is written first, so that nothing unknown is read, and some bits of every one go
    to memory at the end.
    """
    start = [
        Instruction(kind=Kind.LANE, keep=True, d=n, use_k=True, k=n, addend=Addend.CONSTANT)
        for n in range(REGISTERS)
    ]
    streams = random.sample(range(STREAMS), STREAMS)
    reads, both, writes = streams[:3], streams[2:3], streams[2:]
    middle = [random_instruction(random, stochastic) for _ in range(random.randint(8, 20))]
    for stream in reads:
        instruction = random_instruction(random, stochastic)
        kind = Kind.PASS if instruction.kind is Kind.LANE else instruction.kind
        fields = {"kind": kind, "memory": Memory.READ, "stream": stream, "keep": True}
        middle.insert(random.randrange(len(middle)), replace(instruction, **fields))
    ends = [
        Instruction(a=n, shift=random.choice((0, 0, 9, 20)), memory=Memory.WRITE, stream=stream,
                    wrap=True, addend=Addend.PLUS, c=(n + 3) % REGISTERS, total=Total(n % 3))
        for n, stream in enumerate(random.sample(writes, len(writes)))
    ]  # fmt: skip
    code = [*start, *middle, *ends]
    descriptors: list[Code | Vector] = [
        Code(first=5 + n, instructions=tuple(code[n : n + CODE_WORDS]))
        for n in range(0, len(code), CODE_WORDS)
    ]
    half, known = rows // 2, 0
    for _ in range(passes):
        outer, inner = random.randint(1, 4), random.randint(1, 5)
        places = {}
        for number, n in enumerate(writes):
            places[n] = Stream(half + number * (rows // 12), 5, 1)
        for n in reads:
            steps = random.randint(-6, 6), random.randint(-4, 4)
            places[n] = places[n] if n in both else Stream(half // 2, *steps)
        # go on with the registers as they are
        first = random.random() < 0.5 and known >= min(outer * inner, THREADS)
        known = max(known, outer * inner)
        values = (random.randint(-(1 << 17), (1 << 17) - 1) for _ in range(CONSTANTS))
        descriptors.append(
            Vector(
                entry=5 + len(start) * first, length=len(code) - len(start) * first,
                outer=outer, inner=inner, streams=tuple(places[n] for n in range(STREAMS)),
                reads=sum(1 << n for n in reads), writes=sum(1 << n for n in writes),
                constants=tuple(random.choice((k, 1, -3)) for k in values),
                key=random.getrandbits(LOCAL_WIDTH) >> 1, slot=random.randrange(8), tensor="random",
            )
        )  # fmt: skip
    return descriptors


def random_instruction(random: Random, stochastic: bool) -> Instruction:
    """Draw an instruction of any kind, without rows."""
    kind = random.choice(list(Kind))
    rounding = random.choice(list(Rounding) if stochastic else list(Rounding)[:3])
    return Instruction(
        kind=kind,
        use_k=random.random() < 0.4,
        a=random.randrange(8),
        b=random.randrange(8),
        c=random.randrange(8),
        k=random.randrange(8),
        addend=Addend.NOTHING if kind is Kind.TABLE else random.choice(list(Addend)),
        shift=random.choice((0, 0, 1, 2, 8, random.randrange(20), random.randrange(64))),
        shift_by=random.choice((ShiftBy.FIELD,) * 8 + WITHOUT_EXPONENTS),
        rounding=rounding,
        wrap=random.random() < 0.3,
        width=random.choice((36, 36, 18, 16, 8, random.randint(1, 36))),
        when=random.choice((When.ALWAYS, *When)),
        keep=random.random() < 0.9,
        d=random.randrange(8),
        total=random.choice((Total.NONE, Total.NONE, *Total)),
    )

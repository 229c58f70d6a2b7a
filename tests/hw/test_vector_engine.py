"""The vector engine alone, in Amaranth's simulator: random passes against the golden model."""

import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
from kept import Inputs, simulated
from slowly import mostly_slow

from trainwright.fixed.random_bits import KEYS_A_ROW, STREAM_STEP, mixed, unit_bytes
from trainwright.golden.state import MachineState
from trainwright.golden.vector import vector
from trainwright.kernels.slots import Slot
from trainwright.parameters import AcceleratorParameters
from trainwright.program.encoding import encode_descriptor
from trainwright.program.exponents import SHIFTS, ExponentFile, Scalar, ScalarKind
from trainwright.program.vector import (
    CODE_WORDS,
    WIDTH,
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
)
from trainwright_hw.compute.vector.engine import VectorEngine
from trainwright_hw.control.engine_ports import command_layout
from trainwright_hw.storage.ports import ROW_LATENCY

sys.path.append(str(Path(__file__).parents[1] / "sw"))
from file_cases import random_scalars
from vector_cases import random_instruction, random_passes

ROWS = 256
STREAM = 0x12345678
LESS = 112
"""First row of sums that are two short of a unit."""
SCALARS_OF_EVERY_KIND = (
    (ScalarKind.POWER, 7, 0, 0, 16),
    (ScalarKind.POWER, 6, 0, 0, 17),
    (ScalarKind.POWER, 5, 0, 0, -1),
    (ScalarKind.POWER, 5, 0, 0, 0),
    (ScalarKind.VALUE, 0, 1, 2, 63),
    (ScalarKind.VALUE, 1, 2, 1, -64),
    (ScalarKind.VALUE, 1, 0, 0, 7),
    (ScalarKind.SHIFT, 0, 0, 0, 63),
    (ScalarKind.SHIFT, 1, 1, 2, 0),
    (ScalarKind.SHIFT, 2, 2, 1, 0),
    (ScalarKind.SHIFT, 3, 0, 0, 3),
    (ScalarKind.SHIFT, 3, 0, 0, 2),
)
"""Scalars of every kind; the exponents in slots 1 and 2 are 127 and -128."""


def parameters_of(
    lanes: int, engine_lanes: int = 0, *, exponents: int = 16
) -> AcceleratorParameters:
    return AcceleratorParameters(
        lanes=lanes, pe1_rows=2, pe2_rows=2, vector_engine=1, scratchpad_rows=ROWS,
        engine_lanes=engine_lanes, exponents=exponents,
    )  # fmt: skip


def unpacked(bits: int, lanes: int) -> list[int]:
    words = [bits >> 16 * lane & 0xFFFF for lane in range(lanes)]
    return [(word ^ 0x8000) - 0x8000 for word in words]


def value_of(scalar: Scalar, exponents: list[int]) -> int:
    """Return the value that the exponent file gives the engine."""
    return exponents[scalar.plus] - exponents[scalar.minus] + scalar.offset


def simulate(
    p,
    descriptors,
    pad,
    expected,
    *,
    random: Random,
    stall: float,
    stream: int,
    exponents=(),
    shut=0,
):
    """Return rows written, in order and as ``expected``, and an item for each pass.

    ``pad`` changes with rows. The port is shut for ``shut`` cycles, open for as many, and so on;
    waiting rows count in ``stall_result``. No row is stalled while the engine is idle.
    """
    engine = simulated(VectorEngine, p).design
    written, items = [], []
    request, put, item = engine.read.request, engine.z.request, engine.statistics.item
    inputs = Inputs(
        engine.stream, engine.command.valid, engine.read.valid, engine.read.row.as_value(),
        request.ready, put.ready, item.ready,
    )  # fmt: skip
    stalls = engine.status.stall_operand, engine.status.stall_result

    async def testbench(ctx):
        waiting = [int.from_bytes(encode_descriptor(d), "little") for d in descriptors]
        scalars = [getattr(d, "scalars", ()) for d in descriptors]
        pending: list[int | None] = [None] * ROW_LATENCY
        address, idle, cycles, shut_out, done = None, 0, 0, not shut, True
        while waiting or idle < 4:
            cycles += 1
            assert cycles < 100_000, "the engine hangs"
            busy = ctx.get(engine.status.busy)
            idle = 0 if busy or waiting else idle + 1
            assert busy or not ctx.get(put.valid), "idle before its rows are written"
            assert busy or not any(ctx.get(stall) for stall in stalls), "stalled while it is idle"
            shut_out = shut_out or ctx.get(stalls[1])
            now = random.getrandbits(32) if busy else stream
            if done and waiting:
                ctx.set(engine.command.payload, waiting[0])
                for n, scalar in enumerate(scalars[0]):
                    ctx.set(engine.scalars[n], value_of(scalar, exponents))
            due = pending.pop(0)
            row = sum((int(w) & 0xFFFF) << 16 * n for n, w in enumerate(pad[due or 0]))
            reads = random.random() >= stall
            is_open = not shut or cycles // shut % 2
            writes = is_open and random.random() >= stall
            takes = random.random() >= stall
            offers = bool(waiting) and not busy
            inputs.set(ctx, now, offers, due is not None, row, reads, writes, takes)
            taken = ctx.get(request.valid) and ctx.get(request.ready)
            pending.append(ctx.get(request.payload) if taken else None)
            if address is not None:
                pad[address] = unpacked(ctx.get(engine.z.row.as_value()), p.lanes)
                written.append((address, pad[address].tolist()))
                assert written[-1] == expected[len(written) - 1], len(written)
            bank = ctx.get(put.payload) % p.scratchpad_rows // p.bank_rows
            assert ctx.get(engine.z.banks) == ctx.get(put.valid) << bank
            address = ctx.get(put.payload) if ctx.get(put.valid) and ctx.get(put.ready) else None
            if ctx.get(item.valid) and ctx.get(item.ready):
                counts = ctx.get(item.payload.sum), ctx.get(item.payload.saturations)
                items.append((ctx.get(item.payload.slot), *counts))
            done = offers and ctx.get(engine.command.ready)
            await ctx.tick()
            if done:
                waiting.pop(0)
                scalars.pop(0)
        assert address is None and shut_out

    simulated(VectorEngine, p).run(testbench)
    return written, items


def check(
    p,
    descriptors,
    pad,
    *,
    random: Random,
    stall: float,
    stream: int | None = None,
    exponents=(),
    shut=0,
) -> int:
    """Compare with the golden model; rows that were written. ``stream``: any, if not given."""
    state = MachineState.fresh(np.zeros(0, np.uint8), p)
    state.write(np.arange(ROWS), pad)
    state.stream = stream = random.getrandbits(32) if stream is None else stream
    if p.exponents:
        state.file = ExponentFile(p.exponents)
        state.file.set(exponents or [0] * p.exponents)
    expected, items = [], []
    for d in descriptors:
        if isinstance(d, Code):
            state.code |= dict(enumerate(d.instructions, d.first))
            continue
        done = vector(d, state, p)
        rows = zip(done.addresses.tolist(), done.rows.tolist(), strict=True)
        expected += rows
        items.append((d.slot, done.total, done.saturations))
    outcome = simulate(
        p, descriptors, pad.copy(), expected, random=random, stall=stall, stream=stream,
        exponents=exponents, shut=shut,
    )  # fmt: skip
    assert outcome[1] == items
    assert outcome[0] == expected
    return len(expected)


@pytest.mark.parametrize(
    "seed", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (0, 1, *range(3, 24)))]
)
def test_vector_engine_matches_model_on_random_passes(seed):
    random = Random(f"vector {seed}")
    size = ((4, 0), (8, 0), (4, 2), (8, 2), (16, 2), (4, 1), (8, 4), (16, 1))[seed % 8]
    p = parameters_of(*size, exponents=0 if seed % 4 == 0 else 16)
    pad = np.random.default_rng(seed).integers(-32768, 32768, (ROWS, p.lanes)).astype(np.int16)
    passes = [d for _ in range(4) for d in random_passes(random, rows=ROWS, passes=1)]
    # just over a half, by a bit that the shifter drops
    over = Instruction(
        kind=Kind.LANE, addend=Addend.CONSTANT, shift=17, rounding=Rounding.EVEN,
        memory=Memory.WRITE,
    )  # fmt: skip
    passes += [
        Code(first=60, instructions=(over,)),
        Vector(entry=60, length=1, outer=1, inner=3, streams=(Stream(0, 0, 1),), reads=0, writes=1,
               constants=((1 << 16) + 1,)),
    ]  # fmt: skip
    stall = (0.6, 0, 0.3)[seed % 3]
    assert check(p, passes, pad, random=random, stall=stall) >= 40


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 3))])
def test_vector_engine_scalars_match_exponent_file(seed):
    """Constants and shifts by the exponent file, of every kind, some given twice, some never."""
    random = Random(f"scalars {seed}")
    p = parameters_of(4, (2, 0, 1, 0)[seed])
    pad = np.random.default_rng(seed).integers(-32768, 32768, (ROWS, 4)).astype(np.int16)
    passes = [d for _ in range(3) for d in random_passes(random, rows=ROWS, passes=1)]
    shifts = tuple(
        Instruction(kind=Kind.LANE, addend=Addend.CONSTANT, k=n, shift=n % SHIFTS,
                    shift_by=ShiftBy.SCALAR, wrap=n < 4, width=WIDTH if n < 4 else 16,
                    memory=Memory.WRITE, stream=n)
        for n in range(8)
    )  # fmt: skip
    every = [Scalar(*fields) for fields in SCALARS_OF_EVERY_KIND]
    streams = tuple(Stream(8 * n, 0, 1) for n in range(8))
    d = Vector(entry=48, length=8, outer=1, inner=8, streams=streams, reads=0, writes=255)
    code = Code(first=48, instructions=shifts)
    passes = random_scalars(random, passes, used=16)
    passes += [code, *(replace(d, scalars=tuple(every[n : n + 4])) for n in (0, 4, 7, 8))]
    few = replace(d, entry=52, length=4, inner=2, writes=0xF0)
    powers = [Scalar(ScalarKind.POWER, 4 + n % 4, 0, 0, n) for n in range(17)]
    passes += [replace(few, scalars=tuple(powers[n : n + 4])) for n in range(0, 17, 4)]
    few = replace(few, entry=48, writes=0x0F, constants=(98_765,) * 4)
    for first in range(SHIFTS):  # each is the first to come, and the last
        to = [(first + n) % SHIFTS for n in range(SHIFTS)]
        moved = tuple(Scalar(ScalarKind.SHIFT, n, 0, 0, 2 + first + 3 * n) for n in to)
        passes.append(replace(few, scalars=moved))
    exponents = [0, 127, -128, *(random.randint(-30, 30) for _ in range(13))]
    check(p, passes, pad, random=random, stall=(0.3, 0)[seed % 2], exponents=exponents)


@pytest.mark.parametrize("engine_lanes", [0, 2, 1])
def test_vector_pass_counts_last_unwritten_row(engine_lanes):
    """A pass ends once its last row is counted, though none is written.

    Totals are great, with pauses between their rows.
    """
    pad = np.arange(4 * ROWS, dtype=np.int16).reshape(ROWS, 4)
    words = Instruction(memory=Memory.READ, total=Total.SUM)
    code = Code(first=0, instructions=(words, replace(words, kind=Kind.PRODUCT, use_k=True)))
    passes = [
        Vector(entry=entry, length=1, outer=1, inner=rows, streams=(Stream(rows, 0, 1),), reads=1,
               writes=0, slot=rows, constants=(98_765,))
        for entry, rows in ((0, 1), (0, 8), (0, 11), (1, 40))
    ]  # fmt: skip
    p, random = parameters_of(4, engine_lanes), Random("totals")
    assert check(p, [code, *passes[:3]], pad, random=random, stall=0) == 0
    assert check(p, [code, *passes[3:]], pad, random=random, stall=0.7) == 0


@pytest.mark.parametrize(
    "engine_lanes, odd",
    [(2, 0), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((2, 1), (0, 0), (0, 1)))],
)
def test_vector_engine_wraps_and_saturates_every_width(engine_lanes, odd):
    """Numbers of up to 37 bits, wrapped to each other width and saturated to the rest, all bits."""
    p, rows = parameters_of(4, engine_lanes), 4
    numbers = np.random.default_rng(odd)
    pad = numbers.integers(-32768, 32768, (ROWS, 4)) >> numbers.integers(0, 15, (ROWS, 4))
    pad[::4] = np.where(pad[::4] < 0, -32768, 32767)
    passes = []
    for width in range(WIDTH, 0, -1):
        twice = {"addend": Addend.PLUS, "keep": True}
        code = (
            Instruction(kind=Kind.PRODUCT, memory=Memory.READ, use_k=True, k=width % 8, keep=True),
            Instruction(**twice, a=0, c=0, d=1),
            Instruction(**twice, a=1, c=1, d=2),
            Instruction(a=max(0, width - 34), width=width, wrap=width % 2 == odd, keep=True, d=3),
            *(
                Instruction(a=3, shift=16 * n, wrap=True, memory=Memory.WRITE, stream=1 + n)
                for n in range(3)
            ),
            Instruction(kind=Kind.LENGTH, a=3, memory=Memory.WRITE, stream=4),
        )
        streams = tuple(Stream(48 * n + width, 0, 1) for n in range(5))
        constants = [int(value) | 1 for value in numbers.integers(-(1 << 17), 1 << 17, 8)]
        if width > 30:
            constants[width % 8] = (1 << 17) - 1
        passes += [
            Code(first=width, instructions=code),
            Vector(entry=width, length=len(code), outer=1, inner=rows, streams=streams, reads=1,
                   writes=30, constants=tuple(constants)),
        ]  # fmt: skip
    pad = pad.astype(np.int16)
    assert check(p, passes, pad, random=Random("widths"), stall=0) == 4 * rows * WIDTH


@mostly_slow("lanes, engine_lanes", [(8, 0), (8, 1), (4, 2)], quick=[(8, 0), (4, 2)])
def test_rounding_at_its_edges(lanes, engine_lanes):
    """Quarters and halves with neighbours; sums with random bits around a unit.

    One bit short, the bit below the random ones fills the unit up; two bits short, it does not.
    """
    p, rows = parameters_of(lanes, engine_lanes), 16
    keys = np.arange(rows * lanes // 16)  # whole rows a key
    pad = np.zeros((ROWS, p.lanes), np.int16)
    pad[:rows] = np.arange(-8 * lanes, 8 * lanes).reshape(rows, lanes)
    for number in range(2):
        stream = (STREAM + number * STREAM_STEP) & 0xFFFFFFFF
        random = unit_bytes(mixed(stream, KEYS_A_ROW * keys), 16).reshape(rows, p.lanes)
        for base, short in ((rows, 1), (LESS, 2)):
            first = base + number * rows
            pad[first : first + rows] = 512 - short - 2 * random
    code = []
    for n, (rounding, shift) in enumerate(
        ((Rounding.EVEN, 2), (Rounding.RANDOM, 9), (Rounding.RANDOM_NEXT, 9))
    ):
        code += [
            Instruction(memory=Memory.READ, stream=n, rounding=rounding, shift=shift, keep=True),
            Instruction(memory=Memory.WRITE, stream=3 + n),
        ]
    streams = tuple(Stream(rows * n, 0, 1) for n in range(6))
    d = Vector(entry=0, length=6, outer=1, inner=rows, streams=streams, reads=7, writes=56)
    of_less = [0, *(LESS + rows * n for n in range(5))]
    less = replace(d, streams=tuple(Stream(base, 0, 1) for base in of_less))
    passes = [Code(first=0, instructions=tuple(code)), d, less, *wide_passes(p, pad)]
    passes += shifted_pass(p, pad)
    cycles = check(p, passes, pad, random=Random("edges"), stall=0.2, stream=STREAM)
    assert cycles == 6 * rows + 8 + 3 * 64 // lanes


def test_vector_engine_keeps_rows_while_port_is_shut():
    """Rows wait for it, a few and then as many as there are places, and none is lost."""
    p, rows = parameters_of(4, 2), 40
    pad = np.random.default_rng(5).integers(-32768, 32768, (ROWS, 4)).astype(np.int16)
    code = (
        Instruction(memory=Memory.READ, keep=True),
        *(Instruction(memory=Memory.WRITE, stream=n) for n in (1, 2, 3)),
    )
    streams = tuple(Stream(48 * n, 0, 1) for n in range(4))
    d = Vector(entry=0, length=4, outer=1, inner=rows, streams=streams, reads=1, writes=14)
    few = replace(d, length=2, inner=9, writes=2)
    passes = [Code(first=0, instructions=code), few, d]
    cycles = check(p, passes, pad, random=Random("shut"), stall=0, shut=200)
    assert cycles == few.inner + 3 * rows


def test_words_of_code():
    """While no command is offered: that of the descriptor at the port, at the place of before."""
    random, layout = Random("words"), command_layout(Code.layout)
    instructions = tuple(random_instruction(random, True) for _ in range(CODE_WORDS))
    bits = int.from_bytes(encode_descriptor(Code(first=0, instructions=instructions)), "little")
    top = simulated(VectorEngine, parameters_of(4, 2))
    engine = top.design

    async def testbench(ctx):
        ctx.set(engine.command.payload, bits)
        for place in range(CODE_WORDS):
            ctx.set(engine.place, place)
            await ctx.tick()
            word = layout[f"word{place}"]
            assert ctx.get(engine.word) == bits >> word.offset & (1 << word.width) - 1

    top.run(testbench)


def wide_passes(p: AcceleratorParameters, pad: np.ndarray):
    """Make passes of a half and a little, the greatest 32-bit numbers, a table, exact halves."""
    pad[100:102] = -32768
    pad[102:104] = np.random.default_rng(3).integers(-32768, 32767, (2, p.lanes))
    product = {"kind": Kind.PRODUCT, "use_k": True, "memory": Memory.READ, "keep": True}
    code = (
        Instruction(**product, stream=0, k=0),  # 2^32
        Instruction(addend=Addend.CONSTANT, k=1, shift=33, rounding=Rounding.EVEN,
                    memory=Memory.WRITE, stream=2),
        Instruction(**product, stream=1, k=2, d=1),
        Instruction(kind=Kind.GREATEST, a=1, shift=16, memory=Memory.WRITE, stream=3),
        Instruction(kind=Kind.TABLE, b=Slot.LOG2, memory=Memory.READ, stream=4, shift=14, keep=True,
                    d=2),
        Instruction(a=2, wrap=True, memory=Memory.WRITE, stream=5),
        Instruction(**product, stream=6, k=3, d=3, shift=17, rounding=Rounding.EVEN),
        Instruction(a=3, memory=Memory.WRITE, stream=7),
    )  # fmt: skip
    streams = tuple(Stream(base, 0, 1) for base in (100, 102, 104, 106, 102, 108, 0, 110))
    d = Vector(entry=8, length=8, outer=1, inner=2, streams=streams, reads=83, writes=172,
               constants=(-(1 << 17), 1 << 10, 98_765, 1 << 16))  # fmt: skip
    return Code(first=8, instructions=code), d


def shifted_pass(p: AcceleratorParameters, pad: np.ndarray):
    """Make a pass of halves by each short shift, by a long one, and by lane registers.

    The long shift drops a bit that the shift by 8 drops, too.
    """
    rows = 64 // p.lanes
    odd = 2 * np.random.default_rng(7).integers(0, 64, (rows, p.lanes)) + 1
    pad[210 : 210 + rows] = 128 * odd
    product = {"kind": Kind.PRODUCT, "use_k": True}
    even = {"rounding": Rounding.EVEN, "memory": Memory.WRITE}
    code = (
        Instruction(memory=Memory.READ, stream=0, keep=True),
        Instruction(**product, **even, k=0, shift=15, stream=2),
        Instruction(**product, memory=Memory.READ, stream=1, k=1, keep=True, d=1),
        Instruction(**even, a=1, addend=Addend.CONSTANT, k=2, shift=24, stream=3),
        Instruction(a=1, shift_by=ShiftBy.C, memory=Memory.WRITE, stream=4),
    )
    streams = tuple(Stream(base, 0, 1) for base in (0, 210, 16, 32, 48))
    d = Vector(entry=16, length=len(code), outer=1, inner=rows, streams=streams, reads=3,
               writes=28, constants=(1 << 14, 1 << 16, 1 << 10))  # fmt: skip
    return Code(first=16, instructions=code), d

"""Programs that no accelerator executes are rejected once, where they are decoded."""

import zlib
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from nests import program_of
from slowly import mostly_slow

from trainwright.golden.backend import GoldenAccelerator
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import (
    LAYOUTS,
    Compute,
    Descriptor,
    End,
    Halt,
    Level,
    Loop,
    Program,
    Set,
    Transfer,
    TransferLevel,
)
from trainwright.program.encoding import HEADER, MAGIC, VERSION, ProgramError, decode, encode
from trainwright.program.fields import (
    DESCRIPTOR_BITS,
    DESCRIPTOR_BYTES,
    Operation,
    Target,
)
from trainwright.program.footprint import external, footprint
from trainwright.program.reach import MOST_EXECUTED, MOST_STEPS
from trainwright.program.validation import MOST_PLACES, check_program
from trainwright.support import native

P = AcceleratorParameters(scratchpad_rows=256)
MEMORY = 4096

LOAD = Transfer(operation=Operation.LOAD, address=0, local=0, beats=32, tensor="in")
STORE = Transfer(operation=Operation.STORE, address=0, local=0, beats=2, tensor="out")
PE4 = Compute(operation=Operation.PE4, levels=(Level(2, z=8), Level(2, x=1)), x=0, g=0, z=64,
              reduce_levels=1, last_rows=8, z_row_stride=1, tensor="pe4")  # fmt: skip
PE3 = replace(PE4, operation=Operation.PE3, levels=(Level(2, 1, 1, 8), Level(2, 1)))
BIAS = Compute(operation=Operation.BIAS, levels=(Level(2, 1, 1, 1),), x=0, g=2, z=64, tensor="b")


def nested(depth: int, iterations: int, *body: Descriptor) -> tuple[Descriptor, ...]:
    return (*(Loop(iterations=iterations),) * depth, *body, *(End(),) * depth)


ACCEPTED: dict[str, tuple[Descriptor, ...]] = {
    "loads, arrays and a store": (LOAD, PE4, PE3, BIAS, replace(STORE, local=64)),
    "the deepest loops": nested(P.loop_depth, 2, LOAD),
    "the last rows": (replace(LOAD, local=P.scratchpad_rows - 16),),
    "the last bytes": (replace(LOAD, address=MEMORY - 512),),
    "the last slot": (LOAD, replace(BIAS, slot=P.statistics_depth - 1)),
    "one bit": (LOAD, replace(BIAS, out_width=1)),
    "a step that no index takes": (replace(LOAD, levels=(TransferLevel(1, 3),)),),
    "a result that stays": (LOAD, replace(BIAS, levels=(Level(3, 1, 1, 0),))),
    "half beats that make whole ones": (
        Loop(iterations=2),
        End(steps=((1, 8),)),
        replace(LOAD, address_register=1),
    ),
    "a result that would move in a level of one": (
        LOAD,
        replace(PE3, levels=(Level(2, 1, 1, 8), Level(1, 1, z=5))),
    ),
    "a register up to the end": (
        Loop(iterations=7),
        replace(LOAD, address_register=1),
        End(steps=((1, 512),)),
    ),
    "a register down to the begin": (
        Set(values=((1, 3584),)),
        *nested(1, 8, replace(LOAD, address_register=1))[:-1],
        End(steps=((1, -512),)),
    ),
}
REFUSED: dict[str, tuple[tuple[Descriptor, ...], str]] = {
    "rows of a tile": (
        (LOAD, replace(PE3, last_rows=9)),
        r"1: (pe4|PE3): last_rows = 9 is not from 1",
    ),
    "rows of PE4": ((replace(PE4, last_rows=31),), "last_rows = 31 is not from 1 to 8"),
    "a number format": (
        (LOAD, replace(BIAS, g_format=1)),
        r"g_format = 1 is not from 0 to 0; this accelerator has 0 fixed point; use one with more",
    ),
    "rows of BIAS": ((replace(BIAS, last_rows=2),), "last_rows = 2 is not from 1 to 1"),
    "width": ((replace(BIAS, out_width=31),), "out_width = 31 is not from 1 to 16"),
    "no width": ((replace(BIAS, out_width=0),), "out_width = 0 is not from 1 to 16"),
    "slot": ((replace(BIAS, slot=255),), "slot = 255 is not from 0 to 63"),
    "a sum of BIAS": (
        (replace(BIAS, levels=(Level(1), Level(2)), reduce_levels=1),),
        "reduce_levels = 1 is not from 0 to 0",
    ),
    "tile level": ((replace(PE4, tile_level=1),), "tile.level (= 1|9) is not "),
    "a moving result": (
        (replace(PE4, levels=(Level(2), Level(2, z=1))),),
        "stride z is not 0 in a summed level",
    ),
    "element bytes": ((replace(LOAD, element_bytes=3),), "element_bytes = 3 is not from 1 to 2"),
    "no element bytes": ((replace(LOAD, element_bytes=0),), "element_bytes = 0 is not from 1"),
    "program memory": ((replace(LOAD, target=Target.PROGRAM),), "target = 3 is not from 0 to 0"),
    "a store from program memory": (
        (replace(STORE, target=Target.PROGRAM),),
        "target = 3 is not from 0 to 0",
    ),
    "half a row": ((replace(LOAD, beats=3),), "a run of 3 beats is not a whole number of rows"),
    "half a row stored": (
        (LOAD, replace(STORE, beats=1)),
        "1: (out|STORE): a run of 1 beat is not a whole number",
    ),
    "half a beat": ((replace(STORE, address=8),), "step 8 is not a multiple of the 16 bytes"),
    "a step of half a beat": (
        (replace(LOAD, levels=(TransferLevel(2, 40, 1),)),),
        "step 40 is not a multiple of the 16 bytes",
    ),
    "a register of half a beat": (
        (*nested(1, 2, replace(LOAD, address_register=3))[:-1], End(steps=((3, 8),))),
        "R3 is not always a multiple of the 16 bytes",
    ),
    "a register set to half a beat": (
        (Set(values=((3, 8),)), replace(LOAD, address_register=3)),
        "1: (in|LOAD): R3 is not always a multiple of the 16 bytes",
    ),
    "a register of half a beat from the second iteration on": (
        nested(1, 2, replace(LOAD, address_register=3), Set(values=((3, 8),))),
        "R3 is not always a multiple of the 16 bytes",
    ),
    "a register of half a beat after a loop": (
        (Loop(iterations=3), End(steps=((3, 8),)), replace(LOAD, address_register=3)),
        "R3 is not always a multiple of the 16 bytes",
    ),
    "rows": ((replace(LOAD, local=241),), r"SCRATCHPAD\[241\] to \[256\]; it has 256 rows"),
    "entries": (
        (replace(PE4, g=241, g_row_stride=1),),
        r"reads SCRATCHPAD\[241\] to \[256\]",
    ),
    "groups": ((replace(PE3, g=511),), r"reads SCRATCHPAD\[255\] to \[256\]"),
    "below": ((replace(BIAS, levels=(Level(2, x=-1),)),), r"reads SCRATCHPAD\[-1\] to \[0\]"),
    "bytes": (
        (replace(LOAD, address=MEMORY - 496),),
        "bytes 3600 to 4111 are outside of a memory of 4096",
    ),
    "a register past the end": (
        (Loop(iterations=9), replace(LOAD, address_register=1), End(steps=((1, 512),))),
        "bytes 0 to 4607 are outside of a memory of 4096",
    ),
    "a register after its loop": (
        (
            *nested(2, 4, BIAS)[:-2],
            End(steps=((2, 4),)),
            End(steps=((2, 8),)),
            replace(BIAS, x_register=2, x=160),
        ),
        r"5: (b|BIAS) reads SCRATCHPAD\[256\] to \[257\]",
    ),
    "bytes below": (
        (Set(values=((1, -16),)), replace(LOAD, address_register=1)),
        "bytes -16 to 495 are outside of a memory of 4096",
    ),
    "deep loops": (nested(5, 2, LOAD), "4: loops nested 5 deep, the accelerator takes 4"),
    "no end": ((Loop(iterations=2), LOAD), "a LOOP has no END before HALT"),
    "no loop": ((LOAD, End()), "1: an END has no LOOP"),
    "empty loops": (nested(3, 65535), "executes at least [0-9,]* descriptors, at most 1,048,576"),
    "many steps": (
        nested(2, 500, replace(BIAS, levels=(Level(1 << 15),))),
        "executes at least 8,192,000,000 steps, at most 4,294,967,296",
    ),
    "many beats": (
        nested(1, 65535, replace(LOAD, levels=(TransferLevel(4096),))),
        "executes at least 8,589,803,520 steps",
    ),
    "tiles": (
        (replace(BIAS, levels=(Level(1 << 12), Level((1 << 10) + 1))),),
        f"nest of 4198400 tiles, at most {MOST_PLACES}",
    ),
    "length": ((LOAD,) * 0xFFFF, "has 65536 descriptors, at most 65535 are counted"),
    "loop": (
        (LOAD, Loop(iterations=2), *[LOAD] * 503, End(), *[LOAD] * 7),
        "descriptors 1 to 505: a loop of 505 descriptors .* of 512; at most 504 fit",
    ),
    "loops": (
        (Loop(iterations=2), *[Loop(iterations=2), *[LOAD] * 250, End()] * 2, End(), *[LOAD] * 9),
        "descriptors 0 to 505: a loop of 506 descriptors",
    ),
}


def kinds():
    with native.without():
        interpreted = GoldenAccelerator(P, memory_bytes=MEMORY)
    return GoldenAccelerator(P, memory_bytes=MEMORY), interpreted


@pytest.mark.parametrize("name", ACCEPTED)
def test_validation_accepts_executable_program(name):
    program = program_of(P, *ACCEPTED[name])
    check_program(program, P, memory_bytes=MEMORY)
    decoded = decode(encode(program), P)
    for accelerator in kinds():
        accelerator.run(program_of(P, replace(LOAD, local=0), *decoded.descriptors[:-1]), 0)


@mostly_slow("name", REFUSED, quick=REFUSED.keys() - {"length"})
def test_validation_rejects_bad_program(name):
    """By both golden models, and by the decoder where the size of the memory is not asked."""
    descriptors, message = REFUSED[name]
    program = program_of(P, *descriptors)
    for accelerator in kinds():
        with pytest.raises(ProgramError, match=message):
            accelerator.run(program, 0)
    if "of a memory of" not in message:
        with pytest.raises(ProgramError, match=message):
            decode(encode(program), P)


def test_loop_levels_that_are_not_built():
    small = replace(P, nest_levels=3)
    d = replace(BIAS, levels=(Level(2), Level(1), Level(1), Level(1)))
    with pytest.raises(ProgramError, match="4 loop levels, the accelerator has 3"):
        check_program(program_of(small, LOAD, d), small)
    check_program(program_of(small, replace(d, levels=(Level(1), *d.levels[1:]))), small)


def test_validation_ignores_descriptors_after_halt():
    check_program(Program((Halt(), replace(LOAD, local=999), Halt()), 0), P)
    with pytest.raises(ProgramError, match="beats = 0"):
        check_program(Program((Halt(), replace(LOAD, beats=0), Halt()), 0), P)
    with pytest.raises(ProgramError, match="last descriptor, 1, is LOAD"):
        check_program(Program((Halt(), LOAD), 0), P)


# Against a literal walk.


def executed(descriptors, registers, at=0):
    """Return each descriptor that an engine executes, with its registers."""
    while at < len(descriptors):
        d = descriptors[at]
        at += 1
        if isinstance(d, Set):
            registers.update(dict(d.values))
        elif isinstance(d, Loop):
            for _ in range(d.iterations):
                after = yield from executed(descriptors, registers, at)
            at = after
        elif isinstance(d, End):
            for register, step in d.steps:
                registers[register] += step
            return at
        else:
            yield d, dict(registers)
    return at


def inside(d, registers) -> bool:
    if isinstance(d, Transfer):
        low, high = external(replace(d, address=d.address + registers[d.address_register]), P)
        if low < 0 or high > MEMORY or low % P.beat_bytes:
            return False
        d = replace(d, local=d.local + registers[d.local_register])
    else:
        x, g, z = (getattr(d, name) + registers[getattr(d, f"{name}_register")] for name in "xgz")
        d = replace(d, x=x, g=g, z=z)
    return all(t.start >= 0 and t.stop <= P.scratchpad_rows for t in footprint(d, P))


def random_program(random: Random) -> list[Descriptor]:
    """Draw loops in loops, with registers set and stepped everywhere."""

    def updates(most: int) -> tuple[tuple[int, int], ...]:
        chosen = random.sample((1, 2, 3), random.randint(0, 2))
        return tuple((n, 16 * random.randint(-most, most)) for n in chosen)

    def body(depth: int) -> list[Descriptor]:
        descriptors: list[Descriptor] = []
        for _ in range(random.randint(1, 3)):
            kind = random.random()
            if kind < 0.35 and depth:
                descriptors += [
                    Loop(iterations=random.randint(1, 4)),
                    *body(depth - 1),
                    End(steps=updates(2)),
                ]
            elif kind < 0.5:
                descriptors.append(Set(values=updates(4)))
            elif kind < 0.75:
                descriptors.append(replace(
                    LOAD, address=16 * random.randint(9, 215), local=random.randint(60, 200),
                    address_register=random.randrange(4), local_register=random.randrange(4),
                ))  # fmt: skip
            else:
                places = {name: random.randint(60, 200) for name in "xgz"}
                registers = {f"{name}_register": random.randrange(4) for name in "xgz"}
                descriptors.append(replace(random.choice((PE3, BIAS)), **places, **registers))
        return descriptors

    return body(3)


def test_validation_range_of_every_register_is_exact():
    """Refused exactly if one execution of one descriptor lies outside."""
    verdicts = []
    for seed in range(400):
        descriptors = random_program(Random(f"reach {seed}"))
        registers = dict.fromkeys(range(8), 0)
        wanted = all(inside(d, now) for d, now in executed(descriptors, registers))
        try:
            check_program(program_of(P, *descriptors), P, memory_bytes=MEMORY)
            accepted = True
        except ProgramError:
            accepted = False
        assert accepted == wanted, seed
        verdicts.append(accepted)
    assert 0.2 < np.mean(verdicts) < 0.9


def test_work_is_counted_as_it_is_executed():
    """At the limit and one past it."""
    beats = replace(LOAD, levels=(TransferLevel(1 << 11),))  # 2^16 beats
    check_program(program_of(P, *nested(2, 1 << 8, beats)), P)
    with pytest.raises(ProgramError, match="at least 4,294,967,298 steps"):
        check_program(program_of(P, *nested(2, 1 << 8, beats), STORE), P)
    assert MOST_STEPS == 1 << 32
    loops = nested(1, (1 << 16) - 1, *(LOAD,) * 14)  # 15 an iteration, and 1 for the program
    rest = MOST_EXECUTED - 15 * ((1 << 16) - 1) - 2 - 1000
    loops += nested(1, 1000)
    check_program(program_of(P, *loops, *nested(1, rest), LOAD), P)
    with pytest.raises(ProgramError, match="1,048,577 descriptors"):
        check_program(program_of(P, *loops, *nested(1, rest), LOAD, LOAD), P)


# Program files with a valid CRC and nonsense inside.


def sealed(body: bytes) -> bytes:
    count = len(body) // DESCRIPTOR_BYTES
    return HEADER.pack(MAGIC, VERSION, 0, count, P.fingerprint, zlib.crc32(body)) + body


def mangled(random: Random, body: bytes) -> bytes:
    """Replace some fields, and now and then some bits, of some descriptors."""
    words = [
        int.from_bytes(body[at : at + DESCRIPTOR_BYTES], "little")
        for at in range(0, len(body), DESCRIPTOR_BYTES)
    ]
    for _ in range(random.randint(1, 3)):
        n = random.randrange(len(words))
        if random.random() < 0.1:
            words[n] ^= 1 << random.randrange(DESCRIPTOR_BITS)
            continue
        try:
            layout = LAYOUTS[Operation(words[n] & 15)]
        except ValueError:
            continue
        name, width, *_ = random.choice(layout)
        position = 0
        for other, other_width, *_ in layout:
            if other == name:
                break
            position += other_width
        value = random.choice((0, 1, (1 << width) - 1, random.getrandbits(width), 2, 16))
        value %= 1 << width
        words[n] = words[n] & ~(((1 << width) - 1) << position) | value << position
    return b"".join(word.to_bytes(DESCRIPTOR_BYTES, "little") for word in words)


def work(program: Program) -> int:
    """Count executions, tiles and runs."""
    most = 1
    for d in program.descriptors:
        most *= d.iterations if isinstance(d, Loop) else 1
    return most * sum(
        d.steps if isinstance(d, Compute) else d.runs if isinstance(d, Transfer) else 1
        for d in program.descriptors
    )


@mostly_slow("seeds", (range(750), range(750, 1500)), quick=[range(750)])
def test_mangled_program_files(seeds):
    """Refused by all, or executed by both golden models with the same bits."""
    body = encode(
        program_of(
            P,
            *(replace(LOAD, beats=256), replace(LOAD, beats=256, local=128)),
            *(PE4, PE3, BIAS),
            *(Set(values=((1, 32),)), Loop(iterations=2), replace(PE3, x_register=1)),
            *(replace(STORE, local=64, address_register=1), End(steps=((1, 16),))),
        )
    )[HEADER.size :]
    native_one, interpreted = kinds()
    data = np.random.RandomState(0).randint(0, 256, MEMORY).astype(np.uint8)
    executed_too = 0
    for seed in seeds:
        try:
            program = decode(sealed(mangled(Random(f"mangled {seed}"), body)), P)
        except ProgramError:
            continue
        if work(program) > 1 << 12:  # the interpreter takes its time
            continue
        outcomes = []
        for accelerator in (native_one, interpreted):
            accelerator.write(0, data)
            try:
                run = accelerator.run(program, 0)
                outcomes.append((run.sums.tolist(), run.saturations.tolist(),
                                 accelerator.read(0, MEMORY).tobytes()))  # fmt: skip
            except ProgramError as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1], seed
        executed_too += not isinstance(outcomes[0], str)
    assert executed_too > 100

"""Soft errors: the bit that was meant is flipped, and no other, on golden model and RTL alike."""

import json
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from trainwright.golden.backend import GoldenAccelerator
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import (
    Compute,
    Halt,
    Level,
    Loop,
    Program,
    Transfer,
    TransferLevel,
)
from trainwright.program.fields import Engine, Operation, Target
from trainwright_sim.backend import RtlAccelerator
from trainwright_sim.flips.__main__ import main
from trainwright_sim.flips.accelerator import Flipping
from trainwright_sim.flips.inject import SPARE_BYTES, Flip, Injector, item_bits

P = AcceleratorParameters()
MEMORY_BYTES = 1 << 16
ROWS, ENTRIES, RESULT = 32, 16, 64
FACTORS, AGAIN, OUT, PROGRAM = 0x4000, 0x400, 0x6000, 0x8000


def program(p: AcceleratorParameters) -> Program:
    """Rows and entries of both stores, these several times, are loaded, multiplied, and stored."""
    size = p.word_width // 8
    rows = Transfer(
        operation=Operation.LOAD, address=0, local=0, element_bytes=size,
        beats=ROWS * size * p.lanes * 8 // p.data_width,
    )  # fmt: skip
    stores = [
        replace(rows, target=target, address=FACTORS + 0x800 * n, element_bytes=0, wait=Engine.ALL,
                beats=ENTRIES * width * p.factor_storage_width // p.data_width)
        for n, (target, width) in enumerate(
            ((Target.PE1_STORE, p.lanes), (Target.PE2_STORE, p.pe2_rows))
        )
    ]  # fmt: skip
    earlier = [replace(store, address=OUT) for store in stores]
    stores = [replace(store, levels=(TransferLevel(2, AGAIN),)) for store in stores]
    products = [
        Compute(
            operation=operation, levels=(Level(16), Level(summed, x=1, g=1)), x=0, g=0, z=z,
            reduce_levels=1, last_rows=rows_of, x_row_stride=1, z_row_stride=1, wait=wait,
            shift=10, out_width=p.word_width,
        )
        for operation, rows_of, z, summed, wait in (
            (Operation.PE1, p.pe1_rows, RESULT, 1, Engine.LOAD),
            (Operation.PE2, p.pe2_rows, RESULT + 16, ENTRIES, Engine.NONE),
        )
    ]  # fmt: skip
    store = replace(rows, operation=Operation.STORE, address=OUT, wait=Engine.ALL)
    results = replace(
        store, local=RESULT, address=OUT + 0x1000, beats=p.pe1_rows * rows.beats // ROWS,
        levels=(TransferLevel(2, 0x400, 16),),
    )  # fmt: skip
    return Program(
        (rows, *earlier, *stores, *products, store, results, Halt(wait=Engine.ALL)), p.fingerprint
    )


def golden(p: AcceleratorParameters, seed: int = 0) -> GoldenAccelerator:
    """With anything in its memory."""
    accelerator = GoldenAccelerator(p, memory_bytes=MEMORY_BYTES)
    numbers = np.random.default_rng(seed)
    accelerator.write(0, numbers.integers(0, 256, MEMORY_BYTES, np.uint8))
    return accelerator


def bits_of(before: np.ndarray, after: np.ndarray) -> list[int]:
    """Numbers of the bits that differ."""
    different = np.unpackbits(before ^ after, bitorder="little")
    return np.flatnonzero(different).tolist()


def stored(accelerator, body: Program, p: AcceleratorParameters) -> np.ndarray:
    """Rows as they are at the end of a program."""
    accelerator.run(body, PROGRAM)
    return accelerator.read(OUT, ROWS * p.lanes * p.word_width // 8)


@pytest.mark.parametrize("width", [8, 16])
def test_one_bit_of_a_row_is_flipped(width):
    p = replace(P, word_width=width)
    accelerator, body, random = golden(p), program(p), Random(width)
    before = accelerator.read(0, MEMORY_BYTES)
    plain = stored(accelerator, body, p)
    for place in (1, 7):
        row, bit = random.randrange(ROWS), random.randrange(item_bits(Target.SCRATCHPAD, p))
        accelerator.write(0, before)
        flip = Flip(Target.SCRATCHPAD, place, row, bit)
        changed = Injector(accelerator).flipped(body, flip)
        assert changed is not None and len(changed.descriptors) == len(body.descriptors) + 1
        used = MEMORY_BYTES - SPARE_BYTES
        assert np.array_equal(accelerator.read(0, used), before[:used])
        assert bits_of(plain, stored(accelerator, changed, p)) == [
            row * item_bits(Target.SCRATCHPAD, p) + bit
        ]


@pytest.mark.parametrize("width", [4, 6])
@pytest.mark.parametrize("target", [Target.PE1_STORE, Target.PE2_STORE])
def test_a_flip_of_an_entry_is_that_of_its_image(target, width):
    """The results are those of an image in external memory with that bit flipped."""
    p = replace(P, factor_width=width)
    accelerator, body, random = golden(p), program(p), Random(f"{target} {width}")
    before = accelerator.read(0, MEMORY_BYTES)
    load = [d for d in body.descriptors if isinstance(d, Transfer) and d.target is target][-1]
    differ = 0
    for _ in range(4):
        entry, bit = random.randrange(ENTRIES), random.randrange(item_bits(target, p))
        accelerator.write(0, before)
        changed = Injector(accelerator).flipped(body, Flip(target, 5, entry, bit))
        assert changed is not None
        run = accelerator.run(changed, PROGRAM, trace=True)
        image = before.copy()
        word = entry * (item_bits(target, p) // width) + bit // width
        place = word * p.factor_storage_width + bit % width
        image[load.address + AGAIN + place // 8] ^= 1 << place % 8
        accelerator.write(0, image)
        wanted = accelerator.run(body, PROGRAM, trace=True)
        accelerator.write(0, before)
        plain = accelerator.run(body, PROGRAM, trace=True)
        for engine in ("pe1", "pe2"):
            assert np.array_equal(run.traces[engine].rows, wanted.traces[engine].rows)
            differ += not np.array_equal(run.traces[engine].rows, plain.traces[engine].rows)
    assert differ


def test_what_nobody_wrote_has_no_flip():
    accelerator, body = golden(P), program(P)
    injector = Injector(accelerator)
    assert injector.flipped(body, Flip(Target.SCRATCHPAD, 5, RESULT, 0)) is None
    assert injector.flipped(body, Flip(Target.SCRATCHPAD, 6, RESULT, 0)) is not None
    assert injector.flipped(body, Flip(Target.PE1_STORE, 1, 0, 0)) is None
    assert injector.flipped(body, Flip(Target.PE1_STORE, 2, ENTRIES, 0)) is None
    assert injector.flipped(body, Flip(Target.PE2_STORE, 3, 0, 0)) is not None


def test_what_cannot_be_flipped_is_refused():
    body = program(P)
    injector = Injector(golden(P))
    looped = Program((Loop(iterations=2), *body.descriptors), body.fingerprint)
    with pytest.raises(ValueError, match="without loops and registers, not LOOP"):
        injector.flipped(looped, Flip(Target.SCRATCHPAD, 1, 0, 0))
    for place in (0, len(body.descriptors)):
        with pytest.raises(ValueError, match=f"no descriptor {place} with one before it"):
            injector.flipped(body, Flip(Target.SCRATCHPAD, place, 0, 0))
    with pytest.raises(ValueError, match="at most 32 flips"):
        injector.flipped(body, Flip(Target.SCRATCHPAD, 1, 0, 0), 32)
    with pytest.raises(ValueError, match=r"must be one of scratchpad, .*, not 'cache'"):
        Flipping(golden(P), "cache", Random(0))


@pytest.fixture(scope="module")
def rtl() -> Iterator[RtlAccelerator]:
    with RtlAccelerator(P, memory_bytes=MEMORY_BYTES) as accelerator:
        yield accelerator


@pytest.mark.parametrize("seed", range(6))
def test_the_rtl_takes_the_same_flips(rtl, seed):
    """Several flips in one run: rows in the order of writing, and memory, as the golden model."""
    random = Random(seed)
    accelerator, body = golden(P, seed), program(P)
    plain = accelerator.run(body, PROGRAM, trace=True)
    changed, injector = body, Injector(accelerator)
    for number in range(4):  # some while PE1 computes
        target = random.choice((Target.SCRATCHPAD, Target.PE1_STORE, Target.PE2_STORE))
        item = random.randrange(P.lanes)
        flip = Flip(target, random.choice((5, 6)), item, random.randrange(item_bits(target, P)))
        flipped = injector.flipped(changed, flip, number)
        assert flipped is not None
        changed = flipped
    rtl.write(0, accelerator.read(0, MEMORY_BYTES))
    expected = accelerator.run(changed, PROGRAM, trace=True)
    found = rtl.run(changed, PROGRAM, trace=True)
    differ = 0
    for engine, trace in expected.traces.items():
        assert found.traces[engine].addresses.tolist() == trace.addresses.tolist()
        assert np.array_equal(found.traces[engine].rows, trace.rows)
        differ += not np.array_equal(trace.rows, plain.traces[engine].rows)
    assert differ
    assert np.array_equal(rtl.read(0, PROGRAM), accelerator.read(0, PROGRAM))


def test_the_command(capsys):
    asked = ["--flips", "6", "--memory", "external", "--rate", "0", "--rate", "2", "--runs", "1",
             "--epochs", "1"]  # fmt: skip
    assert main([*asked, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    [step], [without, hit] = found["steps"], found["runs"]
    assert step["memory"] == "external" and step["flips"] == 6 and not step["noticed"]
    assert 0 < step["harmless"] < 6 and 0 < step["half"] <= step["worst"]
    assert (without["memory"], without["flips"], hit["memory"]) == ("none", 0, "external")
    assert hit["flips"] > 20 and without["accuracy"] > 0.7


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--flips", "0"], "--flips must be at least 1, not 0"),
        (["--rate", "17"], "--rate is from 0 to 16, not 17"),
        (["--rate", "nan"], "--rate is from 0 to 16, not nan"),
        (["--network", "nowhere"], "nowhere"),
    ],
)
def test_wrong_options_are_one_line(capsys, option, message):
    assert main(option) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1

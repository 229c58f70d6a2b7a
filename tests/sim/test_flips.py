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
from trainwright.program.fields import Engine, Operation
from trainwright_sim.backend import RtlAccelerator
from trainwright_sim.flips.__main__ import main
from trainwright_sim.flips.accelerator import Flipping
from trainwright_sim.flips.inject import SPARE_BYTES, Flip, Injector, row_bits

P = AcceleratorParameters()
MEMORY_BYTES = 1 << 16
ROWS, RESULT = 32, 64
OUT, PROGRAM = 0x6000, 0x8000


def program(p: AcceleratorParameters) -> Program:
    """Load rows twice, multiply them with each other on both arrays, and store the products."""
    size = p.word_width // 8
    rows = Transfer(
        operation=Operation.LOAD, address=0, local=0, element_bytes=size,
        beats=ROWS * size * p.lanes * 8 // p.data_width,
    )  # fmt: skip
    again = replace(rows, address=0x2000, wait=Engine.ALL)
    groups = p.lanes // p.pe2_rows
    products = [
        Compute(
            operation=operation, levels=(Level(16), Level(summed, x=1, g=1)), x=0, g=g, z=z,
            reduce_levels=1, last_rows=rows_of, x_row_stride=1, z_row_stride=1, g_row_stride=1,
            wait=wait, shift=18, out_width=p.word_width,
        )
        for operation, rows_of, g, z, summed, wait in (
            (Operation.PE4, p.pe1_rows, 16, RESULT, 1, Engine.LOAD),
            (Operation.PE3, p.pe2_rows, 16 * groups, RESULT + 16, 16, Engine.NONE),
        )
    ]  # fmt: skip
    store = replace(rows, operation=Operation.STORE, address=OUT, wait=Engine.ALL)
    results = replace(
        store, local=RESULT, address=OUT + 0x1000, beats=p.pe1_rows * rows.beats // ROWS,
        levels=(TransferLevel(2, 0x400, 16),),
    )  # fmt: skip
    return Program((rows, again, *products, store, results, Halt(wait=Engine.ALL)), p.fingerprint)


def golden(p: AcceleratorParameters, seed: int = 0) -> GoldenAccelerator:
    """Return a golden model with random memory."""
    accelerator = GoldenAccelerator(p, memory_bytes=MEMORY_BYTES)
    numbers = np.random.default_rng(seed)
    accelerator.write(0, numbers.integers(0, 256, MEMORY_BYTES, np.uint8))
    return accelerator


def bits_of(before: np.ndarray, after: np.ndarray) -> list[int]:
    """Return the numbers of the bits that differ."""
    different = np.unpackbits(before ^ after, bitorder="little")
    return np.flatnonzero(different).tolist()


def stored(accelerator, body: Program, p: AcceleratorParameters) -> np.ndarray:
    """Return rows at the end of a program."""
    accelerator.run(body, PROGRAM)
    return accelerator.read(OUT, ROWS * p.lanes * p.word_width // 8)


@pytest.mark.parametrize("width", [8, 16])
def test_flip_changes_one_bit_of_row(width):
    p = replace(P, word_width=width)
    accelerator, body, random = golden(p), program(p), Random(width)
    before = accelerator.read(0, MEMORY_BYTES)
    plain = stored(accelerator, body, p)
    for place in (2, 4):
        row, bit = random.randrange(ROWS), random.randrange(row_bits(p))
        accelerator.write(0, before)
        changed = Injector(accelerator).flipped(body, Flip(place, row, bit))
        assert changed is not None and len(changed.descriptors) == len(body.descriptors) + 1
        used = MEMORY_BYTES - SPARE_BYTES
        assert np.array_equal(accelerator.read(0, used), before[:used])
        assert bits_of(plain, stored(accelerator, changed, p)) == [row * row_bits(p) + bit]


def test_flip_before_overwrite_has_no_effect():
    accelerator, body = golden(P), program(P)
    before = accelerator.read(0, MEMORY_BYTES)
    plain = stored(accelerator, body, P)
    accelerator.write(0, before)
    changed = Injector(accelerator).flipped(body, Flip(1, 3, 5))
    assert changed is not None
    assert np.array_equal(plain, stored(accelerator, changed, P))


def test_flip_of_unwritten_row_is_none():
    accelerator, body = golden(P), program(P)
    injector = Injector(accelerator)
    assert injector.flipped(body, Flip(2, RESULT, 0)) is None
    assert injector.flipped(body, Flip(3, RESULT, 0)) is not None
    assert injector.flipped(body, Flip(1, ROWS, 0)) is None


def test_flip_outside_memory_is_rejected():
    body = program(P)
    injector = Injector(golden(P))
    looped = Program((Loop(iterations=2), *body.descriptors), body.fingerprint)
    with pytest.raises(ValueError, match="without loops and registers, not LOOP"):
        injector.flipped(looped, Flip(1, 0, 0))
    for place in (0, len(body.descriptors)):
        with pytest.raises(ValueError, match=f"no descriptor {place} with one before it"):
            injector.flipped(body, Flip(place, 0, 0))
    with pytest.raises(ValueError, match="at most 32 flips"):
        injector.flipped(body, Flip(1, 0, 0), 32)
    with pytest.raises(ValueError, match=r"must be one of scratchpad, .*, not 'cache'"):
        Flipping(golden(P), "cache", Random(0))


@pytest.fixture(scope="module")
def rtl() -> Iterator[RtlAccelerator]:
    with RtlAccelerator(P, memory_bytes=MEMORY_BYTES) as accelerator:
        yield accelerator


@pytest.mark.parametrize("seed", range(6))
def test_flips_on_rtl_match_golden_model(rtl, seed):
    """Several flips in one run: rows in the order of writing, and memory, as the golden model."""
    random = Random(seed)
    accelerator, body = golden(P, seed), program(P)
    plain = accelerator.run(body, PROGRAM, trace=True)
    changed, injector = body, Injector(accelerator)
    for number in range(4):  # some while PE1 computes
        row = random.randrange(ROWS)
        flip = Flip(random.choice((2, 3)), row, random.randrange(row_bits(P)))
        flipped = injector.flipped(changed, flip, number)
        assert flipped is not None
        changed = flipped
    rtl.write(0, accelerator.read(0, MEMORY_BYTES))
    expected = accelerator.run(changed, PROGRAM, trace=True)
    simulated = rtl.run(changed, PROGRAM, trace=True)
    differ = 0
    for engine, trace in expected.traces.items():
        assert simulated.traces[engine].addresses.tolist() == trace.addresses.tolist()
        assert np.array_equal(simulated.traces[engine].rows, trace.rows)
        differ += not np.array_equal(trace.rows, plain.traces[engine].rows)
    assert differ
    assert np.array_equal(rtl.read(0, PROGRAM), accelerator.read(0, PROGRAM))


def test_flips_command_reports_harm_by_memory(capsys):
    asked = ["--flips", "6", "--memory", "external", "--rate", "0", "--rate", "2", "--runs", "1",
             "--epochs", "1"]  # fmt: skip
    assert main([*asked, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    [step], [without, hit] = report["steps"], report["runs"]
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

"""Samples by address: records of a data set, drawn and expanded by LOAD."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from trainwright.golden.backend import GoldenAccelerator
from trainwright.onchip import samples as definition
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Halt, Program, Set
from trainwright.program.encoding import decode_descriptor, encode_descriptor
from trainwright.program.errors import ProgramError
from trainwright.program.sample_order import SampleOrder
from trainwright.program.samples import Samples
from trainwright.program.validation import check_program

P = AcceleratorParameters(sample_loads=1)
BASE = 4096
MEMORY = 1 << 17


def program(*descriptors, p=P) -> Program:
    return Program((*descriptors, Halt()), p.fingerprint)


def data_set(total: int, pixels: int, width: int, seed: int = 0):
    """Return records of random images, and the images' pixels and labels."""
    random = np.random.default_rng(seed)
    images = random.integers(0, 1 << width, (total, pixels)).astype(np.uint8)
    labels = random.integers(0, 10, total)
    return definition.records(images, labels, width, 10), images, labels


def load(records, total: int, width: int, **fields) -> Samples:
    beats = records.shape[1] // P.beat_bytes - 1
    rows = beats * 8 // width
    return Samples(**{
        "address": BASE, "local": 0, "targets": 10000, "samples": 16, "beats": beats,
        "stride": records.shape[1], "local_step": rows, "total": total, "pixels": width,
    } | fields)  # fmt: skip


def accelerator(records, interpreted: bool) -> GoldenAccelerator:
    golden = GoldenAccelerator(P, memory_bytes=MEMORY, interpreted=interpreted)
    golden.write(BASE, records)
    return golden


@pytest.mark.parametrize("interpreted", (False, True))
@pytest.mark.parametrize("width", (4, 8))
def test_batches_are_those_of_the_reference(width: int, interpreted: bool):
    """Three epochs of 83 samples in batches of 16: rows, targets, and the registers after each."""
    total, batch, seed = 83, 16, 5
    records, images, labels = data_set(total, 40, width)
    d = load(records, total, width, drawn=True, order_length=80,
             order_first=definition.first_of(total, seed))  # fmt: skip
    with accelerator(records, interpreted) as golden:
        golden.order = definition.order_at(total, batch, seed, 0)
        for step in range(16):
            assert golden.order == definition.order_at(total, batch, seed, step)
            run = golden.run(program(d), 0, trace=True)
            epoch, place = divmod(step, 5)
            chosen = definition.epoch_order(total, seed, epoch)[place * batch :][:batch]
            assert run.traces is not None
            rows = run.traces["load"].rows.reshape(batch, d.rows + 1, P.lanes)
            inputs = rows[:, :-1].reshape(batch, -1)
            assert (inputs[:, :40] == definition.expanded(images[chosen], width, 8)).all()
            assert not inputs[:, 40:].any()
            assert (rows[:, -1].argmax(1) == labels[chosen]).all()
            assert (rows[:, -1].sum(1) == 1 - 6).all()
            assert run.counters.bytes_read == batch * records.shape[1]


def test_in_order_and_registers():
    """The n-th record from the address on, the order left alone."""
    records, images, _ = data_set(20, 32, 8)
    d = load(records, 20, 8, samples=4, address=0, address_register=3, local_register=2)
    start = Set(values=((3, BASE + 5 * records.shape[1]), (2, 7)))
    runs = []
    for interpreted in (False, True):
        with accelerator(records, interpreted) as golden:
            golden.order = SampleOrder(3, 5, 7)
            run = golden.run(program(start, d), 0, trace=True)
            assert golden.order == SampleOrder(3, 5, 7)
            assert run.traces is not None
            runs.append(run.traces["load"])
    assert (runs[0].rows == runs[1].rows).all() and (runs[0].addresses == runs[1].addresses).all()
    inputs = runs[0].rows.reshape(4, 3, 16)[:, :2].reshape(4, 32)
    assert (inputs == definition.expanded(images[5:9], 8, 8)).all()
    assert runs[0].addresses[:3].tolist() == [7, 8, 10000]


@pytest.mark.parametrize("seed", range(6))
def test_kernel_and_interpreter_agree(seed: int):
    """Random descriptors and registers, odd ones too: the same rows, bits and order."""
    random = Random(seed)
    total = random.randint(1, 90)
    width = random.choice((4, 8))
    records, _, _ = data_set(total, random.randint(1, 70), width, seed)
    runs = []
    d = load(records, total, width, samples=random.randint(1, 40), drawn=True,
             input_bits=random.randint(1, 15), order_first=random.getrandbits(24),
             order_length=random.randint(1, total), local=200,
             local_step=random.choice((-2, 0, 3, 20)))  # fmt: skip
    order = SampleOrder(random.getrandbits(24), random.getrandbits(32), random.randint(0, 9))
    for interpreted in (False, True):
        with accelerator(records, interpreted) as golden:
            golden.order = order
            run = golden.run(program(d, d), 0, trace=True)
            assert run.traces is not None
            trace = run.traces["load"]
            runs.append((golden.order, trace.addresses.tolist(), trace.rows.tolist()))
    assert runs[0] == runs[1]
    assert all(0 <= word < 1 << d.input_bits or address >= 10000
               for address, row in zip(*runs[0][1:], strict=True) for word in row)  # fmt: skip


def test_epoch_draws_each_sample_once():
    order = SampleOrder(11, 0x12345679, 1000)
    drawn = set()
    for _ in range(1000):
        index, order = order.draw(1000, 11, 1000)
        drawn.add(index)
    assert drawn == set(range(1000))
    assert order == SampleOrder(11, (0x12345679 + 0x9E3779B8) % (1 << 32), 1000)


def test_encoding_returns_it():
    records, _, _ = data_set(20, 32, 4)
    d = load(records, 20, 4, drawn=True, order_first=9, order_length=20, local_step=-3,
             address_register=2, local_register=1, input_bits=15)  # fmt: skip
    data = encode_descriptor(d)
    assert decode_descriptor(data) == d
    for bit, message in ((12, "target = 1"), (15, "pixel_bytes = 2"), (207, "order_mask")):
        wrong = (int.from_bytes(data, "little") ^ 1 << bit).to_bytes(len(data), "little")
        with pytest.raises(ProgramError, match=message):
            decode_descriptor(wrong)


@pytest.mark.parametrize(
    "change, message",
    (
        ({"samples": 0}, "samples = 0 is not from 1"),
        ({"samples": 21}, "sample 20 is beyond a set of 20; load fewer"),
        ({"total": 1 << 24}, "total = 16777216"),
        ({"drawn": True, "total": 4000, "order_length": 4000}, "of a memory of 131072 bytes"),
        ({"drawn": True, "order_length": 21}, "an epoch of 21 samples of a set of 20"),
        ({"drawn": True, "order_length": 0}, "order_length = 0"),
        ({"stride": 50}, "50 bytes apart, do not all begin with a beat"),
        ({"address": 8}, "at byte 8"),
        ({"stride": 16}, "records of 48 bytes are 16 bytes apart; give them room"),
        ({"pixels": 3}, "pixels of 3 bits; store 4 or 8"),
        ({"input_bits": 16}, "input_bits = 16 is not from 1 to 15"),
        ({"local": 1 << 19}, "writes SCRATCHPAD"),
        ({"targets": 1 << 19}, "writes SCRATCHPAD"),
    ),
)
def test_samples_reject_bad_order_or_size(change, message):
    records, _, _ = data_set(20, 32, 8)
    d = replace(load(records, 20, 8), **change)
    with pytest.raises(ProgramError, match=message):
        check_program(program(d), P, memory_bytes=MEMORY)
    with accelerator(records, False) as golden, pytest.raises(ProgramError, match=message):
        golden.run(program(d), 0)


def test_samples_on_accelerator_without_loads_are_rejected():
    p = AcceleratorParameters()
    records, _, _ = data_set(20, 32, 8)
    with pytest.raises(ProgramError, match="use one with sample_loads=1"):
        check_program(program(load(records, 20, 8), p=p), p)
    assert p.fingerprint == AcceleratorParameters(sample_loads=0).fingerprint != P.fingerprint


@pytest.mark.parametrize(
    "pixels, labels, message",
    (
        ([[16]], [0], "a pixel of 16 has more than 4 bits"),
        ([[1]], [10], "labels from 10 to 10 of 10 classes"),
        ([[1]], [-1], "labels from -1"),
    ),
)
def test_records_are_checked(pixels, labels, message):
    with pytest.raises(ValueError, match=message):
        definition.records(np.array(pixels, np.uint8), np.array(labels), 4, 10)


@pytest.mark.parametrize("numbered, most", ((False, 16), (True, 8192)))
def test_records_of_no_or_too_many_classes_are_one_error(numbered, most):
    for classes in (0, most + 1):
        with pytest.raises(ValueError, match=f"targets of 1 to {most} classes, not {classes}"):
            definition.records(np.zeros((1, 8), np.uint8), np.zeros(1), 8, classes,
                               numbered=numbered)  # fmt: skip

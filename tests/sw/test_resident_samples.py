"""Samples and schedule of a resident step: the bits of steps that the host feeds and binds."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from chip_models import model_of, place_data, put_batch
from test_resident import DIGITS, Case, P, same

from trainwright.accelerator import AcceleratorError
from trainwright.check.training import random_state
from trainwright.compiler import compile_step
from trainwright.compiler.base.compiled import AUTO, IN_ROWS
from trainwright.compiler.base.memory import Region
from trainwright.compiler.base.names import SAMPLES_INSIDE, SAMPLES_OUTSIDE
from trainwright.compiler.chip.beside import rows_of
from trainwright.compiler.chip.memory import SCHEDULE, TARGETS, ChipMemory
from trainwright.compiler.chip.passes import Passes
from trainwright.compiler.chip.samples import rows_read, samples_program
from trainwright.compiler.chip.schedule import Schedule
from trainwright.compiler.chip.update import UpdateRule
from trainwright.driver.resident import ResidentDriver, ResidentRun
from trainwright.fixed.scale import Scales
from trainwright.golden.backend import GoldenAccelerator
from trainwright.kernels import lower
from trainwright.network import load_network
from trainwright.onchip import prior
from trainwright.onchip.samples import epoch_order, expanded, order_at, records, target_rows
from trainwright.onchip.schedule import (
    ENTRIES,
    MOST_STEPS,
    RATE,
    RATE_SHIFT,
    Entry,
    RateTable,
    schedule_words,
)
from trainwright.program.errors import ProgramError
from trainwright.program.samples import Samples
from trainwright.program.vector import THREADS, Stream

pytestmark = pytest.mark.usefixtures("programs_once", "first_programs")
S = replace(P, sample_loads=1)
MEMORY = 1 << 21
FASHION = load_network("fashion")
SMALL = FASHION.with_ranks([[3, 5, 2], [5]])
TABLE = RateTable((Entry(11, 5), Entry(9, 3), Entry(15, 6)), steps=2)


class Set:
    """Random images with labels, as the accelerator stores them."""

    def __init__(self, total, size, pixels, seed=0):
        random = np.random.default_rng(seed)
        stored = random.integers(0, 1 << pixels, (total, size)).astype(np.uint8)
        self.labels = random.integers(0, 10, (total,))
        self.inputs = expanded(stored, pixels, 8)
        self.records, self.pixels = records(stored, self.labels, pixels, 10), pixels

    def batch(self, number, batch, seed):
        epoch, place = divmod(number, len(self.labels) // batch)
        chosen = epoch_order(len(self.labels), seed, epoch)[place * batch : (place + 1) * batch]
        return torch.from_numpy(self.inputs[chosen]), self.labels[chosen]


@pytest.mark.parametrize(
    ("network", "batch", "pixels", "room", "part"),
    [
        (DIGITS, 16, 8, 0, 1),
        (DIGITS, 48, 4, 160, 1),  # 16 pixels of all samples at a time
        (DIGITS, 40, 4, 160, 1),
        (DIGITS, 20, 8, 0, 1),
        (SMALL, 16, 4, 88, 1),  # a sample at a time
        (SMALL, 16, 4, 490, 1),  # 8 of them
        pytest.param(FASHION, 16, 4, 88, 1, marks=pytest.mark.slow),
        pytest.param(FASHION, 16, 4, 490, 1, marks=pytest.mark.slow),
        pytest.param(FASHION, 32, 4, 0, 1, marks=pytest.mark.slow),
        pytest.param(FASHION.with_ranks([[12, 5, 13], [16]]), 64, 8, 0, 1, marks=pytest.mark.slow),
    ],
)
def test_resident_samples_batch_is_in_memory_as_if_written(network, batch, pixels, room, part):
    occupied = [Region("others", room, S.scratchpad_rows - room)] if room else []
    program = check_batches(network, batch, pixels, occupied, part=part)
    assert not room or rows_of(program.descriptors, S)[-1].stop <= room


@pytest.mark.parametrize(
    ("batch", "gaps", "draws"),
    [
        (16, (), [0]),
        (20, (), [0, 64]),
        (64, (), [0, 64, 128, 192]),  # rows of four groups of samples, one behind the other
        (64, ((150, 160), (310, 320), (1000, 16384)), [0, 64, 160, 224]),  # two and two
    ],
)
def test_resident_samples_load_whole_batch_at_once(batch, gaps, draws):
    """Without a gap for all samples between other rows, samples lie in equal parts."""
    occupied = [Region("others", start, stop - start) for start, stop in gaps]
    program = check_batches(DIGITS, batch, 4, occupied, whole=True)
    places = [d.local for d in program.descriptors if isinstance(d, Samples)]
    assert [place - places[0] for place in places] == [place - draws[0] for place in draws]
    taken = rows_of(program.descriptors, S)
    assert not any(a.start < b.stop and b.start < a.stop for a in taken for b in occupied)


def check_batches(network, batch, pixels, occupied, *, part=1, whole=False):
    """Check inputs and targets of three batches of two epochs; return the program."""
    size = network.layers[0].input_size
    given = Set(2 * batch + 5, size, pixels)
    with GoldenAccelerator(S, memory_bytes=MEMORY) as golden:
        data = place_data(golden, given.records, batch, 7, pixels)
        state = random_state(network, 3)
        driver = ResidentDriver(
            golden, state.layout, batch, ResidentRun(UpdateRule(TABLE), seed=7, data=data)
        )
        driver.put(state, model_of(state))
        golden.order = order_at(data.total, batch, 7, 1)
        program = samples_program(driver.memory, data, occupied, whole=whole)
        inside, outside = (driver.step.buffers[name] for name in (SAMPLES_INSIDE, SAMPLES_OUTSIDE))
        read = rows_read(driver.step, inside)
        blocks = -(-batch // 16)
        columns = slice(read.start // blocks, read.stop // blocks)
        assert columns.stop - columns.start == size // part
        for number in range(1, 4):
            golden.run(program, 0)
            inputs, labels = given.batch(number, batch, 7)
            stored = outside.unpack(golden.read(outside.address, outside.size))
            assert (stored[:batch] == inputs).all()
            stored = inside.unpack(golden.read(inside.address, inside.size))
            assert (stored[:, columns] == inputs[:, columns]).all()
            raw = golden.read(inside.address, inside.size).reshape(size, blocks * 16)
            assert not raw[columns, batch:].any()  # sums over lanes read them
            assert (driver.rows(TARGETS) == target_rows(labels, 10, 16)).all()
    return program


@pytest.mark.parametrize(("network", "pixels"), [(DIGITS, 8), (SMALL, 4)])
def test_steps_with_samples_of_their_own(network, pixels):
    """Two epochs of three steps at once, the last of them in two runs, with nothing written."""
    batch = 16
    case = Case(network, batch, 3)
    given = Set(3 * batch + 9, network.layers[0].input_size, pixels)
    fed = case.resident(table=TABLE)
    total = correct = 0
    for number in range(6):
        put_batch(fed, *given.batch(number, batch, case.seed))
        done = fed.run_steps(1, step=number)
        total, correct = total + done.total, correct + done.correct
    with GoldenAccelerator(S, memory_bytes=MEMORY) as golden:
        data = place_data(golden, given.records, batch, case.seed, pixels)
        chip = case.resident(table=TABLE, golden=golden, data=data)
        parts = [chip.run_steps(5, step=0), chip.run_steps(1, step=5)]
        assert (sum(p.total for p in parts), sum(p.correct for p in parts)) == (total, correct)
        same(fed, chip)
        assert fed.exponents() == chip.exponents()
        assert golden.order == order_at(data.total, batch, case.seed, 7)  # fetched already


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_resident_samples_schedule_goes_through_its_table(steps):
    """From any step on, over the end of its 64 entries: rates in all threads, and the counters."""
    random = np.random.default_rng(steps)
    entries = tuple(
        Entry(*map(int, random.integers((0, 0, 0, -40), (16, 32, 256, 9)))) for _ in range(ENTRIES)
    )
    table = RateTable(entries, steps=steps)
    with GoldenAccelerator(S, memory_bytes=MEMORY) as golden:
        step = compile_step(DIGITS, 16, S, plan=IN_ROWS[AUTO])
        memory = ChipMemory.of(step, random_state(DIGITS, 3).layout)
        work = Passes(memory)
        schedule = Schedule(work, table)
        schedule.weights()
        written(work, prior.WEIGHT, prior.WEIGHT_EXPONENT)
        schedule.rates()
        written(work, RATE, RATE_SHIFT)
        program = work.finish("the schedule")
        buffer = memory.buffers[SCHEDULE]
        first = ENTRIES * steps // 2
        golden.write(buffer.address, packed(buffer, schedule_words(table, first)))
        for step in range(first, ENTRIES * steps + 2 * steps):
            traces = golden.run(program, 0, trace=True).traces
            assert traces is not None
            rows, entry = traces["pe2"], table.at(step)
            names = [(name, count) for name, count in rows.labels if name == "registers"]
            assert names == [("registers", 16), ("registers", 16)]
            stored = rows.rows.reshape(-1, THREADS, P.lanes)
            expected = (entry.weight << 7, entry.weight_exponent)
            assert all((stored[n] == value).all() for n, value in enumerate(expected))
            assert (stored[-2] == entry.rate).all() and (stored[-1] == entry.rate_shift).all()
            left = golden.read(buffer.address, buffer.size)
            after = schedule_words(table, step + 1)
            assert (left == packed(buffer, after)).all()


def written(work, *registers):
    """Write the registers of all threads to rows."""
    first = work.rows("registers", len(registers) * THREADS, 0).start
    streams = {f"{r.number}": Stream(first + n * THREADS, 0, 1) for n, r in enumerate(registers)}
    work.run(lower(_registers_kernel, registers=registers), streams, tensor="registers")


def _registers_kernel(k, registers):
    for register in registers:
        k.write(f"{register.number}", k.held(register))


def packed(buffer, words):
    return buffer.pack(torch.from_numpy(words))


def test_resident_samples_reject_unsupported_settings():
    layout, few = random_state(DIGITS, 3).layout, Set(40, 64, 8)
    with GoldenAccelerator(S, memory_bytes=1 << 20) as golden:
        much = np.zeros((1 << 14, 80), np.uint8)
        with pytest.raises(
            AcceleratorError, match=r"16,384 samples of 80 bytes.* use --pixels 4.* --memory-bytes"
        ):
            place_data(golden, much, 16, 0, 8)
        data = place_data(golden, np.zeros((12_500, 80), np.uint8), 16, 0, 4)
        driver = ResidentDriver(golden, layout, 16, ResidentRun(UpdateRule(TABLE), data=data))
        state = random_state(DIGITS, 3)
        with pytest.raises(AcceleratorError, match="of them the step's; use fewer samples"):
            driver.begin(Scales(), state, 0)
    with GoldenAccelerator(P, memory_bytes=MEMORY) as golden:
        data = place_data(golden, few.records, 16, 0, 8)
        driver = ResidentDriver(golden, layout, 16, ResidentRun(UpdateRule(TABLE), data=data))
        with pytest.raises(ProgramError, match="use one with sample_loads=1"):
            driver.run_steps(1, step=0)
    table = RateTable((Entry(1, 1),), steps=MOST_STEPS + 1)
    with pytest.raises(ValueError, match="entry of 32768 steps; the chip counts to 32767"):
        schedule_words(table, 0)

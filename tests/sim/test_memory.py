"""The simulated external memory, seen by the copier."""

import numpy as np
import pytest

from trainwright.accelerator import AcceleratorError
from trainwright_sim import copier
from trainwright_sim.memory import CHANNELS, MemoryModel

ADDRESS = 0x2000


@pytest.fixture
def run(copying, parameters, make_program):
    """Return the cycles of copying, or only reading, descriptors under a memory model."""

    def run(length: int, model: MemoryModel, *, offset: int = copier.DEFAULT_OFFSET) -> int:
        program = make_program(parameters, length, seed=length)
        copying.memory = model
        copying.write_register(copier.OFFSET, offset)
        cycles = copying.run(program, ADDRESS).counters.cycles
        size = 128 * length
        if offset:
            copy = copying.read(ADDRESS + offset, size)
            assert np.array_equal(copy, copying.read(ADDRESS, size))
            copying.write(ADDRESS + offset, np.zeros(size, np.uint8))
        return cycles

    yield run
    copying.memory = MemoryModel()
    copying.write_register(copier.OFFSET, copier.DEFAULT_OFFSET)


def test_read_latency_is_counted_from_the_address_to_the_first_beat(run):
    ideal = run(1, MemoryModel.ideal(), offset=0)
    for latency in (2, 5, 40, 200):
        model = MemoryModel.ideal(read_latency=latency)
        assert run(1, model, offset=0) == ideal + latency - 1


def test_write_latency_is_counted_from_the_last_beat_to_the_response(run):
    ideal = run(1, MemoryModel.ideal())
    assert run(1, MemoryModel.ideal(write_latency=30)) == ideal + 29


@pytest.mark.parametrize("bandwidth", [0.1, 0.5, 0.8, 1.0])
def test_reads_get_the_bandwidth_and_no_more(run, bandwidth):
    cycles = run(256, MemoryModel(bandwidth=bandwidth), offset=0)
    assert cycles == pytest.approx(256 * 8 / bandwidth + 40, rel=0.01, abs=10)


@pytest.mark.parametrize("bandwidth", [0.1, 0.5, 0.8, 1.0, 2.0])
def test_reads_and_writes_share_the_bandwidth(run, bandwidth):
    cycles = run(256, MemoryModel(bandwidth=bandwidth))
    assert cycles == pytest.approx(2 * 256 * 8 / bandwidth + 60, rel=0.02, abs=20)


def test_few_outstanding_bursts_expose_the_latency(run):
    model = MemoryModel(read_latency=100, outstanding=1, bandwidth=2.0)
    assert run(32, model, offset=0) > 32 * 100


def test_pauses_depend_on_the_seed_alone(run):
    cycles = [run(128, MemoryModel(stall=0.3, seed=seed)) for seed in (1, 2, 1)]
    assert cycles[0] == cycles[2] != cycles[1]
    assert cycles[0] > run(128, MemoryModel())


@pytest.mark.parametrize("channel", CHANNELS)
def test_each_channel_pauses_on_its_own(run, channel):
    free = MemoryModel.ideal(outstanding=1)
    paused = MemoryModel.ideal(outstanding=1, stall={channel: 0.9})
    assert run(64, paused) > run(64, free) + 250


@pytest.mark.parametrize("seed", range(4))
def test_memory_copy_is_exact_under_pauses(run, seed):
    run(100, MemoryModel(read_latency=5 + 60 * seed, stall=0.2 * seed, seed=seed))


@pytest.mark.parametrize(
    ("address", "offset", "meaning"),
    [(0x1000, 1 << 20, "answered a write"), (0x3F000, 0, "answered a read")],
)
def test_addresses_outside_of_the_memory_are_answered_with_an_error(
    copying, parameters, make_program, address, offset, meaning
):
    program = make_program(parameters, 2)
    copying.write_register(copier.OFFSET, offset)
    if not offset:  # the program itself lies inside; make the copier read behind it
        copying.write_register(copier.FAULT, copier.FAULT_BEYOND)
    with pytest.raises(AcceleratorError, match=meaning):
        copying.run(program, address)
    assert copying.read_register(copier.OFFSET) == copier.DEFAULT_OFFSET  # it was reset


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"read_latency": 0}, "read_latency must be from 1"),
        ({"write_latency": 0}, "write_latency must be from 1"),
        ({"bandwidth": 0.0}, "bandwidth must be above 0"),
        ({"outstanding": 257}, "outstanding must be 1 to 256"),
        ({"stall": 1.0}, "stall must be from 0 to 0.95"),
        ({"stall": {"x": 0.1}}, "stall must be keyed by"),
        ({"seed": -1}, "seed must be from 0"),
    ],
)
def test_settings_are_checked(setting, message):
    with pytest.raises(ValueError, match=message):
        MemoryModel(**setting)

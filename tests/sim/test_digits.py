"""Tensors by digits on words of 8 bits: whole steps on the simulated RTL, and the cycle model."""

import random
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from accelerators import NARROW

from trainwright.accelerator import registers
from trainwright.check.product import check_product
from trainwright.check.step import check_step
from trainwright.compiler import compile_step
from trainwright.network import load_network
from trainwright.program.descriptors import Program, Set
from trainwright.program.encoding import encode_descriptors
from trainwright.program.fields import DESCRIPTOR_BYTES, Operation
from trainwright_sim.backend import RtlAccelerator
from trainwright_sim.library import Stop
from trainwright_sim.memory import MemoryModel

pytestmark = pytest.mark.usefixtures("first_programs")

STALLS = MemoryModel(read_latency=90, write_latency=9, bandwidth=0.4, stall=0.6, seed=3)


@pytest.fixture(scope="module")
def rtl() -> Iterator[RtlAccelerator]:
    with RtlAccelerator(NARROW, memory_bytes=1 << 22) as accelerator:
        yield accelerator


def formats(intermediate: int, gradient: int, **more: int) -> str:
    widths = {"intermediate": intermediate, "gradient": gradient, **more}
    return ",".join(f"{name.replace('_', '.')}=fixed({width})" for name, width in widths.items())


PROMPT = MemoryModel()


def test_vector_without_an_engine_for_it_ends_run(rtl):
    """Like a number that no operation has."""
    rtl.memory = PROMPT
    body = encode_descriptors(Program((Set(values=()),), NARROW.fingerprint))
    body += bytes([Operation.VECTOR, *[0] * (DESCRIPTOR_BYTES - 1)])
    rtl.write(0, np.frombuffer(body, np.uint8))
    simulator = rtl._simulator(True)
    simulator.write_register(registers.PROGRAM_ADDRESS, 0)
    simulator.write_register(registers.PROGRAM_LENGTH, 2)
    simulator.write_register(registers.CONTROL, registers.CONTROL_START)
    stop = simulator.run(2000, 2000)
    status = simulator.read_register(registers.STATUS)
    simulator.reset()
    rtl._set_up(simulator)
    assert stop is Stop.INTERRUPT and status & 7 == registers.STATUS_ERROR
    assert registers.status_error(status) == (registers.Error.OPERATION, 1)


@pytest.mark.parametrize(
    ("widths", "memory"),
    [
        (formats(12, 12), PROMPT),
        (formats(16, 15), STALLS),
        (formats(12, 12, l1_G2=12), PROMPT),
        (formats(15, 16, factor=9), STALLS),
        (formats(8, 12), STALLS),
        (formats(9, 8, factor=16), PROMPT),
        (formats(9, 8, l1_G2=12), PROMPT),
    ],
)
def test_steps_are_those_of_the_golden_model(rtl, widths, memory):
    """Every row, byte and statistic; and as many cycles as the model says, but for 5 %."""
    rtl.memory = memory
    network = load_network("digits").with_formats(widths)
    outcome = check_step(network, 3, rtl, seed=7)
    assert outcome.comparison.mismatches == {}
    assert outcome.comparison.values > 1000
    if memory is PROMPT:
        predicted = compile_step(network, 3, NARROW).predicted_cycles
        assert abs(predicted / outcome.counters.cycles - 1) < 0.05


@pytest.mark.parametrize(
    ("dtype", "sizes", "memory"),
    [
        ("fp32-i8", (9, 40, 12), PROMPT),
        ("fp32-i8", (3, 5, 7), STALLS),
        ("fp64-i8", (4, 9, 5), PROMPT),
    ],
)
def test_product_on_8_bit_multipliers_equals_that_of_wide_ones(rtl, dtype, sizes, memory):
    rtl.memory = memory
    outcome = check_product(dtype, sizes, rtl, seed=2)
    assert outcome.comparison.mismatches == {} and outcome.comparison.tensors["product"]
    assert outcome.to_dict()["multiplier_bits"] == 8 and outcome.error <= outcome.native_error


@pytest.mark.parametrize("seed", range(3))
def test_random_widths_and_ranks(rtl, seed):
    rng = random.Random(f"digits {seed}")
    widths = formats(
        rng.randint(8, 16), rng.randint(4, 15), activation=rng.randint(4, 8),
        factor=rng.randint(2, 15),
    )  # fmt: skip
    network = load_network("digits").with_formats(widths)
    network = network.with_ranks(((rng.randint(1, 16),), (rng.randint(1, 8),)))
    rtl.memory = replace(STALLS, seed=seed + 1, stall=rng.choice((0.0, 0.3, 0.8)))
    outcome = check_step(network, rng.randint(1, 4), rtl, seed=seed)
    assert outcome.comparison.mismatches == {}

"""The accelerator: whole training steps of a small network, through the driver, on both."""

import cocotb
import numpy as np
import torch
from cocotb.task import bridge
from cocotbext.axi import AxiResp

from trainwright.accelerator.registers import Error
from trainwright.compiler import compile_step
from trainwright.driver import Driver, QuantisedModel
from trainwright.fixed.scale import Scales
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import Layer, Network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Halt, Level, Program, Transfer
from trainwright.program.fields import DESCRIPTOR_BYTES, Engine, Operation
from trainwright_hw.control import csr as registers
from trainwright_sim.bench.accelerator import AcceleratorBench, Bridged
from trainwright_sim.bench.axi import ERRORS
from trainwright_sim.bench.catalogue import TOP

BATCH = 3
RESETS = 401
"""Cycles from a reset to the next one that is tried."""
NETWORK = Network(
    name="tiny",
    layers=(
        Layer((2, 4), (3, 4), (3,), relu=True),
        Layer((1, 2, 4), (2, 1, 4), (2, 3)),
    ),
    classes=3,
    image=(3, 4),
    padded=(3, 4),
)


def random_model(numbers: np.random.Generator) -> QuantisedModel:
    """Draw factors over their whole range, and small biases."""
    top = 1 << (NETWORK.widths.factor - 1)
    factors = [
        [torch.from_numpy(numbers.integers(-top, top, shape)) for shape in layer.factor_shapes]
        for layer in NETWORK.layers
    ]
    exponents = [[-3] * layer.order for layer in NETWORK.layers]
    biases = [torch.from_numpy(numbers.normal(0, 0.1, n.output_size)) for n in NETWORK.layers]
    return QuantisedModel(NETWORK, factors, exponents, biases)


def train(accelerators, seed: int) -> list[list]:
    """Run two steps on each of ``accelerators``; return their runs."""
    numbers = np.random.default_rng(seed)
    model = random_model(numbers)
    drivers = [Driver(a, NETWORK, BATCH, trace=True) for a in accelerators]
    runs: list[list] = [[] for _ in drivers]
    scales = Scales()
    for step in range(2):
        inputs = torch.from_numpy(numbers.integers(-128, 128, (BATCH, 12)))
        gradient = torch.from_numpy(numbers.normal(0, 1, (BATCH, 8)))
        if step == 0:
            drivers[0].calibrate(inputs, lambda logits, g=gradient: g, model, scales)
        for name in sorted(scales.exponents):  # saturation here, lost bits there
            scales.exponents[name] += int(numbers.integers(-2, 3))
        for driver, done in zip(drivers, runs, strict=True):
            done += [
                driver.forward(inputs, model, scales).run,
                driver.backward(gradient, scales).run,
            ]
    return runs


@cocotb.test()
@cocotb.parametrize((("seed", "stall"), list(enumerate(("none", "some", "bursts")))))
async def training_steps(dut, seed: int, stall: str):
    """Compare every row written, every statistic and every byte of memory with the golden model."""
    step = compile_step(NETWORK, BATCH, TOP)
    size = step.memory_bytes
    tb = AcceleratorBench(dut, f"{seed} {stall}", memory_bytes=size, stall=stall)
    await tb.start()
    golden = GoldenAccelerator(tb.parameters, memory_bytes=size)
    expected, actual = await bridge(train)([golden, Bridged(tb)], seed)
    lengths = [len(step.forward.descriptors), len(step.backward.descriptors)] * 2
    for ours, theirs, length in zip(expected, actual, lengths, strict=True):
        for engine, trace in ours.traces.items():
            assert trace.addresses.tolist() == theirs.traces[engine].addresses.tolist(), engine
            assert np.array_equal(trace.rows, theirs.traces[engine].rows), engine
        assert ours.sums.tolist() == theirs.sums.tolist()
        assert ours.saturations.tolist() == theirs.saturations.tolist()
        assert ours.underflows.tolist() == theirs.underflows.tolist()
        program_bytes = length * DESCRIPTOR_BYTES
        assert theirs.counters.bytes_read == ours.counters.bytes_read + program_bytes
        assert theirs.counters.bytes_written == ours.counters.bytes_written
        busiest = max(theirs.counters.busy_pe1, theirs.counters.busy_pe2)
        assert busiest < theirs.counters.cycles
    memory = np.frombuffer(tb.memory.data, np.uint8).copy()
    for program in (step.forward, step.backward):  # the golden model does not put them there
        region = slice(
            program.address, program.address + len(program.descriptors) * DESCRIPTOR_BYTES
        )
        memory[region] = golden.read(region.start, region.stop - region.start)
    assert np.array_equal(memory, golden.read(0, size))


@cocotb.test()
@cocotb.parametrize(operation=(Operation.LOAD, Operation.STORE), answer=ERRORS)
async def memory_errors(dut, operation: Operation, answer: AxiResp):
    """Answer with an error: the run ends with its code, and the next run is not affected."""
    tb = AcceleratorBench(dut, f"errors {operation}", memory_bytes=1 << 14, stall="some")
    await tb.start()
    load = Transfer(operation=Operation.LOAD, address=0x1000, local=0, beats=16)
    bad = Transfer(operation=operation, address=0x2000, local=0, beats=16)
    program = Program((load, bad, Halt()), tb.parameters.fingerprint)
    code = Error.READ if operation is Operation.LOAD else Error.WRITE
    tb.memory.faults, tb.memory.answer = {0x2000}, answer
    status = await tb.execute(program, 0x100)
    assert status & 7 == 4 and status >> 8 & 0xFF == code
    tb.memory.faults = set()
    assert await tb.execute(program, 0x100) & 7 == 2
    assert await tb.host.read(registers.IDENTITY) == registers.IDENTITY_VALUE


def reductions(p: AcceleratorParameters) -> Program:
    """Build sums over several steps on both arrays, each using results of the other."""
    levels = (Level(3, x=2, z=2), Level(5, x=7, g=4))
    columns = (Level(3, g=1, z=2), Level(5, x=1, g=3))
    groups = p.lanes // p.pe2_rows
    return Program(
        (
            Transfer(operation=Operation.LOAD, address=0x1000, local=0, beats=256),
            Compute(
                operation=Operation.PE4, levels=levels, x=0, g=40, z=64, slot=1, reduce_levels=1,
                last_rows=2, x_row_stride=1, z_row_stride=1, g_row_stride=1, shift=18,
                wait=Engine.ALL,
            ),
            Compute(
                operation=Operation.PE3, levels=columns, x=64, g=100 * groups, z=80, slot=2,
                reduce_levels=1, last_rows=2, z_row_stride=1, shift=16, wait=Engine.ALL,
            ),
            Transfer(
                operation=Operation.STORE, address=0x2000, local=64, beats=44, wait=Engine.ALL
            ),
            Halt(wait=Engine.ALL),
        ),
        p.fingerprint,
    )  # fmt: skip


@cocotb.test()
async def reset_in_the_middle(dut):
    """Reset at any cycle of a run: the next run must be right."""
    size, address = 1 << 14, 0x100
    tb = AcceleratorBench(dut, "reset", memory_bytes=size, stall="none")
    await tb.start()
    golden = GoldenAccelerator(tb.parameters, memory_bytes=size)
    words = np.random.default_rng(1).integers(-64, 64, size, np.int8).view(np.uint8)
    program = reductions(tb.parameters)
    golden.write(0, words)
    tb.memory.data[:] = words.tobytes()
    expected = golden.run(program, address)
    first = await tb.measure(program, address)
    assert first.sums.tolist() == expected.sums.tolist()
    cycles = first.counters.cycles
    for at in range(tb.random.randrange(RESETS), cycles, RESETS):
        await tb.begin(program, address)
        await tb.run(at)
        await tb.reset()
        tb.memory.data[0x2000:0x2200] = words[0x2000:0x2200].tobytes()
        assert await tb.execute(program, address) & 7 == 2
        stored = np.frombuffer(tb.memory.data, np.uint8)[0x2000:0x2200]
        assert np.array_equal(stored, golden.read(0x2000, 0x200))

"""The simulated accelerator as its driver sees it, with the copier in its place."""

from dataclasses import replace

import numpy as np
import pytest

from trainwright.accelerator import AcceleratorError, registers
from trainwright.check.training import check_training
from trainwright.compiler.base.errors import CompileError
from trainwright.network import load_network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Program, Transfer
from trainwright.program.errors import ProgramError
from trainwright.program.fields import Operation
from trainwright_sim import copier
from trainwright_sim.backend import RtlAccelerator
from trainwright_sim.memory import MemoryModel

ADDRESS = 0x2000


def test_rtl_run_returns_counters_statistics_and_time(copying, parameters, make_program):
    result = copying.run(make_program(parameters, 10), ADDRESS)
    assert result.sums.tolist() == [80] + [0] * 63
    assert not result.saturations.any()
    assert 200 < result.counters.cycles < 400
    assert result.counters.busy_pe1 == 0
    assert result.seconds > 0
    assert result.traces is None


def test_rtl_traced_run_returns_rows(copying, parameters, make_program):
    program = make_program(parameters, 10)
    untraced = copying.run(program, ADDRESS)
    result = copying.run(program, ADDRESS, trace=True)
    assert result.counters == untraced.counters
    assert set(result.traces) == {"load", "pe1", "pe2"}
    assert result.traces["pe1"].addresses.shape == (0,)
    load = result.traces["load"]
    assert load.addresses.tolist() == list(range(80))
    assert load.rows.shape == (80, 16)
    assert np.array_equal(load.rows[:, :8].tobytes(), copying.read(ADDRESS, 1280).tobytes())
    again = copying.run(program, ADDRESS, trace=True)
    assert len(again.traces["load"].addresses) == 80


@pytest.mark.parametrize("seed", range(3))
def test_engines_agree_in_every_cycle(parameters, make_program, seed):
    model = MemoryModel(read_latency=17 * (seed + 1), stall=0.1 * seed, seed=seed)
    seen = []
    for engine in ("verilator", "cxxrtl"):
        with RtlAccelerator(
            parameters, memory_bytes=1 << 18, engine=engine, memory=model, design=copier.to_rtlil
        ) as accelerator:
            runs = [accelerator.run(make_program(parameters, n), ADDRESS) for n in (3, 40, 200)]
            memory = accelerator.read(0, accelerator.memory_bytes)
            seen.append(([run.counters for run in runs], memory.tobytes()))
    assert seen[0] == seen[1]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (copier.FAULT_EARLY_LAST, "broke the protocol: memory port, W: early WLAST in cycle"),
        (copier.FAULT_WITHDRAWN, "W: beat withdrawn"),
        (copier.FAULT_CROSSING, "AR: burst crosses 4 KiB"),
        (copier.FAULT_SILENT, "not done after .* cycles, 5000 without a transfer: STATUS 0x0"),
        (copier.FAULT_STATUS, r"stopped at descriptor 7 \(SET\): error 3, loops nested too deep"),
    ],
)
def test_rtl_failed_run_names_cause_and_next_run_works(
    copying, parameters, make_program, fault, message
):
    program = make_program(parameters, 40)
    before = copying.run(program, ADDRESS)
    copying.write_register(copier.FAULT, fault)
    with pytest.raises(AcceleratorError, match=message):
        copying.run(program, ADDRESS)
    assert copying.run(program, ADDRESS).counters == before.counters


def test_rtl_run_honours_cycle_limit_and_callback(parameters, make_program):
    seen = []
    with RtlAccelerator(
        parameters,
        memory_bytes=1 << 18,
        design=copier.to_rtlil,
        max_cycles=1000,
        on_cycles=seen.append,
    ) as accelerator:
        accelerator.run(make_program(parameters, 10), ADDRESS)
        with pytest.raises(AcceleratorError, match="not done after 1000 cycles: STATUS"):
            accelerator.run(make_program(parameters, 200), ADDRESS)
    assert seen == [0, 0, 1000]


def test_rtl_interrupted_run_leaves_accelerator_usable(parameters, make_program):
    def stop(cycles: int) -> None:
        if stopping:
            raise KeyboardInterrupt

    with RtlAccelerator(
        parameters, memory_bytes=1 << 18, design=copier.to_rtlil, on_cycles=stop
    ) as accelerator:
        program = make_program(parameters, 10)
        stopping = True
        with pytest.raises(KeyboardInterrupt):
            accelerator.run(program, ADDRESS)
        stopping = False
        assert accelerator.run(program, ADDRESS).sums[0] == 80


def test_memory_is_bytes_by_address(copying, parameters, make_program):
    data = np.arange(256, dtype=np.uint8)
    copying.write(0x100, data)
    assert np.array_equal(copying.read(0x100, 256), data)
    assert copying.memory_bytes == 1 << 18
    for address, size in ((-1, 1), ((1 << 18) - 1, 2), (0, -1)):
        with pytest.raises(ValueError, match="outside of the external memory"):
            copying.read(address, size)
    with pytest.raises(ValueError, match="outside of the external memory"):
        copying.write((1 << 18) - 255, data)
    with pytest.raises(ValueError, match="multiple of the beat size"):
        copying.run(make_program(parameters, 2), 0x108)


def test_rtl_design_of_other_parameters_is_rejected(parameters):
    other = AcceleratorParameters(program_depth=256)
    with pytest.raises(AcceleratorError, match="the design has other parameters"):
        RtlAccelerator(
            other,
            memory_bytes=4096,
            design=lambda _, trace: copier.to_rtlil(parameters, trace=trace),
        ).read_register(registers.IDENTITY)


def test_rtl_program_of_other_parameters_is_rejected(copying, parameters, make_program):
    program = Program(make_program(parameters, 2).descriptors, parameters.fingerprint ^ 1)
    with pytest.raises(AcceleratorError, match="compiled for other accelerator parameters"):
        copying.run(program, ADDRESS)


def test_programs_that_no_accelerator_executes_are_not_begun(copying, parameters, make_program):
    before = copying.read(ADDRESS, 4096)
    wrong = Transfer(operation=Operation.STORE, address=8, local=0, beats=2)
    program = Program((wrong, *make_program(parameters, 2).descriptors), parameters.fingerprint)
    with pytest.raises(ProgramError, match="step 8 is not a multiple of the 16 bytes"):
        copying.run(program, ADDRESS)
    outside = replace(wrong, address=copying.memory_bytes - 16)
    with pytest.raises(ProgramError, match="262159 are outside of a memory of 262144 bytes"):
        copying.run(replace(program, descriptors=(outside, *program.descriptors[1:])), ADDRESS)
    assert np.array_equal(copying.read(ADDRESS, 4096), before)


def test_registers_can_be_read_and_written(copying):
    assert copying.read_register(registers.IDENTITY) == registers.IDENTITY_VALUE
    copying.write_register(registers.PROGRAM_LENGTH, 77)
    assert copying.read_register(registers.PROGRAM_LENGTH) == 77


def test_closing_is_final_and_may_be_repeated(parameters, make_program):
    accelerator = RtlAccelerator(parameters, memory_bytes=4096, design=copier.to_rtlil)
    accelerator.close()
    accelerator.close()
    with pytest.raises(AcceleratorError, match="was closed"):
        accelerator.read_register(0)
    with pytest.raises(ValueError, match="outside of the external memory"):
        accelerator.read(0, 1)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["verilator", "cxxrtl"])
@pytest.mark.parametrize("lanes", [4, 8])
def test_rtl_narrow_port_copies_bytes(engine, lanes, make_program):
    parameters = AcceleratorParameters(lanes=lanes, pe1_rows=2, pe2_rows=2)
    with RtlAccelerator(
        parameters, memory_bytes=1 << 18, engine=engine, design=copier.to_rtlil, trace=True
    ) as accelerator:
        result = accelerator.run(make_program(parameters, 20), ADDRESS, trace=True)
        assert result.sums[0] == 20 * 128 // lanes
        original, copy = (accelerator.read(ADDRESS + n, 2560) for n in (0, copier.DEFAULT_OFFSET))
        assert np.array_equal(original, copy)
        rows = result.traces["load"].rows[:, : lanes // 2]
        assert rows.tobytes() == original.tobytes()


def test_rtl_simulator_is_built_by_first_use_only(parameters, make_program):
    """A step that does not compile is refused before minutes of a build."""
    built = []

    def design(_, trace):
        built.append(trace)
        return copier.to_rtlil(parameters, trace=trace)

    with RtlAccelerator(parameters, memory_bytes=1 << 18, design=design) as accelerator:
        with pytest.raises(CompileError, match="need a vector engine; use vector_engine=1"):
            check_training(load_network("digits"), 16, accelerator)
        wrong = Program(make_program(parameters, 2).descriptors, parameters.fingerprint ^ 1)
        with pytest.raises(AcceleratorError, match="other accelerator parameters"):
            accelerator.run(wrong, ADDRESS)
        assert not built
        accelerator.run(make_program(parameters, 2), ADDRESS)
        accelerator.run(make_program(parameters, 2), ADDRESS)
    assert built == [True]


def test_rtl_engine_of_unknown_name_is_refused_before_it_is_converted():
    with pytest.raises(ValueError, match=r"engine must be one of .*'verilator'.* not 'leave'"):
        RtlAccelerator(AcceleratorParameters(), memory_bytes=1 << 12, engine="leave")


@pytest.mark.parametrize(
    ("rate", "memory", "bandwidth"),
    [
        (0, None, 0.8),
        (2, None, 0.25),
        (2, {"read_latency": 9}, 0.25),
        (2, {"bandwidth": 0.3}, 0.3),
        (2, MemoryModel(), 0.8),
    ],
)
def test_rtl_memory_without_a_bandwidth_has_the_rate_of_the_parameters(rate, memory, bandwidth):
    parameters = AcceleratorParameters(lanes=8, pe1_rows=8, pe2_rows=8, memory_rate=rate)
    with RtlAccelerator(parameters, memory_bytes=1 << 18, memory=memory) as accelerator:
        assert accelerator.memory.bandwidth == bandwidth

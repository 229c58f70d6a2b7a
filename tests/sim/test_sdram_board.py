"""A board with an SDRAM in simulation: driver, serial line, accelerator, controller, chip."""

import argparse
import json
from dataclasses import asdict

import numpy as np
import pytest
from accelerators import BOARD

from trainwright.accelerator import AcceleratorError
from trainwright.check.step import check_step
from trainwright.cli.errors import OptionError
from trainwright.link.host import Link
from trainwright.link.protocol import Request
from trainwright.network import load_network
from trainwright.parameters import preset
from trainwright_boards import bench
from trainwright_boards.board import SDRAM
from trainwright_boards.catalogue import BOARDS
from trainwright_boards.table2 import memory_timing
from trainwright_hw.external.sdram.timing import SdramTiming
from trainwright_sim.backend import RtlAccelerator
from trainwright_sim.board import BackDoor, SimulatedLine, open_line
from trainwright_sim.copier import Copier
from trainwright_sim.memory import MemoryModel

CLOCK_HZ = BOARDS["ulx3s-85f"].design_hz


def test_sdram_board_host_reaches_whole_memory(sdram_line):
    """Over the line, and the chip holds it where it belongs."""
    sdram_line.reset()
    sdram_line.drain()
    link = Link(sdram_line, patience=1e-2)
    link.hello()
    assert link.memory_bytes == SdramTiming().memory_bytes == sdram_line.memory.size
    random = np.random.default_rng(1)
    for address in (0, 1020, 2044, 4092, 1 << 20, (1 << 25) - 64):
        words = random.integers(0, 1 << 32, 16, dtype=np.uint32)
        link.write(Request.WRITE_MEMORY, address, words)
        assert np.array_equal(link.read(Request.READ_MEMORY, address, 16), words)
        assert np.array_equal(sdram_line.memory[address : address + 64].view("<u4"), words)


def test_sdram_board_step_of_digits_is_exact(sdram_line):
    sdram_line.reset()
    with BackDoor(BOARD, Kept(sdram_line)) as board:
        outcome = check_step(load_network("digits"), 4, board)
    assert outcome.comparison.mismatches == {}
    assert outcome.comparison.values > 10_000
    assert outcome.counters.cycles > 0


class Kept:
    """A line that a test does not close."""

    def __init__(self, line: SimulatedLine):
        self._line = line

    def __getattr__(self, name: str):
        return getattr(self._line, name)

    def close(self) -> None:
        pass


def test_sdram_board_reports_misuse_of_chip():
    """A chip is asked before it is powered up: the model of the chip tells, the line fails."""
    hasty = SdramTiming(power_up_ns=1000)
    line = open_line(BOARD, timing=hasty, clock_hz=CLOCK_HZ, accelerator=Copier(BOARD))
    link = Link(line, patience=1e-2)
    with pytest.raises(AcceleratorError, match="misused: PRECHARGE: before the end of power-up"):
        link.hello()
    line.close()


@pytest.mark.slow
def test_sdram_board_transfer_reaches_line_rate():
    """3 Mbaud are 300,000 bytes a second; frames, answers and escapes take less than a tenth."""
    line = open_line(
        BOARD, timing=SdramTiming(), clock_hz=CLOCK_HZ, divisor=20, accelerator=Copier(BOARD)
    )
    assert line.baud == 3e6 and line.memory is not None
    link = Link(line, patience=1e-2)
    link.hello()
    pixels = np.random.default_rng(1).integers(0, 256, 1 << 14, dtype=np.uint8)
    begin = line.cycles
    link.write(Request.WRITE_MEMORY, 1 << 20, pixels.view("<u4"))
    rate = pixels.size * CLOCK_HZ / (line.cycles - begin)
    assert np.array_equal(line.memory[1 << 20 : (1 << 20) + pixels.size], pixels)
    assert 0.9 * 300_000 < rate < 300_000
    print(f"{rate:.0f} bytes a second")
    line.close()


@pytest.mark.slow
@pytest.mark.parametrize("batch", [32, 64])
def test_ulx3s_step_of_fashion_is_exact_as_predicted(batch):
    """Cycles are more than with an on-chip memory of the same width, and as predicted."""
    parameters, network = preset("ecp5-85f-sdram"), load_network("fashion")
    line = open_line(parameters, timing=SdramTiming(), clock_hz=CLOCK_HZ)
    with BackDoor(parameters, line) as board:
        outcome = check_step(network, batch, board)
    assert outcome.comparison.mismatches == {}
    assert outcome.comparison.values > 100_000
    counters = outcome.counters
    with RtlAccelerator(
        parameters, memory_bytes=outcome.step.memory_bytes, memory=MemoryModel.ideal()
    ) as rtl:
        ideal = check_step(network, batch, rtl)
    assert ideal.comparison.mismatches == {}
    print(
        f"batch {batch}: {counters.cycles} cycles with the SDRAM at {CLOCK_HZ / 1e6:g} MHz, "
        f"{ideal.counters.cycles} with an ideal memory; {counters.bytes_read} bytes read, "
        f"{counters.bytes_written} written"
    )
    predicted = outcome.step.cycles_with(memory_timing(SDRAM, parameters))
    assert ideal.counters.cycles < counters.cycles
    assert abs(predicted / counters.cycles - 1) < 0.02, predicted


def test_bench_board_measures_predicted_cycles(sdram_line, monkeypatch, capsys):
    """The command, on the small accelerator of this file."""

    def opened(backend, parameters, *, memory_bytes, clock_hz):
        assert (backend, parameters, clock_hz) == (bench.BACKEND, BOARD, CLOCK_HZ)
        assert memory_bytes == SdramTiming().memory_bytes
        sdram_line.reset()
        return BackDoor(parameters, Kept(sdram_line))

    monkeypatch.setattr(bench, "open_accelerator", opened)
    own = asdict(preset("ecp5-85f-sdram"))
    sizes = [f"{name}={value}" for name, value in asdict(BOARD).items() if own[name] != value]
    parser = argparse.ArgumentParser()
    bench.command.add_arguments(parser)
    options = [word for size in sizes for word in ("--accelerator", size)]
    args = parser.parse_args(["ulx3s-85f", "--batch", "16", "--json", *options])
    assert bench.command.run(args) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["mismatches"] == 0 and figures["values"] > 10_000
    assert figures["network"] == "digits" and figures["board"] == "ulx3s-85f"
    assert abs(figures["predicted_cycles"] / figures["cycles"] - 1) < 0.05
    assert figures["milliseconds"] == pytest.approx(figures["cycles"] / CLOCK_HZ * 1e3)


def test_bench_board_without_sdram_is_rejected():
    without = next(name for name, board in BOARDS.items() if board.sdram is None)
    parser = argparse.ArgumentParser()
    bench.command.add_arguments(parser)
    with pytest.raises(
        OptionError, match=f"{without} has no SDRAM that is simulated; choose ulx3s"
    ):
        bench.command.run(parser.parse_args([without]))

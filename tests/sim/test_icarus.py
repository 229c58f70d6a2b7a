"""The Verilog of ``trainwright verilog`` in Icarus: the same bits in as many cycles."""

import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from accelerators import Untraced

from trainwright.accelerator import Run, control, registers
from trainwright.accelerator.segmented import run_segments
from trainwright.check.step import check_step
from trainwright.network import load_network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Program
from trainwright.program.encoding import encode_descriptors
from trainwright_hw.build.package import package_verilog
from trainwright_sim.backend import RtlAccelerator
from trainwright_sim.memory import MemoryModel

SMALL = AcceleratorParameters(
    lanes=4, pe1_rows=2, pe2_rows=2, scratchpad_rows=4096, program_depth=128
)
BENCH = Path(__file__).parent / "accelerator_bench.v"
BYTES = 1 << 18


class Registers:
    """A ``RegisterPort`` that only reads, from what the bench printed."""

    def __init__(self, values: dict[int, int]):
        self.values = values

    def read_registers(self, address: int, count: int, /) -> np.ndarray:
        words = [self.values[address + control.WORD_BYTES * n] for n in range(count)]
        return np.array(words, np.uint32)

    def write_register(self, address: int, value: int, /) -> None:
        raise AssertionError("the run is over")


@dataclass
class IcarusAccelerator:
    """The compiled bench, behind the interface of an accelerator; each run starts it anew."""

    folder: Path
    parameters: AcceleratorParameters = SMALL
    memory_bytes: int = BYTES
    bytes: np.ndarray = field(default_factory=lambda: np.zeros(BYTES, np.uint8))

    def compile(self) -> None:
        (self.folder / "trainwright.v").write_text(package_verilog(self.parameters))
        beat = self.parameters.beat_bytes
        sizes = [f"-Pbench.BEAT={beat}", f"-Pbench.BEATS={self.memory_bytes // beat}"]
        command = ["iverilog", "-g2005", "-o", "bench.vvp", *sizes, str(BENCH), "trainwright.v"]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")

    def write(self, address: int, data: np.ndarray) -> None:
        self.bytes[address : address + data.size] = data.reshape(-1)

    def read(self, address: int, size: int) -> np.ndarray:
        return self.bytes[address : address + size].copy()

    def run(self, program: Program, address: int, *, trace: bool = False) -> Run:
        depth = self.parameters.statistics_depth
        return run_segments(program, depth, lambda part: self._run(part.program, address))

    def _run(self, program: Program, address: int) -> Run:
        self.write(address, np.frombuffer(encode_descriptors(program), np.uint8))
        beats = self.bytes.reshape(-1, self.parameters.beat_bytes)[:, ::-1]
        (self.folder / "before.hex").write_text("\n".join(row.tobytes().hex() for row in beats))
        words = self.parameters.statistics_depth * registers.STATISTICS_BYTES // control.WORD_BYTES
        options = {"memory": "before.hex", "result": "after.hex", "address": address,
                   "length": len(program.descriptors), "words": words}  # fmt: skip
        command = [
            "vvp",
            "-n",
            "bench.vvp",
            *(f"+{name}={value}" for name, value in options.items()),
        ]
        done = subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, timeout=1800
        )
        pairs = [line.split() for line in done.stdout.splitlines()]
        port = Registers({int(name, 16): int(value, 16) for name, value in pairs})
        control.check(port, program, self.parameters)
        lines = (self.folder / "after.hex").read_text().splitlines()
        after = "".join(line for line in lines if not line.startswith("//"))
        rows = np.frombuffer(bytes.fromhex(after), np.uint8)
        self.bytes = rows.reshape(-1, self.parameters.beat_bytes)[:, ::-1].reshape(-1).copy()
        statistics = control.statistics(port, self.parameters)
        return Run(*statistics, control.counters(port))

    def close(self) -> None:
        pass


@pytest.mark.slow
def test_icarus_runs_a_step_with_the_bits_of_golden_and_the_cycles_of_rtl(tmp_path):
    if not shutil.which("iverilog"):
        pytest.skip("iverilog is not on the PATH: apt-get install iverilog")
    icarus = IcarusAccelerator(tmp_path)
    icarus.compile()
    network = load_network("digits")
    check = check_step(network, 1, icarus)
    assert check.comparison.values == 9_430 and check.comparison.differing == 0
    with RtlAccelerator(SMALL, memory_bytes=BYTES, memory=MemoryModel.ideal()) as rtl:
        expected = check_step(network, 1, Untraced(rtl))
    assert check.counters == expected.counters

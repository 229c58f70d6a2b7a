"""The copier, simulated: a design that builds in seconds. Helpers here can be imported by name."""

import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import fast_pysim
import numpy as np
import pytest

from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Halt, Program, Set
from trainwright_hw.external.sdram.timing import SdramTiming
from trainwright_sim import build, copier
from trainwright_sim.backend import RtlAccelerator
from trainwright_sim.board import SDRAM_CLOCK_HZ, SimulatedLine, open_line
from trainwright_sim.library import Simulator

sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parent.parent / "sw"))

from accelerators import BOARD, SHARED
from quick_engine import QUICK, quick_builds

fast_pysim.install()

MEMORY_BYTES = 1 << 18


@pytest.fixture(scope="session", autouse=True)
def undrawn(drawing):
    """Draw no pictures for finished runs."""


@pytest.fixture(scope="session", autouse=True)
def one_compiler():
    """Compile a simulator by one compiler at a time: a test process has one core.

    Each file more repeats Verilator's headers, a second of 18.
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(build, "_jobs", lambda: 1)
        yield


@pytest.fixture(scope="session", autouse=True)
def shared_simulators():
    """Build simulators of the accelerators that files share sooner, as these simulate few cycles.

    All others, that of the default accelerator first, are built as users build them.
    """
    open_as_users_do = RtlAccelerator._open

    def open_quickly(self: RtlAccelerator, rtlil: str) -> Simulator:
        is_shared = self.parameters in SHARED and self._engine == QUICK.name
        with quick_builds() if is_shared else nullcontext():
            return open_as_users_do(self, rtlil)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(RtlAccelerator, "_open", open_quickly)
        yield


@pytest.fixture(scope="session")
def parameters() -> AcceleratorParameters:
    return AcceleratorParameters()


@pytest.fixture(scope="session")
def make_program() -> Callable[..., Program]:
    def make(parameters: AcceleratorParameters, length: int, seed: int = 0) -> Program:
        values = np.random.default_rng(seed).integers(0, 1 << 31, length - 1)
        sets = tuple(Set(values=((1, int(value)),)) for value in values)
        return Program((*sets, Halt()), parameters.fingerprint)

    return make


@pytest.fixture(scope="session", params=["verilator", "cxxrtl"])
def copying(request, parameters) -> Iterator[RtlAccelerator]:
    """Simulate a copier on either engine; a test resets what it sets."""
    with RtlAccelerator(
        parameters,
        memory_bytes=MEMORY_BYTES,
        engine=request.param,
        design=copier.to_rtlil,
        watchdog_cycles=5000,
    ) as accelerator:
        yield accelerator


@pytest.fixture(scope="session")
def sdram_line() -> Iterator[SimulatedLine]:
    """Open a line to a simulated board with an SDRAM, whose chip stays as tests leave it."""
    with quick_builds():
        line = open_line(BOARD, timing=SdramTiming(), clock_hz=SDRAM_CLOCK_HZ)
    yield line
    line.close()

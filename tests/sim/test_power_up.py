"""Training from memories and registers of any contents at power-up: bits of the golden model."""

import ctypes
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from accelerators import Untraced
from quick_engine import PASSES, QUICK, quick_builds

from trainwright.check.training import check_training
from trainwright.network import load_network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Halt, Program, Transfer
from trainwright.program.fields import Operation
from trainwright_sim import engines
from trainwright_sim.backend import RtlAccelerator
from trainwright_sim.build import build
from trainwright_sim.library import Simulator

pytestmark = pytest.mark.usefixtures("first_programs")

P = AcceleratorParameters(
    lanes=4, pe1_rows=2, pe2_rows=2, vector_engine=1, engine_lanes=1, exponents=64, sample_loads=1,
)  # fmt: skip
"""Few lanes, whose chip steps the default suite simulates here alone."""
SCRATCHPAD_BYTES = P.scratchpad_rows * P.row_bytes
OPTIONS = ("--x-initial", "unique")
ENGINE = replace(
    QUICK,
    name="power-up",
    generate=lambda folder, log: engines._verilator(folder, log, OPTIONS, PASSES),
    options=(*QUICK.options, *OPTIONS),
    harness=replace(
        engines.ACCELERATOR,
        folder=Path(__file__).parent / "power_up",
        shared=tuple(str(engines.NATIVE / name) for name in engines.ACCELERATOR.shared),
    ),
)


class PoweredUp(RtlAccelerator):
    """Simulated accelerator whose memories and registers start with random words.

    The reset has to bring all registers that need a value to it, as in an ASIC.
    """

    def __init__(self, seed: int):
        super().__init__(P, memory_bytes=1 << 20, trace=False)
        self._seed = seed

    def _open(self, rtlil: str) -> Simulator:
        registers = re.sub(r"^ *attribute \\init .*\n", "", rtlil, flags=re.MULTILINE)
        assert registers != rtlil
        with quick_builds():
            library = build(registers, engine=ENGINE.name)
        ctypes.CDLL(str(library)).trainwright_power_up(self._seed)
        return Simulator(library, self._bytes)


@pytest.fixture(autouse=True)
def engine(monkeypatch):
    monkeypatch.setitem(engines.ENGINES, ENGINE.name, ENGINE)


def transfer(accelerator: PoweredUp, operation: Operation) -> None:
    """Move all rows of the scratchpad from or to the begin of the external memory."""
    beats = P.scratchpad_rows * P.row_bytes // P.beat_bytes
    whole = Transfer(operation=operation, address=0, local=0, beats=beats)
    accelerator.run(Program((whole, Halt()), P.fingerprint), SCRATCHPAD_BYTES)


@pytest.mark.parametrize("seed", (1, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 3))))
def test_chip_steps_from_random_contents_are_exact(seed):
    network = load_network("digits").with_ranks(((5,), (7,)))
    with PoweredUp(seed) as accelerator:
        transfer(accelerator, Operation.STORE)
        assert accelerator.read(0, P.row_bytes).any(), "memories start as zeros"
        # Verilator gives all rows of a memory the same random words.
        random = np.random.default_rng(seed)
        accelerator.write(0, random.integers(0, 256, SCRATCHPAD_BYTES, np.uint8))
        transfer(accelerator, Operation.LOAD)
        accelerator.write(0, np.zeros(accelerator.memory_bytes, np.uint8))
        # The file starts as zeros, for slot 0, which nothing writes.
        assert accelerator.exponents == [0] * P.exponents
        accelerator.exponents = [0, *random.integers(-128, 128, P.exponents - 1).tolist()]
        outcome = check_training(network, 16, Untraced(accelerator), seed=seed, steps=2)
    assert outcome.comparison.mismatches == {} and outcome.host_writes == 0
    assert outcome.comparison.values > 60_000

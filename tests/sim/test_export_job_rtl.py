"""An exported job on the simulated hardware, driven by the reference driver in C alone."""

import json

import pytest
from c_driver import CDriver

from trainwright.cli import main
from trainwright.parameters import AcceleratorParameters
from trainwright_sim.backend import RtlAccelerator

MEMORY_BYTES = 1 << 20


@pytest.mark.slow  # an epoch is 620,000 cycles, and its simulator takes minutes to build
def test_c_driver_on_rtl_has_digest_of_golden_model(tmp_path):
    folder = tmp_path / "job"
    given = ["--epochs", "1", "--test-samples", "64", "--memory-bytes", str(MEMORY_BYTES)]
    assert main(["export-job", "digits", *given, "--out", str(folder)]) == 0
    described = json.loads((folder / "job.json").read_text())
    sizes = described["accelerator"] | {"formats": tuple(described["accelerator"]["formats"])}
    with RtlAccelerator(AcceleratorParameters(**sizes), memory_bytes=MEMORY_BYTES) as rtl:
        driver = CDriver(
            folder, tmp_path, rtl.read_register, rtl.write_register, rtl.read, rtl.write
        )
        assert driver.run() == 0
        assert driver.digest() == described["digest"]

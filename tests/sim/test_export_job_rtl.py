"""An exported job on the simulated hardware, driven by the reference driver in C alone."""

import json

import pytest
from c_driver import CDriver

from trainwright.cli import main
from trainwright.parameters import AcceleratorParameters
from trainwright_sim.backend import RtlAccelerator

MEMORY_BYTES = 1 << 20


LINES = [f"{city}\tshow me {n} flights to {city}" for n in range(4) for city in ("rome", "oslo")]
RUNS = {
    "digits": ["--epochs", "1", "--test-samples", "64"],
    "encoder-64": ["--data", "lines.txt", "--batch", "2", "--steps", "2", "--no-prior"],
}


@pytest.mark.slow  # an epoch is 620,000 cycles, and a simulator takes minutes to build
@pytest.mark.parametrize("network", RUNS)
def test_c_driver_on_rtl_has_digest_of_golden_model(network, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lines.txt").write_text("\n".join(LINES))
    folder = tmp_path / "job"
    given = [*RUNS[network], "--memory-bytes", str(MEMORY_BYTES)]
    assert main(["export-job", network, *given, "--out", str(folder)]) == 0
    described = json.loads((folder / "job.json").read_text())
    sizes = described["accelerator"] | {"formats": tuple(described["accelerator"]["formats"])}
    with RtlAccelerator(AcceleratorParameters(**sizes), memory_bytes=MEMORY_BYTES) as rtl:
        driver = CDriver(
            folder, tmp_path, rtl.read_register, rtl.write_register, rtl.read, rtl.write
        )
        assert driver.run() == 0
        assert driver.digest() == described["digest"]

"""Energy of a step: its events counted another way, and the arithmetic of its table."""

import json

import pytest

from trainwright.check.step import random_inputs
from trainwright.cli import main
from trainwright.driver import Driver
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import load_network
from trainwright.parameters import AcceleratorParameters
from trainwright.timing import predict
from trainwright.timing.energy import ENERGIES, EnergyModel, references
from trainwright.timing.profile import lines, predicted

P = AcceleratorParameters()
BATCH = 16


@pytest.fixture(scope="module")
def step():
    """Return the forward program of digits, its commands, its run and its energy by event."""
    network = load_network("digits")
    golden = GoldenAccelerator(P, memory_bytes=1 << 22)
    driver = Driver(golden, network, BATCH, trace=True)
    given = random_inputs(network, driver, 0)
    run = driver.forward(given.inputs, given.model, given.scales).run
    descriptors = driver.step.forward.descriptors
    commands = predicted(predict(descriptors, P))
    model = EnergyModel(P, network.factor_width)
    model.add_program(descriptors, commands)
    return descriptors, commands, run, {line.event: line for line in model.lines()}


def test_energy_counts_every_multiplication_of_the_profile(step):
    descriptors, commands, _, energy = step
    macs = sum(line.macs for line in lines("forward", descriptors, commands, P))
    products = [line for event, line in energy.items() if event.startswith("multiply")]
    assert sum(line.count for line in products) == energy["add"].count == macs
    assert energy["register"].count == macs


def test_energy_counts_bytes_outside_with_those_of_the_program(step):
    descriptors, _, run, energy = step
    program = 128 * len(descriptors)
    moved = run.counters.bytes_read + run.counters.bytes_written
    assert energy["external"].count == moved + program


def test_energy_of_external_bytes_is_that_of_dram(step):
    *_, energy = step
    line = energy["external"]
    picojoules = [8 * line.count * energy_of_64 / 64 for energy_of_64 in (1300, 2600)]
    assert line.joules == pytest.approx([1e-12 * value for value in picojoules])


def test_energy_of_products_goes_by_widths_of_operands(step):
    *_, energy = step
    first = energy["multiply 4 x 4 bits"]  # a product of factors
    low, high = (joules / first.count for joules in first.joules)
    assert low == pytest.approx(1e-12 * 3.1 / 1024 * 16 * 16 / 45 * (0.85 / 0.9) ** 2)
    assert high == pytest.approx(1e-12 * 0.2 / 64 * 256 * 14)
    assert any("8 x" in event or "x 8" in event for event in energy)  # pixels have 8 bits


def test_energy_scratchpad_rows_are_at_least_those_written(step):
    _, _, run, energy = step
    written = sum(len(trace.addresses) for trace in run.traces.values())
    assert energy["scratchpad"].count > 2 * written


def test_energy_total_is_sum_of_lines_and_a_range(step):
    *_, energy = step
    total = energy.pop("total")
    for end in (0, 1):
        assert total.joules[end] == pytest.approx(sum(line.joules[end] for line in energy.values()))
    assert all(0 < line.joules[0] < line.joules[1] for line in energy.values())
    assert all(entry.low <= entry.high for entry in ENERGIES.values())


def test_energy_references_are_those_of_the_paper():
    same, paper, embedded = references(9_000_000).values()
    assert same == pytest.approx(paper) == 0.108
    assert embedded / paper == pytest.approx(123, abs=1)  # the paper says 123


def test_profile_with_energy_prints_ranges_and_json(capsys):
    line = "profile digits --backend golden --batch 16 --energy"
    assert main(line.split()) == 0
    text = capsys.readouterr().out
    assert "a model" in text and "low mJ" in text and "2.5 W x 5.34 s: 13,350.0 mJ" in text
    assert main([*line.split(), "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    energy = results["energy"]
    for source, use in results["energy_sources"].items():
        assert f"{source}: {use}" in text
        assert ("unconfirmed" in use) == source.startswith("Chen")
    assert energy[-1]["event"] == "total" and len(energy[-1]["joules"]) == 2

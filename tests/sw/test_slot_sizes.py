"""Slots of exponents and statistics that a network asks for, before and after it is compiled."""

from types import SimpleNamespace

import pytest
from sequence_networks import classifier, encoders_768
from test_compile_heads import TABLE

import trainwright.compiler.chip.exponents as chip_exponents
from trainwright.cli.options import accelerator_parameters
from trainwright.compiler import CompileError, compile_step
from trainwright.compiler.base.compiled import AUTO, IN_ROWS
from trainwright.compiler.base.limits import EXPONENTS
from trainwright.compiler.chip.exponents import (
    ExponentSlots,
    moment_name,
    slots_expected,
    slots_lacking,
)
from trainwright.network import load_network, network_from_dict
from trainwright.onchip.layout import make_layout
from trainwright.parameters import AcceleratorParameters

pytestmark = pytest.mark.usefixtures("programs_once", "first_programs")
LARGEST = AcceleratorParameters(
    vector_engine=1, exponents=EXPONENTS.greatest, statistics_depth=1024, sample_loads=1
)
NETWORKS = {
    "digits": load_network("digits"),
    "heads": network_from_dict(TABLE),
    "tokens": classifier(tokens=8),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_expected_slots_cover_those_of_the_compiled_step_closely(name):
    network = NETWORKS[name]
    step = compile_step(network, 16, LARGEST, plan=IN_ROWS[AUTO])
    exponents = [[0] * layer.order for layer in network.layers]
    parts = make_layout(network, exponents, [0] * len(network.layers)).parts
    moments = [moment_name(part.name) for part in parts]
    slots = ExponentSlots.of((step.forward, step.backward), moments, LARGEST)
    needed = len(slots.numbers), slots.statistics + 2
    for count, expected in zip(needed, slots_expected(network), strict=True):
        assert count <= expected <= 1.15 * count


@pytest.mark.parametrize(
    "name, sizes",
    [
        ("digits", (64, 64)),
        ("tagger-64", (256, 128)),
        ("intent-64", (256, 256)),
        ("encoder-768", (512, 256)),
        ("two encoders", (1024, 512)),
    ],
)
def test_default_accelerator_has_the_slots_that_a_network_needs(name, sizes):
    network = encoders_768(2) if name == "two encoders" else load_network(name)
    p = accelerator_parameters([], network, alone=True)
    assert (p.exponents, p.statistics_depth) == sizes


def test_slots_of_a_network_beyond_the_largest_accelerator_are_the_most(monkeypatch):
    monkeypatch.setattr(chip_exponents, "slots_expected", lambda network: (1025, 1025))
    most = {"exponents": EXPONENTS.greatest, "statistics_depth": 1024}
    assert slots_lacking(NETWORKS["digits"], {}) == most
    assert slots_lacking(NETWORKS["digits"], most) == {}


def test_statistics_slots_of_loss_and_copies_are_required():
    step = compile_step(NETWORKS["digits"], 16, LARGEST, plan=IN_ROWS[AUTO])
    programs = step.forward, step.backward
    tensors = ExponentSlots.of(programs, [], LARGEST).statistics
    ExponentSlots.of(programs, [], SimpleNamespace(exponents=512, statistics_depth=tensors + 2))
    few = SimpleNamespace(exponents=512, statistics_depth=tensors + 1)
    with pytest.raises(CompileError, match=f"needs {tensors + 2} statistics slots, there are"):
        ExponentSlots.of(programs, [], few)


def test_more_exponents_than_any_file_are_left_to_the_host():
    network = NETWORKS["digits"]
    step = compile_step(network, 16, LARGEST, plan=IN_ROWS[AUTO])
    many = [str(n) for n in range(EXPONENTS.greatest)]
    with pytest.raises(CompileError, match=r"there are 1024; use exponents=0, .* to the host$"):
        ExponentSlots.of((step.forward, step.backward), many, LARGEST)
    few = AcceleratorParameters(vector_engine=1, exponents=256, sample_loads=1)
    with pytest.raises(CompileError, match=r"there are 256; .* accelerator with exponents=512"):
        ExponentSlots.of((step.forward, step.backward), many[:256], few)
    with pytest.raises(CompileError, match=r"\d+ statistics slots, .* 1024; .* to the host$"):
        ExponentSlots.of((step.forward, step.backward) * 64, [], LARGEST)

"""Steps alone of networks with many exponents, or many classes: simulated hardware and golden."""

from dataclasses import replace

import pytest
from sequence_networks import encoders_768
from test_joint_labels import joint
from test_many_classes import of_images, of_tokens

from trainwright.check.training import check_training
from trainwright.cli.options import accelerator_parameters
from trainwright.network import load_network
from trainwright_sim.backend import RtlAccelerator

pytestmark = pytest.mark.slow
ENCODER = load_network("encoder-768")
CASES = {
    "encoder of 277 exponents": (ENCODER, 1, 8),
    "regression of 20 images": (replace(load_network("digits"), classes=1), 20, 2),
    "images of 130 classes": (of_images(130, (13, 10)), 16, 2),
    "sequences of 257 classes": (of_tokens(257, [20, 15], words=False), 3, 2),
    "words of 150 classes, lines of 144": (
        joint(classes=150, tags=(15, 10), intents=(12, 12)),
        2,
        2,
    ),
    "words of 300 classes": (of_tokens(300, [20, 15], words=True), 2, 2),
}


def test_step_alone_of_two_encoders_of_hidden_size_768_equals_golden():
    network, rows = encoders_768(2), ["scratchpad_rows=32768"]
    p = accelerator_parameters(rows, network, alone=True)
    assert (p.exponents, p.statistics_depth) == (1024, 512)
    with RtlAccelerator(p, memory_bytes=1 << 26) as rtl:
        result = check_training(network, 1, rtl, seed=3, steps=2)
    assert result.comparison.mismatches == {} and result.host_writes == 0


@pytest.mark.parametrize("name", CASES)
def test_step_alone_of_a_wide_network_equals_golden(name):
    network, batch, steps = CASES[name]
    p = accelerator_parameters([], ENCODER, alone=True)  # one simulator for all cases
    with RtlAccelerator(p, memory_bytes=1 << 26) as rtl:
        result = check_training(network, batch, rtl, seed=3, steps=steps)
    assert result.comparison.mismatches == {} and result.host_writes == 0

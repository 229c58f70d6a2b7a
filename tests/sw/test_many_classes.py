"""Networks of more than 128 classes, whose labels have two bytes, trained on the chip."""

from dataclasses import replace

import numpy as np
import pytest
from sequence_networks import classifier

from trainwright.check.training import check_training
from trainwright.compiler import CompileError
from trainwright.compiler.step.rows import require_chip
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import Layer, load_network, network_from_dict
from trainwright.onchip.choices import BYTE_CLASSES, MOST_OUTPUTS
from trainwright.onchip.samples import DIGIT_WEIGHTS, target_beats
from trainwright.parameters import AcceleratorParameters

DIGITS = load_network("digits")
P = AcceleratorParameters(
    vector_engine=1, exponents=256, statistics_depth=128, sample_loads=1, factor_width=8
)


def of_images(classes, outputs):
    """Return a network of images with a head of ``outputs`` factors."""
    head = Layer(outputs, (8, 16), (3,), relu=False)
    return replace(DIGITS, classes=classes, layers=(DIGITS.layers[0], head))


def of_tokens(classes, outputs, *, words):
    """Return a network of 8 tokens with a label for each word, or for each sequence."""
    tables = {**classifier(tokens=8).to_dict(), "classes": classes}
    embedding, *_, pooled, head = tables["layers"]
    body = [embedding] if words else [embedding, {**pooled, "from": embedding["name"]}]
    head = {**head, "outputs": outputs, "from": body[-1]["name"]}
    return network_from_dict({**tables, "layers": [*body, head]})


@pytest.mark.parametrize("classes", [129, 300, MOST_OUTPUTS])
def test_two_digits_of_a_label_give_its_number(classes):
    labels = np.array([-1, 0, 1, 63, 64, 127, 128, classes - 1])
    beats = target_beats(labels, classes, numbered=True).view(np.int8)
    assert (beats.astype(np.int64) @ DIGIT_WEIGHTS).tolist() == labels.tolist()


@pytest.mark.parametrize(
    "network, batch, loss",
    [
        (of_images(129, (13, 10)), 16, "cross-entropy"),
        (of_images(300, (20, 16)), 32, "squared-error"),
        (of_tokens(130, [13, 10], words=False), 3, "cross-entropy"),
        (of_tokens(300, [20, 15], words=True), 2, "cross-entropy"),
    ],
    ids=("images", "squared errors", "sequences", "words"),
)
def test_step_of_many_classes_has_the_bits_of_the_definitions(network, batch, loss):
    assert network.classes > BYTE_CLASSES
    golden = GoldenAccelerator(P, memory_bytes=1 << 22)
    check = check_training(network, batch, golden, seed=3, steps=2, loss=loss)
    assert not check.comparison.mismatches and check.host_writes == 0


def test_more_classes_than_labels_of_two_bytes_are_one_error():
    many = of_images(MOST_OUTPUTS + 1, (128, 128))
    with pytest.raises(CompileError, match="up to 8192 classes, not 8193: use --update host"):
        require_chip(many, 16, P)

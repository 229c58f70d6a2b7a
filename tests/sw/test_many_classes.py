"""Networks of more than 128 classes, whose labels have two bytes, trained on the chip."""

from dataclasses import replace

import numpy as np
import pytest
from chip_models import targets
from sequence_networks import classifier

from trainwright.check.parts import RandomStep
from trainwright.check.training import check_training
from trainwright.compiler import CompileError
from trainwright.compiler.base.compiled import AUTO
from trainwright.compiler.chip.memory import TARGETS
from trainwright.compiler.step.rows import require_chip
from trainwright.driver.records import filled_records
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import Layer, load_network, network_from_dict
from trainwright.onchip.choices import BYTE_CLASSES, MOST_OUTPUTS
from trainwright.onchip.loss import batch_loss
from trainwright.onchip.samples import WEIGHTS_LABEL, digit_rows, target_beats
from trainwright.parameters import AcceleratorParameters

pytestmark = pytest.mark.usefixtures("first_programs")

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
    (weights,) = digit_rows(np.array([WEIGHTS_LABEL]), 16)
    assert (beats.astype(np.int64) @ weights).tolist() == labels.tolist()


@pytest.mark.parametrize(
    "network, batch, loss",
    [
        (of_images(129, (13, 10)), 16, "cross-entropy"),
        (of_images(300, (20, 16)), 32, "squared-error"),
        pytest.param(
            of_tokens(130, [13, 10], words=False), 3, "cross-entropy", marks=pytest.mark.slow
        ),
        (of_tokens(300, [20, 15], words=True), 2, "cross-entropy"),
    ],
    ids=("images", "squared errors", "sequences", "words"),
)
def test_step_of_many_classes_has_the_bits_of_the_definitions(network, batch, loss):
    assert network.classes > BYTE_CLASSES
    golden = GoldenAccelerator(P, memory_bytes=1 << 22)
    check = check_training(network, batch, golden, seed=3, steps=2, loss=loss)
    assert not check.comparison.mismatches and check.host_writes == 0


def test_labels_of_128_classes_are_bytes_and_their_gradients_have_8_bits():
    """Labels of 129 classes are two digits, and their gradients no multiples of 2^8."""
    logits = np.random.default_rng(0).integers(-900, 900, (8, 144))
    for classes, beat, step in ((BYTE_CLASSES, [127] * 16, 256), (BYTE_CLASSES + 1, [63, 1], 1)):
        beats = target_beats(np.array([127]), classes, numbered=True)
        assert beats[0].tolist() == [*beat, *[0] * (16 - len(beat))]
        gradient = batch_loss("cross-entropy", logits, -8, np.arange(8), classes).gradient
        assert np.gcd.reduce(gradient, axis=None) == step


def test_gradient_of_the_label_saturates_at_16_bits():
    """Each of 299 shares of 109.6 units rounds to 110: their sum is 32,890."""
    logits = np.full((1, 304), 100)
    logits[0, 7] = -32768
    gradient = batch_loss("cross-entropy", logits, 0, np.array([7]), 300).gradient[0]
    assert gradient[:7].tolist() == [110] * 7 and gradient[7] == -32768


@pytest.mark.parametrize("classes", [10, 100, 300])
@pytest.mark.parametrize("label", [-2, 1 << 16, "classes"])
def test_labels_that_are_no_classes_are_one_error(classes, label):
    labels = np.array([0, classes if label == "classes" else label])
    message = f"labels from {labels.min()} to {labels.max()} of {classes} classes"
    logits = np.zeros((2, max(16, classes)), np.int64)
    with pytest.raises(ValueError, match=message):
        target_beats(labels, classes, numbered=classes > 16)
    with pytest.raises(ValueError, match=message):
        batch_loss("cross-entropy", logits, 0, labels, classes)


def test_labels_of_a_short_batch_are_stored_beside_lanes_of_none():
    """PE1 joins digits of three labels; the other lanes of their row have the digits of -1."""
    with GoldenAccelerator(P, memory_bytes=1 << 22) as golden:
        step = RandomStep(of_tokens(130, [13, 10], words=False), 3, golden, "alone", plan=AUTO)
        step.run_step()
        (row,) = step.driver.rows(TARGETS).tolist()
        assert all(0 <= label < 130 for label in row[:3]) and row[3:] == [-1] * 13
        assert targets(step.driver.memory, np.array(row[:3])).tolist() == [row]


@pytest.mark.parametrize("classes, outputs", [(10, (4, 4)), (129, (13, 10))])
def test_records_that_fill_up_a_batch_of_images_have_no_label(classes, outputs):
    with GoldenAccelerator(P, memory_bytes=1 << 22) as golden:
        step = RandomStep(of_images(classes, outputs), 16, golden, "alone", plan=AUTO).driver.step
    whole = np.zeros((3, 80), np.uint8)
    targets = filled_records(step, whole)[3:, -16:].view(np.int8)
    none = target_beats(np.array([-1]), classes, numbered=classes > 16).view(np.int8)
    assert len(targets) == 13 and (targets == none).all()


def test_check_training_finds_nothing_of_an_earlier_check_on_the_same_accelerator():
    """The first network has more exponents, whose slots the second one leaves alone."""
    with GoldenAccelerator(P, memory_bytes=1 << 22) as golden:
        for network, batch in ((of_tokens(130, [13, 10], words=False), 3), (DIGITS, 16)):
            check = check_training(network, batch, golden, seed=1, steps=1)
            assert check.comparison.mismatches == {}


def test_more_classes_than_labels_of_two_bytes_are_one_error():
    many = of_images(MOST_OUTPUTS + 1, (128, 128))
    with pytest.raises(CompileError, match="up to 8192 classes, not 8193: use --update host"):
        require_chip(many, P)

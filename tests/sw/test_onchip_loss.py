"""Loss and its gradient in integers: the formulas exactly, and float64 within proven bounds."""

from math import log

import numpy as np
import pytest
import torch
from loss_definition import DEFINITIONS

from trainwright.kernels import Body, Register, evaluate, trace
from trainwright.kernels.functions import LOG2_ERROR
from trainwright.onchip.loss import (
    KERNELS,
    LONGEST,
    batch_loss,
    distances,
    gradient_exponent,
    probability_width,
)


def logits(seed, *, samples=64, outputs=16):
    """Draw integers of 16 bits and an exponent, from flat to sure."""
    random = np.random.default_rng(seed)
    exponent = int(random.integers(-14, -6))
    values = random.normal(size=(samples, outputs)) * 2.0 ** random.uniform(5, 15, (samples, 1))
    labels = random.integers(0, 10, samples)
    return values.astype(np.int64).clip(-32768, 32767), exponent, labels


@pytest.mark.parametrize("classes", [2, 10, 512])
@pytest.mark.parametrize("seed", range(3))
def test_shares_are_softmax_within_the_proven_bound(seed, classes):
    z, exponent, labels = logits(seed, outputs=classes)
    labels %= classes
    exact = torch.softmax(torch.from_numpy(z * 2.0**exponent), 1).numpy()
    width = probability_width(classes)
    unit = 1 << width - 1
    shares = batch_loss("cross-entropy", z, exponent, labels, classes).gradient >> 16 - width
    unlabelled = np.arange(classes) != labels[:, None]  # a label has minus their sum
    errors, exact = np.abs(shares - unit * exact)[unlabelled], exact[unlabelled]
    bound = 0.5 + unit * (1.1 * (classes + 1) / 2**15 + 2**-13.8)
    assert errors[exact <= 1 - 1 / unit].max() <= bound
    assert errors.max() <= bound + 1


@pytest.mark.parametrize("seed", range(5))
def test_loss_is_that_of_float64_within_the_proven_bound(seed):
    z, exponent, labels = logits(seed)
    loss = batch_loss("cross-entropy", z, exponent, labels, 10)
    values = torch.from_numpy(z[:, :10] * 2.0**exponent)
    exact = torch.nn.functional.cross_entropy(values, torch.from_numpy(labels)).item()
    bits = 1.6 * 10 * 2**-15 + LOG2_ERROR + 1.45 * 2**-15 + 2**-17
    assert abs(loss.mean - exact) <= bits * log(2) + 4.9e-6 * exact
    assert loss.correct == int((values.argmax(1).numpy() == labels).sum())


@pytest.mark.parametrize("seed", range(5))
def test_onchip_loss_labels_gradient_is_minus_the_sum_of_the_others(seed):
    z, exponent, labels = logits(seed)
    g = batch_loss("cross-entropy", z, exponent, labels, 10).gradient
    assert not (g & 0xFF).any() and not g[:, 10:].any()
    rows = np.arange(len(labels))
    unlabelled = g[:, :10].sum(1) - g[rows, labels]
    assert g[rows, labels].tolist() == np.maximum(-unlabelled, -32768).tolist()
    assert (np.delete(g, np.s_[10:], 1).min(1) <= 0).all()


@pytest.mark.parametrize("classes", [128, 129, 300, 4096])
def test_gradient_of_flat_logits_pushes_every_class(classes):
    z = np.zeros((2, classes), np.int64)
    gradient = batch_loss("cross-entropy", z, -8, np.array([0, classes - 1]), classes).gradient
    exact = torch.full((2, classes), 2.0**15 / classes).numpy()
    exact[[0, 1], [0, -1]] -= 2.0**15
    assert np.abs(gradient - exact).max() <= max(256, 2**15 / 50) and (gradient != 0).all()


def test_onchip_loss_sure_sample_has_no_gradient_and_a_wrong_one_the_greatest():
    z = np.array([[4000, 0, 0, 9000], [0, 4000, 0, 9000]])
    loss = batch_loss("cross-entropy", z, -8, np.array([0, 0]), 3)
    assert loss.gradient.tolist() == [[0] * 4, [-127 << 8, 127 << 8, 0, 0]]
    assert loss.exponent == -16 and loss.correct == 1


def test_many_rounded_up_saturate_the_label():
    z = np.array([[-32768] + [0] * 90])  # 90 shares of 1.42: 127.99 in all, 90 after rounding
    loss = batch_loss("cross-entropy", z, -8, np.array([0]), 91)
    assert loss.gradient[0, 0] == -90 << 8
    z = np.array([[-32768] + [0] * 80])  # 80 shares of 1.6: 2 each
    assert batch_loss("cross-entropy", z, -8, np.array([0]), 81).gradient[0, 0] == -32768


def test_onchip_loss_first_of_equal_logits_wins():
    z = np.array([[5, 5, 1], [5, 5, 1]])
    assert batch_loss("cross-entropy", z, -3, np.array([0, 1]), 3).correct == 1


@pytest.mark.parametrize("exponent", [-40, -16, -1, 0, 1, 5, 40])
def test_distances_round_or_saturate_at_any_exponent(exponent):
    register = Register(0)

    def kernel(k: Body) -> None:
        z = k.read("z")
        k.keep(register, distances(k, z.greatest_lane(), z, exponent))

    z = np.array([[32767, 0, -32768, 32760]])
    far = evaluate(trace(kernel, 4), {"z": z}).registers[0][0].tolist()
    for below, got in zip((0, 32767, 65535, 7), far, strict=True):
        exact = below * 94548 * 2.0**exponent
        assert got == min(round(exact), LONGEST)


@pytest.mark.parametrize("loss", KERNELS)
@pytest.mark.parametrize("exponent", [-70, -20, -11, -3, 0, 1, 4, 9, 30])
def test_loss_kernel_at_any_exponent_equals_its_formulas(loss, exponent):
    random = np.random.default_rng(exponent + 100)
    for outputs in (2, 10, 16, 40):
        scale = 2.0 ** random.uniform(0, 15, (33, 1))
        z = (random.normal(size=(33, outputs)) * scale).astype(np.int64).clip(-32768, 32767)
        classes = int(random.integers(2, outputs + 1))
        labels = random.integers(0, classes, 33)
        got = batch_loss(loss, z, exponent, labels, classes)
        wanted = DEFINITIONS[loss](z, exponent, labels, classes)
        assert np.array_equal(got.gradient, wanted.gradient)
        assert (got.total, got.correct) == (wanted.total, wanted.correct)


@pytest.mark.parametrize("loss", KERNELS)
@pytest.mark.parametrize("classes", [5, 40])
def test_onchip_loss_omits_words_without_labels(loss, classes):
    random = np.random.default_rng(classes)
    z, labels = random.integers(-3000, 3000, (6, 4 * classes)), random.integers(0, classes, (6, 4))
    gone = random.random((6, 4)) < 0.4
    words = z.reshape(24, classes)
    got = batch_loss(loss, z, -9, np.where(gone, -1, labels), classes)
    wanted = DEFINITIONS[loss](words[~gone.ravel()], -9, labels[~gone], classes)
    gradient = got.gradient.reshape(24, classes)
    assert np.array_equal(gradient[~gone.ravel()], wanted.gradient)
    assert not gradient[gone.ravel()].any() and got.samples == (~gone).sum()
    assert (got.total, got.correct) == (wanted.total, wanted.correct)


def test_onchip_loss_constant_is_log2_of_e():
    assert abs(94548 / 65536 * log(2) - 1) < 4.95e-6


def test_onchip_loss_batch_divides_by_the_next_power_of_two():
    exponents = [gradient_exponent("squared-error", n) for n in (1, 2, 3, 60, 64, 65)]
    assert exponents == [-12, -13, -14, -18, -18, -19]
    z = np.zeros((60, 4), np.int64)
    assert batch_loss("cross-entropy", z, -8, np.zeros(60, np.int64), 4).exponent == -21
    assert batch_loss("squared-error", z, -8, np.zeros(60, np.int64), 4).exponent == -18


@pytest.mark.parametrize("exponent", [-15, -12, -8, -1])
def test_onchip_loss_squared_errors_gradient_is_the_error(exponent):
    z = np.array([[3000, -200, 77, 5], [-32768, 32767, 1, 9]])
    labels = np.array([0, 1])
    loss = batch_loss("squared-error", z, exponent, labels, 3)
    for row, label, got in zip(z, labels, loss.gradient, strict=True):
        target = [4096 * (n == label) for n in range(3)]
        exact = [
            round(v * 2.0 ** (exponent + 12)) - t for v, t in zip(row[:3], target, strict=True)
        ]
        assert got.tolist() == [*(min(max(e, -32768), 32767) for e in exact), 0]
    assert loss.total == int((loss.gradient**2).sum())
    assert loss.correct == 2
    assert loss.mean == pytest.approx(loss.total * 2.0**-25 / 2)

"""Training: initial values, BinaryConnect, Adam, loss, batches, and the loop itself."""

import itertools
import json

import numpy as np
import pytest
import torch
from float_driver import FloatDriver, ttm_matrix

from trainwright.data import DataError, load_data_set
from trainwright.driver import Driver
from trainwright.fixed.quantise import dequantise, quantise
from trainwright.formats import Fixed, parse_format
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import Layer, load_network
from trainwright.parameters import AcceleratorParameters
from trainwright.train.adam import Parameter
from trainwright.train.batches import ImageQuantiser, batch_indices, check_data
from trainwright.train.connect import clip
from trainwright.train.history import History
from trainwright.train.host_engine import HostEngine
from trainwright.train.initial import SPREAD, deviation, fresh_exponent, initial_factors
from trainwright.train.interfaces import Observer, Verification
from trainwright.train.loss import cross_entropy
from trainwright.train.settings import PriorSettings, TrainSettings, settings_from_dict
from trainwright.train.state import initial_state
from trainwright.train.trainer import Stopped, Trainer


@pytest.fixture(scope="module")
def digits():
    return load_data_set("digits")


@pytest.fixture(scope="module")
def network():
    return load_network("digits")


def float_trainer(state, data, *verification, **options):
    engine = HostEngine(lambda n: FloatDriver(None, n, state.settings.batch), *verification)
    return Trainer(state, data, engine, **options)


def test_train_float_driver_computes_definition_1():
    layer = Layer((2, 3, 2), (3, 2, 2), (2, 3))
    generator = torch.Generator().manual_seed(1)
    g = [torch.randn(s, generator=generator, dtype=torch.float64) for s in layer.factor_shapes]
    w = ttm_matrix(layer, g).reshape(*layer.outputs, *layer.inputs)
    for j in itertools.product(*map(range, layer.outputs)):
        for i in itertools.product(*map(range, layer.inputs)):
            product = g[0][:, j[0], i[0], :] @ g[1][:, j[1], i[1], :] @ g[2][:, j[2], i[2], :]
            assert w[(*j, *i)].item() == pytest.approx(product.item(), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("name", ["digits", "fashion"])
def test_initial_factors_give_a_well_scaled_matrix_and_use_their_bits(name):
    network = load_network(name)
    factors, exponents = initial_factors(network, seed=3)
    for layer, own, scales in zip(network.layers, factors, exponents, strict=True):
        quantised = [quantise(f.value, k, 4) for f, k in zip(own, scales, strict=True)]
        for q in quantised:
            assert q.min() >= -8 and q.max() <= 7
            assert 1.5 < q.double().std() < 3.6  # steps; sqrt(2) about SPREAD, less the clipped
        w = ttm_matrix(layer, [dequantise(q, k) for q, k in zip(quantised, scales, strict=True)])
        wanted = (2 if layer.relu else 1) / layer.input_size
        assert w.var().item() == pytest.approx(wanted, rel=0.5)


def test_train_exponent_puts_the_deviation_within_a_factor_of_the_spread():
    for rank, width, spread in itertools.product(range(1, 17), (2, 3, 4, 8), (SPREAD, 1.0, 5.0)):
        layer = Layer((8, 16), (4, 16), (rank,), relu=True)
        steps = deviation(layer) / 2.0 ** fresh_exponent(deviation(layer), Fixed(width), spread)
        assert 0.7 < steps / (spread * 2.0 ** (width - 4)) < 1.42


def test_train_spread_is_a_setting(network):
    fine, coarse = (initial_state(network, TrainSettings(spread=s)).model for s in (5.0, 1.25))
    for few, many in zip(coarse.exponents, fine.exponents, strict=True):
        assert [a - b for a, b in zip(few, many, strict=True)] == [2] * len(few)


def test_initial_factors_depend_on_the_seed_alone(network):
    first, again, other = (initial_state(network, TrainSettings(seed=s)).model for s in (5, 5, 6))
    assert first.digest() == again.digest() != other.digest()


def test_quantise_rounds_half_to_even_and_saturates():
    steps = torch.tensor([-9.0, -8.5, -2.5, -1.5, -0.5, 0.5, 0.51, 1.5, 2.5, 7.4, 7.5, 100.0])
    q = quantise(steps * 2.0**-3, -3, 4)
    assert q.tolist() == [-8, -8, -2, -2, 0, 0, 1, 2, 2, 7, 7, 7]
    assert (dequantise(q, -3) == q / 8).all()


def test_clip_keeps_the_master_representable():
    master = torch.linspace(-3, 3, 101)
    clipped = clip(master, -3, Fixed(4))
    assert clipped.min() == -1.0 and clipped.max() == 0.875
    assert (quantise(master, -3, 4) == quantise(clipped, -3, 4)).all()


@pytest.mark.parametrize(
    "name, most",
    (("posit(4,0)", 2.0), ("posit(8,0)", 2.0), ("posit(8,1)c", 2.0), ("posit(3,0)", 2.0)),
)
def test_clip_holds_posits_within_eight_steps(name, most):
    """A posit's 1 is 4 steps; fixed point of 4 bits ends at 7 steps and -8."""
    fmt = parse_format(name)
    unit = 2.0**fmt.scale  # in its integers
    master = torch.linspace(-5, 5, 101)
    clipped = clip(master, -fmt.scale, fmt)
    assert (clipped == master.clamp(-most, most)).all() and clipped.max() == most
    assert fmt.decode(quantise(clipped, -fmt.scale, fmt).numpy()).max() == most * unit


def test_adam_is_torchs_adam():
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(5, 7, generator=generator)
    ours = Parameter.of(start)
    theirs = start.double().clone().requires_grad_()
    optimiser = torch.optim.Adam([theirs], lr=4e-3)
    for number in range(1, 60):
        gradient = torch.randn(5, 7, generator=generator, dtype=torch.float64)
        ours.step(gradient, 4e-3, number)
        theirs.grad = gradient
        optimiser.step()
    assert ours.value.dtype == torch.float32
    # Ours holds float32: about 60 roundings of values around 1.
    assert torch.allclose(ours.value.double(), theirs.detach(), rtol=0, atol=2e-6)


def test_cross_entropy_is_torchs_over_the_classes_alone():
    generator = torch.Generator().manual_seed(0)
    logits = 30 * torch.randn(6, 16, generator=generator, dtype=torch.float64)
    labels = torch.tensor([0, 9, 3, 3, 1, 7])
    loss, gradient = cross_entropy(logits, labels, 10)
    leaf = logits.clone().requires_grad_()
    reference = torch.nn.functional.cross_entropy(leaf[:, :10], labels)
    reference.backward()
    assert loss == pytest.approx(reference.item(), rel=1e-12)
    assert torch.allclose(gradient, leaf.grad, rtol=1e-12, atol=1e-15)
    assert (gradient[:, 10:] == 0).all()


def test_every_epoch_visits_each_sample_at_most_once_in_an_order_of_its_own():
    batches = [batch_indices(1437, 64, 3, step) for step in range(44)]
    first, second = np.concatenate(batches[:22]), np.concatenate(batches[22:])
    for epoch in (first, second):
        assert len(np.unique(epoch)) == 22 * 64
    assert (first != second).any()
    assert (batch_indices(1437, 64, 3, 30) == batches[30]).all()  # asked out of order
    assert (batch_indices(1437, 64, 4, 30) != batches[30]).any()


def test_inputs_are_quantised_and_padded_at_the_bottom_and_the_right():
    network = load_network("fashion")
    images = np.zeros((2, 28, 28), np.uint8)
    images[0, 27, 27], images[1, 0, 1], images[1, 1, 0] = 255, 128, 1
    x = ImageQuantiser(network, full_scale=255, exponent=-7)(images).reshape(2, 28, 32)
    assert x[0, 27, 27] == 127  # 1.0 would be 128
    assert x[1, 0, 1] == 64  # 64.25
    assert x[1, 1, 0] == 1  # 0.502
    assert x.sum() == 127 + 64 + 1


def test_train_partial_batch_is_filled_up_with_blank_images(network, digits):
    quantiser = ImageQuantiser(network, 16, -7)
    x, real = quantiser.padded_batch(digits.test, 320, 64)
    assert x.shape == (64, 64) and real == 40
    assert (x[:40] == quantiser(digits.test.images[320:])).all() and (x[40:] == 0).all()


def test_data_that_does_not_fit_the_network(network, digits):
    with pytest.raises(DataError, match="images of 28 x 28, data set 'digits' has 8 x 8"):
        check_data(load_network("fashion"), digits, 64)
    with pytest.raises(DataError, match="batch 2000 is more than the 1,437"):
        check_data(network, digits, 2000)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epochs": 0}, "epochs must be at least 1, not 0"),
        ({"batch": 0}, "batch must be"),
        ({"learning_rate": 0.0}, "learning_rate must be"),
        ({"schedule": "steps"}, "schedule must be one of cosine, constant, not 'steps'"),
        ({"scale_range": "narrow"}, "scale_range must be one of default, paper"),
        ({"seed": 1 << 32}, "seed must be at least 0"),
        ({"steps": 0}, "steps must be"),
        ({"spread": float("nan")}, "spread must be from 0.25 to 8, not nan"),
    ],
)
def test_settings_are_checked(values, message):
    with pytest.raises(ValueError, match=message):
        TrainSettings(**values)


def test_settings_survive_the_way_through_plain_data():
    for settings in (TrainSettings(), TrainSettings(prior=None, steps=7), TrainSettings(seed=9)):
        assert settings_from_dict(settings.to_dict()) == settings


def test_train_schedules_follow_definition():
    settings = TrainSettings(learning_rate=0.01, prior=PriorSettings(weight=2.0, warmup=0.5))
    assert settings.rate_at(0, 100) == 0.01
    assert settings.rate_at(50, 100) == pytest.approx(0.005)
    assert 0 < settings.rate_at(99, 100) < 1e-5
    weights = [settings.prior_weight_at(step, 100, 1000) for step in (0, 24, 49, 50, 99)]
    assert weights == pytest.approx([4e-5, 1e-3, 2e-3, 2e-3, 2e-3])
    assert settings.total_steps(1437) == 20 * 22
    assert TrainSettings(epochs=3, steps=50).total_steps(1437) == 50


def test_digits_are_learnt_while_ranks_shrink(network, digits):
    """The whole recipe, with factors, activations and gradients at their widths."""
    cuts = []

    class Cuts(Observer):
        def cut(self, step, network):
            cuts.append((step, network.ranks))

    state = initial_state(network, TrainSettings())
    trainer = float_trainer(state, digits, observer=Cuts())
    assert trainer.run()
    result = trainer.evaluate_test()
    assert result.accuracy >= 0.95
    assert state.model.network.ranks[0][0] <= 10 and cuts
    assert state.model.network.reduction > 1.3 * network.reduction
    assert list(state.history.epochs())[-1][2] > 0.95
    records = state.history.steps
    assert [r.step for r in records] == list(range(1, 441))
    assert [e.step for e in state.history.evaluations] == list(range(22, 441, 22))
    assert records[-1].ranks == tuple(r for layer in state.model.network.ranks for r in layer)


def test_equal_settings_give_equal_bits(network, digits):
    digests = []
    for seed in (1, 1, 2):
        state = initial_state(network, TrainSettings(seed=seed, epochs=2))
        float_trainer(state, digits).run()
        digests.append(state.model.digest())
    assert digests[0] == digests[1] != digests[2]


def test_watching_and_classifying_change_nothing(network, digits):
    digests = []
    for watched in (False, True):
        state = initial_state(network, TrainSettings(steps=10))
        trainer = float_trainer(state, digits)
        for _ in range(10):
            trainer.step()
            if watched:
                trainer.evaluate_test()
        digests.append((state.model.digest(), dict(state.scales.exponents)))
    assert digests[0] == digests[1]


def test_train_verifier_gets_every_nth_step(network, digits):
    cases = []

    def verifier(case):
        cases.append(case)
        return Verification(steps=1, tensors=2, values=10, mismatches=0)

    state = initial_state(network, TrainSettings(steps=10))
    float_trainer(state, digits, verifier, 4).run()
    assert [case.number for case in cases] == [1, 5, 9]
    assert state.verification == Verification(3, 6, 30, 0)
    for case in cases:  # the same step again, from what the verifier was given
        forward, backward = case.inputs.run(FloatDriver(None, case.inputs.model.network, 64))
        assert torch.equal(forward.logits, case.forward.logits)
        assert torch.equal(backward.factors[0][1], case.backward.factors[0][1])


def test_train_stop_comes_between_steps_and_between_batches_of_an_evaluation(network, digits):
    state = initial_state(network, TrainSettings())
    trainer = float_trainer(state, digits, stop=lambda: state.step == 7)
    assert not trainer.run()
    assert state.step == 7 and len(state.history.steps) == 7
    with pytest.raises(Stopped):
        trainer.evaluate_test()
    assert not state.history.evaluations


def test_train_exception_out_of_the_accelerator_leaves_the_last_step(network, digits):
    class Failing(FloatDriver):
        def run_backward(self, given):
            self.steps += 1
            given.scales.exponents.clear()  # whatever was begun must not show
            if self.steps == 4:
                raise KeyboardInterrupt
            return super().run_backward(given)

        def calibrate(self, *_):
            pass

    state = initial_state(network, TrainSettings())
    trainer = Trainer(state, digits, HostEngine(lambda n: Failing(None, n, 64)))
    with pytest.raises(KeyboardInterrupt):
        trainer.run()
    assert state.step == 3 and len(state.history.steps) == 3 and state.scales.exponents
    assert not trainer.abandonable


def test_history_survives_the_way_through_tensors(network, digits):
    state = initial_state(network, TrainSettings(steps=30))
    float_trainer(state, digits).run()
    assert History.from_tensors(state.history.to_tensors()) == state.history
    assert History.from_tensors(History().to_tensors()) == History()
    lines = [json.loads(line) for line in state.history.to_lines().splitlines()]
    kinds = [line["kind"] for line in lines]
    assert kinds.count("step") == 30 and kinds.count("evaluation") == 1
    assert kinds.index("evaluation") == len(kinds) - 1 - kinds[::-1].index("evaluation")
    assert [line["step"] for line in lines] == sorted(line["step"] for line in lines)
    scales = [line for line in lines if line["kind"] == "scale"]
    assert {line["step"] for line in scales} == set(range(1, 31))
    assert all(0 <= line["saturated"] <= 1 and line["mean"] >= 0 for line in scales)


def test_digits_on_the_golden_model(network, digits):
    """Forty exact steps learn most of it already, and give the same bits each time."""
    digests = []
    for _ in range(2):
        with GoldenAccelerator(AcceleratorParameters(), memory_bytes=1 << 22) as golden:
            state = initial_state(network, TrainSettings(steps=40))
            trainer = Trainer(state, digits, HostEngine(lambda n, g=golden: Driver(g, n, 64)))
            trainer.run()
            assert trainer.evaluate_test().accuracy > 0.85
            digests.append(state.model.digest())
    assert digests[0] == digests[1]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_digits_reach_95_percent_on_the_golden_model(network, digits, seed):
    with GoldenAccelerator(AcceleratorParameters(), memory_bytes=1 << 22) as golden:
        state = initial_state(network, TrainSettings(seed=seed))
        trainer = Trainer(state, digits, HostEngine(lambda n: Driver(golden, n, 64)))
        trainer.run()
        assert trainer.evaluate_test().accuracy >= 0.95
        assert state.model.network.reduction > 15

"""Networks with heads of words and of lines: losses, labels, training on host and chip, eval."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from sequence_networks import classifier
from slowly import mostly_slow
from test_text_training import toml, written
from test_word_labels import attention_alone, folder, same_in_all_places

import trainwright
import trainwright.nn as tnn
from trainwright.check.training import check_training
from trainwright.cli import main
from trainwright.data import DataError, load_data_set
from trainwright.driver import Driver
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import NetworkError, network_from_dict
from trainwright.parameters import AcceleratorParameters
from trainwright.train.batches import check_fit, input_quantiser, label_tensor, labelled_for
from trainwright.train.chip_update import ChipUpdate, chip_model
from trainwright.train.float_driver import FloatDriver
from trainwright.train.loss import heads_loss
from trainwright.train.settings import ChipSettings, TrainSettings
from trainwright.train.state import initial_state

pytestmark = pytest.mark.usefixtures("first_programs")

__all__ = ["folder"]
P = AcceleratorParameters(vector_engine=1, exponents=256, sample_loads=1, statistics_depth=128)
WIDE = replace(P, scratchpad_rows=1 << 15)
SETTINGS = TrainSettings(batch=4, steps=8, learning_rate=0.1, chip=ChipSettings())


def joint(*, tokens=8, heads=("intent", "tag"), classes=8, tags=(4, 2), intents=(3, 2)):
    """Return an encoder with logits for each token, and for the mean over all."""
    tables = attention_alone(classifier(tokens=tokens)).to_dict()
    *layers, pooled, intent = tables["layers"]
    tag = {**intent, "name": "tag", "from": pooled["from"], "outputs": list(tags)}
    intent = {**intent, "from": "pooled", "outputs": list(intents)}
    return network_from_dict({
        **tables, "name": "joint", "classes": classes, "heads": list(heads),
        "layers": [*layers, tag, pooled, intent],
    })  # fmt: skip


def test_joint_network_has_the_labels_of_both_heads():
    network = joint()
    assert network.is_joint and network.main == "tag" and network.sequence_head == "intent"
    assert (network.labels, network.classes_of("tag"), network.classes_of("intent")) == (9, 8, 6)
    labels = torch.arange(18).reshape(2, 9)
    assert network.labels_of("intent", labels).tolist() == [0, 9]
    assert network.labels_of("tag", labels).tolist()[1] == [*range(10, 18)]
    with pytest.raises(NetworkError, match=r"8 outputs of 'tag', not 9"):
        joint(classes=9)
    with pytest.raises(NetworkError, match=r"'intent' of sequences has 1 output"):
        joint(intents=(1, 1))


def test_joint_loss_is_the_sum_of_both_means():
    network, generator = joint(), torch.Generator().manual_seed(3)
    logits = torch.randn(3, 6 + 64, generator=generator, dtype=torch.float64, requires_grad=True)
    labels = torch.full((3, 9), -1)
    labels[:, :4] = torch.tensor([[5, 0, 7, 2], [1, 3, -1, -1], [0, 1, 1, 0]])
    words, cross_entropy = labels[:, 1:].reshape(-1), torch.nn.functional.cross_entropy
    wanted = cross_entropy(logits[:, 6:].reshape(24, 8), words, ignore_index=-1)
    wanted = wanted + cross_entropy(logits[:, :6], labels[:, 0])
    wanted.backward()
    mean, gradient = heads_loss(network, logits.detach(), labels)
    assert mean == pytest.approx(float(wanted.detach()), rel=1e-12)
    torch.testing.assert_close(gradient, logits.grad)


def test_joint_loss_on_chip_divides_each_head_by_its_own_labels():
    """Each gradient is at an exponent of its own: 2 lines, or 16 tokens of 2 lines."""
    network, random = joint(), np.random.default_rng(4)
    chosen = replace(SETTINGS, batch=2)
    model = chip_model(initial_state(network, replace(chosen, chip=None)).model)
    update = ChipUpdate(model, chosen, total=8, samples=8)
    logits = torch.from_numpy(random.integers(-2000, 2000, (2, 70)) * 2.0**-9)
    labels = torch.from_numpy(random.integers(0, 6, (2, 9)))
    result, exact = update.loss(logits, labels), heads_loss(network, logits, labels)[1]
    assert result.exponent == (-16, -19)
    # A share has 8 bits; the label's gradient is the sum of up to 7 of these.
    assert (result.gradient - exact)[:, :6].abs().max() < 7 / 128 / 2
    assert (result.gradient - exact)[:, 6:].abs().max() < 9 / 128 / 16
    assert (result.gradient[:, 6:] != 0).any() and result.words == 16


def test_joint_gradients_of_programs_are_near_those_of_torch(folder):
    """Activations have 16 bits: what is left are roundings."""
    network = joint()
    network = replace(network, widths=replace(network.widths, activation=16))
    data = labelled_for(network, load_data_set("text", folder))
    state = initial_state(network, TrainSettings(batch=8, steps=1))
    model, gradients = state.model.quantised(), []
    programs = Driver(GoldenAccelerator(WIDE, memory_bytes=1 << 24), network, 8)
    for driver in (programs, FloatDriver(network.in_float32())):
        inputs = input_quantiser(driver.network, data.full_scale, driver.input_exponent)
        words, labels = inputs(data.train.images[:8]), label_tensor(data.train.labels[:8], 9)
        scales = state.scales.copy()
        driver.calibrate(words, lambda z, w=labels: heads_loss(network, z, w)[1], model, scales)
        logits = driver.forward(words, model, scales).logits
        done = driver.backward(heads_loss(network, logits, labels)[1], scales)
        gradients.append([own.double() for layer in done.factors for own in layer])
    for ours, real in zip(*gradients, strict=True):
        assert (ours - real).norm() < 0.05 * real.norm()


class Joint(torch.nn.Module):
    """Module with logits for each token, and for the mean over all."""

    def __init__(self):
        super().__init__()
        numbers = "factor=fixed(8),activation=fixed(16)"
        sizes = {"body": (24, 16), "tag": (16, 8), "intent": (16, 6)}
        for name, (columns, rows) in sizes.items():
            setattr(self, name, tnn.TTLinear(columns, rows, rank=6, numbers=numbers))

    def forward(self, x):
        h = torch.relu(self.body(x))
        return self.tag(h), self.intent(h.mean(1))


def test_compiled_joint_module_has_gradients_near_those_of_torch():
    torch.manual_seed(2)
    model, x = Joint(), torch.randn(4, 8, 24)
    tags, intents = torch.randint(8, (4, 8)), torch.randint(6, (4,))
    compiled, gradients = trainwright.compile(model, batch=32), []
    cross_entropy = torch.nn.functional.cross_entropy
    for net in (compiled, model):
        for _ in range(3):  # exponents settle
            model.zero_grad()
            words, lines = net(x)
            (
                cross_entropy(words.flatten(0, 1), tags.flatten()) + cross_entropy(lines, intents)
            ).backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
    for ours, real in zip(*gradients, strict=True):
        assert (ours - real).norm() < 0.05 * real.norm()


def test_folder_gives_a_joint_network_both_labels(folder):
    network, whole = joint(), load_data_set("text", folder)
    data = labelled_for(network, whole)
    check_fit(network, data)
    assert data.class_names == ("B-from", "B-to", "B-via", "O")
    assert data.line_names == ("other", "trip")
    assert (data.train.labels[:, 0] == whole.train.labels).all()
    assert (data.train.labels[:, 1:] == whole.train.tags).all()
    assert label_tensor(data.train.labels, network.labels).shape == (320, 9)
    spoiled = data.train.labels.copy()
    spoiled[0, 0] = 2
    with pytest.raises(DataError, match="label 2 is out of range, there are 2 classes"):
        replace(data, train=replace(data.train, labels=spoiled))
    preparation = {**whole.preparation, "classes": [*"abcdefg"]}
    many = labelled_for(network, replace(whole, preparation=preparation))
    with pytest.raises(DataError, match=r"'intent' .* tells 6 classes apart, lines .* have 7"):
        check_fit(network, many)


@mostly_slow("heads", [("intent", "tag"), ("tag", "intent")], quick=[("intent", "tag")])
def test_joint_update_on_chip_has_same_bits_in_all_places(folder, heads):
    """Over the end of an epoch, by the definitions and alone: the host writes nothing."""
    network = joint(heads=heads)
    data = labelled_for(network, load_data_set("text", folder))
    data = replace(data, train=data.train.first(26), test=data.test.first(9))
    words = (data.train.labels[:, 1:] >= 0).sum()
    results = same_in_all_places(network, data, SETTINGS, words)
    assert len({str(state.history.evaluations) for state in results}) == 1
    steps, (epoch, *_) = results[0].history.steps[:6], results[1].history.steps
    assert epoch.samples == sum(step.samples for step in steps)
    assert epoch.correct == sum(step.correct for step in steps)
    total = sum(step.loss * step.samples for step in steps)
    assert epoch.loss * epoch.samples == pytest.approx(total, rel=1e-12)


@pytest.mark.parametrize(
    ("keys", "batch"),
    [
        ({"classes": 20, "tags": (5, 4), "intents": (20, 7), "heads": ("tag", "intent")}, 18),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                ({"tokens": 16}, 1),
                ({"tokens": 5, "intents": (6, 3), "classes": 6, "tags": (3, 2)}, 3),
                ({"classes": 150, "tags": (15, 10), "intents": (12, 12)}, 2),
            )
        ),
    ],
    ids=("more lines than lanes", "one line", "larger head of lines", "two bytes"),
)
def test_check_of_a_joint_network_finds_the_bits_of_the_definitions(keys, batch):
    golden = GoldenAccelerator(WIDE, memory_bytes=1 << 24)
    check = check_training(joint(**keys), batch, golden, seed=1, steps=2)
    assert not check.comparison.mismatches and not check.host_writes


def test_check_of_two_steps_reads_exponents_before_the_test_set():
    """The test set's forward pass raises exponents that the last step has just lowered."""
    network = attention_alone(classifier(tokens=5))
    golden = GoldenAccelerator(WIDE, memory_bytes=1 << 24)
    assert check_training(network, 3, golden, seed=1, steps=2).comparison.mismatches == {}


def test_joint_training_learns_both_and_eval_writes_both(tmp_path, folder, capsys):
    """Whether a line says "to" is the label of the line."""
    network = joint(classes=8)
    text = "\n".join(f"{k} = {toml(v)}" for k, v in network.to_dict().items() if v != "")
    path = written(tmp_path / "joint.toml", [text])
    run = tmp_path / "run"
    command = ["train", "--network", path, "--data", folder, "--batch", 16, "--lr", "1e-2",
               "--no-prior", "--epochs", 3, "--out", run, "--json"]  # fmt: skip
    assert main(list(map(str, command))) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["test_line_accuracy"] > 0.9 and result["test_f1"] > 0.3
    assert "of lines" in (run / "report.html").read_text()
    model = str(run / "model.safetensors")
    assert main(["eval", model, "--data", str(folder), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    for name in ("test_accuracy", "test_f1", "test_line_accuracy"):
        assert again[name] == result[name]
    assert main(["eval", model, "--data", str(folder)]) == 0
    assert f"{result['test_line_accuracy']:.2%} of lines, " in capsys.readouterr().out
    unlabelled = written(tmp_path / "new.txt", ["to oslo to rome", "via lima"])
    assert main(["eval", model, "--data", str(unlabelled)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert list(map(len, lines)) == [5, 3] and lines[0][0] == "trip"

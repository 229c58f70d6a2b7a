"""Labels of words: spans and their score, the loss without padding, training, eval."""

import json
import random
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from sequence_networks import classifier, decoder
from test_onchip_training import same
from test_text_training import toml, written

from trainwright.accelerator.counted import counted
from trainwright.cli import main
from trainwright.compiler.base.compiled import AUTO, IN_ROWS
from trainwright.data import DataError, load_data_set
from trainwright.data.prepared import load_prepared, save_prepared
from trainwright.driver import Driver
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import load_network, network_from_dict
from trainwright.parameters import AcceleratorParameters
from trainwright.train.batches import check_fit, label_tensor, labelled_for
from trainwright.train.float_driver import FloatDriver
from trainwright.train.host_engine import HostEngine
from trainwright.train.loss import head_loss
from trainwright.train.resident import ResidentEngine
from trainwright.train.settings import ChipSettings, PriorSettings, TrainSettings
from trainwright.train.spans import f1, spans
from trainwright.train.state import initial_state
from trainwright.train.trainer import Trainer

pytestmark = pytest.mark.usefixtures("first_programs")

CITIES, FILLERS = ("rome", "oslo", "lima", "paris"), ("to", "from", "via", "now", "please")
TAGS = {"from": "B-from", "to": "B-to", "via": "B-via"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Write lines in which the word before a city says what the city is."""
    root, rng = tmp_path_factory.mktemp("words"), random.Random(3)
    for part, count in (("train", 320), ("test", 64)):
        texts, tags = [], []
        for _ in range(count):
            words, labels = [], []
            for _ in range(rng.randint(1, 3)):
                filler = rng.choice(FILLERS)
                words += [filler, rng.choice(CITIES)]
                labels += ["O", TAGS.get(filler, "O")]
            texts.append(" ".join(words))
            tags.append(" ".join(labels))
        written(root / part / "seq.in", texts)
        written(root / part / "seq.out", tags)
        written(root / part / "label", ["trip" if "to" in t else "other" for t in texts])
    return root


@pytest.fixture(scope="module")
def tagger(tmp_path_factory):
    """Write a network that gives logits for each of 8 tokens, which see the tokens before."""
    tables = decoder(tokens=8, padding=True, name="tagger").to_dict()
    tables["layers"].append({"outputs": [2, 4], "inputs": [4, 6], "ranks": [4], "relu": False})
    text = "\n".join(f"{key} = {toml(value)}" for key, value in tables.items() if value != "")
    return written(tmp_path_factory.mktemp("network") / "tagger.toml", [text])


@pytest.mark.parametrize(
    ("labels", "wanted"),
    (
        ("O B-a I-a O", [(1, 3, "a")]),
        ("B-a B-a I-b", [(0, 1, "a"), (1, 2, "a"), (2, 3, "b")]),
        ("I-a I-a O I-a", [(0, 2, "a"), (3, 4, "a")]),
        ("B-a.b-c I-a.b-c", [(0, 2, "a.b-c")]),
        ("UNK UNK O x", [(0, 2, "UNK"), (3, 4, "x")]),
        ("S-a S-a B-a E-a I-a", [(0, 1, "a"), (1, 2, "a"), (2, 4, "a"), (4, 5, "a")]),
        ("O O", []),
        ("", []),
    ),
)
def test_spans_of_labels_follow_the_conll_rules(labels, wanted):
    assert list(spans(labels.split())) == wanted


def test_f1_of_spans_counts_whole_spans_alone():
    true = [["B-a", "I-a", "O"], ["O", "B-b", "O"]]
    assert f1(true, true) == 1 and f1([["O"] * 3] * 2, true) == 0
    # One span of two is right, one is too short, none is found where there is none.
    assert f1([["B-a", "O", "O"], ["O", "B-b", "O"]], true) == 0.5
    assert f1([["O", "O"]], [["O", "O"]]) == 1


def test_loss_of_words_is_that_of_torch_without_padding():
    generator = torch.Generator().manual_seed(2)
    logits = torch.randn(3, 4 * 7, generator=generator, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([[0, 4, 2, -1], [3, -1, -1, -1], [1, 1, 0, 4]])
    real = torch.nn.functional.cross_entropy(
        logits.reshape(12, 7)[:, :5], labels.reshape(12), ignore_index=-1
    )
    real.backward()
    mean, gradient = head_loss(logits.detach(), labels, 5)
    assert mean == pytest.approx(float(real.detach()))
    torch.testing.assert_close(gradient, logits.grad)
    assert not gradient.reshape(3, 4, 7)[labels < 0].any()


def test_folder_with_labels_of_words_gives_those_that_the_network_predicts(folder, tagger):
    data = load_data_set("text", folder)
    assert data.class_names == ("other", "trip")
    words = labelled_for(load_network(str(tagger)), data)
    assert words.class_names == ("B-from", "B-to", "B-via", "O") and words.has_tags
    assert words.train.labels.shape == (320, 6) and words.train.labels.min() == -1
    assert "classes" not in words.preparation and "tags" in words.preparation
    lines = labelled_for(load_network("encoder-64"), data)
    assert lines.train.labels.ndim == 1 and "tags" not in lines.preparation
    cut = label_tensor(words.train.labels, 4)
    assert cut.shape == (320, 4) and np.array_equal(cut, words.train.labels[:, :4])
    assert (label_tensor(words.train.labels, 8)[:, 6:] == -1).all()


@pytest.mark.parametrize(
    ("out", "message"),
    (
        (["O O", "O"], "line 2 of seq.in has 2 words, seq.out has 1 label: give each word one"),
        (["O O"], "seq.in has 2 lines, seq.out has 1: give both one line"),
    ),
)
def test_labels_of_words_that_do_not_fit_are_one_error(tmp_path, out, message):
    for part in ("train", "test"):
        written(tmp_path / part / "seq.in", ["a b", "c d"])
        written(tmp_path / part / "label", ["x", "y"])
        written(tmp_path / part / "seq.out", out)
    with pytest.raises(DataError, match=message):
        load_data_set("text", tmp_path)


def test_labels_of_words_without_an_outside_have_a_note(tmp_path):
    for part in ("train", "test"):
        written(tmp_path / part / "seq.in", ["a b", "c d"])
        written(tmp_path / part / "label", ["x", "y"])
        written(tmp_path / part / "seq.out", ["NN o", "o VB"])
    notes = load_data_set("text", tmp_path).notes
    assert any(note.startswith("no word has the label 'O'") for note in notes)


def test_network_of_words_needs_labels_of_words(tmp_path, tagger):
    written(tmp_path / "lines.txt", ["x\ta b", "y\tc d", "x\te f", "y\tg h", "x\ti j"])
    network, data = load_network(str(tagger)), load_data_set("text", tmp_path / "lines.txt")
    with pytest.raises(DataError, match=r"logits for every token, .* seq\.out"):
        check_fit(network, labelled_for(network, data))


def test_prepared_data_keeps_the_labels_of_words(tmp_path, folder):
    data = load_data_set("text", folder)
    save_prepared(tmp_path / "data", data)
    read = load_prepared(tmp_path / "data")
    assert np.array_equal(read.train.tags, data.train.tags) and read.tag_names == data.tag_names


def test_evaluation_numbers_the_classes_that_the_data_lack(folder, tagger):
    """Classify by an untrained network of 8 classes; the data have 4."""
    network = replace(load_network(str(tagger)), classes=8).in_float32()
    data = load_data_set("text", folder).labelled(words=True)
    run = Trainer(initial_state(network, TrainSettings(steps=1)), data, HostEngine(FloatDriver))
    evaluation = run.evaluate_test()
    assert evaluation.predictions.max() >= 4
    names = [*data.class_names, "4", "5", "6", "7"]
    predicted = [name for line in evaluation.words.predicted for name in line]
    assert predicted == [names[n] for n in evaluation.predictions]


def attention_alone(network):
    """Return the network without its feed-forward layers: half the time to compile."""
    tables = network.to_dict()
    names = [layer.get("name", "") for layer in tables["layers"]]
    start = names.index("norm1")
    del tables["layers"][start : names.index("scale2") + 1]
    tables["layers"][start]["from"] = names[start - 1]
    return network_from_dict(tables)


def same_in_all_places(network, data, settings, labels):
    """Train by the definitions and alone; return both states, which have the same bits."""
    p = AcceleratorParameters(
        vector_engine=1, exponents=256, sample_loads=1, statistics_depth=128
    )  # fmt: skip
    golden = partial(GoldenAccelerator, p, memory_bytes=1 << 22)

    def by_host(network):
        return Driver(golden(), network, settings.batch, plan=IN_ROWS[AUTO])

    alone = ResidentEngine(counted(golden()))
    results = []
    for engine in (HostEngine(by_host), alone):
        state = initial_state(network, settings)
        run = Trainer(state, data, engine)
        run.run()
        results.append(state)
    assert run.host_writes == 0 and alone.driver.evaluation
    assert round(len(data.train.labels) * alone._card.labels) == labels
    assert same(*results)
    return results


@pytest.mark.parametrize(
    ("words", "chosen"),
    [
        (True, ChipSettings()),
        pytest.param(True, ChipSettings(loss="squared-error"), marks=pytest.mark.slow),
        (False, ChipSettings()),
    ],
    ids=("words", "squared-errors of words", "lines"),
)
def test_update_of_text_on_chip_has_same_bits_in_all_places(folder, tagger, words, chosen):
    """Over the end of an epoch: by the definitions, started step by step, and alone.

    Padded tokens have no label: they count for no loss and have no gradient, and the lanes beyond
    8 tokens hold nothing.
    """
    network = attention_alone(load_network(str(tagger)) if words else classifier(tokens=8))
    data = load_data_set("text", folder).labelled(words=words)
    data = replace(data, train=data.train.first(26), test=data.test.first(9))
    # Lines of text with a prior that cuts columns in the first step.
    prior = None if words else PriorSettings(weight=2.0, warmup=0.0, threshold=0.7, interval=8)
    settings = TrainSettings(batch=4, steps=8, learning_rate=0.1, chip=chosen, prior=prior)
    results = same_in_all_places(network, data, settings, np.sum(data.train.labels >= 0))
    assert (results[0].model.network.ranks != network.ranks) == (prior is not None)
    assert len({str(state.history.evaluations) for state in results}) == 1
    losses = [[(r.loss, r.correct, r.samples) for r in s.history.steps] for s in results]
    by_runs = [(r.correct, r.samples) for r in results[1].history.steps]
    sums = [tuple(sum(r[n] for r in own) for n in (1, 2)) for own in (losses[0][:6], losses[0][6:])]
    assert by_runs == sums


def test_training_on_labels_of_words_learns_them_and_eval_writes_them(
    tmp_path, folder, tagger, capsys
):
    """Train 3 epochs; the word before a city decides, so that labels need attention and places."""
    run = tmp_path / "run"
    command = ["train", "--network", tagger, "--data", folder, "--batch", 16, "--lr", "1e-2",
               "--no-prior", "--epochs", 3, "--out", run, "--json"]  # fmt: skip
    assert main(list(map(str, command))) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["test_samples"] == len((folder / "test" / "seq.in").read_text().split())
    # Half of all words are cities, of which 40 % have no label: 70 % are O.
    assert result["test_accuracy"] > 0.9 and result["test_f1"] > 0.8
    assert (run / "report.html").read_text().count("F1")
    model = run / "model.safetensors"
    assert main(["eval", str(model), "--data", str(folder), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert (again["test_accuracy"], again["test_f1"]) == (
        result["test_accuracy"],
        result["test_f1"],
    )
    unlabelled = written(tmp_path / "new.txt", ["from rome to oslo", "please oslo"])
    assert main(["eval", str(model), "--data", str(unlabelled)]) == 0
    tags = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert list(map(len, tags)) == [4, 2]


@pytest.mark.slow
@pytest.mark.parametrize("network", ["tagger-64", "intent-64"])
def test_guide_trains_a_network_of_words(tmp_path, folder, capsys, network):
    guide = Path(__file__).parents[2] / "docs/guide/text-classifier.md"
    (command,) = re.findall(rf"^trainwright (.*{network}.*)$", guide.read_text(), re.MULTILINE)
    command = command.replace("FOLDER", str(folder)).replace("--epochs 3", "--steps 2")
    assert main([*command.split(), "--out", str(tmp_path / "run")]) == 0
    assert "of spans of words" in capsys.readouterr().out


@pytest.mark.slow
def test_formats_are_chosen_by_the_labels_of_words(folder, tagger, capsys):
    command = ["formats", tagger, "--data", folder, "--batch", 8, "--json"]
    assert main(list(map(str, command))) == 0
    assert json.loads(capsys.readouterr().out)["tensors"]

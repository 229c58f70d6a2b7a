"""Networks of tokens that classify lines of text: data, vocabulary, training, eval, resuming."""

import json
import os
import random
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sequence_networks import classifier

from trainwright.cli import main
from trainwright.data import DataError, load_data_set, load_samples, own_data
from trainwright.data.prepared import load_prepared, save_prepared
from trainwright.network import load_network
from trainwright.train.batches import check_fit, data_notes, input_quantiser, vocabulary_digits
from trainwright.train.connect import held_range
from trainwright.train.initial import initial_factors
from trainwright.train.trainer import Trainer

pytestmark = pytest.mark.usefixtures("first_programs")

SIZES = ("exponents=256", "statistics_depth=128", "sample_loads=1")
ALONE = tuple(word for size in SIZES for word in ("--accelerator", size))
"""Options of an accelerator that trains a network of tokens alone."""
FILLERS = "the of a please show me now all my and for with".split()
KEYS = {"fly": "flight", "eat": "meal", "cost": "fare"}


def written(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    """Write lines of 2 to 7 words, one of which decides the label."""
    rng = random.Random(5)
    texts = []
    for _ in range(400):
        words = [rng.choice(FILLERS) for _ in range(rng.randint(1, 6))]
        key = rng.choice(list(KEYS))
        words.insert(rng.randrange(len(words) + 1), key)
        texts.append(f"{KEYS[key]}\t{' '.join(words).capitalize()}!")
    return written(tmp_path_factory.mktemp("text") / "lines.txt", texts)


def toml(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    tables = classifier(tokens=8).to_dict()
    text = "\n".join(f"{key} = {toml(value)}" for key, value in tables.items() if value != "")
    return written(tmp_path_factory.mktemp("network") / "tiny.toml", [text])


def test_folder_of_sentences_gives_numbers_by_frequency(tmp_path):
    for part, texts, labels in (
        ("train", ["go to St. Louis", "go  home, Jim"], ["move", "rest"]),
        ("test", ["fly to louis to"], ["soar"]),
    ):
        written(tmp_path / part / "seq.in", texts)
        written(tmp_path / part / "label", labels)
    assert own_data(tmp_path) == "text"
    data = load_data_set("text", tmp_path)
    assert data.preparation is not None
    assert data.preparation["words"] == ["go", "home", "jim", "louis", "st", "to"]
    assert data.train.images.tolist() == [[[2, 7, 6, 5]], [[2, 3, 4, 0]]]
    assert data.test.images.tolist() == [[[1, 7, 5, 7]]]
    assert data.class_names == ("move", "rest", "UNK") and data.test.labels.tolist() == [2]
    assert "'soar': class UNK" in data.notes[1]
    again = load_samples(tmp_path, data.preparation)
    assert (again.images == data.test.images).all() and again.labels.tolist() == [2]


@pytest.mark.parametrize(
    ("files", "match"),
    (
        ({"a.txt": ["x\thello", "y\t "] + ["z\tb"] * 9}, "sample 2 lacks its text or its label"),
        ({"a.txt": ["hello there"] * 10}, "has no labels"),
        ({"a.txt": ["x\thello"] * 10}, "has 1 different label"),
        ({"a.txt": ["x\thello", "y\tb"]}, "has 2 samples, at least"),
        (
            {"d/train/seq.in": ["a", "b"], "d/train/label": ["x"]},
            "seq.in has 2 lines, label has 1",
        ),
        (
            {"d/train/seq.in": ["a", "", "b", "c"], "d/train/label": ["x", "y", "", "x"]},
            "sample 2 lacks its text or its label",
        ),
        ({"d/train.txt": ["x\ta", "y\tb"]}, r"cannot read .*test.txt"),
    ),
)
def test_text_with_bad_lines_is_one_error(tmp_path, files, match):
    for name, texts in files.items():
        written(tmp_path / name, texts)
    with pytest.raises(DataError, match=match):
        load_data_set("text", tmp_path / next(iter(files)).split("/")[0])


def test_token_quantiser_of_words_sets_one_hot_digits():
    """Word n is n - 1 in digits; words beyond vocabulary and tokens are unknown and left out."""
    network = classifier(tokens=4)
    assert vocabulary_digits(network) == [5, 5]
    words = np.array([[[2, 25, 26, 1, 3]], [[9, 0, 0, 0, 0]]], np.int32)
    inputs = input_quantiser(network, 255, -7)(words).numpy().reshape(2, 4, 2, 5)
    digits = {(0, 0): (0, 1), (0, 1): (4, 4), (0, 2): (0, 0), (0, 3): (0, 0), (1, 0): (1, 3)}
    expected = np.zeros((2, 4, 2, 5))
    for (line, token), pair in digits.items():
        for row, digit in enumerate(pair):
            expected[line, token, row, digit] = 127
    assert (inputs == expected).all()


def test_text_that_does_not_fit_its_network_is_told(lines, tmp_path):
    data = load_data_set("text", lines)
    _, cut, rare = data_notes(classifier(tokens=3), replace(data, full_scale=30))
    long = [len(line.split()) - 1 > 3 for line in lines.read_text().splitlines()]
    assert f"{sum(long)} lines of more than the 3 tokens" in cut.replace(",", "")
    assert data_notes(classifier(tokens=8), data) == list(data.notes)
    assert "vocabulary of 25: 5 words" in rare
    digits = load_data_set("digits")
    for network, other, match in (
        (classifier(), digits, "give --data with lines of text"),
        (classifier(padding=False), data, "give it padding = true"),
        (classifier(heads=["scale2", "intent"]), data, "labels of words in seq.out"),
        (classifier(classes=2), data, "tells 2 classes apart"),
        (
            classifier(
                inputs=[{"name": "digit1", "rows": [0, 1]}, {"name": "digit2", "rows": [0, 1]}]
            ),
            data,
            "one row of",
        ),
    ):
        with pytest.raises(DataError, match=match):
            check_fit(network, other)


def test_text_survives_the_file_of_a_sweep(lines, tmp_path):
    data = load_data_set("text", lines)
    save_prepared(tmp_path / "data.safetensors", data)
    again = load_prepared(tmp_path / "data.safetensors")
    assert vars(again) | {"train": 0, "test": 0} == vars(data) | {"train": 0, "test": 0}
    for mine, theirs in zip(data.splits, again.splits, strict=True):
        assert mine.images.dtype == theirs.images.dtype and (mine.images == theirs.images).all()


def command(capsys, *args):
    """Run a command; return its status and the object that it prints."""
    status = main([*map(str, args), "--json"])
    return status, json.loads(capsys.readouterr().out)


def test_text_classifier_trains_resumes_and_classifies(
    lines, network, tmp_path, capsys, monkeypatch
):
    """Interrupt a run and resume it to the same bits; classify held-out and unlabelled lines."""
    options = ("--network", network, "--data", lines, "--batch", "8", "--lr", "0.004")
    options = (*options, "--steps", "60", "--no-prior")
    whole = command(capsys, "train", *options, "--out", tmp_path / "whole")[1]
    assert whole["test_accuracy"] > 0.9 and whole["dataset"] == "text"
    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "run", lambda self: [self.step() for _ in range(25)] and False)
        assert command(capsys, "train", *options, "--out", tmp_path / "part")[0] == 130
    part = command(capsys, "train", "--resume", "--out", tmp_path / "part")[1]
    assert part["digest"] == whole["digest"]
    model = tmp_path / "whole" / "model.safetensors"
    answer = command(capsys, "eval", model, "--data", lines)[1]
    assert answer["test_accuracy"] == whole["test_accuracy"] and answer["test_samples"] == 80
    plain = written(tmp_path / "plain.txt", ["please fly", "eat now the zebra", "my cost"])
    answer = command(capsys, "eval", model, "--data", plain)[1]
    assert answer["predictions"] == ["flight", "meal", "fare"]
    odd = written(tmp_path / "odd.txt", ["qua qui quo", " ".join(["fly"] * 20)])
    assert main(["eval", str(model), "--data", str(odd)]) == 0
    told = capsys.readouterr().err
    assert "1 line of more than the" in told
    assert "3 of 23 words of the test lines are in no training line" in told


@pytest.mark.parametrize(
    "changes",
    (
        pytest.param(
            ("--numbers", "float32", "--batch", "16", "--lr", "0.004"), marks=pytest.mark.slow
        ),
        pytest.param(
            ("--micro-batches", "2", "--batch", "16", "--lr", "0.004"), marks=pytest.mark.slow
        ),
        ("--update", "chip", "--batch", "8", "--lr", "0.1"),
    ),
    ids=("float32", "micro-batches", "chip"),
)
def test_text_classifier_learns_in_other_numbers_batches_and_updates(
    changes, lines, network, tmp_path, capsys
):
    options = ("--network", network, "--data", lines, "--steps", "80", "--no-prior")
    result = command(capsys, "train", *options, *changes, "--out", tmp_path / "run")[1]
    place = "alone" if "chip" in changes else "host"
    assert result["test_accuracy"] > 0.8 and result["update_place"] == place
    assert place != "alone" or result["host_writes"] == 0


@pytest.mark.slow
def test_formats_are_chosen_for_a_network_of_tokens(lines, network, capsys):
    chosen = command(capsys, "formats", network, "--data", lines, "--batch", "8")[1]
    assert {"heads.a", "l1.G1", "pooled.a"} <= {tensor["tensor"] for tensor in chosen["tensors"]}


GUIDE = Path(__file__).parents[2] / "docs/guide/text-classifier.md"


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_text_classifier_guide_runs_its_commands(whole, network, tmp_path, monkeypatch, capsys):
    """Compiling `encoder-64` takes most of the time: a smaller encoder takes the same options."""
    monkeypatch.chdir(tmp_path)
    rows = re.findall(r"^(?:flight|fare|meal)\t.*$", GUIDE.read_text(), re.MULTILINE)
    assert len(rows) == 3
    written(tmp_path / "requests.txt", rows * 20)
    written(tmp_path / "new.txt", ["what does a flight cost"])
    commands = re.findall(r"^\$ trainwright (.*)$", GUIDE.read_text(), re.MULTILINE)
    assert len(commands) == 6
    for command in commands:
        words = [str(network) if word == "encoder-64" and not whole else word
                 for word in command.split()]  # fmt: skip
        assert main(words) == 0, command
    assert capsys.readouterr().out.splitlines()[-1] in ("flight", "fare", "meal")


SLU = Path(os.environ.get("TRAINWRIGHT_DATA", "")) / "slu" / "atis"


@pytest.mark.skipif(not (SLU / "train" / "seq.in").is_file(), reason="needs slu/atis in "
                    "TRAINWRIGHT_DATA, which may not be distributed")  # fmt: skip
def test_atis_folder_has_its_published_sizes():
    data = load_data_set("text", SLU)
    assert (len(data.train), len(data.test), data.classes) == (4478, 893, 22)
    assert data.full_scale == 868 and data.train.images.shape == (4478, 1, 46)
    assert data_notes(load_network("encoder-64"), data)[-1].startswith("11 lines of more than")


def test_scales_of_a_network_begin_at_one():
    """LayerNorm's gamma: drawn as a factor of a matrix it was 0.1, of either sign."""
    network = load_network("encoder-64")
    factors, exponents = initial_factors(network, 0)
    scales = [n for n, layer in enumerate(network.layers) if layer.diagonal]
    assert len(scales) == 2
    for n in scales:
        assert bool((factors[n][0].value == 1).all())
        least, greatest = held_range(exponents[n][0], network.factor_format(n, 0))
        assert least <= -1 and 1.5 < greatest < 4


def test_pixels_of_numbers_of_words_are_refused(lines, network, tmp_path, capsys):
    argv = ["train", "--network", network, "--data", lines, "--out", tmp_path / "run"]
    assert main([*map(str, argv), "--update", "chip", "--pixels", "4", "--batch", "8"]) == 2
    assert "reads numbers of words, which have no pixels: omit" in capsys.readouterr().err

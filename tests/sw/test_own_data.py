"""Data of a user's own: tables, texts and pictures as bytes, and one error for each bad file."""

import contextlib
import io
import json
import re
import shlex
import time
import zlib
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from trainwright.accelerator import Counters
from trainwright.cli import main
from trainwright.cli.evaluate import session
from trainwright.data import (
    DataError,
    DataSet,
    OwnOptions,
    Split,
    load_data_set,
    load_samples,
    registry,
)
from trainwright.data.cells import read_cells
from trainwright.data.own import MOST_LEVELS, own_kind
from trainwright.data.picture_files import read_pictures
from trainwright.network import BUILT_IN, load_network, network_from_dict
from trainwright.report import pictures as pictures_of_run
from trainwright.report.pictures import draw_all, draw_samples
from trainwright.support.waiting import waiting
from trainwright.train.batches import MOST_PADDED, data_notes
from trainwright.train.evaluate import Evaluation, Regression
from trainwright.train.fitting import fitting_network
from trainwright.train.history import EvaluationRecord, History, StepRecord
from trainwright.train.loss import head_loss

pytestmark = pytest.mark.usefixtures("first_programs")

ROWS = [
    ("1.5", "red", "yes"), ("2.5", "blue", "no"), ("", "red", "yes"), ("4.5", "", "no"),
    ("0.5", "green", "yes"), ("3.5", "blue", "no"), ("2.0", "red", "yes"), ("1.0", "blue", "no"),
    ("9.0", "red", "yes"), ("2.2", "blue", "no"),
]  # fmt: skip


def table(path, rows=ROWS, head="size,colour,good", delimiter=","):
    lines = [head.replace(",", delimiter), *(delimiter.join(row) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


def load(path, **options):
    return load_data_set("table", path, own=OwnOptions(**options))


def refused(path, **options):
    """Return the one line that refuses a file by name."""
    with pytest.raises(DataError) as caught:
        load_data_set(own_kind(path) or "table", path, own=OwnOptions(**options))
    text = str(caught.value)
    assert "\n" not in text and str(path) in text
    return text


def order_of(samples):
    return np.random.RandomState(0).permutation(samples)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_table_columns_become_levels_and_one_hot_bytes(tmp_path, delimiter):
    data = load(table(tmp_path / "t.csv", delimiter=delimiter))
    assert data.class_names == ("no", "yes") and data.image == (1, 4)
    order = order_of(10)
    held, train = order[8:], order[:8]
    sizes = [float(ROWS[n][0]) for n in train if ROWS[n][0]]
    mean, deviation = np.mean(sizes), np.std(sizes)
    for place, n in [*enumerate(train), *enumerate(held)]:
        split = data.train if n in train else data.test
        size, colour, good = ROWS[n]
        level = 127.5 + 42.5 * (float(size) - mean) / deviation if size else 128
        expected = [
            np.clip(np.rint(level), 0, 255),
            *(255 * (colour == c) for c in ("blue", "green", "red")),
        ]  # fmt: skip
        assert split.images[place, 0].tolist() == expected
        assert data.class_names[split.labels[place]] == good


def test_table_numbers_of_any_magnitude_have_finite_levels(tmp_path):
    rows = [(f"{n}e305", f"{n}e-310", str(n % 2)) for n in range(1, 11)]
    data = load(table(tmp_path / "t.csv", rows, "large,small,y"))
    large, small = data.train.images[:, 0, 0], data.train.images[:, 0, 1]
    assert np.ptp(large) > 60
    assert (np.abs(large.astype(int) - small) <= 1).all()


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["1", "2", "3"], ("1", "2", "3")),
        (["10", "9", "-1"], ("-1", "9", "10")),
        (["1.0", "2", "1"], ("1", "2")),
        (["123456789012345678901", "123456789012345678902"], None),
        (["true", "false"], ("false", "true")),
        (["b", "a", "10"], ("10", "a", "b")),
    ],
)
def test_table_labels_of_any_names_are_counted_from_zero(tmp_path, labels, names):
    rows = [(str(n), labels[n % len(labels)]) for n in range(30)]
    data = load(table(tmp_path / "t.csv", rows, "x,label"))
    assert data.class_names == (names or tuple(labels))
    assert set(data.train.labels) == set(range(len(data.class_names)))


def test_table_target_ignore_and_category_choose_columns(tmp_path):
    path = table(tmp_path / "t.csv")
    data = load(table(tmp_path / "u.csv", [(str(n % 3), str(n % 2)) for n in range(20)], "zip,y"))
    assert data.image == (1, 1)
    data = load(tmp_path / "u.csv", category=("zip",))
    assert data.image == (1, 3) and set(data.train.images.sum((1, 2))) == {255}
    assert load(path, ignore=("colour",)).image == (1, 1)


GOOD = [("1", "a"), ("2", "b"), ("3", "a"), ("4", "b"), ("5", "a"), ("6", "b")] * 2


def changed(row, cells):
    return [*GOOD[:row], cells, *GOOD[row + 1 :]]


@pytest.mark.parametrize(
    ("rows", "head", "options", "message"),
    [
        (changed(3, ("inf", "b")), "x,y", {}, "line 5, column 'x': 'inf' is not finite"),
        (changed(3, ("1e999", "b")), "x,y", {}, "line 5, column 'x': '1e999' is not finite"),
        (changed(3, ("4,5", "b")), "x,y", {}, "line 5 has 3 values, the first line names 2"),
        (changed(3, ("4..5", "b")), "x,y", {}, "line 5, column 'x': '4..5' is no number"),
        (changed(3, ("4", "")), "x,y", {}, "line 5, column 'y': no target"),
        ([(a, "a") for a, _ in GOOD], "x,y", {}, "column 'y' has one class, 'a': add samples"),
        ([(b, f"n{n}") for n, (_, b) in enumerate(GOOD * 50)], "x,y", {},
         "600 different targets in 600 rows"),
        ([("1", f"{n}.5") for n in range(30)] + [("2", "4;5")], "x,y", {},
         "'4;5' is no number, and other targets are: correct it, or take --task"),
        (GOOD, "x,y", {"task": "regression"}, "'a' is no finite number, and a regression predicts"),
        ([("1", "2.5")] * 9 + [("1", "inf")], "x,y", {}, "'inf' is no finite number"),
        ([("1", "2.5")] * 12, "x,y", {}, "column 'y' has one value, 2.5, in the training split"),
        (GOOD, "x,y", {"target": "z"}, "has no column 'z'; there are x, y"),
        (GOOD, "price,y", {"target": "prize"}, "did you mean 'price'?"),
        (GOOD, "x,y", {"ignore": ("x",)}, "has no column next to the target 'y'"),
        (GOOD, "x,y", {"ignore": ("w",)}, "--ignore: "),
        (GOOD, "x,y", {"image_size": (8, 8)}, "--image-size only applies to pictures"),
        (GOOD, "x,x", {}, "two columns called 'x'"),
        (GOOD, "x,", {}, "a column without a name"),
        (GOOD, "1,2", {}, "the first line must name the columns"),
        ([("p", "b"), *[("q", "a")] * 9], "q,b", {}, "['q', 'b'], has values of its columns"),
        ([(a, b, b) for a, b in GOOD], "x,label,Class", {}, "columns label, Class: give the one"),
        ([(f"2024-{n // 28 + 1:02}-{n % 28 + 1:02}", str(n % 2)) for n in range(100)], "day,y", {},
         "'2024-01-01'; a category has at most 64: leave the column out with --ignore day, or"),
        (GOOD[:4], "x,y", {}, "has 4 samples, at least"),
        ([], "x,y", {}, "has no rows"),
        ([("", b) for _, b in GOOD], "x,y", {}, "column 'x' has no value"),
        ([(f"id{n}", str(n % 2)) for n in range(100)], "x,y", {}, f"at most {MOST_LEVELS}"),
    ],
)  # fmt: skip
def test_table_that_cannot_be_read_names_its_place_and_value(
    tmp_path, rows, head, options, message
):
    path = table(tmp_path / "t.csv", rows, head)
    assert message in refused(path, **options)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"x,y\n\xff,1\n", "byte 4 is not UTF-8"),
        (b"x,y\n1,a\n2,\0b\n", "byte 10 is a NUL"),
        (b'x,y\n"1,2\n', "is no CSV"),
    ],
)
def test_table_of_damaged_bytes_is_one_error(tmp_path, content, message):
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    assert message in refused(path)


def test_table_that_takes_long_to_read_says_so(tmp_path, monkeypatch, capsys):
    path = table(tmp_path / "t.csv")
    monkeypatch.setattr(registry, "waiting", partial(waiting, first_seconds=0.01))
    monkeypatch.setattr(registry, "load_own", lambda *_: time.sleep(0.2))
    load_data_set("table", path)
    assert capsys.readouterr().err.startswith(f"trainwright: reading {path}: 0 s so far\n")


def test_parquet_table_equals_the_same_csv(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="Parquet needs the extra data")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = list(zip(*ROWS, strict=True))
    sizes = [float(size) if size else None for size in columns[0]]
    written = {"size": sizes, "colour": [c or None for c in columns[1]], "good": columns[2]}
    path = tmp_path / "t.parquet"
    parquet.write_table(pyarrow.table(written), path)
    data, same = load(path), load(table(tmp_path / "t.csv"))
    assert (data.train.images == same.train.images).all() and data.notes[1:] == same.notes[1:]
    path.write_bytes(path.read_bytes()[:40])
    assert "not a sound Parquet file" in refused(path)


def test_text_lines_set_the_inputs_of_their_words(tmp_path):
    path = tmp_path / "t.txt"
    texts = ["Good, good film", "bad film", "what a GOOD day", "so bad", "fine"]
    labels = ["pos", "neg", "pos", "neg", "pos"]
    lines = (f"{label}\t{text}\n" for label, text in zip(labels, texts, strict=True))
    path.write_text("".join(lines))
    data = load(path)
    assert data.class_names == ("neg", "pos") and data.image == (1, 256)
    first = int(np.flatnonzero(order_of(5)[:4] == 0)[0])
    expected = sorted({zlib.crc32(word) % 256 for word in (b"good", b"film")})
    assert np.flatnonzero(data.train.images[first, 0]).tolist() == expected
    path.write_text("pos\tgood\nneg bad\n")
    assert "line 2: 'neg bad' is not a label, a tab and a text" in refused(path)


def pictures(folder, classes, mode="L", size=(5, 4), count=5):
    image = pytest.importorskip("PIL.Image", reason="pictures need the extra data")
    shape = (size[1], size[0]) if mode == "L" else (size[1], size[0], 3)
    for number, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        for n in range(count):
            pixels = np.full(shape, 40 * number + n, np.uint8)
            if mode == "RGB":
                pixels[..., 1] = 200
            image.fromarray(pixels).save(folder / name / f"{n}.png")
    return folder


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "\u0939\u093f\u0928\u094d\u0926\u0940, \u0915\u093f\u0924\u093e\u092c!",
            2,
        ),  # Hindi: vowel signs
        ("\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22 \u0e14\u0e35", 2),  # Thai
        ("\u0bae\u0bca\u0bb4\u0bbf", 1),  # Tamil
        ("x\u0331y \u2764\ufe0flove", 2),  # a mark without a composed letter, and one on a symbol
        ("caf\u00e9 don't a_b", 4),
    ],
)
def test_text_with_marks_sets_one_input_for_each_word(tmp_path, line, words):
    path = tmp_path / "lines.txt"
    path.write_text(f"a\t{line}\nb\tother\n" * 5, encoding="utf-8")
    images = load_data_set("table", str(path)).train.images.reshape(-1, 256)
    assert sorted({int(n) for n in (images > 0).sum(1)}) == sorted({1, words})
    longest = max(line.split(), key=len).strip(",!").lstrip("\u2764\ufe0f")
    if longest.isidentifier():
        assert images[:, zlib.crc32(longest.encode()) % 256].any()


def test_picture_folder_of_colours_has_a_pixels_values_side_by_side(tmp_path):
    folder = pictures(tmp_path / "p", ["cat", "dog"], "RGB")
    data = load_data_set("pictures", folder)
    assert data.image == (4, 15) and data.class_names == ("cat", "dog") and data.channels == 3
    assert len(data.train) == 8 and (data.train.images[:, :, 1::3] == 200).all()
    value = data.train.images[:, 0, 0]
    assert (value // 40 == data.train.labels).all()
    resized = load_data_set("pictures", folder, own=OwnOptions(image_size=(2, 2)))
    assert resized.image == (2, 6)


def test_picture_folders_of_train_and_test_keep_their_split(tmp_path):
    pictures(tmp_path / "p" / "train", ["a", "b"])
    pictures(tmp_path / "p" / "test", ["b"], count=2)
    data = load_data_set("pictures", tmp_path / "p")
    assert len(data.train) == 10 and data.test.labels.tolist() == [1, 1]
    origin = SimpleNamespace(
        dataset="pictures", preparation=data.preparation, data_crc=None, full_scale=255,
        class_names=data.class_names,
    )  # fmt: skip
    options = SimpleNamespace(dataset=None, data=str(tmp_path / "p"), model="m")
    tested, _ = session._data(options, origin)
    assert tested.name == "p" and len(tested.test) == 2


def test_picture_folder_that_cannot_be_read_names_the_file(tmp_path):
    folder = pictures(tmp_path / "p", ["a", "b"])
    pictures(folder, ["c"], size=(6, 6))
    assert "c/0.png is 6 x 6 and 0.png 4 x 5: give --image-size" in refused(folder)
    (folder / "c" / "0.png").write_bytes(b"\x89PNG\r\n\x1a\nrest")
    assert "c/0.png: not a sound picture" in refused(folder, image_size=(4, 4))
    (folder / "c" / "notes.doc").write_text("x")
    assert "c/notes.doc is no picture" in refused(folder)
    assert "has one class, 'a'" in refused(pictures(tmp_path / "q", ["a"]))
    assert "are of tables" in refused(tmp_path / "q", target="x")
    (tmp_path / "q" / "empty").mkdir()
    assert "empty has no pictures" in refused(tmp_path / "q")
    nested = pictures(tmp_path / "r" / "train", ["a", "b"]).parent
    assert "train/a is a folder in train: " in refused(nested)


def test_picture_folder_beside_train_and_test_is_named_in_a_note(tmp_path):
    for part in ("train", "test", "val"):
        pictures(tmp_path / "p" / part, ["a", "b"])
    data = load_data_set("pictures", tmp_path / "p")
    assert "next to train and test are not read: val" in data.notes[1]


def test_picture_folder_of_masks_is_named_in_a_note(tmp_path):
    image = pytest.importorskip("PIL.Image")
    folder = pictures(tmp_path / "p", ["a", "b"])
    for path in folder.rglob("*.png"):
        image.fromarray(np.eye(4, 5, dtype=np.uint8)).save(path)
    data = load_data_set("pictures", folder)
    dark = "the brightest pixel of all test images is 1 of 255"
    assert " ".join((*data.notes, *data.doubts)).count(dark) == 1
    assert not load_samples(folder, data.preparation).notes  # evaluation lists the doubts, too


@pytest.mark.parametrize(
    ("low", "high", "noted"), [(0, 20, 1), (200, 230, 1), (200, 200, 1), (0, 128, 0), (180, 244, 0)]
)
def test_pictures_of_few_levels_have_one_note_a_split(tmp_path, low, high, noted):
    image = pytest.importorskip("PIL.Image")
    folder = pictures(tmp_path / "p", ["a", "b"])
    for path in folder.rglob("*.png"):
        image.fromarray(np.array([[low, high]] * 2, dtype=np.uint8)).save(path)
    data = load_data_set("pictures", folder)
    told = [note for note in (*data.notes, *data.doubts) if re.search("pixels? of", note)]
    assert len(told) == 2 * noted


def test_picture_folder_of_notebooks_and_systems_is_no_class(tmp_path):
    folder = pictures(tmp_path / "p", ["a", "b", ".ipynb_checkpoints", "__MACOSX"])
    assert load_data_set("pictures", folder).class_names == ("a", "b")


def test_npz_labels_that_begin_at_one_are_refused_with_the_remedy(tmp_path):
    arrays = {"x": np.zeros((20, 4, 4), np.uint8), "y": np.arange(20) % 3 + 1}
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(
        DataError, match=r"begin at 1, .* subtract 1, or add class_names.*--task regr"
    ):
        load_data_set("npz", tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", **arrays, class_names=np.array(["none", "a", "b", "c"]))
    assert load_data_set("npz", tmp_path / "a.npz").classes == 4


@pytest.mark.parametrize("levels, noted", [(2, "1"), (17, "16"), (65, None), (256, None)])
def test_npz_of_few_levels_is_named_in_a_note(tmp_path, levels, noted):
    x = (np.arange(40 * 16) % levels).reshape(40, 4, 4).astype(np.uint8)
    np.savez(tmp_path / "a.npz", x_train=x, y_train=np.arange(40) % 2, x_test=x,
             y_test=np.arange(40) % 2)  # fmt: skip
    data = load_data_set("npz", tmp_path / "a.npz")
    notes = " ".join((*data.notes, *data.doubts))
    assert f"of all training images is {noted} of 255" in notes if noted else not notes


def test_npz_of_rgb_images_equals_either_order_of_channels(tmp_path):
    x = np.random.RandomState(0).randint(0, 256, (20, 4, 5, 3)).astype(np.uint8)
    labels = np.arange(20) % 2
    np.savez(tmp_path / "last.npz", x=x, y=labels)
    np.savez(tmp_path / "first.npz", x=np.moveaxis(x, 3, 1), y=labels)
    data = [load_data_set("npz", tmp_path / f"{name}.npz") for name in ("last", "first")]
    assert data[0].channels == data[1].channels == 3
    assert data[0].image == (4, 15) and (data[0].train.images == data[1].train.images).all()
    assert (data[0].train.images[0] == x[order_of(20)[0]].reshape(4, 15)).all()


def line(capsys):
    text = capsys.readouterr().err.splitlines()[-1]
    assert text.startswith("trainwright: error: ")
    return text


def test_notes_of_a_wide_table_are_few_of_a_kind(tmp_path):
    names = [f"f{n}" for n in range(200)]
    rows = [(*(f"{n + k + 0.5}" if (n, k) != (7, 3) else "" for k in range(200)), "ab"[n % 2])
            for n in range(40)]  # fmt: skip
    path = table(tmp_path / "wide.csv", rows, ",".join((*names, "kind")))
    data = load_data_set("table", str(path))
    assert "f23 (number), 176 more columns; 2 classes" in data.notes[0]
    assert len(data.notes[0]) < 700 and sum("'f3': 1 missing" in note for note in data.notes) == 1
    far = [(*(str(1000 * n) for _ in names), "a") for n in range(1, 9)]
    new = load_samples(
        table(tmp_path / "far.csv", far, ",".join((*names, "kind"))), data.preparation
    )
    assert len(new.notes) == 9 and "'f7'" in new.notes[7]
    assert new.notes[8].startswith("192 more notes of this kind, the first: column 'f8': 8 of 8")


def test_trained_table_is_known_by_eval_resume_and_new_rows(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [(str(n % 10), "high" if n % 10 > 4 else "low") for n in range(200)]
    path = table(tmp_path / "level.csv", rows, "x,level")
    assert main(["train", "--data", "level.csv", "--epochs", "12", "--batch", "16", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["test_accuracy"] > 0.9 and result["test_samples"] == 40
    model = "runs/level/model.safetensors"
    assert main(["eval", model, "--data", "level.csv", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["test_accuracy"] == result["test_accuracy"] and again["test_samples"] == 40
    page = Path("runs/level/report.html").read_text()
    assert "Trained on table (level.csv)" in page and "of 40 samples" in page
    assert main(["eval", model, "--data", "level.csv", "--out", "seen"]) == 0
    assert "| class | rows |" in capsys.readouterr().out
    assert not Path("seen/samples.png").exists() and Path("seen/confusion.png").exists()
    assert [c["name"] for c in again["classes"]] == ["high", "low"]
    table(tmp_path / "new.csv", [("0", "x"), ("9", "x")], "x,other")
    assert main(["eval", model, "--data", "new.csv", "--out", "seen"]) == 0
    assert capsys.readouterr().out == "low\nhigh\n"
    assert list(map(str, Path("seen").iterdir())) == ["seen/eval.json"]  # no older picture
    table(tmp_path / "new.csv", [("0", "low"), ("9", "middle")], "x,level")
    assert main(["eval", model, "--data", "new.csv"]) == 2
    assert "new.csv: line 3, column 'level': 'middle' is no class of the model" in line(capsys)
    table(tmp_path / "new.csv", [("zero", "low")], "x,level")
    assert main(["eval", model, "--data", "new.csv"]) == 2
    assert "line 2, column 'x': 'zero' is no finite number" in line(capsys)
    assert main(["eval", model]) == 2 and "give --data FILE" in line(capsys)
    samples = load_samples(path, load(path).preparation)
    assert samples.labels is not None and len(samples.labels) == 200


def test_train_option_for_tables_beside_a_known_data_set_is_refused(tmp_path, capsys):
    assert main(["train", "--target", "y", "--out", str(tmp_path / "r")]) == 2
    assert "--task and --image-size only apply to tables and pictures" in line(capsys)
    assert main(["train", "--data", str(tmp_path / "no.csv"), "--out", str(tmp_path / "r")]) == 2
    assert f"cannot read {tmp_path / 'no.csv'}" in line(capsys)
    (tmp_path / "a.xlsx").touch()
    (tmp_path / "n.toml").write_text(
        "classes = 2\nimage = [1, 16]\n[[layers]]\noutputs = [1, 16]\ninputs = [1, 16]\nranks = [1]"
    )
    network = ["--network", str(tmp_path / "n.toml"), "--out", str(tmp_path / "r")]
    assert main(["train", "--data", str(tmp_path / "a.xlsx"), *network]) == 2
    assert "neither a file .npz, .csv, .tsv, .parquet, .txt nor a folder of" in line(capsys)
    network[1] = "tagger-64"
    assert main(["train", "--data", str(tmp_path), *network]) == 2
    assert f"{str(tmp_path)!r} is neither a file .txt nor a folder with train.txt or" in line(
        capsys
    )
    assert not (tmp_path / "r").exists()


GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "data.md"


def test_data_guide_every_command_runs_on_the_files_it_describes(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = GUIDE.read_text()
    head, *rows = re.search(r"```text\n(length.*?)```", text, re.DOTALL)[1].splitlines()
    (tmp_path / "flowers.csv").write_text("\n".join([head, *rows * 12]) + "\n")
    (tmp_path / "new.csv").write_text("\n".join(row.rpartition(",")[0] for row in [head, *rows]))
    (tmp_path / "opinions.txt").write_text("good\ta fine film\nbad\ta dull film\n" * 12)
    pictures(tmp_path / "shapes", ["square", "line"], count=10)
    commands = re.findall(r"^\$ trainwright (.*)$", text, re.MULTILINE)
    assert len(commands) == 10
    printed = []
    for command in commands:
        assert main(shlex.split(command)) == 0, command
        printed.append(capsys.readouterr().out)
    assert printed[-2] in ("square\n", "line\n")
    assert set(printed[-1].split()) <= {"setosa", "versicolor", "virginica"}
    assert len(printed[-1].split()) == len(rows)


@pytest.mark.parametrize("mode", ("RGB", "L"))
def test_report_of_own_pictures_keeps_their_colours_on_a_dark_page(mode, tmp_path, monkeypatch):
    drawn = {"loss.png": b"curve", "samples.png": b"photos"}
    monkeypatch.setattr(pictures_of_run, "draw_all", lambda *_: drawn)
    folder = str(pictures(tmp_path / "shots", ["sea", "sun"], mode))
    out = tmp_path / "run"
    assert main(["train", "--data", folder, "--steps", "1", "--batch", "8", "--out", str(out)]) == 0
    page = (out / "report.html").read_text()
    assert "Trained on pictures (shots)" in page and "img:not(.photos) { filter" in page
    assert re.findall(r"<img(.*?) src", page) == [
        ' alt="loss.png"', ' class=photos alt="samples.png"',
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "pixel", "colour"),
    [
        ("pictures", (200, 30, 90), (200, 30, 90)),
        ("pictures", (200,), (200, 200, 200)),
        ("mnist", (200,), (55, 55, 55)),  # zeros are paper
    ],
    ids=("RGB", "grey", "strokes"),
)
def test_samples_picture_of_data_has_the_colours_of_the_pixels(name, pixel, colour):
    image = pytest.importorskip("matplotlib.image")
    images = np.tile(np.array(pixel, np.uint8), (6, 4, 5)).reshape(6, 4, 5 * len(pixel))
    split = Split(images, np.zeros(6, np.uint8))
    data = DataSet(name, split, split, 255, ("a", "b"), channels=len(pixel))
    classes = np.zeros(6, np.int64)
    png = draw_samples(Evaluation(classes, classes, Counters(), 0.0), data, data.class_names)
    pixels = np.rint(image.imread(io.BytesIO(png)) * 255).astype(int)[..., :3]
    assert (np.abs(pixels - colour) <= 1).all(-1).mean() > 0.1  # 256 levels of grey are rounded


# Regression.


def houses(path, rows=80):
    """Write prices that follow size and colour, and return them."""
    random = np.random.RandomState(3)
    sizes, red = random.uniform(0, 200, rows), random.rand(rows) < 0.5
    prices = 1e5 + 900 * sizes + 4e4 * red
    cells = [
        (f"{size!r}", "red" if is_red else "blue", f"{price!r}")
        for size, is_red, price in zip(sizes.tolist(), red, prices.tolist(), strict=True)
    ]
    table(path, cells, "size,colour,price")
    return prices


def test_table_with_fractional_targets_is_a_standardised_regression(tmp_path):
    prices = houses(tmp_path / "t.csv")
    data = load(tmp_path / "t.csv")
    train, held = np.split(order_of(80), [64])
    mean, deviation = prices[train].mean(), prices[train].std()
    assert data.scale == pytest.approx((mean, deviation), rel=1e-12)
    assert data.train.labels == pytest.approx((prices[train] - mean) / deviation, abs=1e-12)
    assert data.test.labels == pytest.approx((prices[held] - mean) / deviation, abs=1e-12)
    assert (data.classes, data.class_names) == (1, ("price",))
    assert "a regression of column 'price'" in data.notes[0]
    samples = load_samples(tmp_path / "t.csv", data.preparation)
    assert samples.labels == pytest.approx((prices - mean) / deviation, abs=1e-12)


@pytest.mark.parametrize(
    ("targets", "task", "is_regression"),
    [
        (["1", "2", "3"], None, False), (["1", "2", "3"], "regression", True),
        (["1.5", "2", "3.0"], None, True), (["1.5", "2", "3.0"], "classification", False),
        ([str(n) for n in range(300)], None, True), (["true", "false"], None, False),
        (["1e300", "-1e300", "5e-324", "0.5"], None, True),
        ([str(n // 2) for n in range(34)], None, True),
        ([str(n // 3) for n in range(51)], None, False),
        ([str(n // 2) for n in range(32)], None, False),
    ],
)  # fmt: skip
def test_table_task_follows_the_option_or_else_the_targets(tmp_path, targets, task, is_regression):
    rows = [("1", targets[n % len(targets)]) for n in range(max(30, len(targets)))]
    data = load(table(tmp_path / "t.csv", rows, "x,y"), task=task)
    assert (data.scale is not None) == is_regression
    if is_regression:
        assert np.isfinite(data.train.labels).all() and np.isfinite(data.test.labels).all()
    elif task is None and targets[0] == "1":
        assert "--task regression predicts the number" in data.notes[0]


def test_regression_figures_are_those_of_fractions():
    targets, predictions = [1, 2, 4, 8], [1, 3, 4, 6]
    fit = Regression(np.array(predictions, float), np.array(targets, float))
    mean = Fraction(sum(targets), 4)
    errors = [Fraction(p - t) for p, t in zip(predictions, targets, strict=True)]
    residual, spread = sum(e * e for e in errors), sum((t - mean) ** 2 for t in targets)
    assert fit.r2 == pytest.approx(float(1 - residual / spread), rel=1e-15)
    assert fit.mae == float(sum(map(abs, errors)) / 4)
    assert fit.rmse == pytest.approx(float(residual / 4) ** 0.5, rel=1e-15)
    large = Regression(fit.predictions * 1e300, fit.targets * 1e300)
    assert large.r2 == pytest.approx(fit.r2) and large.rmse == pytest.approx(fit.rmse * 1e300)
    constant = np.full(3, 0.1)
    assert Regression(constant, constant).r2 == 1 and Regression(constant + 1, constant).r2 == 0


def test_squared_error_is_that_of_torch_autograd():
    outputs = torch.randn(5, 16, dtype=torch.float64, requires_grad=True)
    targets = torch.randn(5, dtype=torch.float64)
    expected = torch.nn.functional.mse_loss(outputs[:, 0], targets) / 2
    expected.backward()
    loss, gradient = head_loss(outputs.detach(), targets, 1)
    assert loss == pytest.approx(expected.item(), rel=1e-14)
    assert torch.allclose(gradient, outputs.grad, rtol=1e-14, atol=0)


def test_trained_regression_learns_reports_r2_and_predicts_in_units(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    prices = houses(tmp_path / "homes.csv", 400)
    command = ["train", "--data", "homes.csv", "--epochs", "12", "--batch", "16", "--no-prior"]
    assert main([*command, "--lr", "0.02", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["test_r2"] == told["test_accuracy"] > 0.9 and told["train_accuracy"] is None
    held = np.split(order_of(400), [320])[1]
    assert 0 < told["test_mae"] < 0.3 * prices[held].std()
    run = tmp_path / "runs" / "homes"
    assert "test R2" in (run / "report.html").read_text()
    assert json.loads((run / "result.json").read_text())["confusion"] is None
    model = str(run / "model.safetensors")
    assert main(["eval", model, "--data", "homes.csv", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert [again[key] for key in ("test_r2", "test_mae", "test_rmse", "test_samples")] == [
        *(told[key] for key in ("test_r2", "test_mae", "test_rmse")), 80,
    ]  # fmt: skip
    lines = (tmp_path / "homes.csv").read_text().splitlines()
    (tmp_path / "new.csv").write_text("\n".join(line.rpartition(",")[0] for line in lines[:41]))
    assert main(["eval", model, "--data", "new.csv"]) == 0
    predicted = np.array(list(map(float, capsys.readouterr().out.split())))
    assert np.corrcoef(predicted, prices[:40])[0, 1] > 0.9
    assert abs(predicted - prices[:40]).mean() < 0.3 * prices.std()


def test_draw_all_of_a_regression_has_predictions_and_no_confusion(tmp_path):
    pytest.importorskip("matplotlib")
    houses(tmp_path / "t.csv")
    data = load(tmp_path / "t.csv")
    fit = Regression(np.arange(4.0), np.arange(4.0) ** 2)
    nothing = np.zeros(4, np.int64)
    network = fitting_network(data, "t")
    steps = [StepRecord(1, 1, 0.5, 0, 16, 0.1, 0.0, 0, 0.0, 0, 0, 0, (8, 8))]
    history = History(steps=steps, evaluations=[EvaluationRecord(1, 1, 0.5, 4)])
    drawn = draw_all(history, Evaluation(nothing, nothing, Counters(), 0.0, fit), network, data)
    assert list(drawn) == ["r2.png", "loss.png", "ranks.png", "predictions.png"]
    assert all(png[:4] == b"\x89PNG" for png in drawn.values())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--scales", "all-frozen"], "takes --scales automatic or frozen"),
        (["--update", "chip", "--loss", "cross-entropy"], "omit --loss cross-entropy"),
        (["--task", "guess"], "invalid choice: 'guess'"),
    ],
)
def test_train_regression_beside_options_of_classes_is_refused(tmp_path, capsys, options, message):
    houses(tmp_path / "t.csv")
    words = ["--data", str(tmp_path / "t.csv"), "--batch", "16", "--out", str(tmp_path / "r")]
    with contextlib.suppress(SystemExit):
        assert main(["train", *words, *options]) == 2
    assert message in line(capsys)


# Files as strangers have them.


def test_table_with_semicolons_and_decimal_commas_has_columns_of_numbers(tmp_path):
    rows = [(f"{n},5", f"{n}", "ab"[n % 2]) for n in range(20)]
    data = load(table(tmp_path / "t.csv", rows, "x,y,t", ";"))
    points = [(f"{n}.5", f"{n}", "ab"[n % 2]) for n in range(20)]
    same = load(table(tmp_path / "u.csv", points, "x,y,t"))
    assert [column["type"] for column in data.preparation["columns"]] == ["number", "number"]
    assert (data.train.images == same.train.images).all()
    words = [("a,b", "c")[n % 2] for n in range(20)]
    texts = load(table(tmp_path / "v.csv", list(zip(words, words, strict=True)), "x,y", ";"))
    assert texts.class_names == ("a,b", "c")


@pytest.mark.parametrize(
    ("cells", "is_noted"),
    [
        (["1,234"] * 10 + ["987"] * 10, True),
        (["1,234"] * 10 + ["0,987"] * 10, False),
        (["1,23"] * 10 + ["1,234"] * 10, False),
    ],
)  # fmt: skip
def test_table_whose_commas_may_separate_thousands_has_a_note(tmp_path, cells, is_noted):
    rows = [(cell, "ab"[n % 2]) for n, cell in enumerate(cells)]
    notes = load(table(tmp_path / "t.csv", rows, "x,t", ";")).notes
    told = "column 'x': 1,234 is read as 1.234: write plain numbers such as 1234" in " ".join(notes)
    assert told == is_noted
    points = [("1.234", "ab"[n % 2]) for n in range(20)]
    for delimiter, told in ((";", True), ("\t", False)):  # without a decimal comma anywhere
        notes = load(table(tmp_path / "v.csv", points, "x,t", delimiter)).notes
        assert any("column 'x': 1.234 is read as 1.234" in note for note in notes) == told
    points = [("1.234", "2,5", "ab"[n % 2]) for n in range(20)]
    notes = load(table(tmp_path / "u.csv", points, "x,y,t", "\t")).notes
    assert any("column 'x': 1.234 is read as 1.234" in note for note in notes)


@pytest.mark.parametrize("time", ["", " 07:30:00", "T07:30:00Z"])
def test_column_of_dates_or_of_times_has_the_remedy_of_dates(tmp_path, time):
    rows = [(f"2024-{n // 28 + 1:02}-{n % 28 + 1:02}{time}", "ab"[n % 2]) for n in range(100)]
    with pytest.raises(DataError, match="write dates as plain numbers, such as days"):
        load(table(tmp_path / "t.csv", rows, "when,t"))


def test_pictures_in_colour_read_by_a_grey_model_have_a_note(tmp_path):
    preparation = load_data_set("pictures", pictures(tmp_path / "grey", "ab", "L")).preparation
    assert not load_samples(tmp_path / "grey", preparation).notes
    notes = load_samples(pictures(tmp_path / "colour", "ab", "RGB"), preparation).notes
    assert any("has 10 pictures in colour, read as grey: the model was" in note for note in notes)


def test_pictures_of_12_bits_in_files_of_16_have_a_note(tmp_path):
    image = pytest.importorskip("PIL.Image", reason="pictures need the extra data")
    for name in "ab":
        (tmp_path / name).mkdir()
        for n in range(5):
            pixels = np.arange(20, dtype=np.uint16).reshape(4, 5) * 200 + n
            image.fromarray(pixels).save(tmp_path / name / f"{n}.png")
    (note,) = load_data_set("pictures", tmp_path).doubts[:1]
    assert note.startswith("the brightest pixel of all training images is 15 of 255")


@pytest.mark.parametrize(
    ("cells", "targets", "note"),
    [
        ([f"{n}%" for n in range(20)], "ab", "column 'x' is taken for 16 categories such as"),
        ([f"2024-01-{n + 1:02}" for n in range(20)], "ab", "such as '2024-01-0"),
        (["7"] * 20, "ab", "column 'x' has one value in the training split"),
        (list(map(str, range(20))), ["Yes", "yes", "no"],
         "classes 'Yes', 'yes' differ only in capital letters"),
        (list(map(str, range(20))), ["a"] * 19 + ["b"], "has no row of class 'b'"),
        ([f"${n}.50" for n in range(20)], "ab", "column 'x' is taken for 16 categories such as '$"),
        ([f"\u2212{n}" for n in range(20)], "ab", "column 'x' is taken for 16 categories such as"),
        (["red"] * 20, "ab", "column 'x' has one value in the training split"),
        (["Yes", "yes", "no", "NO"] * 5, "ab", "categories 'NO', 'no' differ only in"),
        (["1e12"] * 3 + list(map(str, range(17))), "ab", "different numbers share 2 of 256"),
        (list(map(str, range(20))), [f"{n}%" for n in range(20)], "taken for 20 classes such as"),
        (["-" if n % 5 == 0 else f"{n}" for n in range(20)], "ab", "categories such as '-'"),
    ],
)  # fmt: skip
def test_table_that_may_be_meant_otherwise_has_a_note(tmp_path, cells, targets, note):
    rows = [(cell, targets[n % len(targets)]) for n, cell in enumerate(cells)]
    if note.endswith("'b'"):  # moves the only row of its class into the test split
        held = order_of(20)[-1]
        rows[19], rows[held] = rows[held], rows[19]
    data = load(table(tmp_path / "t.csv", rows, "x,t"))
    assert any(note in text for text in (*data.notes, *data.doubts))
    plain = [(f"{n}", "ab"[n % 2]) for n in range(20)]
    good = load(table(tmp_path / "u.csv", plain, "x,t"))
    assert len(good.notes) == 1 and not good.doubts


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ignore": ("y",)}, "that column is the target"),
        ({"category": ("y",)}, "that column is the target"),
        ({"ignore": ("x",), "category": ("x",)}, "column 'x' is in --ignore and --category"),
    ],
)  # fmt: skip
def test_table_options_that_contradict_each_other_are_refused(tmp_path, options, message):
    path = table(tmp_path / "t.csv", [*GOOD, *GOOD], "x,y")
    with pytest.raises(DataError, match=message):
        load(path, **options)


@pytest.mark.parametrize(
    ("content", "columns", "first"),
    [
        ("length, cm;t\n{n},5;{t}\n", ["length, cm"], None),
        ('"a, b";"c, d";t\n{n},5;1{n},5;{t}\n', ["a, b", "c, d"], None),
        ("a,1\tb,2\tt,3\n{n}\t1{n}\t{t}\n", ["a,1", "b,2"], None),
        ("sep=|\na,b|t\n{n},5|{t}\n", ["a,b"], None),
        ("a;b;t\r{n},5;1{n},25;{t}\r", ["a", "b"], None),
        (",a,t\n{n},1{n},{t}\n", ["a"], "column 1 has no name: it is left out"),
        ("Unnamed: 0,a,t\n{n},1{n},{t}\n", ["a"], "column 1 is called 'Unnamed: 0'"),
        ("a,t,__index_level_0__\n1{n},{t},{n}\n", ["a"], "column 3 is called"),
        ("a,t,\n1{n},{t},\n", ["a"], "column 3 has no name"),
    ],
)  # fmt: skip
def test_table_of_another_dialect_has_the_columns_that_its_rows_show(
    tmp_path, content, columns, first
):
    end = content[-1]
    *head, row = content.rstrip("\r\n").replace("\r", "\n").split("\n")
    lines = [*head, *(row.format(n=n, t="ab"[n % 2]) for n in range(20))]
    (tmp_path / "t.csv").write_bytes(end.join(lines).encode())
    data = load(tmp_path / "t.csv")
    read = data.preparation["columns"]
    assert [(c["name"], c["type"]) for c in read] == [(name, "number") for name in columns]
    assert data.class_names == ("a", "b")
    notes = [note for note in data.notes if "left out" in note]
    assert [first in note for note in notes] == [True] * (first is not None)


def test_table_and_text_of_composed_and_decomposed_letters_have_one_class(tmp_path):
    spelled = ["caf\u00e9", "cafe\u0301", "tea"]
    rows = [(f"{n}", spelled[n % 3]) for n in range(20)]
    assert load(table(tmp_path / "t.csv", rows, "x,t")).class_names == ("caf\u00e9", "tea")


def test_text_lines_end_where_files_end_them_and_not_at_unicode_separators(tmp_path):
    lines = [f"{'ab'[n % 2]}\tone\u2028two\u0085{n}" for n in range(20)]
    (tmp_path / "t.txt").write_bytes("\r\n".join(lines).encode())
    data = load(tmp_path / "t.txt")
    assert len(data.train) + len(data.test) == 20


def test_table_with_fractions_and_texts_as_targets_is_refused(tmp_path):
    rows = [("1", "abc" if n % 2 else f"{n}.5") for n in range(20)]
    assert "'abc' is no number, and other targets are" in refused(
        table(tmp_path / "t.csv", rows, "x,t")
    )


@pytest.mark.parametrize(
    ("row", "note"),
    [
        (
            ("2", "violet"),
            "'colour': 20 of 20 rows have categories that the training split lacks",
        ),
        (("2000", "red"), "'size': 20 of 20 values, such as 2000, are outside"),
        (("-2e300", "red"), "such as -2e300, are outside"),
        (("", "red"), "'size': 20 missing, taken as the mean"),
        (("2", "red"), None),
    ],
)
def test_load_samples_unlike_those_of_training_says_so(tmp_path, row, note):
    data = load(table(tmp_path / "t.csv", ROWS * 3))
    table(tmp_path / "new.csv", [row] * 20, "size,colour")
    samples = load_samples(tmp_path / "new.csv", data.preparation)
    assert [note in text for text in samples.notes] == [True] * (note is not None)


def test_parquet_leaves_no_thread_behind(tmp_path):
    """A thread of pyarrow that works while Python ends aborts the process: torch waits for none."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    tasks = Path("/proc/self/task")
    if not tasks.is_dir():
        pytest.skip("threads are counted in /proc")
    path = tmp_path / "t.parquet"
    columns = {"x": [*range(20)], "b": [b"ab"] * 20, "k": ["a", "b"] * 10}
    parquet.write_table(pyarrow.table(columns), path)
    before = len([*tasks.iterdir()])
    with pytest.raises(DataError, match="row 1, column 'b'"):
        load(path)
    assert len([*tasks.iterdir()]) == before


def test_parquet_with_decimals_and_dates_is_read_and_lists_are_ignored(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    days = [date(2024, 1, 1 + n % 3) for n in range(20)]
    columns = {
        "x": [Decimal(n) / 4 for n in range(20)], "day": days, "list": [[1]] * 20,
        "t": ["ab"[n % 2] for n in range(20)],
    }  # fmt: skip
    path = tmp_path / "t.parquet"
    parquet.write_table(pyarrow.table(columns), path)
    assert "column 'list': [1] is list" in refused(path)
    read = load(path, ignore=("list",)).preparation["columns"]
    assert [column["type"] for column in read] == ["number", "category"]
    assert read[1]["levels"] == ["2024-01-01", "2024-01-02", "2024-01-03"]
    twice = pyarrow.Table.from_arrays([pyarrow.array([1])] * 2, names=["x", "x"])
    parquet.write_table(twice, path)
    assert "the file has two columns called 'x'" in refused(path)


def test_parquet_with_narrow_floats_has_the_cells_of_csv(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    for bits, written in ((32, ["0.1", "16777216.0"]), (16, ["0.1", "2048.0"])):
        values = np.array(written * 10, f"float{bits}")
        columns = {"x": values, "n": np.arange(20), "t": values}
        parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")
        rows = [(text, str(n), text) for n, text in enumerate(written * 10)]
        csv = table(tmp_path / "t.csv", rows, "x,n,t")
        options = {"task": "classification", "category": ("x",)}
        ours, theirs = load(tmp_path / "t.parquet", **options), load(csv, **options)
        assert ours.preparation == theirs.preparation
        assert np.array_equal(ours.train.images, theirs.train.images)
        # New samples in the other form are those of the training split.
        assert load_samples(csv, ours.preparation).notes == ()


def test_load_samples_with_a_nested_column_names_a_remedy_of_eval(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    data = load(table(tmp_path / "t.csv", ROWS * 3))
    path = tmp_path / "new.parquet"
    parquet.write_table(pyarrow.table({"size": [[1.0]], "colour": ["red"]}), path)
    with pytest.raises(DataError, match="model reads the column: convert it to numbers") as error:
        load_samples(path, data.preparation)
    assert "--ignore" not in str(error.value)


def test_read_pictures_of_16_bits_keep_their_greys(tmp_path):
    image = pytest.importorskip("PIL.Image")
    values = np.array([[0, 128, 129, 257], [65535, 32768, 1000, 64000]], np.uint16)
    image.fromarray(values).save(tmp_path / "a.png")
    expected = [[round(Fraction(int(v) * 255, 65535)) for v in row] for row in values]
    assert read_pictures(tmp_path).images[0].tolist() == expected


def test_read_pictures_of_greys_in_colour_modes_are_grey(tmp_path):
    image = pytest.importorskip("PIL.Image")
    palette = image.new("P", (2, 1))
    palette.putpalette([7, 7, 7, 200, 200, 200])
    palette.putdata([0, 1])
    palette.save(tmp_path / "a.png")
    image.fromarray(np.full((1, 2, 3), 90, np.uint8)).save(tmp_path / "b.png")
    read = read_pictures(tmp_path)
    assert read.channels == 1 and read.images.tolist() == [[[7, 200]], [[90, 90]]]
    image.fromarray(np.array([[[1, 2, 3], [4, 4, 4]]], np.uint8)).save(tmp_path / "c.png")
    assert read_pictures(tmp_path).channels == 3


def test_read_pictures_turned_by_a_camera_are_upright(tmp_path):
    image = pytest.importorskip("PIL.Image")
    stored = image.fromarray(np.array([[0, 80], [160, 240], [20, 40]], np.uint8))
    exif = image.Exif()
    exif[274] = 6  # orientation: turn by 90 degrees clockwise
    stored.save(tmp_path / "a.png", exif=exif)
    assert read_pictures(tmp_path).images[0].tolist() == [[20, 160, 0], [40, 240, 80]]


@pytest.mark.parametrize("mode", ("RGBA", "LA", "P", "tRNS", "tRNS16"))
def test_read_pictures_that_are_transparent_lie_on_white(tmp_path, mode):
    image = pytest.importorskip("PIL.Image")
    path = tmp_path / "a.png"
    if mode == "LA":
        pixels = np.array([[[10, 255], [10, 0], [10, 51]]], np.uint8)
        image.fromarray(pixels, "LA").save(path)
        expected = [10, 255, round(10 * 0.2 + 255 * 0.8)]
    elif mode == "tRNS":
        image.fromarray(np.array([[10, 20, 30]], np.uint8)).save(path, transparency=20)
        expected = [10, 255, 30]
    elif mode == "tRNS16":  # Pillow writes no transparency of 16 bits
        image.fromarray(np.array([[0, 20 * 257, 65535]], np.uint16)).save(path)
        content, place = path.read_bytes(), 33  # behind the header
        chunk = b"tRNS" + (20 * 257).to_bytes(2, "big")
        chunk = (2).to_bytes(4, "big") + chunk + zlib.crc32(chunk).to_bytes(4, "big")
        path.write_bytes(content[:place] + chunk + content[place:])
        expected = [0, 255, 255]
    elif mode == "P":
        picture = image.new("P", (2, 1))
        picture.putpalette([1, 2, 3, 4, 5, 6])
        picture.putdata([0, 1])
        picture.save(path, transparency=1)
        expected = [1, 2, 3, 255, 255, 255]
    else:
        pixels = np.array([[[1, 2, 3, 255], [4, 5, 6, 0]]], np.uint8)
        image.fromarray(pixels, "RGBA").save(path)
        expected = [1, 2, 3, 255, 255, 255]
    assert read_pictures(tmp_path).images[0].ravel().tolist() == expected


def test_read_pictures_in_cmyk_have_the_colours_of_rgb(tmp_path):
    image = pytest.importorskip("PIL.Image")
    colour = image.new("RGB", (8, 8), (200, 40, 90))
    colour.convert("CMYK").save(tmp_path / "a.jpg", quality=95)
    mean_colour = read_pictures(tmp_path).images[0].reshape(-1, 3).mean(0)
    assert np.abs(mean_colour - (200, 40, 90)).max() < 4


@pytest.mark.parametrize(
    ("codes", "told"),
    [(["01", "1", "2", "02"], True), (["01", "02", "03", "04"], False),
     (["1", "1.0", "2", "2.0"], False)],
)  # fmt: skip
def test_codes_that_leading_zeros_tell_apart_have_a_note(tmp_path, codes, told):
    rows = [(codes[n % 4], codes[(n // 4) % 4]) for n in range(64)]
    path = table(tmp_path / "t.csv", rows, "x,t")
    notes = load(path, category=("x",), task="classification").notes
    for text in ("column 'x': '01', '1' are one category", "column 't': '01', '1' are one class"):
        assert any(note.startswith(text) for note in notes) == told


def test_animated_picture_is_refused_by_its_frames(tmp_path):
    image = pytest.importorskip("PIL.Image", reason="pictures need the extra data")
    frames = [image.new("L", (4, 4), level) for level in (0, 100, 200)]
    for name in "ab":
        (tmp_path / name).mkdir()
        frames[0].save(tmp_path / name / "0.png")
    frames[0].save(tmp_path / "b" / "1.png", save_all=True, append_images=frames[1:])
    with pytest.raises(DataError, match=r"1\.png is an animation of 3 frames: save one"):
        load_data_set("pictures", tmp_path)
    frames[0].save(tmp_path / "b" / "1.png")
    frames[1].save(tmp_path / "b" / "2.jpg", "MPO", save_all=True, append_images=frames[2:])
    for n in range(3, 8):
        frames[n % 3].save(tmp_path / "a" / f"{n}.png")
    assert len(load_data_set("pictures", tmp_path).train) == 8


@pytest.mark.parametrize(
    ("cells", "note"),
    [
        (["007", "010", "123"] * 10, "column 'x': numbers begin with 0, such as 007"),
        ([n % 7 if n % 5 else -999 for n in range(30)], "column 'x' is -999 in 6 rows"),
        (["#N/A", 1, 2, 3, 2] * 6, "column 'x' is taken for 4 categories such as '#N/A'"),
        (["1E2", "100", "z"] * 10, "column 'x': '100', '1E2' are one category"),
        ([f"user{n}" for n in range(30)], "column 'x' has a category of its own in each row"),
        (["a", "b"] * 15, "column 'Row No' numbers the rows: --ignore Row No"),
        (["Zoë", "Zoe\u0308", "ab", "a\u200bb"] * 8, "'ab', 'a\\u200bb' differ only in the codes"),
    ],
)
def test_table_with_cells_of_two_readings_has_a_note(tmp_path, cells, note):
    path = tmp_path / "t.csv"
    path.write_text(
        "Row No,x,k\n"
        + "".join(f"{n},{cell},{'ab'[n % 3 == 0]}\n" for n, cell in enumerate(cells)),
        "utf-8",
    )
    assert any(note in text for text in load(path).notes)


@pytest.mark.parametrize(("name", "noted"), [("PassengerId", True), ("Valid", False)])
def test_table_with_a_column_that_numbers_rows_has_a_note(tmp_path, name, noted):
    path = tmp_path / "t.csv"
    path.write_text(f"{name},x,k\n" + "".join(f"{n},{n % 5},{'ab'[n % 2]}\n" for n in range(20)))
    note = f"column {name!r} numbers the rows: --ignore {name}, or a network learns their order"
    assert (note in load(path).notes) == noted


def test_train_on_own_data_with_download_is_refused(tmp_path, capsys):
    path = table(tmp_path / "t.csv")
    options = ["--data", str(path), "--download", "--out", str(tmp_path / "run")]
    assert main(["train", *options]) == 2
    assert "--download fetches" in capsys.readouterr().err


def test_table_with_spaces_before_quotes_has_the_columns_of_one_without(tmp_path):
    spaced, dense = tmp_path / "spaced.csv", tmp_path / "dense.csv"
    spaced.write_text('x, "a, b", k\n' + '1, "2", "yes"\n2, "3", "no"\n' * 10)
    dense.write_text('x,"a, b",k\n' + '1,"2","yes"\n2,"3","no"\n' * 10)
    assert load(spaced).class_names == ("no", "yes")
    assert load(spaced).preparation == load(dense).preparation
    assert np.array_equal(load(spaced).train.images, load(dense).train.images)


def test_table_numbers_far_from_zero_have_levels_of_their_exact_distances(tmp_path):
    values = [1_700_000_000_000_000_000 + 4096 * n for n in range(40)]
    path = tmp_path / "t.csv"
    path.write_text("x,k\n" + "".join(f"{v},{'ab'[n % 2]}\n" for n, v in enumerate(values)))
    data = load(path)
    order = np.random.RandomState(0).permutation(40)
    mean, deviation = (Fraction(data.preparation["columns"][0][m]) for m in ("mean", "deviation"))
    wanted = [
        round(((values[n] - mean) / deviation + 3) / 6 * 255) for n in order[: len(data.train)]
    ]
    assert data.train.images.ravel().tolist() == wanted


def test_parquet_texts_with_spaces_and_accents_equal_those_of_csv(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    pyarrow = pytest.importorskip("pyarrow")
    columns = {"c": [" red", "red ", "blue", "  "] * 5, "k": ["é", "e\u0301", "z", "z"] * 5}
    rows = [f"{c},{k}\n" for c, k in zip(*columns.values(), strict=True)]
    (tmp_path / "t.csv").write_text("c,k\n" + "".join(rows), "utf-8")
    parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")
    text, binary = load(tmp_path / "t.csv"), load(tmp_path / "t.parquet")
    assert text.class_names == binary.class_names == ("z", "é")
    assert text.preparation == binary.preparation
    assert np.array_equal(text.train.images, binary.train.images)


def test_load_samples_beside_a_constant_column_or_without_words_says_so(tmp_path):
    train, new = tmp_path / "t.csv", tmp_path / "new.csv"
    texts = [f"word{n} and other words {'!' * (n % 2)}" for n in range(100)]
    train.write_text("x,t,k\n" + "".join(f"3,{t},{'ab'[n % 2]}\n" for n, t in enumerate(texts)))
    new.write_text("x,t,k\n4,\N{GRINNING FACE}!,a\n3,a word,b\n")
    notes = load_samples(new, load(train).preparation).notes
    for text in ("1 of 2 values, such as 4, are not 3", "1 of 2 texts have no letter or digit"):
        assert any(text in note for note in notes)


def test_eval_of_a_table_with_one_more_row_says_that_all_are_classified(tmp_path, capsys):
    path, longer = tmp_path / "t.csv", tmp_path / "longer.csv"
    path.write_text("x,k\n" + "".join(f"{n % 7},{'ab'[n % 2]}\n" for n in range(40)))
    longer.write_text(path.read_text() + "5,a\n")
    out = tmp_path / "run"
    options = ["--epochs", "1", "--batch", "16", "--out", str(out)]
    assert main(["train", "--data", str(path), *options]) == 0
    for file, is_new in ((path, False), (longer, True)):
        capsys.readouterr()
        assert main(["eval", str(out / "model.safetensors"), "--data", str(file)]) == 0
        captured = capsys.readouterr()
        assert ("is not what the model was trained on" in captured.err) == is_new
        assert f"of {41 if is_new else 8} test rows" in captured.out


def _amounts(path, values, targets=None):
    rows = [
        (str(value), target) for value, target in zip(values, targets or "pn" * 99, strict=False)
    ]
    return load(table(path, rows, "x,t")).notes


def test_integers_beyond_floating_point_are_named_in_a_note(tmp_path):
    notes = _amounts(tmp_path / "t.csv", [2**63 + n for n in range(40)])
    assert "'x': 40 different numbers, such as 92233720368547758" in " ".join(notes)
    assert "are 1 in 64 bits" in " ".join(notes)
    odd = _amounts(tmp_path / "o.csv", [2**53 + 2 * n for n in range(40)])
    assert not any("64 bits" in note for note in odd)  # as many numbers as before
    for values in (
        range(40),
        [n * 1e300 for n in range(40)],
        [2**53 + n * 1000 for n in range(40)],
    ):
        assert not any("64 bits" in note for note in _amounts(tmp_path / "p.csv", values))
    targets = [str(2**57 + 20 * n) for n in range(40)]
    assert "column 't': 40 different" in " ".join(_amounts(tmp_path / "r.csv", range(40), targets))


@pytest.mark.parametrize(
    ("far", "noted"), [([1e6], True), ([60.0], True), ([12.0], False), ([40.0, -40.0], False)]
)
def test_targets_that_outweigh_all_others_are_named_in_a_note(tmp_path, far, noted):
    targets = [n % 7 - 3 + n / 1000 for n in range(40)]
    for row, value in zip(order_of(40), far, strict=False):  # rows of the training split
        targets[row] = value
    kept = [Fraction(targets[row]) for row in order_of(40)[:32]]
    squares = [(x - sum(kept) / 32) ** 2 for x in kept]
    part = f"one of 32 targets, {far[0]:g}, has {float(max(squares) / sum(squares)):.0%} of their"
    rows = [(str(n), str(value)) for n, value in enumerate(targets)]
    data = load(table(tmp_path / "t.csv", rows, "x,t"))
    network = fitting_network(data, "t")
    notes = [note for note in data_notes(network, data) if "of their variance" in note]
    assert [note.startswith(part) for note in notes] == [True] * noted
    assert all("within one step of an output of 8 bits" in note for note in notes)
    floats = [n for n in data_notes(network.in_float32(), data) if "of their variance" in n]
    assert all("step of an output" not in note for note in floats) and len(floats) == len(notes)


@pytest.mark.parametrize(
    ("shift", "remedy"),
    [(0.5, "their logarithms"), (0.0, "logarithms of 1 + target"), (-1.0, "a function that")],
)
def test_skewed_targets_name_a_transform_and_the_share_in_one_step(tmp_path, shift, remedy):
    """Put 300 of 400 targets at one place, and the far ones where an output's range ends."""
    values = [0.0] * 300 + [float(n) for n in range(1, 97)] + [1e4, 2e4, 3e4, 4e4]
    x = np.zeros((400, 2, 2), np.uint8)
    arrays = {"x_train": x, "y_train": np.array(values) + shift, "x_test": x, "y_test": values}
    np.savez(tmp_path / "a.npz", **arrays)
    data = load_data_set("npz", tmp_path / "a.npz", own=OwnOptions(task="regression"))
    [note] = [n for n in data_notes(fitting_network(data, "t"), data) if "variance" in n]
    # A step is the mean of |target - mean|, by its range of 0.06, over 128: 100,000 / 400 / ...
    mean = sum(values) / 400
    step = sum(abs(v - mean) for v in values) / 400 / 0.06 / 128
    crowd = sum(v <= step for v in values)
    assert note.startswith(f"2 of 400 targets, such as {4e4 + shift:g}, have 83% of their variance")
    assert f"and {round(crowd / 4)}% of all are within one step" in note
    assert f": predict {remedy}" in note
    tested = replace(data, train=data.test)  # as eval makes it
    assert not any("variance" in n for n in data_notes(fitting_network(data, "t"), tested))


def test_class_without_test_samples_is_named_in_a_note(tmp_path):
    x = np.arange(4 * 40 * 16).reshape(160, 4, 4).astype(np.uint8)
    arrays = {"x_train": x, "y_train": np.arange(160) % 3, "x_test": x[:40]}
    for labels, wanted in ((np.arange(40) % 2, True), (np.arange(40) % 3, False)):
        np.savez(tmp_path / "a.npz", **arrays, y_test=labels)
        doubts = " ".join(load_data_set("npz", tmp_path / "a.npz").doubts)
        assert ("the test split has no image of class '2': its" in doubts) == wanted
    np.savez(tmp_path / "b.npz", **arrays | {"x_test": x[:23]}, y_test=np.arange(23) % 2)
    assert not load_data_set("npz", tmp_path / "b.npz").doubts


def test_picture_that_cannot_be_read_is_named_once(tmp_path):
    pytest.importorskip("PIL")
    for name, spoil in (("a", lambda path: path.write_bytes(b"no picture")), ("b", _dangling)):
        folder = pictures(tmp_path / name, ["a", "b"])
        path = sorted(folder.rglob("*.png"))[0]
        spoil(path)
        assert refused(folder).count(path.name) == 1


def _dangling(path):
    path.unlink()
    path.symlink_to("/nonexistent.png")


def test_row_without_target_is_said_to_be_so_in_evaluation(tmp_path):
    data = load(table(tmp_path / "t.csv", ROWS * 3))
    table(tmp_path / "new.csv", [*ROWS, ("1", "red", "")])
    with pytest.raises(DataError, match="line 12, column 'good': no target: fill it in"):
        load_samples(tmp_path / "new.csv", data.preparation)


def test_parquet_of_damaged_pages_and_of_odd_targets_is_one_error(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "t.parquet"
    parquet.write_table(pyarrow.table({"x": list(range(99)), "t": [b"\xff"] * 99}), path)
    assert "choose another --target" in refused(path) and "--ignore" not in refused(path)
    content = path.read_bytes()
    path.write_bytes(content[:4] + b"\xff" * 60 + content[64:])
    assert f"{path}: not a sound Parquet file (" in refused(path)


def test_own_file_next_to_another_data_set_is_told_to_omit_its_name(tmp_path, capsys):
    path = tmp_path / "rows.csv"
    path.write_text("a,y\n" + "1,0\n2,1\n" * 5)
    for name in ("digits", "mnist"):
        argv = ["train", "--data", str(path), "--dataset", name, "--out", str(tmp_path / "run")]
        assert main(argv) == 2
        assert f"is data of your own, not {name!r}: omit --dataset" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("classes", "outputs"),
    [(1, (1, 1)), (2, (1, 2)), (3, (1, 4)), (8, (1, 8)), (9, (1, 16)), (17, (2, 16))],
)
def test_last_layer_of_a_fitting_network_has_few_outputs_that_pad(tmp_path, classes, outputs):
    rows = [f"{n / 9},{n % 7},c{n % classes}" for n in range(20 * classes)]
    (tmp_path / "t.csv").write_text("a,b,label\n" + "\n".join(rows))
    data = load(tmp_path / "t.csv") if classes > 1 else houses_of_one_target(tmp_path)
    assert data.classes == classes
    assert fitting_network(data, "t").layers[-1].outputs == outputs


def houses_of_one_target(folder):
    houses(folder / "h.csv")
    return load(folder / "h.csv")


@pytest.mark.parametrize("seed", ["0", "1"])
def test_regression_of_one_target_trains_on_the_chip(tmp_path, monkeypatch, capsys, seed):
    """Watch padded outputs: zeros among the gradients let the others saturate, and R2 fell to 0."""
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).normal(size=(300, 2))
    rows = [f"{a},{b},{a + b}" for a, b in x.round(6).tolist()]
    Path("t.csv").write_text("a,b,target\n" + "\n".join(rows))
    options = ["--epochs", "60", "--update", "chip", "--seed", seed, "--json"]
    assert main(["train", "--data", "t.csv", "--out", "r", *options]) == 0
    assert json.loads(capsys.readouterr().out)["test_r2"] > 0.95


@pytest.mark.parametrize(
    ("least", "step", "remedy"),
    [(10**20, 1, "subtract one number from all"), (5, 0, "choose another --target")],
)
def test_targets_that_are_equal_name_the_remedy(tmp_path, least, step, remedy):
    path = tmp_path / "rows.csv"
    path.write_text("a,y\n" + "".join(f"{n},{least + step * n}\n" for n in range(20)))
    with pytest.raises(DataError, match=f"has one value, .*: {remedy}"):
        load_data_set("table", str(path), own=OwnOptions(task="regression"))


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["007", "010", "00"], ("00", "007", "010")),  # codes keep zeros that every row has
        (["7.", "7", "10"], ("7", "10")),  # Fortran and R write whole numbers with a point
        (["7.0", "10."], ("7", "10")),
        (["007", "7", "10"], ("7", "10")),
    ],
)
def test_table_classes_are_spelled_as_in_the_file_unless_rows_differ(tmp_path, labels, names):
    rows = [(str(n), labels[n % len(labels)]) for n in range(30)]
    data = load(table(tmp_path / "t.csv", rows, "x,t"))
    assert data.class_names == names
    again = load_samples(table(tmp_path / "new.csv", rows, "x,t"), data.preparation)
    numbers = [min(names.index(name) for name in names if float(name) == float(t)) for _, t in rows]
    assert again.labels is not None and again.labels.tolist() == numbers


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("x,y\n1,2\n,\n3,4\n,\n", "1 row without any value, such as line 3"),
        ("x,y\n,\n1,2\n \t, \n3,4\n", "2 rows without any value, such as line 2"),
        ("x\n1\n\n3\n\n\n", "1 row without any value, such as line 3"),
        ("x,y\n1,2\n\n3,4\n", None),  # an empty line is no row of two columns
        ("\nx,y\n1,2\n3,4\n,\n\n", None),
    ],
)
def test_table_rows_without_values_are_left_out_with_a_note(tmp_path, text, note):
    path = tmp_path / "t.csv"
    path.write_text(text)
    cells = read_cells(path)
    assert len(cells.places) == 2 and len(cells.notes) == (note is not None)
    assert note is None or cells.notes[0].startswith(note)


def test_parquet_index_of_pandas_comes_first_as_in_csv(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="Parquet needs the extra data")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {"x": [n % 7 for n in range(20)], "good": ["ab"[n % 2] for n in range(20)]}
    stored = pyarrow.table({**columns, "day": list(range(20))})
    kept = {"pandas": json.dumps({"index_columns": ["day"], "columns": []})}
    path = tmp_path / "t.parquet"
    parquet.write_table(stored.replace_schema_metadata(kept), path)
    assert list(read_cells(path).columns) == ["day", "x", "good"]
    parquet.write_table(stored, path)
    assert list(read_cells(path).columns) == ["x", "good", "day"]


@pytest.mark.parametrize("name", ["id", "timestamp"])
def test_table_whose_last_column_rises_says_that_it_became_the_target(tmp_path, name):
    rows = [(str(n % 7), "ab"[n % 2], f"{1.7e9 + 60 * n + n % 3}") for n in range(40)]
    path = table(tmp_path / "t.csv", rows, f"x,y,{name}")
    note = f"column {name!r} is the target because it is the last one, and rises"
    assert any(text.startswith(note) for text in load(path).notes)
    assert not any(note in text for text in load(path, target=name).notes)
    table(path, [rows[1], *rows], f"x,y,{name}")
    assert not any(note in text for text in load(path).notes)


def test_npz_integers_beyond_floating_point_are_named(tmp_path):
    x, y, own = np.zeros((40, 2, 2), np.uint8), np.arange(40), OwnOptions(task="regression")
    np.savez(tmp_path / "a.npz", x=x, y=2**53 + y)
    notes = load_data_set("npz", tmp_path / "a.npz", own=own).notes
    [note] = [n for n in notes if "floating point" in n]
    held = len({float(2**53 + n) for n in range(40)})
    assert f"40 different numbers to predict, such as {2**53 + 39}, are {held}" in note
    np.savez(tmp_path / "b.npz", x=x, y=2**60 + y)
    with pytest.raises(DataError, match="64 bits of floating point: subtract one number"):
        load_data_set("npz", tmp_path / "b.npz", own=own)
    np.savez(tmp_path / "c.npz", x=x, y=2**53 + 2 * y)
    notes = load_data_set("npz", tmp_path / "c.npz", own=own).notes
    assert not any("64 bits" in n for n in notes)


@pytest.mark.parametrize(
    ("x", "y", "remedy"),
    [
        (np.zeros((20, 9)), np.arange(20) % 2, r"for a table take x[:, None, :]"),
        (np.zeros((20, 3, 3), np.uint16), np.arange(20) % 2, "divide by the greatest value"),
        (np.zeros((20, 3, 3)), np.array([b"a", b"b"] * 10), "convert them with astype(int) or"),
    ],
)
def test_npz_of_other_types_or_shapes_names_the_remedy(tmp_path, x, y, remedy):
    np.savez(tmp_path / "a.npz", x=x, y=y)
    with pytest.raises(DataError, match=re.escape(remedy)):
        load_data_set("npz", tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("outputs", "classes", "unused"),
    [((4, 4), 1, 15), ((4, 4), 2, 14), ((4, 4), 3, None), ((2, 4), 2, None), ((8, 16), 10, 118)],
)
def test_heads_most_of_whose_outputs_belong_to_no_class_are_named(outputs, classes, unused):
    layers = [{"outputs": [*outputs], "inputs": [4, 4], "ranks": [2]}]
    network = network_from_dict(
        {"name": "n", "classes": classes, "image": [4, 4], "layers": layers}
    )
    split = Split(np.zeros((8, 4, 4), np.uint8), np.zeros(8, np.uint8))
    names = tuple(f"c{n}" for n in range(max(2, classes)))
    data = DataSet("npz", split, replace(split), 255, names)
    notes = [note for note in data_notes(network, data) if "belong to no class" in note]
    total = outputs[0] * outputs[1]
    wanted = f"{unused} of the {total} outputs of 'l1' in network 'n' belong to no class"
    assert [note.startswith(wanted) for note in notes] == [True] * (unused is not None)
    assert not any("no class" in note for note in data_notes(network.in_float32(), data))


@pytest.mark.parametrize("name", [name for name in BUILT_IN if name != "encoder-768"])
def test_heads_of_built_in_networks_have_few_outputs_without_a_class(name):
    network = load_network(name)
    for head in network.heads:
        assert np.prod(network.shapes[head]) < MOST_PADDED * network.classes_of(head)


def test_parquet_names_and_row_numbers_are_those_of_csv(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    numbers, kinds = list(range(20)), ["ab"[n % 2] for n in range(20)]
    names = ["Unnamed: 0", "Unnamed: 0", "gro\u0308sse", " label ", "note"]
    columns = [pyarrow.array(cells) for cells in (numbers, numbers, numbers, kinds, kinds)]
    parquet.write_table(pyarrow.Table.from_arrays(columns, names), tmp_path / "t.parquet")
    ours = load(tmp_path / "t.parquet").preparation
    rows = [(str(n), str(n), str(n), kind, kind) for n, kind in zip(numbers, kinds, strict=True)]
    assert ours == load(table(tmp_path / "t.csv", rows, ",".join(names))).preparation
    assert ours["target"] == "label" and ours["columns"][0]["name"] == "gr\u00f6sse"


def test_parquet_years_beyond_nanoseconds_and_datetimes_are_no_other_years(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    days = [datetime((1000, 2000, 3000, 9999)[n % 4], 1, 1) for n in range(20)]
    rest = {"n": list(range(20)), "label": ["ab"[n % 2] for n in range(20)]}
    path = tmp_path / "t.parquet"
    old = pyarrow.table({"day": pyarrow.array(days, pyarrow.timestamp("ms")), **rest})
    parquet.write_table(old, path, use_deprecated_int96_timestamps=True)
    levels = load(path).preparation["columns"][0]["levels"]
    assert levels == [f"{year}-01-01 00:00:00" for year in (1000, 2000, 3000, 9999)]
    beyond = pyarrow.array([10**7] * 20, pyarrow.date32())
    parquet.write_table(pyarrow.table({"day": beyond, **rest}), path)
    assert "column 'day' cannot be read" in refused(path)


@pytest.mark.parametrize(
    "cells, notes",
    [
        (["True", "1", "0", "False"], ["'0', 'False' are 0, and more than one class: spell it"]),
        (["1", "1.0", "0", "0.0"], []),
        (["1582218195625938945", "1582218195625938946"], []),
    ],
)
def test_table_with_two_spellings_of_a_truth_value_says_so(tmp_path, cells, notes):
    rows = [(str(n), cells[n % len(cells)]) for n in range(20)]
    data = load(table(tmp_path / "t.csv", rows, "x,label"), task="classification")
    told = [note for note in data.notes if "more than one class" in note]
    assert [note in text for note, text in zip(notes, told, strict=True)] == [True] * len(notes)

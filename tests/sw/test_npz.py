"""Data sets of one's own in an .npz: what is read, how it is split, and one-line errors."""

import argparse
import io
import json
import struct
import zipfile
from fractions import Fraction
from random import Random

import numpy as np
import pytest

from trainwright.cli import main
from trainwright.cli.errors import OptionError
from trainwright.cli.train import outcome
from trainwright.cli.train.options import add_arguments, make_settings
from trainwright.data import DataError, arrays, load_data_set
from trainwright.data.npz import load_npz
from trainwright.data.own import OwnOptions

RANDOM = np.random.RandomState(3)
IMAGES = RANDOM.randint(0, 256, (20, 6, 5)).astype(np.uint8)
LABELS = (np.arange(20) % 3).astype(np.int64)
GOOD = {
    "x_train": IMAGES[:12], "y_train": LABELS[:12], "x_test": IMAGES[12:], "y_test": LABELS[12:],
}  # fmt: skip


def save(path, **arrays):
    np.savez_compressed(path, **arrays)
    return path


def complaint(path):
    with pytest.raises(DataError) as caught:
        load_npz(path)
    text = str(caught.value)
    assert "\n" not in text and str(path) in text
    return text


MEDMNIST = ("train_images", "train_labels", "test_images", "test_labels")


@pytest.mark.parametrize("names", [tuple(GOOD), MEDMNIST], ids=["keras", "medmnist"])
def test_both_splits_by_name(tmp_path, names):
    arrays = dict(zip(names, GOOD.values(), strict=True))
    data = load_data_set("npz", save(tmp_path / "a.npz", **arrays, other=np.zeros(3)))
    assert (data.train.images == IMAGES[:12]).all() and (data.test.images == IMAGES[12:]).all()
    assert (data.test.labels == LABELS[12:]).all() and data.test.labels.dtype == np.uint8
    assert data.image == (6, 5) and data.full_scale == 255 and data.class_names == ("0", "1", "2")


@pytest.mark.parametrize("names", [("images", "labels"), ("x", "y")], ids=" ".join)
def test_npz_one_set_is_split_always_the_same_way(tmp_path, names):
    path = save(tmp_path / "a.npz", **dict(zip(names, (IMAGES, LABELS), strict=True)))
    data = load_npz(path)
    assert (len(data.train), len(data.test)) == (16, 4)
    order = np.random.RandomState(0).permutation(20)
    assert (data.train.images == IMAGES[order[:16]]).all()
    assert (data.test.labels == LABELS[order[16:]]).all()


@pytest.mark.parametrize("kind", ["float16", "float32", ">f8"])
def test_floating_point_is_rounded_to_the_same_bytes(tmp_path, kind):
    arrays = {**GOOD, "x_train": (GOOD["x_train"] / 255).astype(kind)}
    data = load_npz(save(tmp_path / "a.npz", **arrays))
    assert (data.train.images == GOOD["x_train"]).all()


@pytest.mark.parametrize("axis", [1, 3])
def test_npz_accepts_single_channel_and_label_column(tmp_path, axis):
    arrays = {**GOOD, "x_test": np.expand_dims(GOOD["x_test"], axis)}
    arrays["y_test"] = GOOD["y_test"][:, None].astype(np.int8)
    data = load_npz(save(tmp_path / "a.npz", **arrays))
    assert (data.test.images == GOOD["x_test"]).all()
    assert (data.test.labels == GOOD["y_test"]).all()


def test_class_names_may_be_in_the_file(tmp_path):
    names = np.array(["cat", "dog", "newt", "none of them"])
    data = load_npz(save(tmp_path / "a.npz", **GOOD, class_names=names))
    assert data.class_names == tuple(names)


def test_npz_data_set_known_by_name_keeps_its_classes(tmp_path):
    path = save(tmp_path / "f.npz", **GOOD).rename(tmp_path / "f.NPZ")
    data = load_data_set("fashion-mnist", path)
    assert data.name == "fashion-mnist" and data.class_names[9] == "ankle boot"


NAN = GOOD["x_test"].astype(np.float32) / 255
NAN[2, 3, 4] = np.nan


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("x_test", NAN, "x_test has nan at (2, 3, 4); pixels are from 0 to 1"),
        ("x_test", np.full((8, 6, 5), -np.inf), "x_test has -inf at (0, 0, 0)"),
        ("x_test", np.full((8, 6, 5), 1.5), "x_test has values from 1.5 to 1.5; floating-point"),
        ("x_train", GOOD["x_train"].astype(np.int64), "x_train is int64, not uint8"),
        ("x_train", GOOD["x_train"] * 1j, "x_train is complex128, not uint8"),
        ("x_train", GOOD["x_train"].reshape(12, 30), "x_train has shape (12, 30), not (samples"),
        ("x_train", np.zeros((12, 6, 5, 4), np.uint8), "x_train has shape (12, 6, 5, 4), not"),
        ("x_train", np.zeros((0, 6, 5), np.uint8), "x_train has shape (0, 6, 5), not"),
        ("x_train", IMAGES[:11], "11 x_train but 12 y_train"),
        ("x_test", np.zeros((8, 5, 6), np.uint8), "train and test images differ in size"),
        ("y_test", LABELS[12:] - 1, "has labels from -1 to 1, not within 0 to 8,191: count"),
        ("y_test", LABELS[12:] + 8190, "has labels from 8190 to 8192, not within 0 to 8,191"),
        ("y_test", np.full(8, np.nan), "y_test has nan at (0,); labels are finite"),
        ("y_test", np.array(["a"] * 8), "labels are strings in one split and numbers in the other"),
        ("x_test", np.zeros((8, 6, 15), np.uint8), "train and test images differ in size"),
        ("y_test", np.eye(8, dtype=np.int64), "y_test has shape (8, 8), not (samples,)"),
        ("y_train", np.array(7), "y_train has shape (), not (samples,)"),
        ("y_train", LABELS[:12] * 1j, "y_train is complex128; labels are numbers or strings"),
        ("class_names", np.array(["a", "b"]), "label 2 is out of range, there are 2 classes"),
        ("class_names", np.arange(3), "class_names is int64 of shape (3,), not strings"),
        ("y_test", LABELS[12:].astype(object), "y_test holds pickled Python objects, which are n"),
    ],
)
def test_arrays_that_cannot_be(tmp_path, name, value, message):
    assert message in complaint(save(tmp_path / "a.npz", **{**GOOD, name: value}))


def test_npz_of_grey_and_rgb_splits_of_equal_width_is_refused(tmp_path):
    arrays = {**GOOD, "x_test": np.zeros((8, 6, 15), np.uint8)}
    arrays["x_train"] = np.zeros((12, 6, 5, 3), np.uint8)
    assert "differ in size or colours" in complaint(save(tmp_path / "a.npz", **arrays))


def test_npz_of_one_class_is_refused(tmp_path):
    assert "has 1 class:" in complaint(save(tmp_path / "a.npz", x=IMAGES, y=LABELS * 0))


@pytest.mark.parametrize("kind", [bool, np.float32, np.int8, ">i4"])
def test_npz_labels_of_any_type_are_the_classes_that_they_count(tmp_path, kind):
    labels = LABELS % 2
    data = load_npz(save(tmp_path / "a.npz", x=IMAGES, y=labels.astype(kind)))
    order = np.random.RandomState(0).permutation(20)
    assert data.class_names == ("0", "1") and data.scale is None
    assert data.train.labels.tolist() == labels[order[:16]].tolist()


def test_npz_labels_that_are_strings_are_the_names_of_classes(tmp_path):
    names = np.array(["newt", "cat", "dog"])
    texts = {"y_train": names[LABELS[:12]], "y_test": names[[1] * 8]}
    path = save(tmp_path / "a.npz", **{**GOOD, **texts})
    data = load_npz(path)
    assert data.class_names == ("cat", "dog", "newt")
    assert data.train.labels.tolist() == [[2, 0, 1][n] for n in LABELS[:12]]
    assert data.test.labels.tolist() == [0] * 8
    # A file that lacks classes, read for a model, keeps the numbers that the model gives them.
    other = save(tmp_path / "b.npz", x=IMAGES, y=names[[0, 2] * 10])
    read = load_npz(other, preparation=data.preparation)
    assert read.class_names == data.class_names and {*read.test.labels.tolist()} <= {1, 2}
    fish = save(tmp_path / "c.npz", x=IMAGES, y=np.array(["fish", "cat"] * 10))
    with pytest.raises(DataError, match="'fish' is no class of the model: cat, dog, newt"):
        load_npz(fish, preparation=data.preparation)
    with pytest.raises(DataError, match="the labels are strings"):
        load_npz(path, task="regression")


@pytest.mark.parametrize(
    ("targets", "task"),
    [
        (LABELS / 2 - 3.25, None),
        (np.arange(20) * 1e300, "regression"),
        (LABELS, "regression"),
        (np.arange(20).astype(np.float16), "regression"),
    ],
)
def test_npz_numbers_to_predict_are_a_standardised_regression(tmp_path, targets, task):
    path = save(tmp_path / "a.npz", x=IMAGES, y=targets)
    data = load_data_set("npz", path, own=OwnOptions(task=task))
    order = np.random.RandomState(0).permutation(20)
    assert data.scale is not None and data.classes == 1
    mean, deviation = data.scale
    exact = [Fraction(float(targets[n])) for n in order]
    middle = sum(exact[:16]) / 16
    variance = sum((value - middle) ** 2 for value in exact[:16]) / 16
    assert mean == pytest.approx(float(middle)) and Fraction(deviation) ** 2 / variance == (
        pytest.approx(1)
    )
    labels = np.concatenate([data.train.labels, data.test.labels])
    assert labels * deviation + mean == pytest.approx(list(map(float, exact)))
    # Another file is read in the units of the model, whatever its own mean is.
    other = save(tmp_path / "b.npz", x=IMAGES, y=targets.astype(np.float64) / 2 + 1)
    read = load_npz(other, task="regression", preparation=data.preparation)
    assert read.scale == data.scale


MANY = np.random.RandomState(5).permutation(900) % 300
FLAT = np.zeros((900, 2, 2), np.uint8)


@pytest.mark.parametrize(
    ("labels", "task", "classes", "note"),
    [
        (MANY, None, 300, "labels of 300 different integers are classes (--task regression"),
        (MANY.astype(np.float32), None, 300, "labels of 300 different integers are classes"),
        (MANY * 2, None, 599, "labels of 300 different integers are classes"),
        (MANY * 27, None, 1, "a regression, as labels have fractions or are many"),
        (MANY - 150, None, 1, "a regression, as labels"),
        (MANY * 27, "classification", 299 * 27 + 1, None),
        (MANY, "regression", 1, None),
        (MANY % 3 / 2, None, 1, "a regression, as labels"),
        (MANY % 256, None, 256, None),
        (np.array([f"name {n}" for n in MANY]), None, 300, None),
    ],
)
def test_npz_of_many_labels_says_whether_they_are_classes(tmp_path, labels, task, classes, note):
    data = load_npz(save(tmp_path / "a.npz", x=FLAT, y=labels), task=task)
    told = [text for text in data.notes if "regression" in text or "classes" in text]
    assert data.classes == classes and (note or "") in " ".join(told) and bool(told) == bool(note)
    order = np.random.RandomState(0).permutation(900)
    if data.scale is None and labels.dtype.kind != "U":
        assert data.train.labels.tolist() == labels[order[:720]].tolist()
        assert data.test.labels.tolist() == labels[order[720:]].tolist()
    elif data.scale is None:
        read = [data.class_names[n] for n in data.test.labels]
        assert read == labels[order[720:]].tolist()


def test_npz_label_beyond_named_classes_is_refused_and_not_wrapped(tmp_path):
    path = save(tmp_path / "a.npz", **{**GOOD, "y_test": LABELS[12:] + 256})
    with pytest.raises(DataError, match="label 258 is out of range, there are 10 classes"):
        load_data_set("fashion-mnist", path)


def test_npz_read_for_a_model_takes_its_task_and_its_classes(tmp_path):
    few = save(tmp_path / "a.npz", x=IMAGES, y=LABELS + 5)
    numbered = {"kind": "npz", "names": tuple(map(str, range(300)))}
    data = load_npz(few, preparation=numbered)
    assert data.classes == 300 and set(data.test.labels.tolist()) <= {5, 6, 7}
    data = load_npz(few, preparation={"kind": "npz", "scale": [6.0, 0.5]})
    assert set(data.test.labels.tolist()) <= {-2.0, 0.0, 2.0}
    sole = save(tmp_path / "b.npz", x=IMAGES, y=LABELS * 0 + 7)
    assert load_npz(sole, preparation=numbered).classes == 300
    with pytest.raises(DataError, match="labels are numbers, those of the model are strings: a, b"):
        load_npz(few, preparation={"kind": "npz", "classes": ["a", "b"]})
    other = save(tmp_path / "c.npz", x=IMAGES, y=LABELS, class_names=np.array(["a", "c", "b"]))
    with pytest.raises(DataError, match="class_names has 'c' at 1, the model has 'b'"):
        load_npz(other, preparation={"kind": "npz", "names": ["a", "b", "c"]})


def test_npz_with_many_numbers_and_classes_asked_for_is_refused(tmp_path):
    path = save(tmp_path / "a.npz", x=IMAGES, y=LABELS / 2)
    with pytest.raises(DataError, match="--task classification: labels have fractions"):
        load_data_set("npz", path, own=OwnOptions(task="classification"))


def test_npz_regression_trains_without_a_network_and_is_evaluated_in_units(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    pytest.importorskip("matplotlib")
    levels = np.random.RandomState(1).randint(0, 256, 120).astype(np.uint8)
    images, targets = np.tile(levels[:, None, None], (1, 4, 4)), levels * 10.5
    save(tmp_path / "a.npz", x=images, y=targets)
    assert main(["train", "--data", "a.npz", "--epochs", "6", "--batch", "8", "--json"]) == 0
    trained = json.loads(capsys.readouterr().out)
    assert trained["test_r2"] > 0.2
    assert main(["eval", "runs/a/model.safetensors", "--data", "a.npz", "--json"]) == 0
    evaluated = json.loads(capsys.readouterr().out)
    names = ("test_r2", "test_mae", "test_rmse")
    assert [evaluated[name] for name in names] == [trained[name] for name in names]
    held = targets[np.random.RandomState(0).permutation(120)[96:]]
    assert 0 < evaluated["test_rmse"] < 3 * held.std()


def test_arrays_that_are_missing(tmp_path):
    arrays = {name: value for name, value in GOOD.items() if name != "y_test"}
    text = complaint(save(tmp_path / "a.npz", **arrays))
    assert "has x_test, x_train, y_train and lacks y_test" in text
    text = complaint(save(tmp_path / "b.npz", weights=np.zeros(3)))
    assert "no arrays of images and labels; wanted are x_train, y_train" in text
    text = complaint(save(tmp_path / "c.npz", x=IMAGES[:4], y=LABELS[:4]))
    assert "has 4 samples, at least" in text


def test_files_that_are_no_npz(tmp_path):
    path = tmp_path / "a.npz"
    assert "there is no file" in complaint(path)
    path.mkdir()
    assert "cannot read" in complaint(path)
    path = tmp_path / "b.npz"
    path.write_bytes(b"\x80\x04\x95 a pickle")
    assert "not an .npz file" in complaint(path)
    with path.open("wb") as file:
        np.save(file, IMAGES)
    assert "not an .npz file" in complaint(path)


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9, 0.999])
def test_npz_truncated_file_is_rejected(tmp_path, part):
    path = save(tmp_path / "a.npz", **GOOD)
    content = path.read_bytes()
    path.write_bytes(content[: int(part * len(content))])
    assert "truncated or damaged" in complaint(path)


def test_npz_damaged_content_is_rejected(tmp_path):
    path = save(tmp_path / "a.npz", **GOOD)
    content = bytearray(path.read_bytes())
    content[content.index(b"x_train.npy") + 200] ^= 0x55
    path.write_bytes(content)
    assert "damaged" in complaint(path)


def test_members_that_are_no_arrays(tmp_path):
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("x.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", 4) + b"oops")
        file.writestr("y.npy", b"text")
    assert "x is damaged" in complaint(path)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("x", b"some text")
        file.writestr("y", b"some text")
    assert "x is not an array" in complaint(path)


def test_npz_size_beyond_file_is_rejected(tmp_path):
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (1125899906842624, 64, 64), }"
    header += b" " * (118 - len(header))
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("x.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
        file.writestr("y.npy", b"")
    assert "damaged" in complaint(path)


def test_npz_array_beyond_the_memory_is_not_called_damaged(tmp_path, monkeypatch):
    def starved(*_):
        raise MemoryError

    path = save(tmp_path / "a.npz", **GOOD)
    monkeypatch.setattr(arrays, "read_stated", starved)
    assert complaint(path) == f"{path}: x_train is too large for the memory, or damaged"


METHODS = {
    "stored": zipfile.ZIP_STORED,
    "deflate": zipfile.ZIP_DEFLATED,
    "bzip2": zipfile.ZIP_BZIP2,
    "lzma": zipfile.ZIP_LZMA,
}


def packed(path, method: int, **arrays):
    with zipfile.ZipFile(path, "w", method) as file:
        for name, array in arrays.items():
            content = io.BytesIO()
            np.save(content, array)
            file.writestr(f"{name}.npy", content.getvalue())
    return path


@pytest.mark.parametrize("method", METHODS)
def test_npz_mangled_archive_is_one_error(tmp_path, method):
    """Seeded: one line or the arrays, whatever byte is wrong and whatever it was packed with."""
    path = packed(tmp_path / "a.npz", METHODS[method], **GOOD)
    good, refused = path.read_bytes(), 0
    assert load_npz(path).image == (6, 5)
    for seed in range(250):
        random = Random(f"{method} {seed}")
        content = bytearray(good)
        for _ in range(random.randint(1, 3)):
            content[random.randrange(2, len(content))] = random.getrandbits(8)
        path.write_bytes(
            content[: random.choice((len(content), random.randrange(len(content)))) or 2]
        )
        try:
            load_npz(path)
        except DataError as error:
            refused += 1
            assert str(path) in str(error) and "\n" not in str(error)
    assert refused > 150


def test_npz_unknown_compression_is_rejected(tmp_path):
    path = packed(tmp_path / "a.npz", zipfile.ZIP_STORED, **GOOD)
    content = bytearray(path.read_bytes())
    for start in (8, content.index(b"PK\x01\x02") + 10):
        content[start] = 97
    path.write_bytes(content)
    assert "x_train is damaged (That compression method is not supported)" in complaint(path)


def test_npz_array_with_surplus_bytes_is_damaged(tmp_path):
    path = tmp_path / "a.npz"
    content = io.BytesIO()
    np.save(content, LABELS)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("x.npy", content.getvalue() + b"\0")
    assert "x is damaged (more bytes than its shape asks for)" in complaint(path)


def test_no_more_is_unpacked_than_an_array_may_have(tmp_path):
    path = packed(tmp_path / "a.npz", zipfile.ZIP_DEFLATED, **GOOD)
    content = bytearray(path.read_bytes())
    size = content.index(b"PK\x01\x02") + 24
    content[size : size + 4] = struct.pack("<I", (1 << 31) + 1)
    path.write_bytes(content)
    assert "x_train unpacks to 2,147,483,649 bytes, at most 2,147,483,648" in complaint(path)


def test_names_and_files_that_do_not_go_together(tmp_path):
    path = save(tmp_path / "a.npz", **GOOD)
    with pytest.raises(DataError, match=r"'npz' is a file: give --data FILE\.npz"):
        load_data_set("npz", tmp_path)
    with pytest.raises(DataError, match=r"'digits' .* has no files: omit --data"):
        load_data_set("digits", path)


@pytest.mark.parametrize(
    "changes",
    [{"y_test": LABELS[::-1][:8]}, {"class_names": np.array(["a", "b", "c"])}],
    ids=["labels", "names"],
)
def test_resume_beside_other_test_samples_or_names_is_refused(
    tmp_path, monkeypatch, capsys, changes
):
    def full(*_):
        raise OptionError("the disk is full")

    monkeypatch.setattr(outcome, "write_outcome", full)
    path, out = tmp_path / "mine.npz", ["--out", str(tmp_path / "run")]
    save(path, **GOOD)
    assert main(["train", "--data", str(path), "--epochs", "1", "--batch", "4", *out]) == 2
    save(path, **GOOD | changes)
    assert main(["train", "--resume", *out]) == 2
    assert "data set 'npz' has changed since the run began" in capsys.readouterr().err
    save(path, **GOOD)
    assert main(["train", "--resume", *out]) == 2
    assert "has changed" not in capsys.readouterr().err


def test_training_on_a_file_of_one_s_own(tmp_path, capsys):
    # The train split of 8 x 8 digits, so that the network `digits` fits it.
    digits = load_data_set("digits")
    scaled = digits.train.images / np.float32(16)
    path = save(tmp_path / "mine.npz", x=scaled, y=digits.train.labels)
    out = ["--out", str(tmp_path / "r"), "--steps", "2"]
    assert main(["train", "--data", str(path), *out]) == 0
    assert "of 287 samples" in capsys.readouterr().out
    assert main(["train", "--network", "fashion", "--data", str(path), "--force", *out]) == 2
    assert "made for images of 28 x 28, data set 'npz' has 8 x 8" in capsys.readouterr().err


def doubtful(path, **arrays):
    data = load_npz(save(path, **arrays))
    return " | ".join((*data.notes, *data.doubts))


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"x_train": IMAGES[:12] // 16}, "the brightest pixel of all training images is 15 of 255"),
        ({"x_test": IMAGES[12:] / 255 / 255}, "the brightest pixel of all test images is 1 of 255"),
        ({"x_train": np.zeros((12, 6, 5))}, "all pixels of all training images are 0: they teach"),
        ({"y_train": LABELS[:12] * 10}, "the training split has no image of class '1', '2', '3'"),
        ({"y_test": np.full(8, 5)}, "the training split has no image of class '3', '4', '5'"),
        ({"class_names": np.array(["Cat", "dog", "cat"])}, "'Cat', 'cat' differ only in"),
        (
            {"y_train": np.array(["a ", " a"] * 6), "y_test": np.array([" a", "a "] * 4)},
            "classes ' a', 'a ' differ only in spaces or capital letters",
        ),
        ({"x_val": IMAGES, "weights": LABELS}, "arrays that are not read: weights, x_val"),
        ({"images": IMAGES, "labels": LABELS}, "arrays that are not read: images, labels"),
    ],
)  # fmt: skip
def test_npz_with_likely_mistake_has_a_note(tmp_path, changes, note):
    assert note in doubtful(tmp_path / "a.npz", **{**GOOD, **changes})
    assert not doubtful(tmp_path / "b.npz", **GOOD)


def test_npz_of_one_set_says_how_many_samples_are_held_back(tmp_path):
    note = "has one set: the test split is 4 of its 20 samples"
    assert note in doubtful(tmp_path / "a.npz", x=IMAGES, y=LABELS)


def test_npz_with_a_class_name_twice_is_refused(tmp_path):
    path = save(tmp_path / "a.npz", **GOOD, class_names=np.array(["a", "b", "a"]))
    assert "class_names has 'a' twice" in complaint(path)


TABLE = """
name = "cancer"
classes = 2
image = [1, 30]
padded = [1, 32]
[[layers]]
outputs = [4, 16]
inputs = [2, 16]
ranks = [8]
[[layers]]
outputs = [1, 16]
inputs = [4, 16]
ranks = [4]
"""


def test_npz_small_table_is_learnt_with_the_prior_s_default(tmp_path, capsys):
    """62 % of the samples are of one class, which is where too strong a prior ends."""
    from sklearn.datasets import load_breast_cancer

    x, y = load_breast_cancer(return_X_y=True)
    x = (x - x.min(0)) / (x.max(0) - x.min(0))
    data = save(tmp_path / "cancer.npz", images=x.reshape(-1, 1, 30), labels=y)
    (tmp_path / "cancer.toml").write_text(TABLE)
    command = ["train", "--network", str(tmp_path / "cancer.toml"), "--data", str(data)]
    assert main([*command, "--epochs", "30", "--out", str(tmp_path / "r"), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["test_accuracy"] > 0.9
    stored = json.loads((tmp_path / "r" / "result.json").read_text())
    assert stored["settings"]["prior"]["weight"] == 456 / 5700


@pytest.mark.parametrize(
    ("dataset", "samples", "weight"),
    [
        ("digits", 1437, 0.25),
        ("fashion-mnist", 60000, 0.5),
        ("fashion-mnist", 570, 0.1),
        ("npz", 143, 143 / 5700),
        ("npz", 2850, 0.5),
        ("npz", 10**6, 0.5),
    ],
)
def test_npz_prior_s_default_weight(dataset, samples, weight):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    prior = make_settings(parser.parse_args([]), dataset, samples).prior
    assert prior is not None and prior.weight == weight
    given = make_settings(parser.parse_args(["--prior-weight", "3"]), dataset, samples).prior
    assert given is not None and given.weight == 3


@pytest.mark.parametrize("gap", ["nan", "", "None", " NA "])
def test_npz_label_that_stands_for_none_is_refused(tmp_path, gap):
    path = tmp_path / "t.npz"
    labels = np.array(["cat", "dog", gap, "dog"] * 5)
    np.savez(path, x=np.zeros((20, 2, 2), np.uint8), y=labels)
    with pytest.raises(DataError, match=r"at \(2,\), which stands for no label"):
        load_npz(path)


def test_npz_whose_colours_may_be_at_two_places_says_which_are_taken(tmp_path):
    labels = np.array([0, 1] * 5)
    for shape, is_doubtful in (((10, 3, 4, 3), True), ((10, 5, 4, 3), False)):
        np.savez(tmp_path / "a.npz", x=np.zeros(shape, np.uint8), y=labels)
        notes = load_npz(tmp_path / "a.npz").notes
        assert any("the last 3 are taken for red" in note for note in notes) == is_doubtful

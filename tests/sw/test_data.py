"""Data sets: the fixed split of the digits, IDX files, and one-line errors."""

import gzip
import hashlib
import io
import re
import struct
import tracemalloc
from random import Random

import numpy as np
import pytest

from trainwright.cli import main
from trainwright.data import DataError, DataSet, Split, load_data_set
from trainwright.data.content import read_stated
from trainwright.data.idx import IMAGES, LABELS, STEMS, read_idx


def idx(magic: int, array: np.ndarray) -> bytes:
    return struct.pack(f">I{array.ndim}I", magic, *array.shape) + array.tobytes()


@pytest.fixture
def arrays():
    random = np.random.RandomState(7)
    return {
        split: (
            random.randint(0, 256, (count, 28, 28)).astype(np.uint8),
            (np.arange(count) % 10).astype(np.uint8),
        )
        for split, count in (("train", 30), ("test", 20))
    }


def write_mnist(folder, arrays, *, zipped=True):
    folder.mkdir(parents=True, exist_ok=True)
    for split, (images, labels) in arrays.items():
        for stem, magic, array in zip(
            STEMS[split], (IMAGES, LABELS), (images, labels), strict=True
        ):
            content = idx(magic, array)
            if zipped:
                (folder / f"{stem}.gz").write_bytes(gzip.compress(content))
            else:
                (folder / stem).write_bytes(content)


@pytest.mark.parametrize("place", ["file", "package"])
def test_digits_have_one_split_for_all(monkeypatch, place):
    if place == "package":
        monkeypatch.setattr("trainwright.data.digits.find_spec", lambda name: None)
    data = load_data_set("digits")
    assert (len(data.train), len(data.test)) == (1437, 360)
    assert data.image == (8, 8) and data.classes == 10 and data.full_scale == 16
    assert data.train.images.dtype == np.uint8 and data.train.images.max() == 16
    labels = hashlib.sha256(data.test.labels.tobytes()).hexdigest()
    assert labels[:16] == "2afb26f01c4ab83c"
    together = np.concatenate([data.train.images, data.test.images]).reshape(1797, -1)
    assert together.sum() == 561718  # every image is in one of the two


def test_digits_take_no_folder(tmp_path, capsys):
    """Not even one that has files of that name: it would not be read."""
    (tmp_path / "digits").mkdir()
    said = f"data set 'digits' comes with scikit-learn .* omit --data '{tmp_path}', or"
    with pytest.raises(DataError, match=said):
        load_data_set("digits", tmp_path)
    command = ["train", "--network", "digits", "--out", str(tmp_path / "r")]
    assert main([*command, "--data", str(tmp_path)]) == 2
    assert re.search(said, capsys.readouterr().err)
    assert not (tmp_path / "r").exists()
    with pytest.raises(DataError, match=f"no file or folder '{tmp_path / 'none'}'"):
        load_data_set("digits", tmp_path / "none")


@pytest.mark.parametrize("zipped", [True, False], ids=["gz", "plain"])
@pytest.mark.parametrize("nested", [True, False], ids=["in folder of its name", "folder itself"])
def test_idx_files_are_read(tmp_path, arrays, zipped, nested):
    write_mnist(tmp_path / "mnist" if nested else tmp_path, arrays, zipped=zipped)
    data = load_data_set("mnist", tmp_path)
    for split in ("train", "test"):
        part = getattr(data, split)
        assert (part.images == arrays[split][0]).all()
        assert (part.labels == arrays[split][1]).all()
    assert data.full_scale == 255


def test_data_environment_names_the_folder_where_no_option_does(tmp_path, arrays, monkeypatch):
    write_mnist(tmp_path / "fashion-mnist", arrays)
    monkeypatch.setenv("TRAINWRIGHT_DATA", str(tmp_path))
    data = load_data_set("fashion-mnist")
    assert data.class_names[9] == "ankle boot"
    with pytest.raises(DataError, match="no such folder"):
        load_data_set("fashion-mnist", tmp_path / "elsewhere")


def test_no_folder_is_told_with_the_option_and_the_files(monkeypatch):
    monkeypatch.delenv("TRAINWRIGHT_DATA", raising=False)
    with pytest.raises(
        DataError, match=r"--data DIR .*TRAINWRIGHT_DATA.*t10k-labels-idx1-ubyte.gz"
    ):
        load_data_set("mnist")


def test_missing_files_are_named(tmp_path, arrays):
    with pytest.raises(DataError, match=r"neither .*mnist nor .* has the files of 'mnist'"):
        load_data_set("mnist", tmp_path)
    write_mnist(tmp_path, arrays)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(DataError, match="lacks t10k-labels-idx1-ubyte") as caught:
        load_data_set("mnist", tmp_path)
    assert "\n" not in str(caught.value)


def test_data_rejects_unknown_name():
    with pytest.raises(DataError, match=r"unknown data set 'cifar'; there are digits, fashion-m"):
        load_data_set("cifar")


def test_labels_in_place_of_images(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(idx(LABELS, np.zeros(4, np.uint8)))
    with pytest.raises(DataError, match="not an IDX file of images, magic is 0x00000801"):
        read_idx(path, IMAGES)


@pytest.mark.parametrize("size", [0, 3, 4, 15, 16, 100, 16 + 2 * 784 - 1])
def test_data_file_truncated_anywhere_is_rejected(tmp_path, size):
    path = tmp_path / "f"
    path.write_bytes(idx(IMAGES, np.zeros((2, 28, 28), np.uint8))[:size])
    with pytest.raises(DataError, match="truncated"):
        read_idx(path, IMAGES)


def test_data_file_with_surplus_bytes_is_rejected(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(idx(LABELS, np.zeros(4, np.uint8)) + b"x")
    with pytest.raises(
        DataError, match=r"too long, its header \[4\] asks for 4 bytes of data and more follow"
    ):
        read_idx(path, LABELS)


def test_data_header_of_enormous_sizes_does_not_overflow(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(struct.pack(">4I", IMAGES, *[0xFFFFFFFF] * 3))
    with pytest.raises(DataError, match="at most 2,147,483,648 are read"):
        read_idx(path, IMAGES)


@pytest.mark.parametrize("damage", ["cut", "other bytes", "checksum"])
def test_data_damaged_gzip_is_rejected(tmp_path, damage):
    content = bytearray(gzip.compress(idx(LABELS, np.arange(200, dtype=np.uint8))))
    if damage == "cut":
        content = content[: len(content) // 2]
    elif damage == "other bytes":
        content = bytearray(b"this is not gzip at all")
    else:
        content[-6] ^= 1
    path = tmp_path / "f.gz"
    path.write_bytes(content)
    with pytest.raises(DataError, match="gzip file"):
        read_idx(path, LABELS)


def test_counts_that_differ(tmp_path, arrays):
    arrays["train"] = (arrays["train"][0], arrays["train"][1][:-1])
    write_mnist(tmp_path, arrays)
    with pytest.raises(DataError, match=r"has 30 images but .* has 29 labels"):
        load_data_set("mnist", tmp_path)


def test_labels_out_of_range():
    images = np.zeros((3, 8, 8), np.uint8)
    good, bad = np.array([0, 1, 1], np.uint8), np.array([0, 1, 2], np.uint8)
    with pytest.raises(DataError, match="label 2 is out of range, there are 2 classes"):
        DataSet("d", Split(images, bad), Split(images, good), 16, ("a", "b"))
    with pytest.raises(DataError, match="label -1 is out of range, there are 2 classes"):
        DataSet("d", Split(images, good), Split(images, bad.astype(int) - 1), 16, ("a", "b"))
    with pytest.raises(DataError, match="pixel 17 is over 16"):
        DataSet("d", Split(images, good), Split(images + 17, good), 16, ("a", "b"))


@pytest.mark.parametrize(
    ("name", "means"), [("fashion-mnist", (0.28604, 0.28685)), ("mnist", (0.13066, 0.13251))]
)
def test_data_sets_of_disk_have_known_sizes(data_root, name, means):
    if not (data_root / name).is_dir():
        pytest.skip(f"{data_root} has no {name}")
    data = load_data_set(name, data_root)
    assert (len(data.train), len(data.test)) == (60000, 10000)
    averages = [float(split.images.mean()) / 255 for split in (data.train, data.test)]
    assert averages == pytest.approx(means, abs=5e-6)
    if name == "fashion-mnist":
        assert (np.bincount(data.train.labels) == 6000).all()


def bomb(path, unpacked: int, *, stated: int, magic: int = LABELS) -> None:
    """Write a header that states ``stated`` items, and ``unpacked`` zero bytes behind it."""
    with gzip.open(path, "wb", compresslevel=9) as file:
        file.write(struct.pack(">2I", magic, stated))
        for _ in range(unpacked >> 20):
            file.write(bytes(1 << 20))


def test_data_bomb_is_not_unpacked(tmp_path):
    """64 MiB behind a header that states 100: of them a chunk is held."""
    path = tmp_path / "f.gz"
    bomb(path, 64 << 20, stated=100)
    assert path.stat().st_size < 100_000
    tracemalloc.start()
    with pytest.raises(DataError, match=r"its header \[100\] asks for 100 bytes .* more follow"):
        read_idx(path, LABELS)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 4 << 20


def test_no_more_is_read_than_an_array_may_have(tmp_path):
    path = tmp_path / "f.gz"
    bomb(path, 0, stated=(1 << 31) + 1)
    with pytest.raises(DataError, match=r"asks for 2,147,483,649 bytes of data, at most"):
        read_idx(path, LABELS)


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20])
def test_data_one_byte_more_than_stated_is_read(size):
    for present in (size - 1, size, size + 1, size + 2, size + (1 << 21)):
        content = (bytes(range(251)) * (present // 251 + 1))[: max(present, 0)]
        assert read_stated(io.BytesIO(content), size) == content[: size + 1]


def test_mangled_idx_files(tmp_path):
    """Seeded: any byte of a file or of its packed form, cut, changed or repeated."""
    path, good = tmp_path / "f.gz", idx(IMAGES, np.arange(48, dtype=np.uint8).reshape(3, 4, 4))
    for seed in range(400):
        random = Random(f"idx {seed}")
        content = bytearray(good if seed % 2 else gzip.compress(good))
        for _ in range(random.randint(1, 3)):
            content[random.randrange(len(content))] = random.getrandbits(8)
        content = content[: random.choice((len(content), random.randrange(len(content))))]
        path.write_bytes(gzip.compress(content) if seed % 2 else content)
        try:
            assert read_idx(path, IMAGES).size == 48
        except DataError as error:
            assert str(path) in str(error) and "\n" not in str(error)

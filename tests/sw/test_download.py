"""Downloading data sets from a server on this machine: checked, resumable, never half a file."""

import gzip
import hashlib
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from trainwright.cli import main
from trainwright.data import DataError, load_data_set, registry
from trainwright.data.download import SOURCES, RemoteFile, Source, download
from trainwright.data.idx import IMAGES, LABELS, STEMS
from trainwright.data.registry import cache_folder

ALL = tuple(stem for pair in STEMS.values() for stem in pair)


class Handler(SimpleHTTPRequestHandler):
    """Counts what is asked for, and says nothing."""

    asked: list[str]

    def do_GET(self):
        self.asked.append(self.path)
        super().do_GET()

    def log_message(self, *_):
        pass


class Mirror:
    """A server of files in a folder, on this machine."""

    def __init__(self, folder):
        self.folder = folder
        self.asked = []
        handler = type("Counting", (Handler,), {"asked": self.asked})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder)))
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


def idx(magic, array):
    head = magic.to_bytes(4, "big") + b"".join(n.to_bytes(4, "big") for n in array.shape)
    return gzip.compress(head + array.tobytes(), mtime=0)


@pytest.fixture
def mirror(tmp_path):
    folder = tmp_path / "mirror"
    folder.mkdir()
    random = np.random.RandomState(5)
    for split, count in (("train", 40), ("test", 20)):
        images, labels = STEMS[split]
        pixels = random.randint(0, 256, (count, 8, 8)).astype(np.uint8)
        (folder / f"{images}.gz").write_bytes(idx(IMAGES, pixels))
        (folder / f"{labels}.gz").write_bytes(idx(LABELS, (np.arange(count) % 10).astype(np.uint8)))
    mirror = Mirror(folder)
    yield mirror
    mirror.close()


def source(mirror, *mirrors):
    files = []
    for stem in ALL:
        content = (mirror.folder / f"{stem}.gz").read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        files.append(RemoteFile(f"{stem}.gz", len(content), digest))
    return Source(mirrors or (mirror.url,), files)


@pytest.fixture
def mnist(mirror, monkeypatch, tmp_path):
    """Serve the files of MNIST from this machine, with an empty cache folder."""
    served = source(mirror)
    monkeypatch.setattr(registry, "SOURCES", {"mnist": served})
    monkeypatch.setenv("TRAINWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("TRAINWRIGHT_DATA", raising=False)
    return served


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_download_real_sources_name_the_four_files():
    for given in SOURCES.values():
        assert [file.name for file in given.files] == [f"{stem}.gz" for stem in ALL]
        assert all(len(bytes.fromhex(file.sha256)) == 32 for file in given.files)
        assert all(url.startswith("http") and url.endswith("/") for url in given.mirrors)


@pytest.mark.parametrize("name", SOURCES)
def test_download_real_files_have_the_stated_sums(data_root, name):
    if not (data_root / name).is_dir():
        pytest.skip(f"{data_root} has no {name}")
    for file in SOURCES[name].files:
        content = (data_root / name / file.name).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (file.size, file.sha256)


def test_nothing_is_fetched_unasked(mnist, mirror):
    with pytest.raises(DataError, match="or add --download"):
        load_data_set("mnist")
    assert not mirror.asked and not cache_folder("mnist").exists()


def test_into_the_cache_and_from_there_ever_after(mnist, mirror, capsys):
    data = load_data_set("mnist", fetch=True)
    assert (len(data.train), len(data.test)) == (40, 20)
    assert names(cache_folder("mnist")) == sorted(file.name for file in mnist.files)
    assert len(mirror.asked) == 4 and capsys.readouterr().err.count("bytes") == 4
    again = load_data_set("mnist", fetch=True)
    assert (again.test.images == load_data_set("mnist").test.images).all()
    assert len(mirror.asked) == 4


def test_into_a_folder_that_is_named(mnist, mirror, tmp_path):
    load_data_set("mnist", tmp_path / "data", fetch=True)
    assert names(tmp_path / "data" / "mnist") == sorted(file.name for file in mnist.files)
    # Files that lie in the folder itself are found and not fetched.
    load_data_set("mnist", tmp_path / "data" / "mnist", fetch=True)
    assert len(mirror.asked) == 4


def test_download_fetches_only_missing_files(mnist, mirror, tmp_path):
    load_data_set("mnist", tmp_path, fetch=True)
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(DataError, match=r"lacks t10k-labels-idx1-ubyte .*--download fetches what"):
        load_data_set("mnist", tmp_path)
    load_data_set("mnist", tmp_path, fetch=True)
    assert mirror.asked[4:] == ["/t10k-labels-idx1-ubyte.gz"]


@pytest.mark.parametrize("damage", ["truncated", "longer than it should be", "another file"])
def test_download_of_altered_file_is_rejected(mirror, tmp_path, damage):
    published = source(mirror)
    path = mirror.folder / published.files[2].name
    content = path.read_bytes()
    path.write_bytes(
        {"truncated": content[:-9], "longer than it should be": content + b"x"}.get(
            damage, bytes([content[0] ^ 1]) + content[1:]
        )
    )
    with pytest.raises(DataError, match=rf"cannot download 'mnist': .*{path.name}: {damage}") as e:
        download("mnist", tmp_path / "d", ALL, source=published)
    assert "\n" not in str(e.value) and "--data" in str(e.value)
    # What came whole before it stays, nothing else does; the next attempt goes on from there.
    assert names(tmp_path / "d") == sorted(file.name for file in published.files[:2])
    path.write_bytes(content)
    download("mnist", tmp_path / "d", ALL[2:], source=published)
    assert names(tmp_path / "d") == sorted(file.name for file in published.files)


def test_download_next_mirror_is_tried(mirror, tmp_path):
    nowhere = (tmp_path / "none").as_uri() + "/"
    download("mnist", tmp_path / "d", ALL, source=source(mirror, nowhere, mirror.url))
    assert len(names(tmp_path / "d")) == 4 and len(mirror.asked) == 4


def test_no_mirror_has_it(mirror, tmp_path):
    given = source(mirror, mirror.url + "elsewhere/", "http://127.0.0.1:9/", "ttp://x/")
    with pytest.raises(DataError) as caught:
        download("mnist", tmp_path / "d", ALL, source=given)
    text = str(caught.value)
    assert "File not found" in text and "Connection refused" in text and "unknown url type" in text
    assert not (tmp_path / "d").exists()


def test_download_broken_connection_is_one_error(mirror, tmp_path):
    """The server states a length and sends less."""

    def short(self):
        self.send_response(200)
        self.send_header("Content-Length", "5000000")
        self.end_headers()
        self.wfile.write(b"\x1f\x8b")

    mirror.server.RequestHandlerClass = type("Short", (Handler,), {"do_GET": short})
    with pytest.raises(DataError, match="truncated"):
        download("mnist", tmp_path / "d", ALL, source=source(mirror))
    assert not (tmp_path / "d").exists()


def test_download_to_unwritable_folder_is_one_error(mirror, tmp_path):
    (tmp_path / "f").write_text("a file")
    with pytest.raises(DataError, match="cannot write to"):
        download("mnist", tmp_path / "f" / "d", ALL, source=source(mirror))


def test_download_option_fetches_data_set(mnist, tmp_path, capsys):
    arguments = ["train", "--dataset", "mnist", "--batch", "20", "--steps", "2"]
    out = ["--out", str(tmp_path / "r")]
    assert main([*arguments, *out]) == 2 and "--download" in capsys.readouterr().err
    assert main([*arguments, *out, "--download"]) == 0
    assert "of 20 samples" in capsys.readouterr().out

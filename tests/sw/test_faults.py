"""Faults around a training run end in one error and lose nothing that was stored before."""

import errno
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from trainwright.cli import main
from trainwright.cli.train.folder import RunFolder
from trainwright.support.native import library
from trainwright.support.native.cache import Cache
from trainwright.support.native.tools import ToolError, compiler

TRAIN = ("train", "--network", "digits", "--test-samples", "64", "--steps", "40")


SMALL = 20_000
"""Bytes: more than the history of such a run, less than its checkpoint."""


def model(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def unfinished(folder: Path) -> None:
    """Leave a run that was killed, with its checkpoint."""
    child = os.fork()
    if not child:
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 1)
        os.dup2(null, 2)
        main([*TRAIN, "--checkpoint-seconds", "0", "--out", str(folder)])
        os._exit(0)
    while not (folder / "checkpoint.safetensors").is_file():
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert not (folder / "result.json").exists()


def limited(most_bytes: int, argv: list[str], log: Path) -> int:
    """Run a command in a child with a limit of file size, as on a full disk; return its status."""
    child = os.fork()
    if not child:
        status = 70
        try:
            sys.stdout, sys.stderr = (log.with_suffix(name).open("w") for name in (".out", ".err"))
            resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, resource.RLIM_INFINITY))
            status = main(argv)
            sys.stderr.flush()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> bytes:
    """Return the model of an undisturbed run."""
    out = tmp_path_factory.mktemp("whole") / "run"
    assert main([*TRAIN, "--out", str(out)]) == 0
    return model(out)


def left(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_faults_disk_that_is_full_loses_no_checkpoint(tmp_path, whole):
    out, log = tmp_path / "run", tmp_path / "log"
    unfinished(out)
    before = (out / "checkpoint.safetensors").read_bytes()
    names = left(out)
    assert len(before) > SMALL
    cases = {"history.jsonl": (2000, []), "checkpoint": (SMALL, ["--checkpoint-seconds", "0"])}
    for name, (most, options) in cases.items():
        argv = ["train", "--resume", *options, "--out", str(out)]
        assert limited(most, argv, log) == 2
        said = log.with_suffix(".err").read_text().splitlines()
        errors = [line for line in said if "error: " in line]
        assert len(errors) == 1 and os.strerror(errno.EFBIG) in errors[0] and name in errors[0]
        assert not any("Traceback" in line for line in said)
        assert (out / "checkpoint.safetensors").read_bytes() == before
        assert left(out) <= names | {"history.jsonl"}
    assert main(["train", "--resume", "--out", str(out)]) == 0
    assert model(out) == whole


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC, errno.EACCES])
def test_faults_folder_that_cannot_be_written_is_one_error(tmp_path, monkeypatch, capsys, number):
    """At the end of a run: the checkpoint stays, with what was trained."""
    out = tmp_path / "run"

    def refused(*_: object, **__: object):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(tempfile, "mkstemp", refused)
    assert main([*TRAIN, "--json", "--out", str(out)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    errors = [line for line in said.err.splitlines() if "error: " in line]
    assert len(errors) == 1 and os.strerror(number) in errors[0] and str(out) in errors[0]
    assert "Traceback" not in said.err


def test_faults_second_run_in_a_folder_disturbs_nothing(tmp_path, whole, capsys):
    out = tmp_path / "run"
    unfinished(out)
    first = RunFolder(out)
    first.claim()
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    for argv in (["train", "--resume"], [*TRAIN, "--force"]):
        assert main([*argv, "--out", str(out)]) == 2
        assert "another run is writing to" in capsys.readouterr().err
        assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    first.release()
    assert main(["train", "--resume", "--out", str(out)]) == 0
    assert model(out) == whole


def damage(path: Path, kind: str) -> None:
    """Overwrite a file with contents that no program writes."""
    data = path.read_bytes()
    path.chmod(0o644)
    match kind:
        case "empty":
            path.write_bytes(b"")
        case "cut off":
            path.write_bytes(data[: len(data) // 2])
        case "a bit":
            path.write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
        case "no file":
            path.unlink()
        case "a folder":
            path.unlink()
            path.mkdir()


@pytest.mark.parametrize("kind", ["empty", "cut off", "a bit", "no file", "a folder"])
@pytest.mark.parametrize("name", ["manifest.json", "kernels.so"])
def test_faults_damaged_cache_is_made_anew(tmp_path, kind, name):
    """The kernel's library and its manifest, each in every way."""
    try:
        tool = compiler("C")
    except ToolError:
        pytest.skip("no C compiler")
    source = tmp_path / "source" / "one.c"
    source.parent.mkdir()
    source.write_text("int one(void) { return 1; }\n")
    cache = Cache(tmp_path / "cache")
    built = library.build(source, tool, kept=cache)
    want = built.read_bytes()
    file = built.with_name(name if name != "kernels.so" else library.LIBRARY)
    damage(file, kind)
    again = library.build(source, tool, kept=cache)
    assert again == built and again.read_bytes() == want
    assert cache.find(built.parent.name) == built.parent


SHORT = ("--steps", "150", "--micro-batches", "2", "--checkpoint-seconds", "0")


@pytest.mark.slow
def test_faults_dead_worker_ends_torchrun(tmp_path, capsys):
    """The others end with an error; alone, the run goes on to the bits of an undisturbed one."""
    out = tmp_path / "run"
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [sys.executable, *torchrun, "-m", "trainwright.cli", "train", *SHORT]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    process = subprocess.Popen(
        [*command, "--out", str(out)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        env=environment,
    )  # fmt: skip
    end = time.monotonic() + 300
    while not (out / "checkpoint.safetensors").is_file() and time.monotonic() < end:
        time.sleep(0.01)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(children[1]), signal.SIGKILL)
    _, said = process.communicate(timeout=300)
    assert process.returncode != 0
    assert said.count("trainwright: error: ") <= 1
    assert (out / "checkpoint.safetensors").is_file() and not (out / "result.json").exists()
    assert main(["train", "--resume", "--json", "--out", str(out)]) == 0
    resumed = json.loads(capsys.readouterr().out)["digest"]
    assert main(["train", "--json", *SHORT, "--out", str(tmp_path / "whole")]) == 0
    assert json.loads(capsys.readouterr().out)["digest"] == resumed

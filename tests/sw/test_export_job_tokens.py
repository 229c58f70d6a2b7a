"""Exported jobs of networks of tokens and of regressions: driven by C, to the digest of train."""

import json
from itertools import product

import numpy as np
import pytest
from c_driver import CDriver
from golden_registers import GoldenRegisters
from sequence_networks import classifier, decoder
from test_joint_labels import joint
from test_own_data import houses
from test_text_training import toml, written
from test_word_labels import attention_alone, folder

from trainwright.cli import main
from trainwright.data import load_data_set
from trainwright.parameters import AcceleratorParameters

pytestmark = pytest.mark.usefixtures("first_programs")

__all__ = ["folder"]
OK = 0
MEMORY_BYTES = 1 << 22
LAST = {"outputs": [2, 4], "inputs": [4, 6], "ranks": [4], "relu": False}


def tagger():
    """Return a network with 8 classes for each of 8 tokens, which see the tokens before."""
    tables = decoder(tokens=8, padding=True).to_dict()
    return {**tables, "layers": [*tables["layers"], LAST]}


NETWORKS = {
    "lines": lambda: attention_alone(classifier(tokens=8)).to_dict(),
    "words": tagger,
    "lines and words": lambda: joint().to_dict(),
    "8 lanes": lambda: attention_alone(classifier(tokens=8)).to_dict(),
}
EIGHT = [word for size in ("lanes=8", "vector_engine=1", "exponents=256", "sample_loads=1",
                           "statistics_depth=128") for word in ("--accelerator", size)]  # fmt: skip


@pytest.fixture(scope="module")
def export(tmp_path_factory, folder):
    """Export the job of a kind of network once; return its folder and its network file."""
    jobs = {}

    def exported(kind):
        if kind not in jobs:
            root = tmp_path_factory.mktemp("job")
            tables = NETWORKS[kind]()
            lines = (f"{key} = {toml(value)}" for key, value in tables.items() if value != "")
            network = written(root / "network.toml", ["\n".join(lines)])
            command = ["export-job", network, *options(kind), "--data", folder]
            command += ["--out", root / "job"]
            assert main([*map(str, command), "--memory-bytes", str(MEMORY_BYTES)]) == 0
            jobs[kind] = root / "job", network
        return jobs[kind]

    return exported


RUN = ("--batch", "16", "--no-prior", "--steps", "25", "--lr", "1e-2")
"""An epoch of 20 steps, an evaluation, and five more steps."""


def options(kind):
    return [*RUN, *(EIGHT if kind == "8 lanes" else ())]


def driven(job, build):
    """Do a job by C on the registers of the golden model; return its driver."""
    sizes = json.loads((job / "job.json").read_text())["accelerator"]
    parameters = AcceleratorParameters(**sizes | {"formats": tuple(sizes["formats"])})
    machine = GoldenRegisters(parameters, MEMORY_BYTES)
    golden = machine.golden
    driver = CDriver(job, build, machine.read, machine.write, golden.read, golden.write)
    assert driver.run() == OK
    return driver


@pytest.mark.parametrize(
    "kind",
    [pytest.param(k, marks=[] if k == "lines and words" else [pytest.mark.slow]) for k in NETWORKS],
)
def test_c_driver_trains_network_of_tokens_to_digest_of_train(
    kind, export, folder, tmp_path, capsys
):
    job, network = export(kind)
    capsys.readouterr()
    driver = driven(job, tmp_path)
    command = ["train", "--network", network, *options(kind), "--data", folder, "--update", "chip",
               "--json", "--out", tmp_path / "run"]  # fmt: skip
    assert main(list(map(str, command))) == 0
    trained = json.loads(capsys.readouterr().out)
    assert driver.digest() == driver.map["digest"] == trained["digest"]
    starts = [action for action in driver.map["actions"] if "start" in action]
    assert [start["start"] for start in starts].count("evaluation") == 2
    assert driver.losses == [start["loss"] for start in starts]
    labels = trained["test_samples"]
    assert starts[-1]["correct"] / labels == pytest.approx(trained["test_accuracy"])


def array_of(record, part):
    """Read an array of a record as the part describes it: values with the axes sorted by name."""
    axes = sorted(part["axes"], key=lambda axis: axis["axis"])
    values = np.zeros([axis["size"] for axis in axes])
    size = part["element_bytes"]
    for index in product(*(range(axis["size"]) for axis in axes)):
        at = part["offset"] + sum(n * a["stride"] for n, a in zip(index, axes, strict=True))
        values[index] = int.from_bytes(record[at : at + size], "little", signed=True)
    return values * 2.0 ** part["exponent"]


def test_job_record_describes_tokens_masks_and_labels_of_a_sample(export, folder):
    job, _ = export("lines and words")
    described = json.loads((job / "job.json").read_text())
    contents = (job / "contents.bin").read_bytes()
    place = described["samples"][0]
    write = next(a for a in described["actions"] if a.get("address") == place["address"])
    data = load_data_set("text", folder)
    parts = {}
    for part in described["record"]:
        parts.setdefault(part["part"], []).append(part)
    assert sum(part["bytes"] for part in described["record"]) == place["record_bytes"]
    for number in (0, 7):
        at = write["offset"] + number * place["record_bytes"]
        record = contents[at : at + place["record_bytes"]]
        words = data.train.images[number].reshape(-1)
        count = int((words != 0).sum())
        for name in ("digit1", "digit2"):
            for part in parts[name]:  # one for each layout
                ones = array_of(record, part)
                assert np.count_nonzero(ones) == count and ones.sum() == count * 127 / 128
        (share,) = (array_of(record, part) for part in parts["pooled.share"])
        assert np.allclose(share, [1 / count] * count + [0] * (8 - count), atol=1e-4)
        (mask,) = (array_of(record, part) for part in parts["heads.mask"])
        assert mask.reshape(len(mask), 8, 8).sum() == len(mask) * 8 * count
        (targets,) = parts["targets"]
        labels = np.frombuffer(record, np.int8, 8, targets["offset"]).tolist()
        tags = data.train.tags[number].tolist()
        assert labels == tags + [-1] * (8 - len(tags))
        (label,) = parts["label"]
        assert (label["form"], record[label["offset"]]) == ("number", data.train.labels[number])


def test_c_driver_trains_regression_to_digest_of_train(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    houses(tmp_path / "homes.csv", 200)
    run = ["--data", "homes.csv", "--epochs", "2", "--batch", "16", "--no-prior", "--lr", "0.2"]
    assert main(["export-job", *run, "--out", "job", "--memory-bytes", str(MEMORY_BYTES)]) == 0
    assert "test samples" not in capsys.readouterr().out
    (tmp_path / "build").mkdir()
    driver = driven(tmp_path / "job", tmp_path / "build")
    assert main(["train", *run, "--update", "chip", "--json"]) == 0
    trained = json.loads(capsys.readouterr().out)
    assert driver.digest() == driver.map["digest"] == trained["digest"]
    assert [sample["name"] for sample in driver.map["samples"]] == ["training"]

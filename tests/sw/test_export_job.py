"""Exported jobs: the reference driver in C trains as ``trainwright train`` does."""

import ctypes
import json
import re
import shlex
import struct
import zlib
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from c_driver import CDriver, Platform, Read, Write, compile_strictly
from golden_registers import GoldenRegisters

from trainwright.accelerator import registers
from trainwright.accelerator.register_files import c_header
from trainwright.cli import main
from trainwright.cli.options import accelerator_parameters
from trainwright.job.files import DRIVER
from trainwright.parameters import AcceleratorParameters

pytestmark = pytest.mark.usefixtures("first_programs")

MEMORY_BYTES = 1 << 20
OK, NO_ACCELERATOR, OTHER_PARAMETERS, UNDER_WAY, OTHER_CONTENTS, STOPPED, OTHER_RESULT = range(7)
ALONE = "--accelerator vector_engine=1 --accelerator exponents=64 --accelerator sample_loads=1"
RUN = ("--epochs", "2", "--test-samples", "100")
PAGE = (Path(__file__).parents[2] / "docs/guide/drivers.md").read_text()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Export two epochs of digits, once, by the command of the guide."""
    folder = tmp_path_factory.mktemp("job")
    (line,) = re.findall(r"^trainwright (export-job .*)$", PAGE, re.MULTILINE)
    *command, _ = shlex.split(line)
    assert main([*command, str(folder), *RUN, "--memory-bytes", str(MEMORY_BYTES)]) == 0
    return folder


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    return tmp_path_factory.mktemp("build")


@pytest.fixture
def machine(folder):
    described = json.loads((folder / "job.json").read_text())["accelerator"]
    described["formats"] = tuple(described["formats"])
    return GoldenRegisters(AcceleratorParameters(**described), MEMORY_BYTES)


@pytest.fixture
def driver(folder, build, machine):
    golden = machine.golden
    return CDriver(folder, build, machine.read, machine.write, golden.read, golden.write)


def test_c_driver_trains_to_digest_of_train(driver, machine, tmp_path, capsys):
    options = ["--network", "digits", *RUN, "--update", "chip", "--out", str(tmp_path), "--json"]
    assert main(["train", *options]) == 0
    trained = json.loads(capsys.readouterr().out)
    assert driver.run() == OK
    assert driver.digest() == driver.map["digest"] == trained["digest"]
    starts = [action for action in driver.map["actions"] if "start" in action]
    assert [s["start"] for s in starts] == [
        "samples", "step", "evaluation", "samples", "step", "evaluation"
    ]  # fmt: skip
    assert starts[-1]["correct"] / 100 == trained["test_accuracy"]
    assert driver.losses == [start["loss"] for start in starts]
    assert [start[2:] for start in machine.starts][1::3] == [(22, 0), (22, 22)]


def test_c_driver_other_loss_ends_with_other_result(driver, machine):
    """A wrong label in the memory's data set changes the loss of the first start of steps."""
    written = machine.golden.write

    def damaged(address, data):
        if data.size > 100_000:
            data[64] ^= 1
        written(address, data)

    machine.golden.write = damaged
    golden = machine.golden
    driver.platform.write_memory = type(driver.platform.write_memory)(
        lambda _, address, data, count: golden.write(
            address, np.ctypeslib.as_array(data, (count,)).copy()
        )
    )
    assert driver.run() == OTHER_RESULT
    assert driver.map["actions"][driver.failure.action]["start"] == "step"


@pytest.mark.parametrize(
    "register, value, result",
    [
        (registers.IDENTITY, 0, NO_ACCELERATOR),
        (registers.FINGERPRINT, 1, OTHER_PARAMETERS),
        (registers.STATUS, registers.STATUS_BUSY, UNDER_WAY),
    ],
)
def test_c_driver_other_accelerator_is_told(driver, machine, register, value, result):
    machine.words[register] = value
    assert driver.run() == result
    assert not machine.starts


def test_c_driver_damaged_contents_are_refused(driver, machine):
    driver.contents[7] ^= 1
    assert driver.run() == OTHER_CONTENTS
    assert not machine.starts


def test_c_driver_stopped_run_names_code_and_descriptor(driver, machine):
    def stopped():
        status = registers.STATUS_DONE | registers.STATUS_ERROR
        machine.words[registers.STATUS] = status | 0b0100 << 4 | 6 << 8 | 17 << 16

    machine._start = stopped
    assert driver.run() == STOPPED
    failure = driver.failure
    assert (failure.code, failure.descriptor, failure.hung) == (6, 17, 4)
    assert driver.map["actions"][failure.action]["start"] == "samples"


def test_guide_platform_compiles_without_warning(folder, tmp_path):
    (source,) = re.findall(r"```c\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "main.c").write_text(source)
    compile_strictly(folder, "-c", str(tmp_path / "main.c"), "-o", str(tmp_path / "main.o"))


def test_guide_digest_of_memory_is_that_of_job(
    driver, machine, folder, tmp_path, monkeypatch, capsys
):
    assert driver.run() == OK
    (tmp_path / "job.json").write_bytes((folder / "job.json").read_bytes())
    (tmp_path / "memory.bin").write_bytes(machine.golden.read(0, MEMORY_BYTES).tobytes())
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(code, {})
    assert capsys.readouterr().out == "True\n"


def test_guide_table_has_a_row_for_each_action_of_job(driver):
    told = re.findall(r'^\| `\{("\w+": .*?)\}` \|', PAGE, re.MULTILINE)
    rows = {tuple(re.findall(r'"(\w+)":', row)) for row in told}
    actions = {tuple(name for name in action if name not in ("loss", "correct"))
               for action in driver.map["actions"]}  # fmt: skip
    assert rows == actions


def test_job_verilog_command_makes_its_accelerator(driver):
    program, command, *options = driver.map["verilog"].split()
    assert (program, command, {*options[::2]}) == ("trainwright", "verilog", {"--accelerator"})
    parameters = accelerator_parameters(options[1::2])
    assert f"{parameters.fingerprint:08x}" == driver.map["fingerprint"]
    assert {*options[1::2]} == {"vector_engine=1", "exponents=64", "sample_loads=1"}


def test_guide_table_lists_files_of_job(folder):
    table = PAGE[PAGE.index("| file |") : PAGE.index("## The reference driver")]
    named = re.findall(r"`([\w.]+)`", "".join(re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)))
    assert sorted(named) == sorted(path.name for path in folder.iterdir())


def test_job_map_names_contents_and_buffers(driver, folder):
    described = driver.map
    assert described["contents"]["crc32"] == zlib.crc32(driver.contents)
    places = sorted((b["address"], b["address"] + b["bytes"]) for b in described["buffers"])
    assert all(stop <= start for (_, stop), (start, _) in pairwise(places))
    assert places[-1][1] <= min(program["address"] for program in described["programs"])


@pytest.mark.parametrize(
    "name, axes", [("l1.G1", "l1.j1 l1.i1 l1.r1"), ("l2.G2", "l2.r1 l2.j2 l2.i2")]
)
def test_job_buffer_strides_are_those_of_factor(driver, name, axes):
    factor = next(f for f in driver.map["factors"] if f["name"] == name)
    buffer = next(b for b in driver.map["buffers"] if b["name"] == factor["buffer"])
    places = {axis["axis"]: (axis["size"], axis["stride"]) for axis in buffer["axes"]}
    pairs = zip(factor["shape"], factor["stride"], strict=True)
    assert [places[axis] for axis in axes.split()] == [pair for pair in pairs if pair[0] > 1]
    assert factor["address"] == buffer["address"]


@pytest.mark.parametrize(
    "options, named",
    [
        ("--cut-programs fitted", "--cut-programs"),
        ("--accelerator vector_engine=0", "vector_engine=1"),
        ("--memory-bytes 260000", "memory"),
        ("--memory-bytes 260000 --steps 3 --epochs 1", "--epochs 1 would be 22 steps: omit one"),
        ("--plan paper", "--plan"),
        ("--memory-bytes 0", "--memory-bytes"),
        ("--memory-bytes 4294967296", "--memory-bytes"),
        ("--micro-batches 2", "--micro-batches"),
        (f"--micro-batches 2 {ALONE}", "--micro-batches"),
        ("--rounding-mode stochastic", "--rounding-mode"),
    ],
)
def test_export_job_unsuitable_option_is_one_error(options, named, tmp_path, capsys):
    out = tmp_path / "job"
    try:
        status = main(["export-job", "digits", *options.split(), "--out", str(out)])
    except SystemExit as exit_:
        status = exit_.code
    captured = capsys.readouterr()
    assert status == 2 and named in captured.err and not captured.out
    assert not out.exists()


def test_c_driver_open_gives_memory_alone_to_address_checks(tmp_path):
    parameters = AcceleratorParameters(exponents=64, sample_loads=1, address_checks=1)
    (tmp_path / "trainwright_registers.h").write_text(c_header(parameters))
    library = tmp_path / "driver.so"
    source = str(DRIVER / "trainwright_driver.c")
    compile_strictly(tmp_path, "-O1", "-fPIC", "-shared", source, "-o", str(library))
    machine = GoldenRegisters(parameters, MEMORY_BYTES)
    platform = Platform(None, Read(lambda _, at: machine.read(at)),
                        Write(lambda _, at, value: machine.write(at, value)))  # fmt: skip
    # the first fields of a job: network, fingerprint, memory_bytes
    job = struct.pack("@PII", 0, parameters.fingerprint, MEMORY_BYTES).ljust(256, b"\0")
    assert ctypes.CDLL(str(library)).trainwright_open(ctypes.byref(platform), job) == OK
    assert machine.words[registers.WINDOW + 4] == MEMORY_BYTES // 4096 - 1
    assert machine.words[registers.INTERRUPT_ENABLE] == 1
    assert machine.words[registers.WATCHDOG] == registers.WATCHDOG_CYCLES


DENSE = """
name = "dense"
classes = 10
image = [8, 8]
dataset = "digits"
[[layers]]
outputs = [10]
inputs = [64]
ranks = []
"""


def test_network_of_dense_layers_trains_alone_to_the_digest_of_its_job(tmp_path, capsys, recwarn):
    network = tmp_path / "dense.toml"
    network.write_text(DENSE)
    options = ["--epochs", "1", "--batch", "16", "--steps", "3"]
    job, run = tmp_path / "job", tmp_path / "run"
    assert main(["export-job", str(network), *options, "--out", str(job)]) == 0
    capsys.readouterr()
    chip = ["--network", str(network), "--update", "chip", "--json", "--out", str(run)]
    assert main(["train", *chip, *options]) == 0
    digest = json.loads(capsys.readouterr().out)["digest"]
    assert json.loads((job / "job.json").read_text())["digest"].startswith(digest)
    assert not [str(warning.message) for warning in recwarn if "legend" in str(warning.message)]
    check = ["check", "--network", str(network), "--update", "chip", "--backend", "golden"]
    assert main([*check, "--batch", "16", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["mismatches"] == 0

"""The memory-mapped back end: on files, and on a bus with the golden model behind it."""

import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from golden_registers import GoldenRegisters

from trainwright.accelerator import AcceleratorError
from trainwright.cli import main
from trainwright.data import load_data_set
from trainwright.golden.backend import GoldenAccelerator
from trainwright.link import mapped
from trainwright.link.mapped import (
    EXAMPLE,
    FileWindow,
    MappedAccelerator,
    open_overlay,
    parse_place,
)
from trainwright.network import load_network
from trainwright.parameters import AcceleratorParameters
from trainwright.train.resident import ResidentEngine
from trainwright.train.settings import ChipSettings, PriorSettings, TrainSettings
from trainwright.train.state import initial_state
from trainwright.train.trainer import Trainer

pytestmark = pytest.mark.usefixtures("first_programs")

P = AcceleratorParameters(
    vector_engine=1, exponents=64, sample_loads=1, pe1_rows=2, pe2_rows=2, address_checks=1
)
MEMORY_BYTES = 1 << 20
TARGET = "/dev/mem@0xA0000000,@0x60000000+0x100000"


class Bus:
    """Windows on the golden model's registers and memory, at the addresses of ``TARGET``."""

    def __init__(self):
        self.machine = GoldenRegisters(P, MEMORY_BYTES)
        self.opened, self.closed = [], []
        self.broken = 0
        """Bits of each word of memory that reads get wrong."""

    def window(self, file, offset, size):
        assert file == "/dev/mem"
        self.opened.append((offset, size))
        golden, machine = self.machine.golden, self.machine

        def read(address, count):
            if offset == 0x60000000:
                return golden.read(address, 4 * count).view(np.uint32) ^ np.uint32(self.broken)
            assert count == 1, "AXI4-Lite has single accesses"
            return np.array([machine.read(address)], np.uint32)

        def write(address, words):
            if offset == 0x60000000:
                golden.write(address, words.view(np.uint8))
            else:
                assert len(words) == 1, "AXI4-Lite has single accesses"
                machine.write(address, int(words[0]))

        return SimpleNamespace(read=read, write=write, close=lambda: self.closed.append(offset))


@pytest.fixture
def bus(monkeypatch):
    bus = Bus()
    monkeypatch.setattr(mapped, "FileWindow", bus.window)
    return bus


def trained(accelerator) -> str:
    """Train three steps of digits, and return the digest."""
    settings = TrainSettings(
        steps=3, learning_rate=0.45, chip=ChipSettings(), prior=PriorSettings(interval=8)
    )
    state = initial_state(load_network("digits"), settings)
    Trainer(state, load_data_set("digits"), ResidentEngine(accelerator), test_samples=64).run()
    return state.model.digest()


def test_mapped_accelerator_trains_as_golden_model(bus):
    with MappedAccelerator(P, memory_bytes=1 << 26, target=TARGET) as accelerator:
        assert accelerator.memory_bytes == MEMORY_BYTES
        digest = trained(accelerator)
    assert bus.opened == [(0xA0000000, 0x10000), (0x60000000, MEMORY_BYTES)]
    assert {*bus.closed} == {0xA0000000, 0x60000000}
    assert [times for _, _, times, _ in bus.machine.starts] == [1, 3]
    assert digest == trained(GoldenAccelerator(P, memory_bytes=MEMORY_BYTES))


def test_mapped_accelerator_with_other_parameters_is_refused_and_closed(bus):
    with pytest.raises(AcceleratorError, match="other parameters"):
        MappedAccelerator(AcceleratorParameters(), memory_bytes=4096, target=TARGET)
    assert {*bus.closed} == {0xA0000000, 0x60000000}


def test_overlay_registers_are_found_by_type_of_core(bus, monkeypatch):
    loaded = []
    cores = {
        "dma": {"type": "xilinx.com:ip:axi_dma:7.1", "phys_addr": 0xA0010000},
        "accelerator_0": {
            "type": "xilinx.com:module_ref:trainwright:1.0", "phys_addr": 0xA0000000,
        },
    }  # fmt: skip

    def overlay(file):
        loaded.append(file)
        return SimpleNamespace(ip_dict=cores)

    monkeypatch.setitem(sys.modules, "pynq", SimpleNamespace(Overlay=overlay))
    target = "system.bit,@0x60000000+0x100000"
    with open_overlay(P, memory_bytes=1, target=target) as accelerator:
        assert accelerator.memory_bytes == MEMORY_BYTES
    assert loaded == ["system.bit"] and bus.opened[0] == (0xA0000000, 0x10000)
    del cores["accelerator_0"]
    with pytest.raises(AcceleratorError, match=r"system\.bit has no core trainwright, but dma"):
        open_overlay(P, memory_bytes=1, target=target)


def test_overlay_without_pynq_or_file_is_one_error(monkeypatch):
    target = "system.bit,@0x60000000+0x100000"
    monkeypatch.setitem(sys.modules, "pynq", None)
    with pytest.raises(AcceleratorError, match=r"needs the package pynq .* --backend mmio:"):
        open_overlay(P, memory_bytes=1, target=target)

    def overlay(file):
        raise FileNotFoundError(f"no {file}")

    monkeypatch.setitem(sys.modules, "pynq", SimpleNamespace(Overlay=overlay))
    with pytest.raises(AcceleratorError, match=r"PYNQ cannot load system\.bit: no system\.bit"):
        open_overlay(P, memory_bytes=1, target=target)


@pytest.mark.parametrize("offset", [0, 4, 4096, 5000])
def test_file_window_reads_and_writes_words_of_the_file(tmp_path, offset):
    path = tmp_path / "device"
    path.write_bytes(bytes(range(256)) * 64)
    window = FileWindow(str(path), offset, 64)
    before = path.read_bytes()
    read = window.read(8, 3)
    assert read.tobytes() == before[offset + 8 : offset + 20]
    window.write(60, np.array([0x04030201], np.uint32))
    window.close()
    window.close()
    assert path.read_bytes() == before[: offset + 60] + b"\1\2\3\4" + before[offset + 64 :]


def test_file_window_without_file_or_too_small_names_it(tmp_path):
    small = tmp_path / "small"
    small.write_bytes(bytes(4096))
    for path, size in ((tmp_path / "none", 4), (small, 8192)):
        with pytest.raises(AcceleratorError, match=f"{size:#x} bytes of {path} at 0x0"):
            FileWindow(str(path), 0, size)


def test_mapped_accelerator_on_empty_file_has_no_accelerator(tmp_path):
    path = tmp_path / "device"
    path.write_bytes(bytes(1 << 17))
    with pytest.raises(AcceleratorError, match="IDENTITY reads 0x00000000"):
        MappedAccelerator(P, memory_bytes=1 << 16, target=f"{path},@0x10000")


def test_parse_place_takes_decimal_and_hexadecimal_parts():
    assert parse_place("/dev/mem@0xA0000000", "", 64) == ("/dev/mem", 0xA0000000, 64)
    assert parse_place("@4096+8192", "/dev/mem", 64) == ("/dev/mem", 4096, 8192)
    assert parse_place("/dev/udmabuf0", "/dev/uio0", 64) == ("/dev/udmabuf0", 0, 64)


@pytest.mark.parametrize(
    "target",
    ["", "/dev/mem@0xA0000000", ",@0", "@4,@8", "/dev/mem@A0000000,@0", "/dev/mem@2,@0",
     "/dev/mem@0,@0+7", "/dev/mem@0+,@0", "/dev/mem@0,@0+0"],
)  # fmt: skip
def test_mapped_accelerator_bad_target_shows_example(target):
    with pytest.raises(ValueError, match=r"mmio:/dev/mem@0xA0000000,@0x60000000\+0x4000000"):
        MappedAccelerator(P, memory_bytes=4096, target=target)


CHIP = [
    word
    for setting in (
        "vector_engine=1", "exponents=64", "sample_loads=1", "pe1_rows=2", "pe2_rows=2",
        "address_checks=1",
    )
    for word in ("--accelerator", setting)
]  # fmt: skip


@pytest.mark.parametrize("update", ["chip", "host"])
def test_train_on_mapped_accelerator_has_factors_of_golden_run(bus, tmp_path, capsys, update):
    digests = []
    for backend in ("golden", f"mmio:{TARGET}"):
        out = tmp_path / backend.partition(":")[0]
        words = ["--network", "digits", "--steps", "2", "--test-samples", "32", "--update", update]
        assert main(["train", *words, "--backend", backend, *CHIP, "--out", str(out)]) == 0
        digests += re.findall(r"factors +sha256 (\w+)", capsys.readouterr().out)
    assert len(digests) == 2 and digests[0] == digests[1]
    assert bus.machine.starts and bus.closed


@pytest.mark.parametrize(("broken", "status", "mismatches"), [(0, 0, " 0 mism"), (4, 1, " mism")])
def test_check_on_mapped_accelerator_fails_on_broken_memory(
    bus, capsys, broken, status, mismatches
):
    bus.broken = broken
    words = ["check", "--network", "digits", "--batch", "2", *CHIP]
    assert main([*words, "--backend", f"mmio:{TARGET}"]) == status
    assert mismatches in capsys.readouterr().out


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("", ["back end 'mmio:'", EXAMPLE]),
        ("/dev/mem@0xA0000000", [EXAMPLE]),
        ("{file}@0,@0x10000+0x10000", ["no accelerator", "IDENTITY reads 0x00000000"]),
        ("{file}@0,@0x10000+0x100000", ["cannot map 0x100000 bytes of", "at 0x10000"]),
        ("{file}@0+4,@0x10000+0x10000", ["registers take 0x10000 bytes"]),
        ("{folder}@0,@0x10000", ["cannot map", "s a directory"]),
    ],
)
def test_mapped_back_end_bad_place_is_one_error(tmp_path, capsys, target, words):
    file = tmp_path / "uio0"
    file.write_bytes(bytes(1 << 17))
    named = target.format(file=file, folder=tmp_path)
    assert main(["check", "--network", "digits", "--backend", f"mmio:{named}"]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("trainwright: error:")
    assert all(word in error for word in words), error


def test_mapped_design_of_an_earlier_version_is_to_be_built_again(tmp_path, capsys):
    """Tables of functions may have other contents there, which no program could tell."""
    file = tmp_path / "uio0"
    file.write_bytes((0x54525733).to_bytes(4, "little") + bytes(1 << 17))
    assert main(["check", "--backend", f"mmio:{file}@0,@0x10000+0x10000"]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "another version" in error and "build and load its bitstream again" in error

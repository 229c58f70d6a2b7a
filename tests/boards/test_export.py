"""Files for a vendor's tools: they speak of ports that there are."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace

import pytest

from trainwright.cli.core import Parser
from trainwright.cli.errors import OptionError
from trainwright.parameters import AcceleratorParameters
from trainwright_boards import commands as cli
from trainwright_boards.artix_tools import vivado_script
from trainwright_boards.catalogue import BOARDS
from trainwright_boards.catalogue.zynq import EXPORTS, PYNQ_Z2, ULTRA96_V2
from trainwright_boards.export import constraints, export, script
from trainwright_boards.flow import family
from trainwright_boards.tools import BuildError
from trainwright_hw.build.convert import TOP
from trainwright_hw.build.package import port_list

SMALL = AcceleratorParameters(lanes=4, pe1_rows=2, pe2_rows=2, scratchpad_rows=256)


@pytest.mark.parametrize("board", EXPORTS.values(), ids=EXPORTS)
def test_export_script_connects_only_existing_ports(board):
    names = {port["name"] for port in port_list(SMALL)}
    used = set(re.findall(r"accelerator/(\w+)", script(board)))
    assert used == {"clk", "rst", "irq", "m_axi", "s_axil"}
    for name in used:
        assert name in names or any(port.startswith(f"{name}_") for port in names)
    assert f"-reference {TOP} " in script(board)


@pytest.mark.parametrize("board", EXPORTS.values(), ids=EXPORTS)
def test_every_brace_and_bracket_of_the_script_is_closed(board):
    for opening, closing in ("{}", "[]"):
        assert script(board).count(opening) == script(board).count(closing) > 0
    assert f"FREQMHZ {board.clock_mhz:g}]" in script(board)


def test_export_script_names_only_pins_of_the_board_s_own_processor():
    pins = {board.name: set(re.findall(r"processor/(\w+)", script(board))) for board in (
        ULTRA96_V2, PYNQ_Z2
    )}  # fmt: skip
    assert pins["ultra96-v2"] & pins["pynq-z2"] == {"Data"}
    assert len(pins["ultra96-v2"]) == len(pins["pynq-z2"]) == 8


def test_export_to_7_series_infers_multipliers(tmp_path):
    verilog = export(PYNQ_Z2, SMALL, tmp_path)[0].read_text()
    assert "DSP48E" not in verilog and " * " in verilog


def test_constraints_are_of_the_clock():
    assert "-period 10.000 " in constraints(ULTRA96_V2)


def test_export_writes_verilog_constraints_and_script(tmp_path):
    narrow = replace(SMALL, word_width=8)
    files = export(ULTRA96_V2, narrow, tmp_path / "out")
    assert [file.name for file in files] == ["trainwright.v", "trainwright.xdc", "build.tcl"]
    verilog = files[0].read_text()
    for port in port_list(narrow):
        assert re.search(rf"{port['direction']} .*\b{port['name']}\b", verilog), port
    assert "always_" not in verilog, "Vivado reads a file named .v as Verilog-2001"
    # Two narrow products share a multiplier.
    assert verilog.count("  DSP48E2 #(") == narrow.device_multipliers == 12
    assert '.AMULTSEL("AD")' in verilog


def test_export_to_unknown_board_names_known_ones():
    parser = Parser()
    cli.export_command.add_arguments(parser)
    with pytest.raises(OptionError, match="no board 'zx81' to export for; there are ultra96-v2"):
        cli.export_command.run(parser.parse_args(["zx81", "--json"]))


@pytest.mark.parametrize("preset", ((), ("--preset", "ecp5-85f")))
def test_export_with_formats_is_of_an_accelerator_that_has_them(tmp_path, capsys, preset):
    parser = Parser()
    cli.export_command.add_arguments(parser)
    fingerprints = []
    for formats in ((), ("--formats", "activation=posit(8,0)")):
        line = ["registers", "--json", "--out", str(tmp_path), *preset, *formats]
        cli.export_command.run(parser.parse_args(line))
        fingerprints.append(json.loads(capsys.readouterr().out)["fingerprint"])
    assert len(set(fingerprints)) == 2


SOUND = {"get_board_parts": "a:1 a:2", "PROGRESS": "100%", "SLACK": "0.125"}
"""Answers of a Vivado that has the board's files, and finishes in time."""


def evaluated(
    text: str, answers: Mapping[str, str] = SOUND, calls: list[list[str]] | None = None
) -> list[list[str]]:
    """Evaluate Tcl with every command of Vivado recorded in ``calls``, and return them.

    A parser of its own would accept what Tcl does not: unbalanced braces, a lost backslash, an
    option that swallows the next line.
    """
    tkinter = pytest.importorskip("tkinter")
    interpreter = tkinter.Tcl()
    calls = [] if calls is None else calls

    def record(*words: str) -> str:
        calls.append([*words])
        key = words[1] if words[0] == "get_property" else words[0]
        return answers.get(key, f"<{words[0]}>")

    interpreter.createcommand("record", record)
    interpreter.eval("proc unknown {args} {record {*}$args}")
    interpreter.eval(text)
    return calls


@pytest.mark.parametrize("board", EXPORTS.values(), ids=EXPORTS)
def test_export_script_of_a_processor_is_tcl_that_connects_every_interface(board):
    calls = evaluated(script(board))
    assert calls[0][0] == "create_project"
    assert ["launch_runs", "impl_1", "-to_step", "write_bitstream", "-jobs", "4"] in calls[-4:]
    assert ["set_property", "board_part", "a:2", "<current_project>"] in calls
    named = [words[0] for words in calls]
    assert named.count("connect_bd_intf_net") == 4 and "validate_bd_design" in named
    (settings,) = (
        words[2]
        for words in calls
        if words[:2] == ["set_property", "-dict"] and "<get_bd_cells>" in words[3]
    )
    pairs = dict(zip(*[iter(settings.split())] * 2, strict=True))
    assert all(name.startswith("CONFIG.") for name in pairs)
    assert f"{board.clock_mhz:g}" in pairs.values()
    assert evaluated(constraints(board))[-1][:2] == ["create_clock", "-period"]


@pytest.mark.parametrize("name", cli.VIVADO)
def test_export_of_a_serial_board_is_tcl_over_its_own_files_and_ports(name, tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(
        "trainwright_boards.flow.write_design", lambda job: written.append(job.board.name)
    )
    parser = Parser()
    cli.export_command.add_arguments(parser)
    assert cli.export_command.run(parser.parse_args([name, "--out", str(tmp_path)])) == 0
    assert written == [name]
    board = BOARDS[name]
    calls = evaluated((tmp_path / "build.tcl").read_text())
    part = {words[words.index("-part") + 1] for words in calls if "-part" in words}
    assert len(part) == 1 and part.pop().startswith(board.part.options[0] + board.package)
    assert ["read_verilog", "top.v"] in calls and ["read_xdc", "top.xdc"] in calls
    ports = {"clk_in", "rx", "tx", "lamp"}
    placed = evaluated(family(board).constraints(board))
    assert {words[1] for words in placed if words[0] == "get_ports"} == ports
    sites = [words[2].split() for words in placed if words[0] == "set_property"]
    assert all(len(site) == 4 and site[::2] == ["PACKAGE_PIN", "IOSTANDARD"] for site in sites)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["arty-a7-35t", "--memory-base", "0x1000"], "--memory-base only applies to a processor"),
        (["kv260", "--append", "x"], "--append takes figures, which --estimate makes"),
        (["arty-a7-35t", "--preset", "zu3eg"], "does not fit the XC7A35T .*--preset lfe5u-25f"),
        (["arty-a7-35t", "--accelerator", "lanes=16"], "with these sizes .* lfe5u-25f alone fits"),
        (
            ["pynq-z2", "--preset", "zu3eg"],
            "not fit the xc7z020.*288 .* 220; .*lfe5u-85f fits",
        ),
    ],
)
def test_export_of_options_that_do_not_apply_names_the_option(arguments, message, tmp_path):
    parser = Parser()
    cli.export_command.add_arguments(parser)
    with pytest.raises((OptionError, BuildError), match=message):
        cli.export_command.run(parser.parse_args([*arguments, "--out", str(tmp_path)]))


SCRIPTS = {
    **{name: script(board) for name, board in EXPORTS.items()},
    **{name: vivado_script(BOARDS[name]) for name in cli.VIVADO},
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_vivado_script_without_timing_ends_before_its_bitstream(name):
    tkinter = pytest.importorskip("tkinter")
    calls = []
    with pytest.raises(tkinter.TclError, match=r"the slack of setup is -0\.25 ns .*slower clock"):
        evaluated(SCRIPTS[name], {**SOUND, "SLACK": "-0.25"}, calls)
    assert ["report_timing_summary", "-file", "timing.txt"] in calls
    assert not any("write_bitstream" in words for words in calls)
    evaluated(SCRIPTS[name], {**SOUND, "SLACK": "0"}, calls)
    assert any("write_bitstream" in words for words in calls)


@pytest.mark.parametrize("name", EXPORTS)
@pytest.mark.parametrize(
    "answer, error",
    [
        ({"get_board_parts": ""}, "Vivado has no board files .*: install them"),
        ({"PROGRESS": "46%"}, "impl_1 has failed: see vivado/trainwright.runs/impl_1/runme.log"),
    ],
)
def test_vivado_script_ends_where_vivado_would_go_on(name, answer, error):
    tkinter = pytest.importorskip("tkinter")
    with pytest.raises(tkinter.TclError, match=error):
        evaluated(SCRIPTS[name], {**SOUND, **answer})

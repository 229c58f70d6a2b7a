"""Boards as data: settings of clocks and lines, what fits, and the commands' errors."""

import argparse
import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
from amaranth.back import rtlil
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from trainwright.cli.command import CommandBody
from trainwright.cli.core import Parser
from trainwright.cli.errors import OptionError
from trainwright.network import load_network
from trainwright.parameters import PRESETS, AcceleratorParameters, preset
from trainwright.report.summary import STATED_CLOCK_HZ
from trainwright_boards import build as building
from trainwright_boards import commands as cli
from trainwright_boards import flow, report, tools
from trainwright_boards.artix import mmcm_settings
from trainwright_boards.board import MEMORIES, PARTS
from trainwright_boards.catalogue import BOARDS, find_board
from trainwright_boards.clocks import running_hz, slower_mhz
from trainwright_boards.ecp5 import Ecp5Top
from trainwright_boards.fits import (
    block_rams,
    choose_memory,
    chosen_block_rams,
    needed_block_rams,
    obstacles,
    on_chip_bytes,
)
from trainwright_boards.flow import family
from trainwright_boards.flows import export_for
from trainwright_boards.job import NETLIST, TOP, Steps
from trainwright_boards.pll import pll_settings
from trainwright_boards.tools import BuildError
from trainwright_boards.top import CLOCK
from trainwright_hw.arith.multiplier import DevicePlatform
from trainwright_hw.build.convert import component_to_rtlil, design_to_rtlil, yosys_command
from trainwright_hw.external.sdram.controller import SdramMemory
from trainwright_hw.external.sdram.pads import SdramPins
from trainwright_hw.link.uart import MOST_ERROR, divisor
from trainwright_hw.soc import Soc
from trainwright_sim.copier import Copier


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_board_data_is_consistent(board):
    assert BOARDS[board.name] is board
    assert PARTS[board.part.name] is board.part
    lacking = obstacles(preset(board.preset), board.part, board.memory_bytes)
    assert not lacking, f"choose another preset, or less memory_bytes: {lacking}"
    assert board.memory_bytes & (board.memory_bytes - 1) == 0
    used = [board.clock_pin, board.rx_pin, board.tx_pin, board.lamp_pin]
    assert len(set(used)) == len(used)
    for pin in used:
        assert re.fullmatch(r"[A-Y]\d{1,2}", pin)
    cycles = divisor(board.design_hz, board.baud)
    assert abs(board.design_hz / cycles / board.baud - 1) <= MOST_ERROR
    assert family(board).running_hz(board, board.design_hz) == board.design_hz
    assert isinstance(family(board).top(board, board.design_hz), Callable)


def test_stated_clock_of_reports_equals_the_clock_of_the_ulx3s():
    assert BOARDS["ulx3s-85f"].design_hz == STATED_CLOCK_HZ


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_every_pin_is_constrained(board):
    sites = {
        "clk_in": board.clock_pin,
        "rx": board.rx_pin,
        "tx": board.tx_pin,
        "lamp": board.lamp_pin,
    }
    text, options = family(board).constraints(board), board.pin_options
    place, kind, clock = {
        "ecp5": (
            'LOCATE COMP "{port}" SITE "{site}";',
            'IOBUF PORT "{port}" {options};',
            'FREQUENCY PORT "clk_in" {mhz:g} MHZ;',
        ),
        "gw5a": ('IO_LOC "{port}" {site};', 'IO_PORT "{port}" {options};', ""),
        "nexus": (
            "ldc_set_location -site {{{site}}} [get_ports {port}]",
            "ldc_set_port -iobuf {{{options}}} [get_ports {port}]",
            "create_clock -period {ns:.3f} -name clk_in [get_ports clk_in]",
        ),
        "xc7": (
            "set_property -dict {{PACKAGE_PIN {site} IOSTANDARD {options}}} [get_ports {port}]",
            "",
            "create_clock -period {ns:.3f} -name clk_in [get_ports clk_in]",
        ),
    }[board.part.family]
    lines = text.splitlines()
    for port, site in sites.items():
        for form in filter(None, (place, kind)):
            assert lines.count(form.format(port=port, site=site, options=options)) == 1
    if clock:
        mhz = board.clock_hz / 1e6
        assert lines.count(clock.format(mhz=mhz, ns=1e3 / mhz)) == 1


SDRAM_BOARDS = {name: board for name, board in BOARDS.items() if board.sdram is not None}


@pytest.mark.parametrize("board", SDRAM_BOARDS.values(), ids=SDRAM_BOARDS)
def test_sdram_pins_have_distinct_sites_and_constraints(board):
    """Every pin has a site of its own, and a line in the constraints under its port's name."""
    sdram = board.sdram
    members = SdramPins(sdram.timing).members
    widths = {name: member.shape for name, member in members.items()}
    width = widths.pop("dq_i")
    assert widths.pop("dq_o") == width and widths.pop("dq_oe") == 1
    assert {name: len(sites) for name, sites in sdram.pins.items()} == widths | {"dq": width}
    sites = [site for pins in sdram.pins.values() for site in pins]
    sites += [board.clock_pin, board.rx_pin, board.tx_pin, board.lamp_pin]
    assert len(set(sites)) == len(sites)
    constraints = family(board).constraints
    text = constraints(board, "sdram")
    for name, sites in sdram.pins.items():
        for bit, site in enumerate(sites):
            port = f"sdram_{name}" + f"[{bit}]" * (len(sites) > 1)
            assert f'LOCATE COMP "{port}" SITE "{site}";' in text
            assert text.count(f'IOBUF PORT "{port}" {sdram.pin_options};') == 1
    assert "sdram" not in constraints(board)
    assert sdram.timing.cycles(board.design_hz).cas_latency == 2


@pytest.mark.parametrize(
    "wanted, needed, chosen",
    [
        (None, 0, "block"),
        (None, 1 << 17, "block"),
        (None, (1 << 17) + 1, "sdram"),
        (None, 1 << 25, "sdram"),
        ("sdram", 0, "sdram"),
        ("block", 1 << 17, "block"),
    ],
)
def test_choose_memory_takes_first_large_enough(wanted, needed, chosen):
    assert choose_memory(BOARDS["ulx3s-85f"], wanted, needed, "it") == chosen


def test_no_memory_is_large_enough():
    with pytest.raises(
        BuildError, match=r"it needs 33554433 .* of block and 33554432 of sdram: ch"
    ):
        choose_memory(BOARDS["ulx3s-85f"], None, (1 << 25) + 1, "it")


@pytest.mark.parametrize(
    "options, memory, folder",
    [
        (["digits"], "block", ""),
        (["digits", "--memory", "sdram"], "sdram", "-sdram"),
        pytest.param(["fashion"], "sdram", "-sdram", marks=pytest.mark.slow),
    ],
)
def test_build_network_option_chooses_memory_and_folder(options, memory, folder):
    parser = Parser()
    cli.build_command.add_arguments(parser)
    job = cli._job(parser.parse_args(["ulx3s-85f", "--network", *options]))
    assert job.memory == memory and job.folder.name == f"ulx3s-85f{folder}"
    assert job.memory_bytes == job.board.memories[memory]


@pytest.mark.parametrize("clock_hz, output", [(45_000_000, "Q1"), (100_000_000, "Q0")])
def test_pads_of_an_sdram_are_registers(clock_hz, output, tmp_path):
    """The chip's clock is inverted; data are taken at the edge that the clock asks for."""
    board, parameters = BOARDS["ulx3s-85f"], AcceleratorParameters(lanes=8)
    timing = board.sdram.timing
    memory = SdramMemory(parameters, timing=timing, cycles=timing.cycles(clock_hz))
    soc = Soc(
        parameters, memory=memory, divisor=15, clock_hz=clock_hz, accelerator=Copier(parameters)
    )
    top = Ecp5Top(soc, pll_settings(board.clock_hz, clock_hz))
    text = design_to_rtlil(top, [*top.ports.values()], name="top", target=DevicePlatform("ecp5"))
    cells = {
        cell: text.count(f"cell \\{cell} ") for cell in ("BB", "IDDRX1F", "OFS1P3BX", "ODDRX1F")
    }
    assert cells == {"BB": 16, "IDDRX1F": 16, "OFS1P3BX": 5 + 2 + 13 + 2 + 16, "ODDRX1F": 1}
    inputs = text.split("cell \\IDDRX1F ")[1:]
    assert all(f"connect \\{output} " in part.split("\n  end")[0] for part in inputs)
    clock = text.split("cell \\ODDRX1F ")[1].split("\n  end")[0]
    assert "connect \\D0 1'0" in clock and "connect \\D1 1'1" in clock
    assert re.search(r"wire width 16 inout \d+ .*sdram_dq$", text, re.MULTILINE)


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
@pytest.mark.usefixtures("first_program")
def test_board_memory_holds_step_of_digits(board):
    from trainwright.compiler import compile_step

    # block RAM of the smallest parts holds less: their SDRAM is for the step
    small = board.memory_bytes < 1 << 16
    batch = (8 if small else 4) if board.preset == "lfe5u-25f" else 64
    step = compile_step(load_network("digits"), batch, preset(board.preset))
    most = max(board.memories.values())
    assert step.memory_bytes <= most, f"digits needs {step.memory_bytes} bytes: raise memory_bytes"
    assert small == (step.memory_bytes > board.memory_bytes)


CLOCKS = [
    (12e6, 48e6),
    (12e6, 80e6),
    (25e6, 48e6),
    (25e6, 50e6),
    (25e6, 60e6),
    (25e6, 75e6),
    (25e6, 93e6),
    (25e6, 100e6),
    (27e6, 54e6),
    (48e6, 72e6),
    (48e6, 100e6),
    (100e6, 80e6),
]


@pytest.mark.parametrize("source, wanted", CLOCKS)
def test_pll_settings_are_within_their_ranges(source, wanted):
    settings = pll_settings(source, wanted)
    assert abs(settings.output_hz / wanted - 1) <= 0.01
    detector = source / settings.input_divider
    assert 10e6 <= detector <= 400e6, "fPFD of the data sheet"
    fed_back = settings.inner_divider or settings.output_divider
    oscillator = detector * settings.feedback * fed_back
    assert 400e6 <= oscillator <= 800e6 and oscillator / fed_back <= 400e6
    assert settings.output_hz == pytest.approx(oscillator / settings.output_divider, rel=1e-12)


def test_pll_of_60_mhz_from_25_feeds_its_oscillator_back():
    settings, board_clock, clock = pll_settings(25e6, 60e6), Signal(), Signal()
    assert (settings.input_divider, settings.feedback, settings.inner_divider) == (1, 1, 24)
    top: Any = SimpleNamespace(_pll=settings, ports={CLOCK: board_clock})
    m = Module()
    locked = Ecp5Top.clocking(top, m, clock)
    text = rtlil.convert(m, ports=[board_clock, clock, locked])
    pll = dict(re.findall(r"parameter \\(\w+) \"?(\w+)", text))
    ratio = Fraction(int(pll["CLKFB_DIV"]) * int(pll["CLKOS_DIV"]), int(pll["CLKI_DIV"]))
    assert 25 * ratio / int(pll["CLKOP_DIV"]) == 60
    assert (pll["FEEDBK_PATH"], pll["CLKOS_ENABLE"]) == ("INT_OS", "ENABLED")


@pytest.mark.parametrize("source, wanted", [(source, wanted) for source, wanted in CLOCKS])
def test_mmcm_settings_are_within_their_ranges(source, wanted):
    settings = mmcm_settings(int(source), int(wanted))
    oscillator = Fraction(int(source) * settings.multiplier, settings.divider)
    assert 600_000_000 <= oscillator <= 1_200_000_000, "speed grade 1 of an Artix-7"
    assert settings.output_hz == float(oscillator / settings.output)
    assert abs(settings.output_hz / wanted - 1) <= 0.01
    assert (
        source / settings.divider >= 10e6
        and 2 <= settings.multiplier <= 64
        and settings.output <= 128
    )


def test_mmcm_that_makes_no_such_clock_is_rejected_by_value():
    with pytest.raises(ValueError, match="no MMCM setting gives 1 MHz from 25 MHz"):
        mmcm_settings(25_000_000, 1_000_000)


def test_impossible_clock_or_baud_is_rejected_by_value():
    with pytest.raises(ValueError, match=r"no PLL setting gives 3 MHz from 25 MHz within 1%"):
        pll_settings(25e6, 3e6)
    assert pll_settings(25e6, 400e6).output_hz == 400e6
    with pytest.raises(ValueError, match="no PLL setting gives 500 MHz"):
        pll_settings(25e6, 500e6)
    with pytest.raises(ValueError, match="no 3000000 baud"):
        divisor(10e6, 3_000_000)


@cache
def pll_clocks(source_hz: int) -> tuple[set[Fraction], set[Fraction]]:
    """Return the clocks that an EHXPLLL can feed back, and those of its oscillator."""
    pairs = {
        (hz, n * hz)
        for divider in range(1, 129)
        for feedback in range(1, 81)
        if 10_000_000 * divider <= source_hz <= 400_000_000 * divider
        for hz in [Fraction(source_hz * feedback, divider)]
        for n in range(1, 129)
        if 400_000_000 <= n * hz <= 800_000_000
    }
    return {hz for hz, _ in pairs}, {oscillator for _, oscillator in pairs}


def made_hz(source_hz: int, asked_hz: int) -> Fraction | None:
    """Find the clock nearest to ``asked_hz``, and None where it is more than 1 % off.

    The output is fed back, unless only another one gives the same clock, or any.
    """
    fed_back, oscillators = pll_clocks(source_hz)
    divided = {
        oscillator / n
        for oscillator in oscillators
        for n in (oscillator // asked_hz, oscillator // asked_hz + 1)
        if 1 <= n <= 128
    }
    nearest = [min(clocks, key=lambda hz: abs(hz - asked_hz)) for clocks in (fed_back, divided)]
    for most in (0, asked_hz // 100):
        for hz in nearest:
            if abs(hz - asked_hz) <= most:
                return hz
    return None


@pytest.mark.parametrize("name", ["ulx3s-85f", "orangecrab-85f"])
def test_running_clock_of_every_whole_mhz_is_made_by_the_pll(name):
    """A build is judged by that clock, and its serial line divides it."""
    board, differing = BOARDS[name], 0
    for mhz in range(20, 134):
        expected = made_hz(board.clock_hz, mhz * 1_000_000)
        within = expected is not None and any(
            n >= 4 and abs(expected / n / board.baud - 1) <= Fraction(2, 100) for n in range(1, 100)
        )
        if not within:
            with pytest.raises(BuildError, match=r"choose --clock \d+"):
                running_hz(board, mhz * 1_000_000, board.baud, "block")
            continue
        running = running_hz(board, mhz * 1_000_000, board.baud, "block")
        assert abs(running - expected) < 1, mhz
        differing += running != mhz * 1_000_000
        again = pll_settings(board.clock_hz, running)
        assert abs(again.output_hz - running) < 1, "the running clock makes itself"
    assert differing > 20


@pytest.mark.parametrize("name", ["ulx3s-85f", "tang-mega-138k"])
def test_error_of_a_clock_proposes_clocks_and_rates_that_work(name):
    board = BOARDS[name]
    for memory in board.memories:
        for mhz in (*range(1, 200, 3), 500):
            try:
                running_hz(board, mhz * 1_000_000, board.baud, memory)
            except BuildError as error:
                clocks, _, bauds = str(error).partition("--clock ")[2].partition(", or --baud ")
                assert clocks
                for proposed in clocks.split(" or "):
                    assert int(proposed) <= 100  # no design was routed for a faster one
                    running_hz(board, int(proposed) * 1_000_000, board.baud, memory)
                for proposed in bauds.split(" or ") if bauds else ():
                    running_hz(board, mhz * 1_000_000, int(proposed), memory)


def test_slower_clock_proposed_for_a_slow_build_runs_no_faster_than_it_can():
    board = BOARDS["ulx3s-85f"]
    for reached in (15.2, 47.9, 58.0, 62.3, 62.5, 120.0):
        proposed = slower_mhz(board, reached, board.baud, "block")
        assert proposed is not None
        running = running_hz(board, proposed * 1_000_000, board.baud, "block")
        assert running <= reached * 1e6
    assert slower_mhz(board, 3.0, board.baud, "block") is None


@pytest.mark.parametrize("reached, met", [(62.3, False), (62.5, True)])
def test_build_for_62_mhz_is_judged_by_the_62_5_that_run(reached, met, tmp_path, monkeypatch):
    job = cli._job(parsed("ulx3s-85f", "--clock", "62", "--out", str(tmp_path)))
    assert job.clock_hz == 62_500_000
    monkeypatch.setattr(report, "read_timing", lambda path: {})
    monkeypatch.setattr(
        report, "resources", lambda timing, part: {"luts": {"used": 1, "available": 9}}
    )
    monkeypatch.setattr(report, "clocks", lambda timing: {"clock": {"fmax_mhz": reached}})
    monkeypatch.setattr(report, "critical_path", lambda timing: [])
    (tmp_path / "top.bit").write_bytes(b"bits")
    figures = building._figures(job, Steps(tmp_path, print))
    assert (figures["timing_met"], figures["clock_mhz"]) == (met, 62.5)


def test_clock_that_gives_no_serial_rate_is_refused_before_a_network_is_compiled(monkeypatch):
    monkeypatch.setattr("trainwright.compiler.compile_step", lambda *_: pytest.fail("compiled"))
    with pytest.raises(BuildError, match="no 3000000 baud"):
        run(cli.build_command, "ulx3s-85f", "--network", "digits", "--clock", "40")


def test_rate_that_is_asked_for_divides_the_clock(monkeypatch):
    job = cli._job(parsed("ulx3s-85f", "--clock", "40", "--baud", "2500000"))
    assert (job.clock_hz, job.baud) == (40_000_000, 2_500_000)
    monkeypatch.setattr(flow, "_memory", lambda build: None)
    monkeypatch.setattr(flow, "Soc", lambda parameters, **options: options)
    options = flow.soc_of(job)
    assert (options["divisor"], options["clock_hz"]) == (16, 40_000_000)


def test_block_rams_of_a_memory():
    # 16384 x 1, 2048 x 9, 512 x 36 bits are one each
    assert block_rams(1, 16384) == block_rams(9, 2048) == block_rams(36, 512) == 1
    assert block_rams(64, 16384) == 64
    assert block_rams(64, 128) == 2


MEMORIES_OF_YOSYS = [(4, 128), (8, 96), (16, 64), (18, 64), (27, 64), (36, 32), (36, 48), (64, 48),
                     (64, 64), (64, 65), (16, 128), (128, 64), (32, 512)]  # fmt: skip
"""Width and depth around the choice between distributed and block RAM."""


class Memories(wiring.Component):
    """A memory of each of these sizes, in a module of its own."""

    def __init__(self):
        ports = {"address": In(16), "write": In(1), "read": In(1), "data": In(128)}
        outputs = {f"q{n}": Out(w) for n, (w, _) in enumerate(MEMORIES_OF_YOSYS)}
        super().__init__(ports | outputs)

    def elaborate(self, platform) -> Module:
        m = Module()
        for n, (width, depth) in enumerate(MEMORIES_OF_YOSYS):
            m.submodules[f"memory{n}"] = inner = Module()
            inner.submodules.words = memory = Memory(shape=width, depth=depth, init=[])
            writer, reader = memory.write_port(), memory.read_port()
            inner.d.comb += [
                writer.addr.eq(self.address),
                writer.data.eq(self.data),
                writer.en.eq(self.write),
                reader.addr.eq(self.address),
                reader.en.eq(self.read),
                getattr(self, f"q{n}").eq(reader.data),
            ]
        return m


@pytest.mark.parametrize(
    "family, synthesis, cells",
    [
        ("ecp5", "synth_ecp5 -top top -noflatten -run begin:map_ffram", ("DP16KD",)),
        (
            "gw5a",
            "synth_gowin -family gw5a -top top -noflatten -run begin:map_ffram",
            report.GW5A_BLOCK_RAMS,
        ),
    ],
)
def test_block_rams_reckoned_for_a_memory_are_those_of_yosys(family, synthesis, cells, tmp_path):
    text = component_to_rtlil(Memories(), name="top", target=DevicePlatform(family))
    (tmp_path / "top.il").write_text(text)
    script = f"read_rtlil top.il; {synthesis}; tee -q -o cells.json stat -json"
    command = [*yosys_command(), "-q", "-p", script]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    modules = json.loads((tmp_path / "cells.json").read_text())["modules"]
    counted = {}
    for name, module in modules.items():
        if number := re.search(r"memory(\d+)", name):
            counts = module["num_cells_by_type"]
            counted[int(number[1])] = sum(counts.get(cell, 0) for cell in cells)
    reckoned = [chosen_block_rams(width, depth) for width, depth in MEMORIES_OF_YOSYS]
    assert [counted[n] for n in range(len(MEMORIES_OF_YOSYS))] == reckoned


def test_shallow_program_memory_is_reckoned_as_block_ram():
    """64 descriptors were taken for LUTs: 98 block RAMs were promised where yosys made 120."""
    depths = (16, 32, 64, 128)
    needed = [needed_block_rams(replace(preset("ecp5-85f"), program_depth=n), 0) for n in depths]
    assert needed[0] == needed[1] < needed[2] == needed[3] == needed[0] + 32


def test_netlist_with_more_cells_than_the_part_has_is_one_error():
    part = replace(PARTS["LFE5U-85F"], name="LFE5U-45F", block_rams=108, multipliers=72)
    report.check_room({"DP16KD": 108, "MULT18X18D": 72, "LUT4": 1000}, part)
    message = r"120 block RAMs \(98 were reckoned with\), the LFE5U-45F has 108; choose a smaller"
    with pytest.raises(BuildError, match=message):
        report.check_room({"DP16KD": 120}, part, {"block_rams": 98})
    with pytest.raises(BuildError, match="73 multipliers, the LFE5U-45F has 72"):
        report.check_room({"MULT18X18D": 73}, part)
    luts = int(part.luts * 0.9)
    report.check_room({"LUT4": luts}, part)
    with pytest.raises(BuildError, match=f"{luts + 6} LUTs, the LFE5U-45F has {luts}, 10% being"):
        report.check_room({"LUT4": luts, "TRELLIS_DPR16X4": 1}, part)
    with pytest.raises(BuildError, match="flip flops"):
        report.check_room({"TRELLIS_FF": part.luts + 1}, part)
    gowin = PARTS["GW5AST-138C"]
    with pytest.raises(BuildError, match=f"{gowin.block_rams + 1} block RAMs"):
        report.check_room({"SDPB": gowin.block_rams, "DPX9B": 1}, gowin)


def test_sizes_of_a_build_are_those_asked_for_and_have_a_folder_of_their_own():
    job = cli._job(parsed("ulx3s-85f", "--accelerator", "program_depth=64"))
    assert job.parameters == replace(preset("ecp5-85f"), program_depth=64)
    assert job.folder.name == f"ulx3s-85f-{job.parameters.fingerprint:08x}"
    plain = cli._job(parsed("ulx3s-85f"))
    assert (plain.parameters, plain.folder.name) == (preset("ecp5-85f"), "ulx3s-85f")
    formatted = ("--formats", "activation=posit(8,0)", "--accelerator", "program_depth=64")
    parameters = cli._job(parsed("ulx3s-85f", "--preset", "ecp5-85f-64", *formatted)).parameters
    assert parameters.program_depth == 64 and parameters.formats
    # A bitstream of other formats does not take the place of the board's own.
    job = cli._job(parsed("ulx3s-85f", *formatted[:2]))
    assert job.folder.name == f"ulx3s-85f-{job.parameters.fingerprint:08x}"
    assert cli._job(parsed("ulx3s-85f", "--formats", "activation=fixed(6)")).folder == plain.folder


def test_load_takes_the_memory_of_a_build_or_a_bitstream(tmp_path):
    parser = Parser()
    cli.load_command.add_arguments(parser)
    given = parser.parse_args(["ulx3s-85f", "--bitstream", "x.bit", "--memory", "sdram"])
    with pytest.raises(OptionError, match="--memory is of a build without --bitstream"):
        cli.load_command.run(given)
    with pytest.raises(BuildError, match=r"there is no build/ulx3s-85f-sdram/top\.bit"):
        cli.load_command.run(parser.parse_args(["ulx3s-85f", "--memory", "sdram"]))


def test_synthesis_alone_tells_the_netlist_and_places_nothing(tmp_path, monkeypatch, capsys):
    cells = {
        name: {
            "type": name,
            "parameters": {},
            "attributes": {},
            "connections": {},
            "port_directions": {},
        }
        for name in ("DP16KD", "CCU2C")
    }

    def synthesise(job, steps):
        ports = {"clk_in": {"direction": "input", "bits": [2]}}
        module = {"cells": cells, "ports": ports, "netnames": {}}
        (tmp_path / NETLIST).write_text(json.dumps({"modules": {TOP: module}}))

    monkeypatch.setattr(flow, "write_design", lambda job: None)
    monkeypatch.setattr(flow, "synthesise", synthesise)
    monkeypatch.setattr(flow, "place_and_route", lambda *_: pytest.fail("placed"))
    assert run(cli.build_command, "ulx3s-85f", "--synth-only", "--out", str(tmp_path)) == 0
    told = capsys.readouterr()
    lines = told.out.splitlines()
    assert lines[0] == str(tmp_path / NETLIST)
    assert "  luts: 2 of 83,640 (0%)" in lines and "  block rams: 1 of 208 (0%)" in lines
    assert "stage 1 of 1: synth" in told.err and "synth: done in 0 s" in told.err

    def place(job, steps, options, *, route):
        steps.seconds["place"] = 7.0
        assert not route

    monkeypatch.setattr(flow, "floorplan", lambda *_: None)
    monkeypatch.setattr(flow, "place_and_route", place)
    assert run(cli.build_command, "ulx3s-85f", "--until", "place", "--out", str(tmp_path)) == 0
    told = capsys.readouterr()
    assert told.out.splitlines()[-1] == "  time: place 7 s"
    assert "stage 2 of 2: place" in told.err and "place: done in 0 s" in told.err


def test_build_compares_the_netlist_with_the_part_before_placing(tmp_path, monkeypatch):
    job = replace(cli._job(parsed("ulx3s-85f")), folder=tmp_path)
    cells = {str(n): {"type": "DP16KD", "connections": {}} for n in range(209)}
    module = {"cells": cells, "ports": {}, "netnames": {}}
    (tmp_path / NETLIST).write_text(json.dumps({"modules": {TOP: module}}))
    with pytest.raises(BuildError, match=r"209 block RAMs \(159 were reckoned with\)"):
        building.check_netlist(job)


def test_block_rams_are_no_fewer_than_synthesis_makes():
    """yosys 0.70 makes 162 with this preset.

    Factor stores took twelve of them, nine too many, for bits that are never read.
    """
    assert 162 - 12 <= needed_block_rams(preset("ecp5-85f"), 1 << 17) <= 171 - 12


def test_board_with_memory_chip_has_fitting_preset():
    """Scratchpad takes the block RAM that the chip saves."""
    for board in BOARDS.values():
        for memory in board.memories:
            name = board.preset_with(memory)
            on_chip = on_chip_bytes(board, memory)
            assert obstacles(preset(name), board.part, on_chip) == [], (board.name, memory)
    board = BOARDS["ulx3s-85f"]
    assert [board.preset_with(memory) for memory in MEMORIES] == ["ecp5-85f", "ecp5-85f-sdram"]
    assert obstacles(preset("ecp5-85f-sdram"), board.part, board.memory_bytes)
    assert needed_block_rams(preset("ecp5-85f-sdram"), 0) == 155


def test_obstacles_name_resources_that_do_not_fit():
    board = BOARDS["ulx3s-85f"]
    problems = obstacles(AcceleratorParameters(), board.part, board.memory_bytes)
    assert len(problems) == 2
    assert "288 multipliers, it has 156" in problems[0]


def parsed(*arguments: str) -> argparse.Namespace:
    """Parse the arguments of `trainwright build`."""
    parser = Parser()
    cli.build_command.add_arguments(parser)
    return parser.parse_args(arguments)


def run(command: CommandBody, *arguments: str) -> int:
    parser = Parser()
    command.add_arguments(parser)
    return command.run(parser.parse_args(arguments))


def test_boards_are_listed(capsys, monkeypatch):
    assert run(cli.boards, "--json") == 0
    figures = json.loads(capsys.readouterr().out)
    assert set(figures) == set(BOARDS)
    for board in figures.values():
        assert board["preset"] in board["fits"]
        kinds = [*board["fits"], *board["not_routed"], *board["does_not_fit"]]
        assert sorted(kinds) == sorted(PRESETS)
        assert set(board["built"]) <= {*board["fits"], *board["fits_with_sdram"]}
    for name in ("ulx3s-85f", "orangecrab-85f", "tang-mega-138k"):
        assert figures[name]["preset"] in figures[name]["built"]
    fitting = ["lfe5u-45f-alone", "lfe5u-25f", "gw5ast-138c"]
    assert figures["tang-mega-138k"]["fits"] == fitting
    monkeypatch.setenv("COLUMNS", "80")
    assert run(cli.boards) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    told = " ".join(line.strip() for line in lines)
    assert "zu3eg: does not fit: needs 288 multipliers" in told
    assert "ecp5-85f-64: not routed: nextpnr as it comes routed no arrays of 64 mult" in told
    assert "ecp5-85f-w8: fits by count, not built yet" in told


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["zx81"], "no board 'zx81'; there are ulx3s-85f"),
        (
            ["ulx3s-85f", "--preset", "zu3eg"],
            "does not fit the LFE5U-85F .*--preset ecp5-85f fits",
        ),
        (["ulx3s-85f", "--preset", "zx81"], "no preset 'zx81'; there are zu3eg"),
        (["ulx3s-85f", "--clock", "10"], "10 MHz .* 3000000 baud .*choose --clock 12, or --baud "),
        (["ulx3s-85f", "--clock", "40"], "no 3000000 baud .*--clock 39 or 42, or --baud 2500000 "),
        (["ulx3s-85f", "--clock", "3"], "no PLL setting gives 3 MHz .*choose --clock 12$"),
        (["ulx3s-85f", "--accelerator", "lanes=5"], "lanes must be 4, 8 or 16, not 5"),
        (["ulx3s-85f", "--accelerator", "preset=zu3eg"], "name the preset by --preset"),
        (
            ["ulx3s-85f", "--accelerator", "scratchpad_rows=65536"],
            "does not fit .*block RAMs, it has",
        ),
        (["ulx3s-85f", "--synth-only", "--seeds", "3"], "--until synth routes nothing"),
        (["ulx3s-85f", "--seeds", "3", "--seed", "1"], "--seeds places with seeds 1 to N: omit"),
        (["ulx3s-85f", "--batch", "7"], "--batch is of a network: add --network"),
        (["ulx3s-85f", "--until", "synth", "--seed", "3"], "places nothing: omit --seed"),
        (["arty-a7-35t", "--seed", "3"], "places nothing: omit --seed"),
        (["arty-a7-35t", "--relaxed"], "--relaxed: passes for XC7A35T know no delay: omit it"),
        (["arty-a7-35t", "--no-check"], "changes no netlist: omit --no-check"),
        (["ulx3s-85f", "--jobs", "2"], "--jobs is for several placements: add --seeds"),
        (["ulx3s-85f", "--label", "x"], "--label is for the line of --append"),
        (
            ["arty-a7-35t", "--until", "route"],
            "until synth, not route: Vivado .*`trainwright export",
        ),
        (["ulx3s-85f", "--baud", "4000000"], "takes 9600 to 3000000, not 4000000"),
        (["ulx3s-85f", "--baud", "5"], "takes 9600 to 3000000, not 5"),
        (["arty-a7-35t", "--seeds", "2"], "until synth, not route: Vivado places and routes it"),
        (["ulx3s-85f", "--clock", "-5"], "--clock must be above 0"),
        (
            ["tang-mega-138k", "--clock", "40"],
            "runs at 50 MHz and not at 40: .*no PLL .*choose --clock 50",
        ),
        (["tang-mega-138k", "--memory", "sdram"], "tang-mega-138k has no sdram"),
        pytest.param(
            ["ulx3s-85f", "--network", "fashion", "--memory", "block"],
            "fashion with batch 64 needs [0-9]+ bytes .*has 131072 of block: choose --memory sdram",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ["orangecrab-85f", "--network", "fashion"],
            "choose a smaller --batch or another board",
            marks=pytest.mark.slow,
        ),
        (["orangecrab-85f", "--memory", "sdram"], "orangecrab-85f has no sdram; --memory block"),
        (["ulx3s-85f", "--preset", "lfe5u-85f"], "or this preset with --memory sdram"),
        (
            ["ulx3s-85f", "--memory", "sdram", "--clock", "150"],
            "at most 133 MHz.*for up to 102 MHz: choose --clock 100$",
        ),
    ],
)
def test_build_of_impossible_arguments_is_one_error(arguments, message, tmp_path):
    with pytest.raises((BuildError, OptionError), match=message):
        run(cli.build_command, *arguments, "--out", str(tmp_path / "out"))


def test_missing_tool_is_named_with_remedy(monkeypatch, tmp_path):
    for name in ("YOSYS", "NEXTPNR_ECP5"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(tools, "which", lambda name: None)
    monkeypatch.setattr(tools, "find_spec", lambda name: None)
    with pytest.raises(
        BuildError, match=r"building needs nextpnr-ecp5: pip install 'trainwright\[boar"
    ):
        tools.tool("nextpnr-ecp5")
    with pytest.raises(
        BuildError, match=r"building needs gowin_pack: pip install 'trainwright\[boar"
    ):
        tools.tool("gowin_pack")
    with pytest.raises(BuildError, match="loading needs openFPGALoader"):
        tools.loader()


def test_tool_lookup_prefers_variable_then_path_then_wheel(monkeypatch):
    monkeypatch.delenv("YOSYS", raising=False)
    monkeypatch.setattr(tools, "which", lambda name: "/bin/echo" if name == "yosys" else None)
    assert tools.tool("yosys").command == ("/bin/echo",)
    monkeypatch.setattr(tools, "which", lambda name: "/bin/false" if name == "gowin_pack" else None)
    monkeypatch.delenv("GOWIN_PACK", raising=False)
    assert tools.tool("gowin_pack").version == "/bin/false"
    monkeypatch.setenv("YOSYS", "/no/such/yosys")
    with pytest.raises(BuildError, match="YOSYS names '/no/such/yosys'"):
        tools.tool("yosys")


def test_loading_needs_a_bitstream(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BuildError, match="`trainwright build ulx3s-85f` makes it"):
        run(cli.load_command, "ulx3s-85f")
    with pytest.raises(BuildError, match=r"--bitstream: there is no file other\.bit$"):
        run(cli.load_command, "ulx3s-85f", "--bitstream", "other.bit")
    with pytest.raises(BuildError, match="no board 'nope'"):
        find_board("nope")


@pytest.mark.parametrize(
    "board, options",
    [("ulx3s-85f", "-b ulx3s"), ("icesugar-pro", "-c cmsisdap --vid=0x1d50 --pid=0x602b")],
)
def test_load_names_board_or_cable_to_the_loader(board, options, monkeypatch, tmp_path):
    told, program = tmp_path / "told", tmp_path / "openFPGALoader"
    program.write_text(f'#!/bin/sh\necho "$@" > {told}\n')
    program.chmod(0o755)
    monkeypatch.setattr(tools, "which", lambda name: str(program))
    (bitstream := tmp_path / "top.bit").touch()
    assert run(cli.load_command, board, "--bitstream", str(bitstream)) == 0
    assert told.read_text() == f"{options} {bitstream}\n"


@pytest.mark.parametrize(
    ("asked_hz", "baud", "memory", "name"),
    [
        (0, 115_200, "block", "asked_hz"),
        (-1, 115_200, "block", "asked_hz"),
        (6e7, 115_200, "block", "asked_hz"),
        (float("nan"), 115_200, "block", "asked_hz"),
        (60_000_000, 0, "block", "baud"),
        (60_000_000, 115_200, "blok", "memory"),
    ],
)
def test_running_clock_of_values_that_are_none_raises(asked_hz, baud, memory, name):
    with pytest.raises(ValueError, match=f"{name} must be"):
        running_hz(find_board("ulx3s-85f"), asked_hz, baud, memory)


def test_board_memory_and_flow_of_unknown_names_raise(tmp_path):
    with pytest.raises(ValueError, match="memory must be one of block, sdram, not 'blok'"):
        on_chip_bytes(find_board("ulx3s-85f"), "blok")
    with pytest.raises(ValueError, match="flow must be one of vivado, litex"):
        export_for("quartus", AcceleratorParameters(), tmp_path)
    for name in (None, 3):
        with pytest.raises(BuildError, match=f"no board {name}"):
            find_board(name)

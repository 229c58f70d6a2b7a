"""The top of a design on a Gowin board."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from amaranth.hdl import Elaboratable, Module, Signal
from amaranth.sim import Simulator

from trainwright.parameters import AcceleratorParameters
from trainwright_boards import flow
from trainwright_boards.catalogue import BOARDS
from trainwright_boards.job import NETLIST, RTLIL, Build, Steps
from trainwright_boards.tools import BuildError
from trainwright_boards.top import RESET_CYCLES, PinClockTop

BOARD = BOARDS["tang-mega-138k"]
SMALL = AcceleratorParameters(
    lanes=4, pe1_rows=2, pe2_rows=2, scratchpad_rows=4096, program_depth=128
)


class Counting(Elaboratable):
    """In the place of a system: counts from the end of the reset on."""

    def __init__(self):
        self.rx, self.tx, self.interrupt = Signal(), Signal(), Signal()
        self.cycles = Signal(8)

    def elaborate(self, platform) -> Module:
        m = Module()
        m.d.sync += self.cycles.eq(self.cycles + 1)
        m.d.comb += [self.tx.eq(self.rx), self.interrupt.eq(self.cycles[3])]
        return m


def test_gowin_reset_ends_after_configured_cycles():
    soc = Counting()
    top = PinClockTop(soc)  # pyright: ignore[reportArgumentType]
    seen = []

    async def bench(ctx):
        for _ in range(RESET_CYCLES + 8):
            for level in (0, 1):
                ctx.set(top.ports["clk_in"], level)
                await ctx.delay(10e-9)
            seen.append(ctx.get(soc.cycles))
            for level in (0, 1):
                ctx.set(top.ports["rx"], level)
                await ctx.delay(1e-9)
                assert ctx.get(top.ports["tx"]) == level
            assert ctx.get(top.ports["lamp"]) == seen[-1] >> 3 & 1

    simulator = Simulator(top)
    simulator.add_testbench(bench)
    simulator.run()
    start = RESET_CYCLES + 2  # and a cycle for each of two registers of the reset
    assert seen[:start] == [0] * start
    assert seen[start:] == list(range(1, len(seen) - start + 1))


def test_gowin_design_is_written_with_constraints(tmp_path):
    job = Build(replace(BOARD, memory_bytes=1 << 12), SMALL, BOARD.clock_hz, tmp_path)
    flow.write_design(job)
    system = json.loads((tmp_path / flow.SYSTEM).read_text())
    assert (system["family"], system["memory"]) == ("gw5a", "block")
    assert system["divisor"] == round(job.clock_hz / job.board.baud)
    assert system["clock_hz"] == job.clock_hz
    text = (tmp_path / RTLIL).read_text()
    assert text.count("cell \\MULTALU27X18 ") == SMALL.multipliers + 2 * SMALL.lanes
    assert "MULT18X18D" not in text and "EHXPLLL" not in text
    assert 'IO_LOC "clk_in" V22;' in (tmp_path / "top.cst").read_text()
    with pytest.raises(BuildError, match="runs at 50 MHz and not at 25"):
        flow.write_design(replace(job, clock_hz=25_000_000))


def test_gowin_build_steps_pass_options_and_files(tmp_path, monkeypatch):
    ran = []

    def run(_, name, arguments, *, remedy, **_options):
        ran.append((name, arguments))

    monkeypatch.setattr(Steps, "run", run)
    monkeypatch.setenv("TRAINWRIGHT_CACHE", str(tmp_path))
    for name in (RTLIL, NETLIST):
        (tmp_path / name).write_text("")
    job = Build(BOARD, SMALL, BOARD.clock_hz, tmp_path, seed=7)
    steps = Steps(tmp_path, lambda _: None)
    flow.synthesise(job, steps)
    flow.place_and_route(job, steps, ("--threads", "1"))
    flow.pack(job, steps)
    (yosys, script), (nextpnr, placing), (packer, packing) = ran
    assert (yosys, nextpnr, packer) == ("yosys", "nextpnr-himbaechel-gowin", "gowin_pack")
    assert "synth_gowin -family gw5a" in script[-1] and script[-1].endswith(f"-json {NETLIST}")
    pairs = dict(pairwise(placing))
    assert pairs["--device"] == "GW5AST-LV138PG484AC1/I0"
    assert pairs["--freq"] == "50" and pairs["--seed"] == "7" and pairs["--threads"] == "1"
    assert pairs["--vopt"] == "cst=top.cst" and pairs["--json"] == NETLIST
    assert packing[-1] == pairs["--write"]
    assert flow.bitstream(job) == tmp_path / "top.fs" and "top.fs" in packing

"""Two products from one DSP48E2: every operand there is, on two models of the cell."""

import json
import subprocess
from dataclasses import replace

import numpy as np
import pytest
from amaranth.hdl import Elaboratable, Module, Signal, signed

from trainwright.parameters import AcceleratorParameters
from trainwright_hw.arith.lanes import lane_format
from trainwright_hw.arith.multiplier import DevicePlatform, registered_pair, sharing
from trainwright_hw.build.convert import design_to_rtlil, to_rtlil, yosys_command
from trainwright_hw.vendor.xilinx import dsp48e2_pair
from trainwright_sim.netlist import xcup

XCUP = DevicePlatform("xcup")
CHUNK = 18
"""Bits of the operands that are evaluated side by side, 64 cases a word."""
YOSYS_MODEL = """
module DSP48E2 #(
    parameter ACASCREG = 1, ADREG = 1, ALUMODEREG = 1, AREG = 1, BCASCREG = 1, BREG = 1,
    parameter CARRYINREG = 1, CARRYINSELREG = 1, CREG = 1, DREG = 1, INMODEREG = 1, MREG = 1,
    parameter OPMODEREG = 1, PREG = 1, AMULTSEL = "A", BMULTSEL = "B", PREADDINSEL = "A",
    parameter USE_MULT = "MULTIPLY", A_INPUT = "DIRECT", B_INPUT = "DIRECT", USE_SIMD = "ONE48"
) (
    input CLK, CEA1, CEA2, CEAD, CEALUMODE, CEB1, CEB2, CEC, CECARRYIN, CECTRL, CED, CEINMODE, CEM,
    input CEP, RSTA, RSTALLCARRYIN, RSTALUMODE, RSTB, RSTC, RSTCTRL, RSTD, RSTINMODE, RSTM, RSTP,
    input CARRYIN, CARRYCASCIN, MULTSIGNIN, input [29:0] A, ACIN, input [17:0] B, BCIN,
    input [26:0] D, input [47:0] C, PCIN, input [3:0] ALUMODE, input [4:0] INMODE,
    input [8:0] OPMODE, input [2:0] CARRYINSEL, output [47:0] P
);
DSP48E1 #(
    .ACASCREG(ACASCREG), .ADREG(ADREG), .ALUMODEREG(ALUMODEREG), .AREG(AREG), .BCASCREG(BCASCREG),
    .BREG(BREG), .CARRYINREG(CARRYINREG), .CARRYINSELREG(CARRYINSELREG), .CREG(CREG), .DREG(DREG),
    .INMODEREG(INMODEREG), .MREG(MREG), .OPMODEREG(OPMODEREG), .PREG(PREG),
    .USE_DPORT(AMULTSEL == "AD" ? "TRUE" : "FALSE"), .USE_MULT(USE_MULT), .A_INPUT(A_INPUT),
    .B_INPUT(B_INPUT), .USE_SIMD(USE_SIMD)
) older (
    .CLK(CLK), .A(A), .B(B), .C(C), .D(D[24:0]), .P(P), .ACIN(ACIN), .BCIN(BCIN), .PCIN(PCIN),
    .ALUMODE(ALUMODE), .INMODE(INMODE), .OPMODE(OPMODE[6:0]), .CARRYINSEL(CARRYINSEL),
    .CARRYIN(CARRYIN), .CARRYCASCIN(CARRYCASCIN), .MULTSIGNIN(MULTSIGNIN),
    .CEA1(CEA1), .CEA2(CEA2), .CEAD(CEAD), .CEALUMODE(CEALUMODE), .CEB1(CEB1), .CEB2(CEB2),
    .CEC(CEC), .CECARRYIN(CECARRYIN), .CECTRL(CECTRL), .CED(CED), .CEINMODE(CEINMODE), .CEM(CEM),
    .CEP(CEP), .RSTA(RSTA), .RSTALLCARRYIN(RSTALLCARRYIN), .RSTALUMODE(RSTALUMODE), .RSTB(RSTB),
    .RSTC(RSTC), .RSTCTRL(RSTCTRL), .RSTD(RSTD), .RSTINMODE(RSTINMODE), .RSTM(RSTM), .RSTP(RSTP)
);
endmodule
"""
"""The cell of the family before, whose operands have 25 bits, as yosys simulates it."""
GATES = {
    "$_NOT_": lambda a: ~a,
    "$_AND_": np.bitwise_and,
    "$_OR_": np.bitwise_or,
    "$_XOR_": np.bitwise_xor,
    "$_DFF_P_": lambda d: d,
}


class Pair(Elaboratable):
    """Both products."""

    def __init__(self, own: int, shared: int):
        self.own = [Signal(own, name=f"own_{n}") for n in range(2)]
        self.shared = Signal(shared, name="shared")
        self.products = [Signal(own + shared, name=f"product_{n}") for n in range(2)]

    def elaborate(self, platform) -> Module:
        m = Module()
        pair = registered_pair(m, platform, "it", self.own, self.shared)
        m.d.comb += [to.eq(product) for to, product in zip(self.products, pair, strict=True)]
        return m


def gates(own: int, shared: int, models: str, folder) -> dict:
    """Return the netlist of a pair."""
    design = Pair(own, shared)
    ports = [*design.own, design.shared, *design.products]
    (folder / "pair.il").write_text(design_to_rtlil(design, ports, name="top", target=XCUP))
    (folder / "models.v").write_text(models)
    script = (
        "read_rtlil pair.il; techmap -autoproc -map models.v; "
        + ("techmap -autoproc -map +/xilinx/cells_sim.v; " if models == YOSYS_MODEL else "")
        + "proc; flatten; opt -full; alumacc; techmap; opt; abc -g AND,OR,XOR; opt_clean; "
        "write_json pair.json"
    )
    subprocess.run([*yosys_command(), "-q", "-p", script], cwd=folder, check=True)
    return json.loads((folder / "pair.json").read_text())["modules"]["top"]


def ordered(module: dict) -> list[tuple]:
    """Sort gates as (function, inputs, output) behind their drivers; registers are wires."""
    cells = []
    for cell in module["cells"].values():
        function, nets = GATES[cell["type"]], cell["connections"]
        inputs = [nets[pin][0] for pin in ("D",) if pin in nets] or [
            nets[pin][0] for pin in ("A", "B") if pin in nets
        ]
        cells.append((function, inputs, nets["Q" if "Q" in nets else "Y"][0]))
    known = {"0", "1"}
    for port in module["ports"].values():
        known |= set(port["bits"]) if port["direction"] == "input" else set()
    sorted_cells = []
    while cells:
        ready = [cell for cell in cells if known.issuperset(cell[1])]
        assert ready
        sorted_cells += ready
        known |= {output for _, _, output in ready}
        cells = [cell for cell in cells if cell[2] not in known]
    return sorted_cells


def integers(bits: np.ndarray, width: int) -> np.ndarray:
    return bits - ((bits >> (width - 1)) << width)


@pytest.mark.parametrize(
    "own, shared, models",
    [
        (8, 8, YOSYS_MODEL),
        pytest.param(8, 8, xcup.MODELS.read_text(), marks=pytest.mark.slow),
        pytest.param(8, 9, xcup.MODELS.read_text(), marks=pytest.mark.slow),
    ],
    ids=["arrays, model of yosys", "arrays, ours", "vector unit, ours"],
)
def test_two_products_are_exact_for_all_operands(own, shared, models, tmp_path):
    module = gates(own, shared, models, tmp_path)
    cells, ports = ordered(module), module["ports"]
    inputs = [bit for name in ("own_0", "own_1", "shared") for bit in ports[name]["bits"]]
    cases = np.arange(1 << CHUNK, dtype=np.int64)
    packed = {
        bit: np.packbits((cases >> n) & 1 == 1, bitorder="little").view(np.uint64)
        for n, bit in enumerate(inputs[:CHUNK])
    }
    zeros = np.zeros(1 << (CHUNK - 6), np.uint64)
    for chunk in range(1 << (len(inputs) - CHUNK)):
        nets = {"0": zeros, "1": ~zeros, **packed}
        nets |= {bit: ~zeros if chunk >> n & 1 else zeros for n, bit in enumerate(inputs[CHUNK:])}
        for function, operands, output in cells:
            nets[output] = function(*(nets[operand] for operand in operands))
        number = cases | chunk << CHUNK
        factor = integers(number >> 2 * own, shared)
        for side in range(2):
            want = factor * integers(number >> side * own & (1 << own) - 1, own)
            for n, bit in enumerate(ports[f"product_{side}"]["bits"]):
                bits = np.packbits(want >> n & 1 == 1, bitorder="little").view(np.uint64)
                assert np.array_equal(nets[bit], bits), (chunk, side, n)


def test_multiplier_sharing_depends_on_widths():
    assert sharing(XCUP, 8, 8) == sharing(XCUP, 8, 9) == sharing(XCUP, 8, 10) == 2
    assert sharing(XCUP, 9, 8) == 2
    assert sharing(XCUP, 8, 11) == sharing(XCUP, 9, 9) == sharing(XCUP, 16, 16) == 1
    assert sharing(DevicePlatform("ecp5"), 8, 8) == sharing(DevicePlatform("gw5a"), 8, 8) == 1
    assert sharing(None, 8, 8) == 1
    for widths in ((8, 8, 11), (8, 9, 8)):
        low, high, shared = (Signal(signed(width)) for width in widths)
        with pytest.raises(ValueError, match=r"operands of 8 and . bits with a shared one of "):
            dsp48e2_pair(None, "it", (low, high), shared)  # before anything is added


NARROW = AcceleratorParameters(
    lanes=4, pe1_rows=2, pe2_rows=4, scratchpad_rows=1024, nest_levels=3, word_width=8
)


@pytest.mark.slow  # tests/boards/test_export.py counts those of another one in the default suite
def test_narrow_word_accelerator_has_as_many_primitives_as_reckoned():
    count = to_rtlil(NARROW, target=XCUP).count("cell \\DSP48E2 ")
    assert count == NARROW.device_multipliers


def test_narrow_word_accelerator_has_half_the_multipliers():
    p = NARROW
    assert p.device_multipliers == (p.multipliers + 2 * p.lanes) // 2
    for narrow in (
        replace(p, word_width=16),
        replace(p, formats="posit(8,0)", accumulator_width=44),
    ):
        assert lane_format(narrow).sharing(XCUP, narrow.operand_width) == 1
        assert narrow.device_multipliers == narrow.multipliers + 2 * narrow.lanes

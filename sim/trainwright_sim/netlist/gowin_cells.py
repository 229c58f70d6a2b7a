"""Verilog of the block RAM and the multiplier of a GW5A, around the models of ``gowin_cells.v``."""

from pathlib import Path

from trainwright_hw.vendor.gowin import BYPASSED, REGISTERS, SELECTED

MODELS = Path(__file__).with_name("gowin_cells.v")
CONTENTS = [f"INIT_RAM_{n:02X}" for n in range(64)]


def _parameters(**defaults: object) -> str:
    """Return Verilog parameter declarations; text values are inserted unquoted."""
    return "\n".join(f"parameter {name} = {value};" for name, value in defaults.items())


def _two_ports(name: str, byte: int) -> str:
    """Return a model of DPB or DPX9B: two ports that read and write up to two bytes."""
    bits = 2 * byte
    names = "CLK CE OCE RESET WRE".split()
    single = ", ".join(f"{name}{port}" for port in "AB" for name in names)
    declared = _parameters(
        **dict.fromkeys(CONTENTS, 0),
        **{"READ_MODE0": 0, "READ_MODE1": 0, "WRITE_MODE0": 0, "WRITE_MODE1": 0},
        **{"BIT_WIDTH_0": bits, "BIT_WIDTH_1": bits, "BLK_SEL_0": 0, "BLK_SEL_1": 0},
        RESET_MODE='"SYNC"',
    )
    pads = f"{{{4 * byte - bits}'d0, DIA}}", f"{{{4 * byte - bits}'d0, DIB}}"
    return f"""
module {name}(
  input {single}, input [13:0] ADA, ADB, input [{bits - 1}:0] DIA, DIB,
  input [2:0] BLKSELA, BLKSELB, output [{bits - 1}:0] DOA, DOB
);
{declared}
wire [{4 * byte - 1}:0] outa, outb;
assign DOA = outa[{bits - 1}:0];
assign DOB = outb[{bits - 1}:0];
trainwright_bsram #(.BYTE({byte}), .WIDTH_A(BIT_WIDTH_0), .WIDTH_B(BIT_WIDTH_1),
                .THROUGH_A(WRITE_MODE0), .THROUGH_B(WRITE_MODE1)) model(
  .CLKA(CLKA), .CEA(CEA), .WREA(WREA), .RESETA(RESETA), .ADA(ADA), .DIA({pads[0]}), .DOA(outa),
  .CLKB(CLKB), .CEB(CEB), .WREB(WREB), .RESETB(RESETB), .ADB(ADB), .DIB({pads[1]}), .DOB(outb)
);
endmodule
"""


def _one_way(name: str, byte: int) -> str:
    """Return a model of SDPB or SDPX9B: port A writes and port B reads up to four bytes."""
    bits = 4 * byte
    declared = _parameters(
        **dict.fromkeys(CONTENTS, 0),
        **{"READ_MODE": 0, "BIT_WIDTH_0": bits, "BIT_WIDTH_1": bits, "BLK_SEL_0": 0},
        BLK_SEL_1=0,
        RESET_MODE='"SYNC"',
    )
    return f"""
module {name}(
  input CLKA, CEA, CLKB, CEB, OCE, RESET, input [13:0] ADA, ADB, input [{bits - 1}:0] DI,
  input [2:0] BLKSELA, BLKSELB, output [{bits - 1}:0] DO
);
{declared}
trainwright_bsram #(.BYTE({byte}), .WIDTH_A(BIT_WIDTH_0), .WIDTH_B(BIT_WIDTH_1)) model(
  .CLKA(CLKA), .CEA(CEA), .WREA(1'b1), .RESETA(1'b0), .ADA(ADA), .DIA(DI), .DOA(),
  .CLKB(CLKB), .CEB(CEB), .WREB(1'b0), .RESETB(RESET), .ADB(ADB), .DIB({bits}'d0), .DOB(DO)
);
endmodule
"""


def _multiplier() -> str:
    defaults: dict[str, object] = {}
    for register in (*REGISTERS, *BYPASSED):
        defaults |= {f"{register}_CLK": '"BYPASS"', f"{register}_CE": '"CE0"'}
        defaults[f"{register}_RESET"] = '"RESET0"'
    for choice in SELECTED:
        defaults |= {f"DYN_{choice}": '"FALSE"', choice: 0}
    defaults |= {"FB_PREG_EN": '"FALSE"', "SOA_PREG_EN": '"FALSE"', "MULT12X12_EN": '"FALSE"'}
    defaults |= {"MULT_RESET_MODE": '"SYNC"', "PRE_LOAD": 0}
    enables = {
        port: f'{register}_CE == "CE0" ? CE[0] : CE[1]'
        for port, register in (("CE_A", "AREG"), ("CE_B", "BREG"), ("CE_P", "PREG"))
    }
    return f"""
module MULTALU27X18(
  output [47:0] DOUT, CASO, output [26:0] SOA, input [26:0] A, SIA, input [17:0] B,
  input [47:0] C, CASI, input [25:0] D, input ACCSEL, PSEL, ASEL, PADDSUB, CSEL, CASISEL,
  input [1:0] ADDSUB, CLK, CE, RESET
);
{_parameters(**defaults)}
trainwright_mult27x18 #(
  .REG_A(AREG_CLK == "CLK0"), .REG_B(BREG_CLK == "CLK0"), .REG_P(PREG_CLK == "CLK0")
) model(
  .CLK(CLK[0]), {", ".join(f".{port}({enable})" for port, enable in enables.items())},
  .A(A), .B(B), .P(DOUT)
);
endmodule
"""


def verilog() -> str:
    """Return Verilog models of DPB, DPX9B, SDPB, SDPX9B, and of MULTALU27X18 as a plain product."""
    rams = [
        _two_ports("DPB", 8),
        _two_ports("DPX9B", 9),
        _one_way("SDPB", 8),
        _one_way("SDPX9B", 9),
    ]
    return MODELS.read_text() + "".join(rams) + _multiplier()

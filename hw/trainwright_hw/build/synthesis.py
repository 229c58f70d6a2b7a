"""How yosys synthesises a design: the same passes for boards and for simulation."""

from pathlib import Path

NO_LATCHES = "select -assert-none t:$dlatch t:$adlatch t:$dlatchsr t:$sr"
NO_COLLISIONS = "setparam -set COLLISION_X_MASK 1'1 t:$memrd_v2 r:CLK_ENABLE=1 %i"
"""What is read in the cycle of its write is unspecified (the scratchpad) or never is
(the other memories), so that block RAM needs no logic to give the old word."""
WIRE_PS = 1000
"""The delay of a net as the mapping to LUTs sees it. With yosys's own 300 ps long chains of LUTs
look harmless beside carry chains."""
ADDERS = "adders.v"
ADDERS_TEXT = r"""(* techmap_celltype = "$add" *)
module _trainwright_adder (A, B, Y);
  parameter A_SIGNED = 0;
  parameter B_SIGNED = 0;
  parameter A_WIDTH = 1;
  parameter B_WIDTH = 1;
  parameter Y_WIDTH = 1;
  input [A_WIDTH-1:0] A;
  input [B_WIDTH-1:0] B;
  output [Y_WIDTH-1:0] Y;
  wire [Y_WIDTH-1:0] X, CO;
  \$alu #(
    .A_SIGNED(A_SIGNED), .B_SIGNED(B_SIGNED),
    .A_WIDTH(A_WIDTH), .B_WIDTH(B_WIDTH), .Y_WIDTH(Y_WIDTH)
  ) _TECHMAP_REPLACE_ (.A(A), .B(B), .CI(1'b0), .BI(1'b0), .X(X), .Y(Y), .CO(CO));
endmodule
"""
"""Every sum is a carry chain. Left alone, yosys makes one of several sums and builds it of
compressors, two LUTs a bit and a chain at the end: PE1's array of 8 x 8 multipliers has 2,538 LUT4
and 560 CCU2C then, and 10 and 1,104 this way."""


def write_adders(folder: Path) -> None:
    """``ADDERS``, which the passes read in the folder that yosys runs in."""
    (folder / ADDERS).write_text(ADDERS_TEXT)


def _begin(rtlil: str, top: str) -> str:
    return f"read_rtlil {rtlil}; hierarchy -top {top}; {NO_COLLISIONS}; proc; {NO_LATCHES}; "


def _chains() -> str:
    return (
        "flatten; opt_expr; opt_clean; opt -nodffe -nosdff; wreduce; peepopt; opt_clean; "
        f"techmap -map {ADDERS}; opt_clean; "
    )


def _abc9(options: str, delay_ps: int | None) -> str:
    """The mapping to LUTs: for speed alone, or for few LUTs where paths take ``delay_ps``."""
    target = "" if delay_ps is None else f" -D {delay_ps}"
    return f"abc9{options} -W {WIRE_PS}{target}; clean; "


def ecp5_passes(
    rtlil: str, top: str, *, plain: bool = False, delay_ps: int | None = None
) -> str:  # fmt: skip
    """Script up to the netlist of an ECP5's cells; fails where a latch was inferred.

    ``plain``: with yosys's own passes alone, for a design at which the others fail. ``delay_ps``:
    as LUTs and nets of ``WIRE_PS`` have it no path need be faster, and LUTs are saved.
    """
    begin = _begin(rtlil, top)
    if plain:
        return f"{begin}synth_ecp5 -top {top}"
    return (
        f"{begin}{_chains()}synth_ecp5 -top {top} -run :map_luts; "
        "check -latchonly -assert; techmap -map +/lattice/latches_map.v; "
        f"{_abc9('', delay_ps)}synth_ecp5 -top {top} -run map_cells:"
    )


def gowin_passes(
    rtlil: str, top: str, family: str, *, pads: bool = True, plain: bool = False,
    delay_ps: int | None = None,
) -> str:  # fmt: skip
    """The same for a Gowin part of a ``family`` as ``synth_gowin`` calls it.

    ``pads``: with the buffers of the pins.
    """
    begin = _begin(rtlil, top)
    synthesis = f"synth_gowin -family {family} -top {top}" + ("" if pads else " -noiopads")
    if plain:
        return f"{begin}{synthesis}"
    return (
        f"{begin}{_chains()}{synthesis} -run :map_luts; "
        "read_verilog -icells -lib -specify +/abc9_model.v; "
        f"{_abc9(' -maxlut 8', delay_ps)}{synthesis} -run map_cells:"
    )

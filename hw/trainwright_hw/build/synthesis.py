"""Synthesis of a design by yosys: the same passes for boards and for simulation."""

from pathlib import Path

NO_LATCHES = "select -assert-none t:$dlatch t:$adlatch t:$dlatchsr t:$sr"
NO_COLLISIONS = "setparam -set COLLISION_X_MASK 1'1 t:$memrd_v2 r:CLK_ENABLE=1 %i"
"""Pass that leaves a read in the cycle of its write unspecified.

In the scratchpad such a read is unspecified, in the other memories it never happens. So block RAM
needs no logic to return the old word.
"""
WIRE_PS = 1000
"""Delay of a net, in picoseconds, for the mapping to LUTs.

With yosys's own 300 ps, long chains of LUTs look harmless compared with carry chains.
"""
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
"""Technology map that makes every sum a carry chain.

By default, yosys merges several sums and builds them of compressors, two LUTs per bit and a chain
at the end: PE1's array of 8 x 8 multipliers then has 2,538 LUT4 and 560 CCU2C, and with this map 10
and 1,104.
"""


def write_adders(folder: Path) -> None:
    """Write ``ADDERS``, which the passes read in the folder that yosys runs in."""
    (folder / ADDERS).write_text(ADDERS_TEXT)


def _begin(source: str, top: str) -> str:
    read = "read_verilog" if source.endswith(".v") else "read_rtlil"
    return f"{read} {source}; hierarchy -top {top}; {NO_COLLISIONS}; proc; {NO_LATCHES}; "


def _chains() -> str:
    return (
        "flatten; opt_expr; opt_clean; opt -nodffe -nosdff; wreduce; peepopt; opt_clean; "
        f"techmap -map {ADDERS}; opt_clean; "
    )


def _abc9(options: str, delay_ps: int | None) -> str:
    """Map to LUTs: for speed alone, or for few LUTs where paths may take ``delay_ps``."""
    target = "" if delay_ps is None else f" -D {delay_ps}"
    return f"abc9{options} -W {WIRE_PS}{target}; clean; "


def lattice_passes(
    rtlil: str, top: str, synthesis: str, *, plain: bool = False, delay_ps: int | None = None
) -> str:  # fmt: skip
    """Return the script up to the netlist of a Lattice part; it fails if a latch is inferred.

    ``synthesis`` is ``synth_ecp5``, or yosys's command for another part with the same steps.
    ``plain`` uses only yosys's own passes, for a design at which the others fail. ``delay_ps``: no
    path, with LUTs and nets of ``WIRE_PS``, needs to be faster than this, which saves LUTs.
    """
    begin, synthesis = _begin(rtlil, top), f"{synthesis} -top {top}"
    if plain:
        return f"{begin}{synthesis}"
    return (
        f"{begin}{_chains()}{synthesis} -run :map_luts; "
        "check -latchonly -assert; techmap -map +/lattice/latches_map.v; "
        f"{_abc9('', delay_ps)}{synthesis} -run map_cells:"
    )


def ecp5_passes(
    rtlil: str, top: str, *, plain: bool = False, delay_ps: int | None = None
) -> str:  # fmt: skip
    """Return the script for an ECP5; see ``lattice_passes``."""
    return lattice_passes(rtlil, top, "synth_ecp5", plain=plain, delay_ps=delay_ps)


def gowin_passes(
    rtlil: str, top: str, family: str, *, pads: bool = True, plain: bool = False,
    delay_ps: int | None = None,
) -> str:  # fmt: skip
    """Return the same script for a Gowin part of a ``family`` in the terms of ``synth_gowin``.

    ``pads`` includes the buffers of the pins.
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


def artix_passes(source: str, top: str) -> str:
    """Return the script for a 7 series part: yosys's own passes, with the pins' buffers."""
    return f"{_begin(source, top)}synth_xilinx -family xc7 -flatten -noclkbuf -top {top}"

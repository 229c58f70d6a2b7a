"""From Amaranth to RTLIL, Verilog and synthesised netlists."""

"""Conversion of Amaranth to RTLIL, Verilog and synthesised netlists."""

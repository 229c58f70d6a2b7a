"""Measure the size of each number format's lanes on an FPGA, block by block."""

"""What lanes of each number format take of an FPGA, block by block."""

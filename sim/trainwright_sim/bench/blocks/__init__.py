"""The cocotb tests, a module for each block."""

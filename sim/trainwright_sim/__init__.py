"""Every way to run the accelerator without a board.

Compiled simulation with a memory model beside it, cocotb benches and their peers, and simulation of
synthesised netlists. Imports `trainwright_hw` and `trainwright`, never `trainwright_boards`.
"""

"""Every way to run the accelerator without a board.

Compiled simulation with a memory model beside it, cocotb benches and their peers, and simulation of
synthesised netlists. Imports `ttforge_hw` and `ttforge`, never `ttforge_boards`.
"""

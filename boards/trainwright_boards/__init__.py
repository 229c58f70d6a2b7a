"""Boards as data: pins, clocks, memory, and how to build and program, one file a board.

No arithmetic lives here. Imports `trainwright_hw` and `trainwright`, never `trainwright_sim`.
"""

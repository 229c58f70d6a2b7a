"""Boards as data: pins, clocks, memory, and how to build and program, one file a board.

No arithmetic lives here. Imports `ttforge_hw` and `ttforge`, never `ttforge_sim`.
"""

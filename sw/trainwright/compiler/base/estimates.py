"""Facts of the machine as the search assumes them; ``timing`` has them exactly.

The search compares thousands of partial programs, for which no cycle model can be run.
"""

RESULT_LATENCY = 50
"""Cycles from the last step of a command to the first step of a command that reads its results."""
BEAT_CYCLES = 1.25
"""Mean cycles of a beat of external memory."""
PASS_START = 42
"""Cycles of a pass beyond its instructions; 34 without operands, 47 with (measured, simulation)."""

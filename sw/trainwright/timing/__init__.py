"""The cycle model: how long a program takes, without running it.

``predict`` follows a program command by command: the sequencer, what waits for what, the arrays'
steps, the external memory's bandwidth, and the banks of the scratchpad that commands at work share.
Data, shifts and exponents do not matter. docs/reference/cycles.md compares it with the simulation.
"""

from trainwright.timing.contention import MemoryTiming
from trainwright.timing.timeline import Timeline, predict, predict_steps

__all__ = ["MemoryTiming", "Timeline", "predict", "predict_steps"]

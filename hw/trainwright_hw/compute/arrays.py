"""The hardware of each array, by its engine."""

from trainwright.program.fields import Engine
from trainwright_hw.compute.pe1.engine import Pe1
from trainwright_hw.compute.pe2.engine import Pe2

HARDWARE = {Engine.PE1: Pe1, Engine.PE2: Pe2}
"""Class of each array.

The constructor takes the accelerator's parameters. The members are those of ``ComputeEngine``, two
read ports of the scratchpad (``x`` and ``g``), and ``results``: the port of the array's kind in
``trainwright_hw.writeback.ports``.
"""

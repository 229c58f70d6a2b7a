"""The compiler: from a network, a batch and an accelerator to the programs of a training step.

Graphs of products of two become programs: layouts, arrays, tiles, rows, descriptors.
"""

from trainwright.lowering.plans import compile_step

__all__ = ["compile_step"]

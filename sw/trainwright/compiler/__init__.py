"""Compile a network, a batch and an accelerator to the programs of a training step.

The graph of a step (``trainwright.graph``) passes through the subpackages in this order:

1. ``choose``: which array computes each operation, from operands in which layouts;
2. ``cut``: which operations are computed together, a slice of their results at a time;
3. ``tile``: the commands of each slice, on pieces of tensors that are loaded, moved and stored;
4. ``schedule``: the order of the commands, and the scratchpad rows of every piece;
5. ``emit``: loop nests and descriptors, with the engines that each has to wait for.

``step`` tries several choices and cuts, keeps the program with the fewest predicted cycles, and
joins the forward and the backward program to a step. ``forms`` describes what those stages hand
to each other: layouts of tensors, ways of an array to compute a contraction, commands. ``base``
holds what every stage needs: limits of an accelerator, its memory, errors. ``chip`` adds the
programs of a training loop that runs on the accelerator alone. ``plans`` is the entry.
"""

from trainwright.compiler.base.compiled import PLANS, Bound, CompiledProgram, CompiledStep
from trainwright.compiler.base.errors import CompileError
from trainwright.compiler.plans import compile_step

__all__ = [
    "PLANS",
    "Bound",
    "CompileError",
    "CompiledProgram",
    "CompiledStep",
    "compile_step",
]

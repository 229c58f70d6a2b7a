"""The compiler: network, ranks and batch to programs for one accelerator."""

from trainwright.compiler.errors import CompileError, NotPlannedError
from trainwright.compiler.planner import plan_layers
from trainwright.compiler.step import PLANS, Bound, CompiledProgram, CompiledStep, compile_step

__all__ = [
    "PLANS",
    "Bound",
    "CompileError",
    "CompiledProgram",
    "CompiledStep",
    "NotPlannedError",
    "compile_step",
    "plan_layers",
]

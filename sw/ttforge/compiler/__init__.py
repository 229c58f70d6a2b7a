"""The compiler: network, ranks and batch to programs for one accelerator."""

from ttforge.compiler.errors import CompileError
from ttforge.compiler.planner import plan_layers
from ttforge.compiler.step import PLANS, Bound, CompiledProgram, CompiledStep, compile_step

__all__ = [
    "PLANS",
    "Bound",
    "CompileError",
    "CompiledProgram",
    "CompiledStep",
    "compile_step",
    "plan_layers",
]

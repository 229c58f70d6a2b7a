"""What programs are made of, and the programs of a loop on the chip."""

from trainwright.compiler.errors import CompileError
from trainwright.compiler.step import PLANS, Bound, CompiledProgram, CompiledStep

__all__ = ["PLANS", "Bound", "CompileError", "CompiledProgram", "CompiledStep"]

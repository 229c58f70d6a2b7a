"""The compiler: network, ranks and batch to programs for one accelerator."""

from ttforge.compiler.errors import CompileError
from ttforge.compiler.step import Bound, CompiledProgram, CompiledStep, compile_step

__all__ = ["Bound", "CompileError", "CompiledProgram", "CompiledStep", "compile_step"]

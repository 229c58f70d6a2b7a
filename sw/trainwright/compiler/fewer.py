"""The programs of a step at fewer ranks, with the bits of those at more.

Where columns of factors are 0, programs without them compute the same values as programs with them
if they contract in the same order and round the same intermediate results; and exponents move alike
if windows are those of as many values.
"""

from dataclasses import replace

from trainwright.compiler.errors import CompileError
from trainwright.compiler.step import CompiledProgram, CompiledStep, compile_step
from trainwright.network import Network


def with_fewer_ranks(first: CompiledStep, network: Network) -> CompiledStep:
    """The step of ``network``, which is that of ``first`` at fewer ranks, by the plan of ``first``.

    Raises ``CompileError`` where ``first`` has no plan of its layers, or it does not fit.
    """
    if not first.layers:
        raise CompileError(
            f"plan {first.plan} of {first.network.name} is not one of its layers: other ranks may "
            "contract in another order"
        )
    step = compile_step(network, first.batch, first.parameters, plan=first.layers)
    return replace(
        step,
        forward=_counting(step.forward, first.forward),
        backward=_counting(step.backward, first.backward),
    )


def _counting(program: CompiledProgram, first: CompiledProgram) -> CompiledProgram:
    """A program whose tensors count as many values as those of ``first``."""
    counts = {tensor.name: tensor.count for tensor in first.tensors}
    tensors = tuple(replace(tensor, count=counts[tensor.name]) for tensor in program.tensors)
    return replace(program, tensors=tensors)

"""The paper's schedule: from a network, a batch and an accelerator to the programs of a step."""

from functools import cache

from trainwright.compiler.backward import emit_backward
from trainwright.compiler.builder import Builder
from trainwright.compiler.errors import CompileError
from trainwright.compiler.forward import emit_forward
from trainwright.compiler.layout import lay_out
from trainwright.compiler.limits import require_memory, require_network
from trainwright.compiler.memory import MemoryMap
from trainwright.compiler.names import activation_name, gradient_name
from trainwright.compiler.step import PAPER, CompiledProgram, CompiledStep
from trainwright.network import Network
from trainwright.parameters import AcceleratorParameters


@cache
def compile_paper(network: Network, batch: int, p: AcceleratorParameters) -> CompiledStep:
    """A training step by the schedule of the paper's Table 3, with the outer product summed over
    the batch in the accumulators.

    Raises ``CompileError`` where the network does not fit, with a batch that does where there is
    one, and for networks that are no straight line of TTM layers.
    """
    if not network.is_straight:
        raise CompileError(
            f"network {network.name!r} is a graph, plan {PAPER} takes layers in one line, without "
            "windows: use plan auto"
        )
    require_network(network, batch, p)
    try:
        return _compiled(network, batch, p)
    except CompileError as error:
        fitting = _fitting_batch(network, batch, p)
        if not fitting:
            raise
        raise CompileError(f"{error}; a batch of {fitting} fits") from error


def _fitting_batch(network: Network, batch: int, p: AcceleratorParameters) -> int:
    """A smaller batch, as large as can be; 0 if none."""
    fits, fails = 0, batch
    while fails - fits > 1:  # what it needs grows with the batch
        middle = (fits + fails) // 2 if fits else 1
        try:
            _compiled(network, middle, p)
            fits = middle
        except CompileError:
            fails = middle
    return fits


def _compiled(network: Network, batch: int, p: AcceleratorParameters) -> CompiledStep:
    memory = lay_out(network, batch, p)
    forward, backward = Builder(p, network), Builder(p, network)
    emit_forward(forward, network, batch, memory)
    emit_backward(backward, network, batch, memory)
    require_memory(memory.top, p)
    last = len(network.layers)
    return CompiledStep(
        network=network,
        batch=batch,
        parameters=p,
        plan=PAPER,
        inputs=("x",),
        results=(activation_name(last),),
        uppers=(gradient_name(last),),
        buffers=memory.buffers,
        memory_bytes=memory.top,
        forward=_finish(forward, memory, "program.forward"),
        backward=_finish(backward, memory, "program.backward"),
    )


def _finish(b: Builder, memory: MemoryMap, name: str) -> CompiledProgram:
    return CompiledProgram(
        descriptors=tuple(b.descriptors),
        rules=b.rules,
        tensors=tuple(b.tensors.values()),
        images=tuple(b.images.values()),
        macs=b.macs,
        address=memory.buffers[name].address,
        fingerprint=b.p.fingerprint,
        most_alignment=b.p.most_alignment,
    )

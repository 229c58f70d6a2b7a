"""Compile a stack of matrix products to one program, without a network.

The search is that of a step's programs (``lower``). Sums are written as they are: a result that is
too large for its bits saturates, and its statistics count that.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trainwright.accelerator import Accelerator
from trainwright.compiler.base.limits import require_memory
from trainwright.compiler.base.memory import Buffer
from trainwright.compiler.base.progress import MOST_EFFORT, followed
from trainwright.compiler.emit.emit import emitted
from trainwright.compiler.forms.choices import ProgramSpec
from trainwright.compiler.forms.digits import require_passes
from trainwright.compiler.forms.external import constant
from trainwright.compiler.step.compile import program_memory
from trainwright.compiler.step.lower import lower
from trainwright.compiler.tile.tile import Lowered
from trainwright.fixed.scale import TensorClass
from trainwright.formats import Fixed
from trainwright.graph.ir import Einsum, Graph, Tensor
from trainwright.graph.network import SAMPLES
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Program, digit_count

Words = npt.NDArray[np.generic]
_PROGRAM = "program.products"


@dataclass(frozen=True)
class ProductPrograms:
    """Program of products ``left`` (count, m, k) by ``right`` (count, k, n), and its buffers."""

    parameters: AcceleratorParameters
    lowered: Lowered
    program: Program
    buffers: Mapping[str, Buffer]
    memory_bytes: int

    @property
    def address(self) -> int:
        """Address of the program in external memory."""
        return self.buffers[_PROGRAM].address

    def write(self, accelerator: Accelerator, left: Words, right: Words) -> None:
        """Put the operands and the constants of the program into an accelerator's memory."""
        given = {"left": left, "right": right}
        for outer in self.lowered.outer.values():
            values = constant(outer.tensor, self.parameters.lanes)
            values = given.get(outer.tensor) if values is None else values
            if values is not None:
                accelerator.write(self.buffers[outer.name].address, outer.pack(values))

    def read(self, accelerator: Accelerator) -> npt.NDArray[np.int64]:
        """Return the sums (count, m, n) that a run left in an accelerator's memory."""
        sums = np.zeros(self.lowered.graph.shape("sums"), np.int64)
        for outer in self.lowered.outer.values():
            if outer.tensor == "sums":
                data = accelerator.read(self.buffers[outer.name].address, outer.size)
                sums[outer.slices] = outer.unpack(data)
        return sums


def _graph(count: int, sizes: tuple[int, int, int], width: int, p: AcceleratorParameters) -> Graph:
    def tensor(name: str, axes: str, bits: int) -> Tensor:
        digits = digit_count(bits) if p.narrow else 1
        kind, axes_of = TensorClass.INTERMEDIATE, (SAMPLES, *axes)
        return Tensor(name, axes_of, kind, Fixed(bits), exact=True, digits=digits)

    # Programs are cut into slices of samples: here of the stack, whose products share nothing.
    tensors = tensor("left", "mk", 8), tensor("right", "kn", 8), tensor("sums", "mn", width)
    return Graph(
        {SAMPLES: count, **dict(zip("mkn", sizes, strict=True))},
        {tensor.name: tensor for tensor in tensors},
        (Einsum("sums", ("left", "right")),),
        ("left", "right"),
        ("sums",),
    )


def compile_products(
    count: int, sizes: tuple[int, int, int], width: int, p: AcceleratorParameters
) -> ProductPrograms:
    """Compile ``count`` products of 8-bit (m, k) by (k, n) with sums of ``width`` bits.

    Raises ``CompileError``.
    """
    graph = _graph(count, sizes, width, p)
    require_passes(graph, p)
    with followed(most=MOST_EFFORT):
        given = dict.fromkeys(graph.given, ())
        lowered = lower(ProgramSpec(graph, given, {"sums": None}, p, "product"))
    memory = program_memory({"products": lowered}, p)
    require_memory(memory.top, p)
    emission = emitted(lowered, p, memory.buffers)
    program = Program(emission.descriptors, p.fingerprint, emission.slots)
    return ProductPrograms(p, lowered, program, memory.buffers, memory.top)

"""Turn element-wise kernels into passes of the vector engine.

``tile`` asks for a kernel's instructions, ``emit`` for the descriptors of its passes.
"""

from collections.abc import Iterator, Mapping
from itertools import product

from trainwright.compiler.base.errors import CompileError
from trainwright.compiler.forms.calls import PassCall
from trainwright.compiler.forms.layout import Addresses, Part
from trainwright.compiler.forms.nests import address_of, merged
from trainwright.graph.ir import Kernel, Tensor
from trainwright.kernels import VectorPass
from trainwright.kernels.phases import STORED
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Level
from trainwright.program.vector import Stream, Vector


def require_engine(op: Kernel, p: AcceleratorParameters) -> None:
    """Raise ``CompileError`` where an accelerator cannot execute a kernel."""
    # An accelerator with an engine has fixed point in words of 16 bits alone: no digits, no codes.
    if not p.vector_engine:
        raise CompileError(
            f"{op.out}: {op.function.text} is computed by the vector engine, which this "
            "accelerator lacks: use one with vector_engine=1"
        )


def lowered(op: Kernel, tensors: Mapping[str, Tensor]) -> tuple[VectorPass, ...]:
    """Return the passes of a kernel for the widths of its tensors."""
    assert not op.function.group, op
    widths = [tensors[name].width for name in op.operands]
    return op.function.lowered(widths, tensors[op.out].width)


def pass_vectors(call: PassCall, code: VectorPass, at: Addresses) -> Iterator[Vector]:
    """Make the descriptors of a pass: one for every index of the levels beyond two."""
    parts = (*call.reads, *call.writes)
    # A level has three steps, those of an array's operands and result: enough for two operands.
    assert len(parts) <= 3, call.op
    first, second, z = call.reads[0], call.reads[-1], call.writes[0]
    levels = [
        Level(z.counts[a], x=first.stride(a), g=second.stride(a), z=z.stride(a))
        for a in z.piece.layout.rows
    ]
    levels.append(Level(z.blocks, x=1, g=1, z=1))
    steps = {1: ("x", "z"), 2: ("x", "g", "z")}[len(call.reads)]
    inner, outer, *unrolled = [
        *sorted(merged(levels), key=lambda level: -level.count), Level(1), Level(1)
    ]  # fmt: skip
    for index in product(*(range(level.count) for level in unrolled)):
        streams = {
            name: Stream(
                base=address_of(part, at)
                + sum(n * getattr(v, step) for n, v in zip(index, unrolled, strict=True)),
                outer=getattr(outer, step),
                inner=getattr(inner, step),
            )
            for name, step, part in zip(_stream_names(parts), steps, parts, strict=True)
        }
        streams[STORED] = streams["z"]
        yield code.vector(streams, outer=outer.count, inner=inner.count, tensor=call.op.out)


def _stream_names(parts: tuple[Part, ...]) -> Iterator[str]:
    yield from (f"x{n}" for n in range(len(parts) - 1))
    yield "z"

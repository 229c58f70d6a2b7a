"""Gradients of the factors by contraction from the left (17-19), and of the biases."""

from collections.abc import Sequence
from itertools import pairwise
from math import prod

from trainwright.compiler.builder import Builder, Rule
from trainwright.compiler.images import Image, Use, image, ones
from trainwright.compiler.memory import Buffer, MemoryMap, Region, largest_divisor
from trainwright.compiler.names import gradient_name
from trainwright.compiler.spans import Span
from trainwright.fixed.scale import TensorClass
from trainwright.network import Network
from trainwright.program.descriptors import TransferLevel


def emit_left_chains(b: Builder, network: Network, span: Span, memory: MemoryMap) -> None:
    """Equations 17 to 19: gradients of all factors of a span but the first.

    Each is contracted from the left with those before it.
    """
    number, p = span.number, b.p
    layer = network.layers[number]
    images = [
        (spec, b.load_image(spec, memory.buffers[spec.name]))
        for spec in (image(network, number, k, Use.LEFT, p) for k in range(span.first, span.last))
    ]
    for n in range(span.first + 1, span.last + 1):
        _, j, i, right = layer.factor_shapes[n]
        last = n == layer.order - 1
        tail = j * i // p.lanes if last else j * i * -(-right // p.lanes)
        name = f"l{number + 1}.dG{n + 1}"
        _left_chain(
            b,
            network,
            number,
            images[: n - span.first],
            memory.buffers[span.level(n + 1)],
            memory.buffers[name],
            tail=tail,
            tail_count=j * i * right,
            name=name,
            x_name=span.level(n + 1),
            x_width=network.widths.gradient,
        )


def _left_chain(
    b: Builder,
    network: Network,
    number: int,
    images: list[tuple[Image, Region]],
    source: Buffer,
    target: Buffer,
    *,
    tail: int,
    tail_count: int,
    name: str,
    x_name: str,
    x_width: int,
) -> None:
    """Contract factors from the left, in chunks of ``tail`` rows of the trailing index."""
    p, width = b.p, network.widths.gradient
    sizes = leading_sizes(network, number, [spec for spec, _ in images])
    peak = max(a + z for a, z in pairwise(sizes))
    digits = source.digits  # of every gradient
    chunk = largest_divisor(tail, b.pad.largest_gap // (peak * digits))
    if not chunk:
        b.pad.allocate(name, peak * digits)
    row_bytes = source.element_bytes * p.lanes  # of the target, too
    assert source.element_bytes == target.element_bytes, (source, target)
    step = chunk * row_bytes
    b.set_registers([(1, 0), (2, 0)])
    stride = tail * row_bytes
    with b.loop(tail // chunk, [(1, step), (2, step)]):
        x = b.pad.allocate(x_name, sizes[0] * chunk * digits)
        b.load(source, x, chunk, register=1, levels=[TransferLevel(sizes[0], stride, chunk)])
        rule_x, bits = x_name, x_width
        for k, (spec, entries) in enumerate(images):
            final = k == len(images) - 1
            out = name if final else f"{name}.t{k + 1}"
            tensor = b.written(out, TensorClass.GRADIENT, width, sizes[k + 1] * tail_count)
            z = b.opposite(x, out, sizes[k + 1] * chunk * digits)
            factor = f"l{number + 1}.G{spec.index + 1}" if spec.use else None
            c = sizes[k + 1] // spec.free * chunk
            b.pe2(x, z, spec, entries, a=1, c=c, rule=Rule(rule_x, factor, tensor), x_width=bits)
            b.pad.free(x)
            x, rule_x, bits = z, out, width
        b.store(target, x, chunk, register=2, levels=[TransferLevel(sizes[-1], stride, chunk)])
        b.pad.free(x)


def leading_sizes(network: Network, number: int, images: Sequence[Image]) -> list[int]:
    """Leading indices (in front of the tail) of the operand and of each result."""
    layer, first = network.layers[number], images[0].index
    if images[0].use is None:
        return [images[0].summed, 1]
    stop = first + len(images)
    return [
        layer.bonds[k] * prod(layer.outputs[k:stop]) * prod(layer.inputs[k:stop])
        for k in range(first, stop + 1)
    ]


def emit_bias_gradient(
    b: Builder, network: Network, number: int, batch: int, memory: MemoryMap
) -> None:
    """Sum of the pre-activation's gradient over the batch: a contraction with ones."""
    layer = network.layers[number]
    spec = ones(batch, b.p)
    entries = b.load_image(spec, memory.buffers[spec.name])
    rows = layer.output_size // b.p.lanes
    _left_chain(
        b,
        network,
        number,
        [(spec, entries)],
        memory.buffers[gradient_name(number + 1)],
        memory.buffers[f"l{number + 1}.db"],
        tail=rows,
        tail_count=layer.output_size,
        name=f"l{number + 1}.db",
        x_name=gradient_name(number + 1),
        x_width=network.widths.gradient,
    )

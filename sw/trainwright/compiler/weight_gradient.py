"""Gradient of the weights, an outer product (PE3), and its contractions from the right (14-16)."""

from dataclasses import dataclass
from math import prod

from trainwright.compiler.builder import Builder, Rule
from trainwright.compiler.images import Image, Use, image
from trainwright.compiler.memory import Buffer, MemoryMap, Region, largest_divisor
from trainwright.compiler.names import activation_name, gradient_name, right_name
from trainwright.compiler.spans import Span, whole_layer
from trainwright.fixed.scale import TensorClass
from trainwright.network import Layer, Network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import TransferLevel


@dataclass(frozen=True)
class RightStage:
    """Equations 14 to 16: factor ``index`` (from 0) contracted from the right, for one (j, i)."""

    index: int
    a: int
    """Rows of the operand's leading index (j_1, i_1, ..., j_{n-1}, i_{n-1})."""
    in_rows: int
    """Scratchpad rows of one operand (j_n, i_n, r_n)."""
    out_rows: int
    """Scratchpad rows of one result (r_{n-1})."""


def right_stages(layer: Layer, span: Span, p: AcceleratorParameters) -> list[RightStage]:
    """From the last factor to the second; the result of the last stage is the first's gradient."""
    stages = []
    for n in range(span.last, span.first, -1):
        left, j, i, right = layer.factor_shapes[n]
        a = span.leading(layer, n)
        in_rows = j * i // p.lanes if n == layer.order - 1 else j * i * -(-right // p.lanes)
        stages.append(RightStage(n, a, in_rows, -(-left // p.lanes)))
    return stages


@dataclass(frozen=True)
class _Fused:
    """The first contraction from the right, done on each block of the gradient while on chip."""

    spec: Image
    entries: Region
    target: Buffer
    a: int
    """Leading indices of a block."""
    rows: int
    """Rows of a block's result."""


def _fused(b: Builder, network: Network, number: int, memory: MemoryMap) -> _Fused | None:
    """Equation 14, where its result is not already the gradient of the first factor."""
    layer = network.layers[number]
    if layer.order == 2:
        return None
    stage = right_stages(layer, whole_layer(network, number), b.p)[0]
    spec = image(network, number, stage.index, Use.RIGHT, b.p)
    entries = b.load_image(spec, memory.buffers[spec.name])
    a = stage.a // (layer.outputs[0] * layer.inputs[0])
    target = memory.buffers[right_name(number + 1, layer.order - 1)]
    return _Fused(spec, entries, target, a, a * stage.out_rows)


def emit_weight_gradient(
    b: Builder, network: Network, number: int, batch: int, memory: MemoryMap
) -> None:
    """The outer product of layer ``number`` (from 0), one (j_1, i_1) block at a time."""
    p, layer, widths = b.p, network.layers[number], network.widths
    outputs, inputs = layer.outputs, layer.inputs
    x_buffer = memory.buffers[activation_name(number)]
    y_buffer = memory.buffers[gradient_name(number + 1)]
    w_buffer = memory.buffers[right_name(number + 1, layer.order)]
    tensor = b.written(
        w_buffer.name,
        TensorClass.GRADIENT,
        widths.gradient,
        layer.output_size * layer.input_size,
    )
    rule = Rule(x_buffer.name, y_buffer.name, tensor)
    j_rows, i_rows = (prod(sizes[1:]) // p.lanes for sizes in (outputs, inputs))
    w_rows = j_rows * i_rows * p.lanes
    fused = _fused(b, network, number, memory)
    digits = w_buffer.digits  # of every gradient
    x = b.pad.allocate(x_buffer.name, batch * i_rows * x_buffer.digits)
    y = b.pad.allocate(y_buffer.name, batch * j_rows * digits, top=True)
    w = b.pad.allocate(w_buffer.name, w_rows * digits)
    r = b.pad.allocate(fused.target.name, fused.rows * digits, top=True) if fused else None
    y_step = prod(outputs[1:]) * y_buffer.element_bytes
    steps = [
        (1, prod(inputs[1:]) * x_buffer.element_bytes),
        (3, w_rows * w_buffer.element_bytes * p.lanes),
    ]
    if fused:
        steps.append((4, fused.rows * fused.target.element_bytes * p.lanes))
    b.set_registers([(2, 0), (3, 0), (4, 0)])
    with b.loop(outputs[0], [(2, y_step)]):
        b.set_registers([(1, 0)])
        samples = TransferLevel(batch, y_buffer.row_bytes, j_rows)
        b.load(y_buffer, y, j_rows, register=2, levels=[samples])
        with b.loop(inputs[0], steps):
            samples = TransferLevel(batch, x_buffer.row_bytes, i_rows)
            b.load(x_buffer, x, i_rows, register=1, levels=[samples])
            b.pe3(
                x,
                y,
                w,
                batch=batch,
                outputs=outputs[1:],
                inputs=inputs[1:],
                rule=rule,
                widths=(widths.activation, widths.gradient),
            )
            b.store(w_buffer, w, w_rows, register=3)
            if fused and r:
                span = whole_layer(network, number)
                _right(b, network, span, fused.spec, fused.entries, w, r, fused.a)
                b.store(fused.target, r, fused.rows, register=4)
    for region in filter(None, (x, y, w, r)):
        b.pad.free(region)


def _right(
    b: Builder,
    network: Network,
    span: Span,
    spec: Image,
    entries: Region,
    x: Region,
    z: Region,
    a: int,
) -> None:
    layer, width = network.layers[span.number], network.widths.gradient
    n = spec.index
    count = span.leading(layer, n) * layer.factor_shapes[n][0]
    tensor = b.written(span.result(n), TensorClass.GRADIENT, width, count)
    rule = Rule(span.level(n + 1), f"l{span.number + 1}.G{n + 1}", tensor)
    b.pe1(x, z, spec, entries, a=a, rule=rule, x_width=width)


def emit_right_chain(
    b: Builder, network: Network, span: Span, memory: MemoryMap, *, done: int = 0
) -> None:
    """The contractions from the right of a span, but the first ``done``, in chunks of (j, i)."""
    layer, p = network.layers[span.number], b.p
    for stage in right_stages(layer, span, p)[done:]:
        n = stage.index
        spec = image(network, span.number, n, Use.RIGHT, p)
        entries = b.load_image(spec, memory.buffers[spec.name])
        source, target = memory.buffers[span.level(n + 1)], memory.buffers[span.result(n)]
        digits, needed = source.digits, (stage.in_rows + stage.out_rows) * source.digits
        chunk = largest_divisor(stage.a, b.pad.largest_gap // needed)
        if not chunk:
            b.pad.allocate(target.name, needed)
        b.set_registers([(1, 0), (2, 0)])
        steps = [
            (1, chunk * stage.in_rows * source.element_bytes * p.lanes),
            (2, chunk * stage.out_rows * target.element_bytes * p.lanes),
        ]
        x = b.pad.allocate(source.name, chunk * stage.in_rows * digits)
        z = b.opposite(x, target.name, chunk * stage.out_rows * digits)
        with b.loop(stage.a // chunk, steps):
            b.load(source, x, x.count // digits, register=1)
            _right(b, network, span, spec, entries, x, z, chunk)
            b.store(target, z, z.count // digits, register=2)
        b.pad.free(x)
        b.pad.free(z)

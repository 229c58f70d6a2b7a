"""The backward program: gradients of activations (11-13), of the weights, of the factors (14-19)."""

from dataclasses import dataclass
from math import prod

from ttforge.compiler.builder import Builder, Rule
from ttforge.compiler.errors import CompileError
from ttforge.compiler.forward import (
    Stage,
    activation_name,
    chain_rows,
    group_size,
    run_stages,
)
from ttforge.compiler.images import Image, Use, image, ones
from ttforge.compiler.memory import Buffer, MemoryMap, Region, largest_divisor
from ttforge.fixed.scale import TensorClass
from ttforge.network import Layer, Network
from ttforge.parameters import AcceleratorParameters
from ttforge.program.descriptors import Level, TransferLevel
from ttforge.program.fields import Operation


def gradient_name(layer: int) -> str:
    """Name of the gradient to the pre-activation of layer ``layer`` (from 1)."""
    return f"l{layer}.dy"


def backward_stages(layer: Layer, p: AcceleratorParameters) -> list[Stage]:
    """Equations 11 to 13: contraction from the first factor to the last."""
    stages = []
    for n, (_, _, i, right) in enumerate(layer.factor_shapes):
        last = n == layer.order - 1
        a = prod(layer.inputs[:n])
        count = a * i * right * prod(layer.outputs[n + 1 :])
        c = 0 if last else prod(layer.outputs[n + 1 :]) // p.lanes
        use = Use.BACKWARD_LAST if last else Use.BACKWARD
        stages.append(Stage(n, use, a, c, count // p.lanes, count))
    return stages


def right_name(layer: int, n: int) -> str:
    """Gradient of the weights with factors n + 1 .. d contracted (n = d: of the weights)."""
    return f"l{layer}.r{n}"


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


def right_stages(layer: Layer, p: AcceleratorParameters) -> list[RightStage]:
    """From the last factor to the second; the result of the last stage is the gradient of G_1."""
    stages = []
    for n in range(layer.order - 1, 0, -1):
        left, j, i, right = layer.factor_shapes[n]
        a = prod(layer.outputs[:n]) * prod(layer.inputs[:n])
        in_rows = j * i // p.lanes if n == layer.order - 1 else j * i * -(-right // p.lanes)
        stages.append(RightStage(n, a, in_rows, -(-left // p.lanes)))
    return stages


def emit_backward(b: Builder, network: Network, batch: int, memory: MemoryMap) -> None:
    """Emit the backward program."""
    if len(network.layers) > 1:
        _input_gradients(b, network, batch, memory)
    for number in range(len(network.layers)):
        _restart(b)
        _weight_gradient(b, network, number, batch, memory)
        _right_chain(b, network, number, batch, memory)
        _left_chains(b, network, number, memory)
        if network.layers[number].bias:
            _bias_gradient(b, network, number, batch, memory)
    b.halt()


def _restart(b: Builder) -> None:
    """Forget what lies in the local memories; waits still guard what is in flight."""
    b.pad.clear()
    for store in b.stores.values():
        store.clear()


def _input_gradients(b: Builder, network: Network, batch: int, memory: MemoryMap) -> None:
    p, widths, count = b.p, network.widths, len(network.layers)
    chains, images = {}, {}
    for number in range(count - 1, 0, -1):
        layer = network.layers[number]
        chains[number] = backward_stages(layer, p)
        specs = [image(layer, number, s.index, s.use, p) for s in chains[number]]
        images[number] = {s.index: b.load_image(s, memory.buffers[s.name]) for s in specs}
    needed = max(
        max(
            chain_rows(network.layers[n].output_size // p.lanes, chain),
            3 * network.layers[n].input_size // p.lanes,
        )
        for n, chain in chains.items()
    )
    group = group_size(batch, needed, b, f"one sample of {network.name}")
    masks = [activation_name(n) for n in range(1, count) if network.layers[n - 1].relu]
    names = [gradient_name(n) for n in range(1, count + 1)] + masks
    register_of = _registers(b, network, names)
    steps = [(register_of[n], group * memory.buffers[n].row_bytes) for n in names]
    with b.loop(batch // group, steps):
        name = gradient_name(count)
        rows = group * network.layers[-1].output_size // p.lanes
        y = b.pad.allocate(name, rows)
        b.load(memory.buffers[name], y, rows, register=register_of[name])
        for number in range(count - 1, 0, -1):
            layer = network.layers[number]
            below = gradient_name(number)
            last = below if not network.layers[number - 1].relu else f"l{number + 1}.dx"
            chain = [f"l{number + 1}.dz{k}" for k in range(1, layer.order)] + [last]
            y = run_stages(
                b, number, chains[number], images[number], y, gradient_name(number + 1),
                widths.gradient, group, batch, names=chain, kind=TensorClass.GRADIENT,
                width=widths.gradient, network=network,
            )  # fmt: skip
            if network.layers[number - 1].relu:
                y = _mask(b, network, number, y, group, batch, memory, register_of)
            b.store(memory.buffers[below], y, y.count, register=register_of[below])
        b.pad.free(y)


def _registers(b: Builder, network: Network, names: list[str]) -> dict[str, int]:
    if len(names) > 7:
        raise CompileError(
            f"network {network.name!r}: the backward loop moves {len(names)} tensors, there are 7 "
            "address registers; use at most 4 layers"
        )
    return {name: n for n, name in enumerate(names, 1)}


def _mask(b: Builder, network: Network, number: int, x: Region, group: int, batch: int,
          memory: MemoryMap, register_of: dict[str, int]) -> Region:  # fmt: skip
    """The gradient through the ReLU below layer ``number`` (from 0): zero where it gave zero."""
    layer = network.layers[number]
    rows = group * layer.input_size // b.p.lanes
    act = b.pad.allocate(activation_name(number), rows)
    b.load(memory.buffers[activation_name(number)], act, rows,
           register=register_of[activation_name(number)])  # fmt: skip
    z = b.opposite(x, gradient_name(number), rows)
    tensor = b.written(gradient_name(number), TensorClass.GRADIENT, network.widths.gradient,
                       batch * layer.input_size)  # fmt: skip
    b.elementwise(Operation.MASK, x, act, z, levels=(Level(rows, x=1, g=1, z=1),),
                  rule=Rule(f"l{number + 1}.dx", None, tensor))  # fmt: skip
    b.pad.free(x)
    b.pad.free(act)
    return z


def _weight_gradient(b: Builder, network: Network, number: int, batch: int,
                     memory: MemoryMap) -> None:  # fmt: skip
    """The outer product (PE3), one (j_1, i_1) block at a time; with d > 2 also equation 14."""
    p, layer, widths = b.p, network.layers[number], network.widths
    outputs, inputs, order = layer.outputs, layer.inputs, layer.order
    x_buffer, y_buffer = (memory.buffers[n] for n in (activation_name(number),
                                                      gradient_name(number + 1)))  # fmt: skip
    name = right_name(number + 1, order)
    w_buffer = memory.buffers[name]
    tensor = b.written(name, TensorClass.GRADIENT, widths.gradient,
                       layer.output_size * layer.input_size)  # fmt: skip
    j_rows, i_rows = (prod(sizes[1:]) // p.lanes for sizes in (outputs, inputs))
    w_rows = j_rows * i_rows * p.lanes
    fused = order > 2
    if fused:
        stage = right_stages(layer, p)[0]
        spec = image(layer, number, stage.index, Use.RIGHT, p)
        entries = b.load_image(spec, memory.buffers[spec.name])
        r_buffer = memory.buffers[right_name(number + 1, order - 1)]
        block = stage.a // (outputs[0] * inputs[0])
    x = b.pad.allocate(x_buffer.name, batch * i_rows)
    y = b.pad.allocate(y_buffer.name, batch * j_rows, top=True)
    w = b.pad.allocate(name, w_rows)
    b.set_registers([(2, 0), (3, 0), (4, 0)])
    with b.loop(outputs[0], [(2, prod(outputs[1:]) * y_buffer.element_bytes)]):
        b.set_registers([(1, 0)])
        b.load(y_buffer, y, j_rows, register=2,
               levels=[TransferLevel(batch, y_buffer.row_bytes, j_rows)])  # fmt: skip
        steps = [(1, prod(inputs[1:]) * x_buffer.element_bytes), (3, w_rows * p.row_bytes)]
        if fused:
            steps.append((4, block * stage.out_rows * p.row_bytes))
        with b.loop(inputs[0], steps):
            b.load(x_buffer, x, i_rows, register=1,
                   levels=[TransferLevel(batch, x_buffer.row_bytes, i_rows)])  # fmt: skip
            b.pe3(x, y, w, batch=batch, outputs=outputs[1:], inputs=inputs[1:],
                  rule=Rule(x_buffer.name, y_buffer.name, tensor),
                  widths=(widths.activation, widths.gradient))  # fmt: skip
            b.store(w_buffer, w, w_rows, register=3)
            if fused:
                r = b.pad.allocate(r_buffer.name, block * stage.out_rows, top=True)
                _right(b, network, number, spec, entries, w, r, block)
                b.store(r_buffer, r, r.count, register=4)
                b.pad.free(r)
    for region in (x, y, w):
        b.pad.free(region)


def _right(b: Builder, network: Network, number: int, spec: Image, entries: Region, x: Region,
           z: Region, a: int) -> None:  # fmt: skip
    layer, width = network.layers[number], network.widths.gradient
    n = spec.index
    shape = layer.factor_shapes[n]
    name = right_name(number + 1, n) if n > 1 else f"l{number + 1}.dG1"
    count = prod(layer.outputs[:n]) * prod(layer.inputs[:n]) * shape[0]
    tensor = b.written(name, TensorClass.GRADIENT, width, count)
    rule = Rule(right_name(number + 1, n + 1), f"l{number + 1}.G{n + 1}", tensor)
    b.pe1(x, z, spec, entries, a=a, rule=rule, x_width=width)


def _right_chain(b: Builder, network: Network, number: int, batch: int, memory: MemoryMap) -> None:
    """The right contractions that are not fused with the outer product, in chunks of (j, i)."""
    layer, p = network.layers[number], b.p
    for stage in right_stages(layer, p)[layer.order > 2 :]:
        n = stage.index
        spec = image(layer, number, n, Use.RIGHT, p)
        entries = b.load_image(spec, memory.buffers[spec.name])
        source = memory.buffers[right_name(number + 1, n + 1)]
        target = memory.buffers[right_name(number + 1, n) if n > 1 else f"l{number + 1}.dG1"]
        chunk = largest_divisor(stage.a, b.pad.largest_gap // (stage.in_rows + stage.out_rows))
        if not chunk:
            b.pad.allocate(target.name, stage.in_rows + stage.out_rows)
        b.set_registers([(1, 0), (2, 0)])
        steps = [(1, chunk * stage.in_rows * p.row_bytes),
                 (2, chunk * stage.out_rows * p.row_bytes)]  # fmt: skip
        x = b.pad.allocate(source.name, chunk * stage.in_rows)
        z = b.opposite(x, target.name, chunk * stage.out_rows)
        with b.loop(stage.a // chunk, steps):
            b.load(source, x, x.count, register=1)
            _right(b, network, number, spec, entries, x, z, chunk)
            b.store(target, z, z.count, register=2)
        b.pad.free(x)
        b.pad.free(z)


def _left_chains(b: Builder, network: Network, number: int, memory: MemoryMap) -> None:
    """Equations 17 to 19: gradients of G_2 .. G_d, contracting G_1 .. G_{n-1} from the left."""
    layer, p = network.layers[number], b.p
    images = [
        (spec, b.load_image(spec, memory.buffers[spec.name]))
        for spec in (image(layer, number, k, Use.LEFT, p) for k in range(layer.order - 1))
    ]
    for n in range(1, layer.order):
        _, j, i, right = layer.factor_shapes[n]
        last = n == layer.order - 1
        tail = j * i // p.lanes if last else j * i * -(-right // p.lanes)
        name = f"l{number + 1}.dG{n + 1}"
        _left_chain(
            b, network, number, images[:n], memory.buffers[right_name(number + 1, n + 1)],
            memory.buffers[name], tail=tail, tail_count=j * i * right, name=name,
            x_name=right_name(number + 1, n + 1), x_width=network.widths.gradient,
        )  # fmt: skip


def _left_chain(b: Builder, network: Network, number: int, images: list[tuple[Image, Region]],
                source: Buffer, target: Buffer, *, tail: int, tail_count: int, name: str,
                x_name: str, x_width: int) -> None:  # fmt: skip
    """Contract factors from the left, in chunks of ``tail`` rows of the trailing index."""
    p, width = b.p, network.widths.gradient
    sizes = _leading_sizes(network, number, images)
    peak = max(a + z for a, z in zip(sizes[:-1], sizes[1:], strict=True))
    chunk = largest_divisor(tail, b.pad.largest_gap // peak)
    if not chunk:
        b.pad.allocate(name, peak)
    step = chunk * p.row_bytes
    b.set_registers([(1, 0), (2, 0)])
    stride = tail * p.row_bytes
    with b.loop(tail // chunk, [(1, step), (2, step)]):
        x = b.pad.allocate(x_name, sizes[0] * chunk)
        b.load(source, x, chunk, register=1,
               levels=[TransferLevel(sizes[0], stride, chunk)])  # fmt: skip
        rule_x, bits = x_name, x_width
        for k, (spec, entries) in enumerate(images):
            final = k == len(images) - 1
            out = name if final else f"{name}.t{k + 1}"
            tensor = b.written(out, TensorClass.GRADIENT, width, sizes[k + 1] * tail_count)
            z = b.opposite(x, out, sizes[k + 1] * chunk)
            factor = f"l{number + 1}.G{spec.index + 1}" if spec.use else None
            c = sizes[k + 1] // spec.free * chunk
            b.pe2(x, z, spec, entries, a=1, c=c, rule=Rule(rule_x, factor, tensor), x_width=bits)
            b.pad.free(x)
            x, rule_x, bits = z, out, width
        b.store(target, x, chunk, register=2, levels=[TransferLevel(sizes[-1], stride, chunk)])
        b.pad.free(x)


def _leading_sizes(network: Network, number: int, images: list[tuple[Image, Region]]) -> list[int]:
    """Leading indices (in front of the tail) of the operand and of each result."""
    layer, count = network.layers[number], len(images)
    if images[0][0].use is None:
        return [images[0][0].summed, 1]
    rest = [prod(layer.outputs[k:count]) * prod(layer.inputs[k:count]) for k in range(count + 1)]
    return [rest[0], *(layer.ranks[k - 1] * rest[k] for k in range(1, count + 1))]


def _bias_gradient(b: Builder, network: Network, number: int, batch: int,
                   memory: MemoryMap) -> None:  # fmt: skip
    """Sum of the pre-activation's gradient over the batch: a contraction with ones."""
    layer = network.layers[number]
    spec = ones(batch, b.p)
    entries = b.load_image(spec, memory.buffers[spec.name])
    rows = layer.output_size // b.p.lanes
    _left_chain(
        b, network, number, [(spec, entries)], memory.buffers[gradient_name(number + 1)],
        memory.buffers[f"l{number + 1}.db"], tail=rows, tail_count=layer.output_size,
        name=f"l{number + 1}.db", x_name=gradient_name(number + 1),
        x_width=network.widths.gradient,
    )  # fmt: skip

"""The forward program: equations 8 to 10, bias and activation, layer by layer, in sample groups."""

from math import prod

from trainwright.compiler.builder import Builder, Rule
from trainwright.compiler.chain import Stage, chain_rows, group_size, run_stages
from trainwright.compiler.digits import digits_of
from trainwright.compiler.images import Use, image
from trainwright.compiler.limits import ADDRESS_REGISTERS
from trainwright.compiler.memory import MemoryMap, Region
from trainwright.compiler.names import activation_name
from trainwright.fixed.scale import TensorClass
from trainwright.network import Layer, Network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Level
from trainwright.program.fields import Operation


def forward_stages(layer: Layer, p: AcceleratorParameters, digits: int = 1) -> list[Stage]:
    """Equations 8 to 10: contraction from the last factor to the first; results have digits."""
    stages = []
    for n in range(layer.order - 1, -1, -1):
        left = layer.factor_shapes[n][0]
        a = prod(layer.inputs[:n])
        count = a * left * prod(layer.outputs[n:])
        c = prod(layer.outputs[n + 1 :]) // p.lanes
        use = Use.FORWARD_LAST if n == layer.order - 1 else Use.FORWARD
        stages.append(Stage(n, use, a, c, count // p.lanes * digits, count))
    return stages


def emit_forward(b: Builder, network: Network, batch: int, memory: MemoryMap) -> None:
    """Emit the forward program."""
    p = b.p
    images, biases, stages = [], [], []
    middle = digits_of(network.format("intermediate"), p)
    names = [activation_name(n) for n in range(len(network.layers) + 1)]
    digits = [memory.buffers[name].digits for name in names]
    for number, layer in enumerate(network.layers):
        stages.append(forward_stages(layer, p, middle))
        specs = [image(network, number, s.index, s.use, p) for s in stages[-1]]
        images.append({s.index: b.load_image(s, memory.buffers[s.name]) for s in specs})
        rows = layer.output_size // p.lanes
        buffer = memory.buffers[f"l{number + 1}.b"]
        bias = b.pad.allocate(buffer.name, rows * buffer.digits)
        b.load(buffer, bias, rows)
        biases.append(bias)
    needed = max(
        max(
            chain_rows(layer.input_size // p.lanes * digits[n], chain),
            layer.output_size // p.lanes * (middle + digits[n + 1]),
        )
        for n, (layer, chain) in enumerate(zip(network.layers, stages, strict=True))
    )
    group = group_size(batch, needed, b, f"one sample of {network.name}")
    ADDRESS_REGISTERS.require(len(names), p, "the paper's forward program")
    register_of = {name: n for n, name in enumerate(names, 1)}
    steps = [(register_of[name], group * memory.buffers[name].row_bytes) for name in names]
    with b.loop(batch // group, steps):
        source = memory.buffers[names[0]]
        rows = group * network.layers[0].input_size // p.lanes
        x = b.pad.allocate("x", rows * source.digits)
        b.load(source, x, rows, register=register_of["x"])
        for number in range(len(network.layers)):
            x = _layer(
                b, network, number, stages[number], images[number], biases[number], x, group, batch
            )
            name = names[number + 1]
            target = memory.buffers[name]
            b.store(target, x, x.count // target.digits, register=register_of[name])
        b.pad.free(x)
    b.halt("the forward program")


def _layer(
    b: Builder,
    network: Network,
    number: int,
    stages: list[Stage],
    images: dict[int, Region],
    bias: Region,
    x: Region,
    group: int,
    batch: int,
) -> Region:
    layer, widths = network.layers[number], network.widths
    last = number == len(network.layers) - 1
    names = [f"l{number + 1}.z{k}" for k in range(1, layer.order)] + [f"l{number + 1}.y"]
    y = run_stages(
        b,
        number,
        stages,
        images,
        x,
        activation_name(number),
        widths.activation,
        group,
        batch,
        names=names,
        kind=TensorClass.INTERMEDIATE,
        width=widths.intermediate,
        network=network,
    )
    rows = layer.output_size // b.p.lanes
    kind = TensorClass.INTERMEDIATE if last else TensorClass.ACTIVATION
    width = widths.intermediate if last else widths.activation
    tensor = b.written(activation_name(number + 1), kind, width, batch * layer.output_size)
    z = b.opposite(y, tensor.name, group * rows * digits_of(tensor.format, b.p))
    b.elementwise(
        Operation.BIAS,
        y,
        bias,
        z,
        levels=(Level(group, x=rows, z=rows), Level(rows, x=1, g=1, z=1)),
        rule=Rule(names[-1], f"l{number + 1}.b", tensor),
        relu=layer.relu,
    )
    b.pad.free(y)
    return z

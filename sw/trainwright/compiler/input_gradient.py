"""Gradients of the activations: equations 11 to 13, layer by layer, in sample groups."""

from math import prod

from trainwright.compiler.builder import Builder, Rule
from trainwright.compiler.chain import Stage, chain_rows, group_size, run_stages
from trainwright.compiler.digits import digits_of
from trainwright.compiler.images import Use, image
from trainwright.compiler.limits import ADDRESS_REGISTERS
from trainwright.compiler.memory import MemoryMap, Region
from trainwright.compiler.names import activation_name, gradient_name
from trainwright.fixed.scale import TensorClass
from trainwright.network import Layer, Network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Level
from trainwright.program.fields import Operation


def backward_stages(layer: Layer, p: AcceleratorParameters, digits: int = 1) -> list[Stage]:
    """Equations 11 to 13: contraction from the first factor to the last; results have digits."""
    stages = []
    for n, (_, _, i, right) in enumerate(layer.factor_shapes):
        last = n == layer.order - 1
        a = prod(layer.inputs[:n])
        count = a * i * right * prod(layer.outputs[n + 1 :])
        c = 0 if last else prod(layer.outputs[n + 1 :]) // p.lanes
        use = Use.BACKWARD_LAST if last else Use.BACKWARD
        stages.append(Stage(n, use, a, c, count // p.lanes * digits, count))
    return stages


def emit_input_gradients(b: Builder, network: Network, batch: int, memory: MemoryMap) -> None:
    """Emit the loop that takes the loss gradient down to the first layer's output."""
    p, widths, count = b.p, network.widths, len(network.layers)
    chains, images = {}, {}
    digits = digits_of(network.format("gradient"), p)
    for number in range(count - 1, 0, -1):
        layer = network.layers[number]
        chains[number] = backward_stages(layer, p, digits)
        specs = [image(network, number, s.index, s.use, p) for s in chains[number]]
        images[number] = {s.index: b.load_image(s, memory.buffers[s.name]) for s in specs}
    needed = max(
        max(
            chain_rows(network.layers[n].output_size // p.lanes * digits, chain),
            network.layers[n].input_size
            // p.lanes
            * (2 * digits + memory.buffers[activation_name(n)].digits),
        )
        for n, chain in chains.items()
    )
    group = group_size(batch, needed, b, f"one sample of {network.name}")
    masks = [activation_name(n) for n in range(1, count) if network.layers[n - 1].relu]
    names = [gradient_name(n) for n in range(1, count + 1)] + masks
    ADDRESS_REGISTERS.require(len(names), p, "the paper's backward program")
    register_of = {name: n for n, name in enumerate(names, 1)}
    steps = [(register_of[n], group * memory.buffers[n].row_bytes) for n in names]
    with b.loop(batch // group, steps):
        name = gradient_name(count)
        rows = group * network.layers[-1].output_size // p.lanes
        y = b.pad.allocate(name, rows * digits)
        b.load(memory.buffers[name], y, rows, register=register_of[name])
        for number in range(count - 1, 0, -1):
            layer = network.layers[number]
            below = gradient_name(number)
            last = below if not network.layers[number - 1].relu else f"l{number + 1}.dx"
            chain = [f"l{number + 1}.dz{k}" for k in range(1, layer.order)] + [last]
            y = run_stages(
                b,
                number,
                chains[number],
                images[number],
                y,
                gradient_name(number + 1),
                widths.gradient,
                group,
                batch,
                names=chain,
                kind=TensorClass.GRADIENT,
                width=widths.gradient,
                network=network,
            )
            if network.layers[number - 1].relu:
                y = _mask(b, network, number, y, group, batch, memory, register_of)
            b.store(memory.buffers[below], y, y.count // digits, register=register_of[below])
        b.pad.free(y)


def _mask(
    b: Builder,
    network: Network,
    number: int,
    x: Region,
    group: int,
    batch: int,
    memory: MemoryMap,
    register_of: dict[str, int],
) -> Region:
    """The gradient through the ReLU below layer ``number`` (from 0): zero where it gave zero."""
    layer = network.layers[number]
    rows = group * layer.input_size // b.p.lanes
    sign = memory.buffers[activation_name(number)]
    act = b.pad.allocate(sign.name, rows * sign.digits)
    b.load(sign, act, rows, register=register_of[sign.name])
    z = b.opposite(x, gradient_name(number), x.count)
    tensor = b.written(
        gradient_name(number),
        TensorClass.GRADIENT,
        network.widths.gradient,
        batch * layer.input_size,
    )
    b.elementwise(
        Operation.MASK,
        x,
        act,
        z,
        levels=(Level(rows, x=1, g=1, z=1),),
        rule=Rule(f"l{number + 1}.dx", None, tensor, sign=sign.name),
    )
    b.pad.free(x)
    b.pad.free(act)
    return z

"""The forward program: equations 8 to 10, bias and activation, layer by layer, in sample groups."""

from dataclasses import dataclass
from math import prod

from ttforge.compiler.builder import Builder, Rule
from ttforge.compiler.errors import CompileError
from ttforge.compiler.images import Use, image
from ttforge.compiler.memory import MemoryMap, Region, largest_divisor
from ttforge.fixed.scale import TensorClass
from ttforge.network import Layer, Network
from ttforge.parameters import AcceleratorParameters
from ttforge.program.descriptors import Level
from ttforge.program.fields import REGISTERS, Operation


def activation_name(layer: int) -> str:
    """Name of the output of layer ``layer`` (from 1), of the network's input for 0."""
    return f"l{layer}.a" if layer else "x"


def storage_bytes(width: int) -> int:
    """Bytes of an element of ``width`` bits in external memory."""
    return 1 if width <= 8 else 2


@dataclass(frozen=True)
class Stage:
    """One contraction of a layer's chain, for one sample: sizes in scratchpad rows."""

    index: int
    """Factor, from 0."""
    use: Use
    a: int
    c: int
    """Rows along c (0 for PE1, which sums over c)."""
    rows: int
    """Rows of the result."""
    count: int
    """Values of the result."""


def forward_stages(layer: Layer, p: AcceleratorParameters) -> list[Stage]:
    """Equations 8 to 10: contraction from the last factor to the first."""
    stages = []
    for n in range(layer.order - 1, -1, -1):
        left, j, i, _ = layer.factor_shapes[n]
        a = prod(layer.inputs[:n])
        count = a * left * prod(layer.outputs[n:])
        c = prod(layer.outputs[n + 1 :]) // p.lanes
        use = Use.FORWARD_LAST if n == layer.order - 1 else Use.FORWARD
        stages.append(Stage(n, use, a, c, count // p.lanes, count))
    return stages


def chain_rows(first: int, stages: list[Stage]) -> int:
    """Most rows a sample's chain holds at once: a contraction's operand and its result."""
    sizes = [first, *(stage.rows for stage in stages)]
    return max(a + b for a, b in zip(sizes[:-1], sizes[1:], strict=True))


def group_size(batch: int, rows_a_sample: int, b: Builder, what: str) -> int:
    """Samples that go through a chain together: the most that fit and divide the batch."""
    group = largest_divisor(batch, b.pad.largest_gap // rows_a_sample)
    if not group:
        b.pad.allocate(what, rows_a_sample)  # raises, naming the sizes
    return group


def run_stages(b: Builder, number: int, stages: list[Stage], images: dict[int, Region], x: Region,
               x_name: str, x_width: int, group: int, batch: int, *, names: list[str],
               kind: TensorClass, width: int, network: Network) -> Region:  # fmt: skip
    """Emit a chain on ``group`` samples; every operand is given back once it is used."""
    layer = network.layers[number]
    for stage, name in zip(stages, names, strict=True):
        spec = image(layer, number, stage.index, stage.use, b.p)
        tensor = b.written(name, kind, width, batch * stage.count)
        rule = Rule(x_name, f"l{number + 1}.G{stage.index + 1}", tensor)
        z = b.opposite(x, name, group * stage.rows)
        entries = images[stage.index]
        if stage.use in (Use.FORWARD_LAST, Use.BACKWARD_LAST):
            b.pe1(x, z, spec, entries, a=group * stage.a, rule=rule, x_width=x_width)
        else:
            b.pe2(x, z, spec, entries, a=group * stage.a, c=stage.c, rule=rule, x_width=x_width)
        b.pad.free(x)
        x, x_name, x_width = z, name, width
    return x


def emit_forward(b: Builder, network: Network, batch: int, memory: MemoryMap) -> None:
    """Emit the forward program."""
    p = b.p
    images, biases, stages = [], [], []
    for number, layer in enumerate(network.layers):
        stages.append(forward_stages(layer, p))
        specs = [image(layer, number, s.index, s.use, p) for s in stages[-1]]
        images.append({s.index: b.load_image(s, memory.buffers[s.name]) for s in specs})
        rows = layer.output_size // p.lanes
        bias = b.pad.allocate(f"l{number + 1}.b", rows)
        b.load(memory.buffers[f"l{number + 1}.b"], bias, rows)
        biases.append(bias)
    needed = max(
        max(chain_rows(layer.input_size // p.lanes, chain), 2 * layer.output_size // p.lanes)
        for layer, chain in zip(network.layers, stages, strict=True)
    )
    group = group_size(batch, needed, b, f"one sample of {network.name}")
    names = [activation_name(n) for n in range(len(network.layers) + 1)]
    if len(names) >= REGISTERS:
        raise CompileError(
            f"network {network.name!r} has {len(network.layers)} layers; at most {REGISTERS - 2} "
            "can be compiled, as each layer's output takes an address register"
        )
    register_of = {name: n for n, name in enumerate(names, 1)}
    steps = [(register_of[name], group * memory.buffers[name].row_bytes) for name in names]
    with b.loop(batch // group, steps):
        source = memory.buffers[names[0]]
        rows = group * network.layers[0].input_size // p.lanes
        x = b.pad.allocate("x", rows)
        b.load(source, x, rows, register=register_of["x"])
        for number, layer in enumerate(network.layers):
            x = _layer(b, network, number, stages[number], images[number], biases[number], x,
                       group, batch)  # fmt: skip
            name = names[number + 1]
            b.store(memory.buffers[name], x, x.count, register=register_of[name])
        b.pad.free(x)
    b.halt()


def _layer(b: Builder, network: Network, number: int, stages: list[Stage],
           images: dict[int, Region], bias: Region, x: Region, group: int, batch: int) -> Region:  # fmt: skip
    layer, widths = network.layers[number], network.widths
    last = number == len(network.layers) - 1
    names = [f"l{number + 1}.z{k}" for k in range(1, layer.order)] + [f"l{number + 1}.y"]
    y = run_stages(
        b, number, stages, images, x, activation_name(number), widths.activation, group, batch,
        names=names, kind=TensorClass.INTERMEDIATE, width=widths.intermediate, network=network,
    )  # fmt: skip
    rows = layer.output_size // b.p.lanes
    z = b.opposite(y, activation_name(number + 1), group * rows)
    kind = TensorClass.INTERMEDIATE if last else TensorClass.ACTIVATION
    width = widths.intermediate if last else widths.activation
    tensor = b.written(activation_name(number + 1), kind, width, batch * layer.output_size)
    b.elementwise(
        Operation.BIAS, y, bias, z,
        levels=(Level(group, x=rows, z=rows), Level(rows, x=1, g=1, z=1)),
        rule=Rule(names[-1], f"l{number + 1}.b", tensor), relu=layer.relu,
    )  # fmt: skip
    b.pad.free(y)
    return z

"""The external memory of the paper's schedule."""

from trainwright.compiler.images import Image, Use, image, ones
from trainwright.compiler.memory import MemoryMap
from trainwright.compiler.names import activation_name, gradient_name, right_name
from trainwright.network import Network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import digit_count
from trainwright.program.fields import DESCRIPTOR_BYTES


def storage_bytes(width: int, p: AcceleratorParameters | None = None) -> int:
    """Bytes of an element of ``width`` bits in external memory: by digits, as many as these."""
    if p is not None and p.wide_tensors:
        return digit_count(width)
    return 1 if width <= 8 else 2


def class_bytes(network: Network, p: AcceleratorParameters | None = None) -> tuple[int, int, int]:
    """Bytes of an element of activations, of intermediate results and of gradients."""
    widths = network.widths
    small, middle, gradient = (
        storage_bytes(width, p)
        for width in (widths.activation, widths.intermediate, widths.gradient)
    )
    return small, middle, gradient


def activation_bytes(network: Network, layer: int, p: AcceleratorParameters | None = None) -> int:
    """Bytes of an element of the activations of a layer (from 1)."""
    name = activation_name(layer)
    return storage_bytes(network.tensor_format(name, "activation").width, p)


def lay_out(network: Network, batch: int, p: AcceleratorParameters) -> MemoryMap:
    """Buffers of all that a step of the paper's schedule moves."""
    memory = MemoryMap(p.lanes, by_digits=bool(p.wide_tensors))
    memory.add_bytes("program.forward", p.program_depth * DESCRIPTOR_BYTES)
    memory.add_bytes("program.backward", p.program_depth * DESCRIPTOR_BYTES)
    small, logit, gradient = class_bytes(network, p)
    bias = logit if p.wide_tensors else storage_bytes(network.widths.bias)
    memory.add("x", (batch, network.layers[0].input_size), small)
    for n, layer in enumerate(network.layers, 1):
        last = n == len(network.layers)
        memory.add(
            activation_name(n),
            (batch, layer.output_size),
            logit if last else activation_bytes(network, n, p),
        )
        memory.add(gradient_name(n), (batch, layer.output_size), gradient)
        memory.add(f"l{n}.b", (layer.output_size,), bias)
        memory.add(f"l{n}.db", (layer.output_size,), gradient)
        leading = 1
        for k, (left, j, i, right) in enumerate(layer.factor_shapes):
            shape = (left, j, i, right) if k + 1 < layer.order else (left, j, i)
            memory.add(f"l{n}.dG{k + 1}", shape, gradient)
            leading *= j * i
            if k + 1 == layer.order:
                memory.add(right_name(n, k + 1), (leading // (j * i), j * i), gradient)
            elif k > 0:
                memory.add(right_name(n, k + 1), (leading, right), gradient)
            for use in Use:
                spec = image_of(network, n - 1, k, use, p)
                if spec is not None:
                    memory.add_bytes(spec.name, image_bytes(spec, p))
    spec = ones(batch, p)
    memory.add_bytes(spec.name, image_bytes(spec, p))
    return memory


def image_of(
    network: Network, number: int, index: int, use: Use, p: AcceleratorParameters
) -> Image | None:
    """The image of a factor for a use, where that use occurs."""
    layer = network.layers[number]
    last = index == layer.order - 1
    occurs = {
        Use.FORWARD_LAST: last,
        Use.FORWARD: not last,
        Use.BACKWARD: not last and number > 0,
        Use.BACKWARD_LAST: last and number > 0,
        Use.RIGHT: index > 0,
        Use.LEFT: not last,
    }
    return image(network, number, index, use, p) if occurs[use] else None


def image_bytes(spec: Image, p: AcceleratorParameters) -> int:
    """Bytes of a factor's image for a store, a whole number of beats."""
    width = p.lanes if spec.step_entries > 1 else p.pe2_rows
    size = spec.entries * width * p.factor_storage_width // 8
    return -(-size // p.beat_bytes) * p.beat_bytes

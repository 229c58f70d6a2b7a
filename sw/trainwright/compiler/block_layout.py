"""The external memory of planned schedules: tensors with the samples along the last dimension."""

from collections.abc import Sequence

from trainwright.compiler.bidirectional import middle
from trainwright.compiler.block_backward import spans
from trainwright.compiler.block_forward import SAMPLES_INSIDE, SAMPLES_OUTSIDE
from trainwright.compiler.errors import CompileError
from trainwright.compiler.images import Use
from trainwright.compiler.layout import (
    activation_bytes,
    class_bytes,
    image_bytes,
    image_of,
    storage_bytes,
)
from trainwright.compiler.memory import MemoryMap
from trainwright.compiler.merged import Split, merged_images
from trainwright.compiler.names import activation_name, gradient_name
from trainwright.compiler.plans import (
    BackwardBidirectional,
    ForwardBidirectional,
    ForwardRebuild,
    LayerPlan,
)
from trainwright.compiler.row_images import Arrangement, RowImage, constant
from trainwright.compiler.spans import Span
from trainwright.network import Network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.fields import DESCRIPTOR_BYTES

INSIDE = (1, 0)
"""The host has (batch, J); the buffer (J, batch)."""


def lay_out_blocks(
    network: Network, batch: int, p: AcceleratorParameters, plans: Sequence[LayerPlan]
) -> MemoryMap:
    """Buffers of all that a step moves."""
    memory, widths = MemoryMap(p.lanes), network.widths
    for name in ("program.forward", "program.backward"):
        memory.add_bytes(name, p.program_depth * DESCRIPTOR_BYTES)
    small, intermediate, gradient = class_bytes(network)
    size = network.layers[0].input_size
    rows = -(-batch // p.lanes) * p.lanes
    memory.add(SAMPLES_INSIDE, (size, batch), small, order=INSIDE)
    memory.add(SAMPLES_OUTSIDE, (rows, size), small)
    for what in (Arrangement.IDENTITY, Arrangement.ONES, Arrangement.ZEROS):
        _add_image(memory, constant(what, p), p)
    for n, layer in enumerate(network.layers, 1):
        last = n == len(network.layers)
        shape = (layer.output_size, batch)
        memory.add(
            activation_name(n),
            shape,
            intermediate if last else activation_bytes(network, n),
            order=INSIDE,
        )
        if last:
            memory.add(gradient_name(n), shape, gradient, order=INSIDE)
        _add_bias(memory, f"l{n}", layer.output_size, batch, p, storage_bytes(widths.bias))
        memory.add(f"l{n}.db", (layer.output_size,), gradient)
        for k, (left, j, i, right) in enumerate(layer.factor_shapes):
            shape = (left, j, i, right) if k + 1 < layer.order else (left, j, i)
            memory.add(f"l{n}.dG{k + 1}", shape, gradient)
        plan = plans[n - 1]
        splits = {Split(network, n - 1, bond) for bond in (plan.forward.bond, plan.backward.bond)}
        for split in sorted(splits, key=lambda split: split.bond):
            for image in merged_images(split, p).values():
                _add_image(memory, image, p)
        if isinstance(plan.backward, BackwardBidirectional):
            split = Split(network, n - 1, plan.backward.bond)
            if plan.forward.bond != split.bond or isinstance(plan.forward, ForwardRebuild):
                raise CompileError(
                    f"layer {n}: bi-directional gradients at bond {split.bond} need the forward "
                    f"pass to be bi-directional there too; it is planned as {plan.forward}"
                )
        if isinstance(plan.forward, ForwardBidirectional):
            split = Split(network, n - 1, plan.forward.bond)
            samples = rows // p.lanes
            middle_rows = samples * split.u * split.k * split.q
            memory.add(middle(split), (middle_rows, p.lanes), intermediate)
        for span in spans(Split(network, n - 1, plan.backward.bond)):
            _add_span(memory, network, span, p)
    return memory


def _add_image(memory: MemoryMap, image: RowImage, p: AcceleratorParameters) -> None:
    if image.name not in memory.buffers:
        buffer_rows = (image.rows, p.lanes)
        memory.add(image.name, buffer_rows, image.element_bytes)


def _add_bias(
    memory: MemoryMap, layer: str, size: int, batch: int, p: AcceleratorParameters, width: int
) -> None:
    """A bias along the samples: in all lanes, and for the last row of a batch that ends in it."""
    rest = batch % p.lanes
    if batch >= p.lanes:
        memory.add(f"{layer}.b", (size, p.lanes), width, repeat=p.lanes)
    if rest:
        memory.add(f"{layer}.b.last", (size, rest), width, repeat=rest)


def _add_span(memory: MemoryMap, network: Network, span: Span, p: AcceleratorParameters) -> None:
    """Results between the steps of a span's chains, and the images of its factors."""
    layer = network.layers[span.number]
    for n in range(span.first + 2, span.last + 2):
        _, j, i, right = layer.factor_shapes[n - 1]
        leading = span.leading(layer, n - 1)
        end = n == layer.order
        shape = (leading, j * i) if end else (leading * j * i, right)
        memory.add(span.level(n), shape, class_bytes(network)[-1])
    for n in range(span.first, span.last + 1):
        for use in (Use.RIGHT, Use.LEFT):
            needed = n > span.first if use is Use.RIGHT else n < span.last
            spec = image_of(network, span.number, n, use, p)
            if needed and spec is not None:
                memory.add_bytes(spec.name, image_bytes(spec, p))

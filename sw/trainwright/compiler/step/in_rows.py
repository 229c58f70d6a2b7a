"""A compiled graph whose tensors lie in the rows of a state on the chip, as the driver takes it.

Buffers have the names, shapes and orders that programs of the loop expect (``compiler.chip``).
"""

from dataclasses import replace
from functools import cache

from trainwright.compiler.base.compiled import AUTO, IN_ROWS, CompiledProgram, CompiledStep
from trainwright.compiler.base.errors import CompileError
from trainwright.compiler.base.memory import Buffer, MemoryMap
from trainwright.compiler.base.names import (
    SAMPLES_INSIDE,
    SAMPLES_OUTSIDE,
    activation_name,
    gradient_name,
)
from trainwright.compiler.base.row_images import Arrangement, RowImage, constant, row_image
from trainwright.compiler.forms.calls import External
from trainwright.compiler.forms.layout import Axes
from trainwright.compiler.step.adapter import Adapter, GraphImage
from trainwright.compiler.step.compile import Emitted, Step
from trainwright.compiler.step.rows import PIXELS, samples_of
from trainwright.compiler.step.stored import cached_step
from trainwright.graph.ir import Graph
from trainwright.network import Network
from trainwright.onchip.layout import LANES
from trainwright.parameters import AcceleratorParameters

INSIDE = (1, 0)
"""The host has (batch, values); the buffer (values, batch)."""
CONSTANTS = Arrangement.IDENTITY, Arrangement.ZEROS
"""What programs of the loop read, whether the step's own do or not."""


def _bytes(width: int) -> int:
    """Bytes of an element of ``width`` bits in external memory."""
    return 1 if width <= 8 else 2


class _RowsAdapter(Adapter):
    """All buffers have names of their own, also those that no program of the step reads."""

    def __init__(self, network: Network, step: Step, batch: int) -> None:
        super().__init__(network, step)
        self.p, self.batch = step.parameters, batch
        self.memory = MemoryMap(self.p.lanes, top=step.memory_bytes)
        self._there: dict[tuple[str, Axes | None], Buffer] = {}
        """The buffers of the step's programs: by tensor, and by its axes along the lanes, too."""
        for emitted in (step.forward, step.backward):
            for outer in emitted.lowered.outer.values():
                buffer = step.buffers[outer.name]
                self._there[outer.tensor, None] = buffer
                self._there[outer.tensor, outer.layout.lanes] = buffer
        self._samples()
        for n in range(1, len(network.layers) + 1):
            self._layer(n)
        self._ends()
        self.constants = [self._constant(what) for what in CONSTANTS]

    def _add(
        self, name: str, shape: tuple[int, ...], size: int, *, of: str = "",
        lanes: Axes | None = None, row: int = 0, order: tuple[int, ...] = (), repeat: int = 1,
    ) -> Buffer:  # fmt: skip
        """A buffer of elements of ``size`` bytes, its last dimension filled up to rows of ``row``
        values: where the programs have the tensor ``of``, or a new one.
        """
        row = row or self.lanes
        padded = -(-shape[-1] // row) * row
        there = self._there.get((of or name, lanes))
        address = there.address if there else self.memory.top
        found = Buffer(name, address, shape, padded, size, order, repeat)
        if there:
            assert found.size == there.size, (name, found.size, there.size)
        else:
            self.memory.add_bytes(name, found.size)
        self.buffers[name] = found
        return found

    def _samples(self) -> None:
        """The inputs, in both orders."""
        small = _bytes(self.network.widths.activation)
        size = self.network.layers[0].input_size
        ways = samples_of(self.step.graph.whole, self.lanes)
        inside, outside = (one.layout.lanes for one in ways if one.layout)
        self._add(SAMPLES_INSIDE, (size, self.batch), small, of=PIXELS, lanes=inside, order=INSIDE)
        self._add(SAMPLES_OUTSIDE, (self.batch, size), small, of=PIXELS, lanes=outside)

    def _layer(self, n: int) -> None:
        """Bias and gradients of layer ``n`` (from 1)."""
        layer = self.network.layers[n - 1]
        gradient, bias = _bytes(self.network.widths.gradient), _bytes(self.network.widths.bias)
        outputs = layer.output_size
        self._add(f"l{n}.b", (outputs, self.lanes), bias, repeat=self.lanes)
        if layer.bias:
            self._add(f"l{n}.db", (outputs,), gradient, row=LANES)
        for k, shape in enumerate(layer.factor_shapes, 1):
            along = shape if k < layer.order else shape[:-1]
            self._add(f"l{n}.dG{k}", along, gradient, row=LANES)

    def _ends(self) -> None:
        """Logits and their gradient."""
        last = len(self.network.layers)
        widths = self.network.widths
        intermediate, gradient = _bytes(widths.intermediate), _bytes(widths.gradient)
        shape = self.network.layers[-1].output_size, self.batch
        self._add(activation_name(last), shape, intermediate, order=INSIDE)
        self._add(gradient_name(last), shape, gradient, order=INSIDE)

    def _constant(self, what: Arrangement) -> tuple[RowImage, Buffer]:
        image = constant(what, self.p)
        return image, self._add(image.name, (image.rows, self.lanes), image.element_bytes)

    def add_buffers(self, emitted: Emitted) -> None:
        """They are there already."""

    def image(
        self, graph: Graph, outer: External, layer: int, index: int
    ) -> tuple[GraphImage | RowImage, Buffer]:
        """Factors as rows of the state."""
        of = self.network.layers[layer]
        what = Arrangement.STATE_LAST if index == of.order - 1 else Arrangement.STATE
        found = row_image(of, layer, index, what, self.p)
        found = replace(found, element_bytes=outer.element_bytes)
        rows = found.rows, self.lanes
        return found, self._add(found.name, rows, outer.element_bytes, of=outer.tensor)

    def program(self, emitted: Emitted) -> CompiledProgram:
        """Its images of constants are ``constants``."""
        found = super().program(emitted)
        known = {image.name for image, _ in self.constants}
        images = tuple(one for one in found.images if one[0].name not in known)
        return replace(found, images=(*images, *self.constants))


@cache
def compiled_in_rows(
    network: Network, batch: int, p: AcceleratorParameters, plan: str = AUTO
) -> CompiledStep:
    """A training step from its graph for a loop on the chip, by a plan of ``IN_ROWS``. Raises
    ``CompileError``.
    """
    _require(network, batch, p)
    step = cached_step(network, batch, p, in_rows=True, plan=plan)
    adapter = _RowsAdapter(network, step, batch)
    forward, backward = adapter.program(step.forward), adapter.program(step.backward)
    last = len(network.layers)
    return CompiledStep(
        network=network,
        batch=batch,
        parameters=p,
        plan=IN_ROWS[plan],
        inputs=(SAMPLES_INSIDE, SAMPLES_OUTSIDE),
        results=(activation_name(last),),
        uppers=(gradient_name(last),),
        buffers=adapter.buffers,
        memory_bytes=adapter.memory.top,
        forward=forward,
        backward=backward,
    )


def plan_of_loop(network: Network, batch: int, p: AcceleratorParameters, plan: str = AUTO) -> str:
    """The plan of steps whose loss and update are those of a loop on the chip: with the bits of
    that loop where it takes the network and the ``plan``, by the host where it does not.
    """
    try:
        _require(network, batch, p)
    except CompileError:
        return plan
    return IN_ROWS.get(plan, plan)


def _require(network: Network, batch: int, p: AcceleratorParameters) -> None:
    what = f"{network.name}: loss and update on the chip"
    if not network.is_straight:
        raise CompileError(
            f"{what} take layers in one line, without windows and functions; use --update host for "
            "this network"
        )
    if network.coded_used or p.wide_tensors:
        raise CompileError(f"{what} take fixed point of one word; use --update host")
    if network.widths.factor > 8:
        raise CompileError(
            f"{what} take factors of up to 8 bits, not {network.widths.factor}; use --update host"
        )
    if p.lanes != LANES:
        raise CompileError(f"{what} take {LANES} lanes, not {p.lanes}; use lanes={LANES}")
    if batch % LANES:
        raise CompileError(
            f"{what} take batches of a multiple of {LANES}, not of {batch}; give one with --batch"
        )

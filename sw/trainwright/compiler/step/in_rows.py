"""Turn a compiled graph into what a loop on the chip takes: tensors in the rows of its state.

Buffers have the names, shapes and orders that programs of the loop expect (``compiler.chip``).
``compiled_in_rows`` is the entry; ``plan_of_loop`` says whether a network can be trained so.
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
from trainwright.compiler.step.adapter import GraphImage, StepAdapter
from trainwright.compiler.step.compile import Emitted, StepPrograms
from trainwright.compiler.step.rows import PIXELS, samples_of
from trainwright.compiler.step.stored import cached_step
from trainwright.graph.ir import Graph
from trainwright.network import Network
from trainwright.onchip.layout import LANES
from trainwright.parameters import AcceleratorParameters

INSIDE = (1, 0)
"""Order of dimensions where the host has (batch, values) and the buffer (values, batch)."""
CONSTANTS = Arrangement.IDENTITY, Arrangement.ZEROS
"""Constants that programs of the loop read, whether the step's own programs do or not."""


def _bytes(width: int) -> int:
    """Return the bytes of an element of ``width`` bits in external memory."""
    return 1 if width <= 8 else 2


class _RowsAdapter(StepAdapter):
    """Adapter whose buffers have fixed names, whether a program of the step reads them or not."""

    def __init__(self, network: Network, step: StepPrograms, batch: int) -> None:
        super().__init__(network, step)
        self.p, self.batch = step.parameters, batch
        self.memory = MemoryMap(self.p.lanes, top=step.memory_bytes)
        self._placed: dict[tuple[str, Axes | None], Buffer] = {}
        """Buffers of the step's programs, by tensor, and by its axes along the lanes, too."""
        for emitted in (step.forward, step.backward):
            for outer in emitted.lowered.outer.values():
                buffer = step.buffers[outer.name]
                self._placed[outer.tensor, None] = buffer
                self._placed[outer.tensor, outer.layout.lanes] = buffer
        self._samples()
        for n in range(1, len(network.layers) + 1):
            self._layer(n)
        self._ends()
        self.constants = [self._constant(what) for what in CONSTANTS]

    def _add(
        self, name: str, shape: tuple[int, ...], size: int, *, tensor: str = "",
        lanes: Axes | None = None, row: int = 0, order: tuple[int, ...] = (), repeat: int = 1,
    ) -> Buffer:  # fmt: skip
        """Add a buffer of elements of ``size`` bytes, its last dimension padded to ``row`` values.

        It lies where the programs have the ``tensor``, or behind all buffers if they have none.
        """
        row = row or self.lanes
        padded = -(-shape[-1] // row) * row
        placed = self._placed.get((tensor or name, lanes))
        address = placed.address if placed else self.memory.top
        buffer = Buffer(name, address, shape, padded, size, order, repeat)
        if placed:
            # Two descriptions of the same rows: the layouts of ``step.rows`` and these shapes.
            assert buffer.size == placed.size, (name, buffer.size, placed.size)
        else:
            self.memory.add_bytes(name, buffer.size)
        self.buffers[name] = buffer
        return buffer

    def _samples(self) -> None:
        """Add the inputs, in both orders."""
        small = _bytes(self.network.widths.activation)
        size = self.network.layers[0].input_size
        given = samples_of(self.step.graph.whole, self.lanes)
        inside, outside = (order.layout.lanes for order in given if order.layout)
        shape = size, self.batch
        self._add(SAMPLES_INSIDE, shape, small, tensor=PIXELS, lanes=inside, order=INSIDE)
        self._add(SAMPLES_OUTSIDE, shape[::-1], small, tensor=PIXELS, lanes=outside)

    def _layer(self, n: int) -> None:
        """Add bias and gradients of layer ``n`` (from 1)."""
        layer = self.network.layers[n - 1]
        gradient, bias = _bytes(self.network.widths.gradient), _bytes(self.network.widths.bias)
        outputs = layer.output_size
        # The forward pass adds a bias to samples along the lanes, so each value fills a row.
        self._add(f"l{n}.b", (outputs, self.lanes), bias, repeat=self.lanes)
        if layer.bias:
            self._add(f"l{n}.db", (outputs,), gradient, row=LANES)
        for k, shape in enumerate(layer.factor_shapes, 1):
            # The last factor's right rank is 1: its rows have I_n along the lanes instead.
            along = shape if k < layer.order else shape[:-1]
            self._add(f"l{n}.dG{k}", along, gradient, row=LANES)

    def _ends(self) -> None:
        """Add the logits and their gradient."""
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
        """Add nothing: ``__init__`` has added all buffers."""

    def image(
        self, graph: Graph, outer: External, layer: int, index: int
    ) -> tuple[GraphImage | RowImage, Buffer]:
        """Return a factor as rows of the state."""
        weights = self.network.layers[layer]
        what = Arrangement.STATE_LAST if index == weights.order - 1 else Arrangement.STATE
        image = row_image(weights, layer, index, what, self.p)
        image = replace(image, element_bytes=outer.element_bytes)
        rows = image.rows, self.lanes
        return image, self._add(image.name, rows, outer.element_bytes, tensor=outer.tensor)

    def program(self, emitted: Emitted) -> CompiledProgram:
        """Return a program whose images of constants are ``constants``."""
        program = super().program(emitted)
        known = {image.name for image, _ in self.constants}
        images = tuple(entry for entry in program.images if entry[0].name not in known)
        return replace(program, images=(*images, *self.constants))


@cache
def compiled_in_rows(
    network: Network, batch: int, p: AcceleratorParameters, plan: str = AUTO
) -> CompiledStep:
    """Return a training step from its graph for a loop on the chip. Raises ``CompileError``.

    ``plan`` is one of ``IN_ROWS``.
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
    """Return the plan of steps whose loss and update have the bits of a loop on the chip.

    That is a plan in rows if the loop takes the network, else ``plan``: loss and update by the
    host.
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
    # A row of the state is a row of the scratchpad: passes and transposes count on it.
    if p.lanes != LANES:
        raise CompileError(f"{what} take {LANES} lanes, not {p.lanes}; use lanes={LANES}")
    if batch % LANES:
        raise CompileError(
            f"{what} take batches of a multiple of {LANES}, not of {batch}; give one with --batch"
        )

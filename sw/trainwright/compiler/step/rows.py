"""Layouts of the tensors of a step that are rows of the training state on the chip.

Factors and their gradients have the rows of ``onchip.layout``, with R_n (of the last factor I_n)
along the lanes. Logits and their gradient have a row for each output, with samples along the lanes.
Inputs are stored in two layouts. Programs that read and write these rows need no further copies of
factors. ``step.compile`` passes the layouts on; ``plan_of_loop`` says whether a network can be
trained in this way.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from trainwright.compiler.base.compiled import AUTO, IN_ROWS
from trainwright.compiler.base.errors import CompileError
from trainwright.compiler.base.names import IDENTITY, SAMPLES_INSIDE, SAMPLES_OUTSIDE, ZEROS
from trainwright.compiler.forms.external import External, Sources
from trainwright.compiler.forms.layout import Axes, Layout
from trainwright.graph.ir import Graph, View
from trainwright.graph.network import (
    SAMPLES,
    SEQUENCES,
    host_name,
    result_names,
    upper_names,
)
from trainwright.network import Attention, Dropout, Input, Network, TokenPool
from trainwright.network.nodes import IMAGE
from trainwright.onchip.choices import MOST_OUTPUTS, reads_images
from trainwright.onchip.layout import LANES, NARROWEST, WIDEST
from trainwright.parameters import AcceleratorParameters

Rows = Mapping[str, Sources]
"""Layouts in external memory that programs must use, by tensor, and buffers of ``ALWAYS``."""
ALWAYS = IDENTITY, ZEROS, SAMPLES_INSIDE, SAMPLES_OUTSIDE
"""Names of buffers that exist even if no program of the step reads them."""


def rows_of(network: Network, graph: Graph, lanes: int, in_records: Collection[str] = ()) -> Rows:
    """Return the layouts of a step of a network on an accelerator of ``lanes`` lanes.

    ``in_records`` are tensors of samples whose rows belong to one sample each.
    """
    # With fewer lanes, a row of the state takes several rows: its random bits stay the same.
    unit = LANES // lanes

    def stored(name: str, layout: Layout) -> External:
        return replace(External.of(graph, name, layout, {}, lanes), reloadable=True)

    rows = {name: (External.constant(name, lanes),) for name in (IDENTITY, ZEROS)}
    for n, layer in enumerate(network.layers, 1):
        for name in (f"l{n}.{kind}{k}" for k in range(1, layer.order + 1) for kind in ("G", "dG")):
            axes = graph.tensors[name].axes
            rows[name] = (stored(name, Layout(axes[:-1], axes[-1:], unit=unit)),)
        if layer.bias:
            axes = graph.tensors[name := f"l{n}.db"].axes
            inner = whole_rows(graph, axes, LANES)
            layout = Layout(axes[: len(axes) - len(inner)], inner, unit=unit)
            rows[name] = (stored(name, layout),)
    # The accelerator draws masks of dropout in these rows (``onchip.mask_pass``).
    units = {host_name(network, node): unit for node in network.nodes if isinstance(node, Dropout)}
    for name in (*result_names(network), *upper_names(network), *units):
        *axes, samples = graph.tensors[name].axes
        rows[name] = (stored(name, Layout(tuple(axes), (samples,), unit=units.get(name, 1))),)
    if not reads_images(network):
        return rows | {
            name: (stored(name, _of_records(graph, name, lanes)),) for name in in_records
        }
    # Inputs have two layouts: samples along the lanes, and pixels along the lanes. Views of the
    # image have the same order of pixels; a function of the input reads the image itself.
    readers = (op for op in graph.ops if IMAGE in op.operands)
    for name in {op.out if isinstance(op, View) else IMAGE: 0 for op in readers}:
        *axes, samples = graph.tensors[name].axes
        inner = whole_rows(graph, axes, lanes)
        inside = stored(name, Layout(tuple(axes), (samples,)))
        outside = stored(name, Layout((samples, *axes[: len(axes) - len(inner)]), inner))
        rows |= {name: (inside, outside), SAMPLES_INSIDE: (inside,), SAMPLES_OUTSIDE: (outside,)}
    return rows


def sample_axis(network: Network) -> str:
    """Return the axis of the samples of a data set; a sequence is one sample."""
    return SEQUENCES if network.tokens > 1 else SAMPLES


def sample_tensors(network: Network) -> Iterator[str]:
    """Yield the tensors that the host would write for each sample, except masks of dropout."""
    yield from (node.name for node in network.nodes if isinstance(node, Input))
    if not network.padding:  # without padding these are constants
        return
    for node in network.nodes:
        if isinstance(node, TokenPool | Attention):
            yield host_name(network, node)


def _of_records(graph: Graph, name: str, lanes: int) -> Layout:
    """Return the layout of a tensor whose rows belong to one sample or sequence each."""
    axes = graph.tensors[name].axes
    outer = [a for a in (SEQUENCES, SAMPLES) if a in axes]
    rest = [a for a in axes if a not in outer]
    inner = whole_rows(graph, rest, lanes) if rest else (SAMPLES,)
    rows = [a for a in (*outer, *rest) if a not in inner]
    return Layout(tuple(rows), inner)


def without_records(network: Network, graph: Graph, every: Iterable[External]) -> set[str]:
    """Return the tensors of samples with rows of several samples in external memory.

    Records of a data set, one for each sample, cannot hold such rows.
    """
    if reads_images(network):  # whole images are stored in both orders
        return set()
    names, axis = set(sample_tensors(network)), sample_axis(network)
    return {
        outer.tensor
        for outer in every
        if graph.origins.get(outer.tensor) in names
        and axis in (*outer.layout.lanes, *outer.layout.padded)
    }


def whole_rows(graph: Graph, axes: Sequence[str], unit: int) -> Axes:
    """Return the fewest last axes that together fill whole rows of ``unit``, or else all axes."""
    for count in range(1, len(axes) + 1):
        inner = tuple(axes[-count:])
        if prod(graph.sizes[a] for a in inner) % unit == 0:
            return inner
    return tuple(axes)


def _problems(network: Network, p: AcceleratorParameters, *, alone: bool) -> Iterator[str]:
    """Yield why a loop on the chip does not support a step; ``alone``: or its vector engine."""
    factor, width = network.format("factor"), network.widths.factor
    if p.wide_tensors:
        yield "take fixed point of one word; use --update host"
    if width > WIDEST:
        yield f"take factors of up to {WIDEST} bits, not {width}; use --update host"
    if not alone:
        return
    if not p.vector_engine:
        yield "need a vector engine; use vector_engine=1"
    if not factor.coded and factor.width < NARROWEST:
        yield f"take factors of {NARROWEST} bits or more, not {factor.width}; use --update host"
    if other := ", ".join(name for name, _ in network.singles if ".G" in name):
        yield (
            f"take one format of all factors, not others of {other}: leave these out, or use "
            "--update host"
        )
    if network.classes > MOST_OUTPUTS:
        yield f"take up to {MOST_OUTPUTS} classes, not {network.classes}: use --update host"


def plan_of_loop(network: Network, p: AcceleratorParameters, plan: str = AUTO) -> str:
    """Return the plan in rows if a loop on the chip supports the network, else ``plan``.

    With a plan in rows, steps have the bits of the loop, also if the host computes loss and update.
    """
    return plan if any(_problems(network, p, alone=False)) else IN_ROWS.get(plan, plan)


def require_chip(network: Network, p: AcceleratorParameters, *, alone: bool = True) -> None:
    """Raise ``CompileError`` for a step that a loop on the chip does not support.

    If ``alone``, the vector engine computes loss and update, else the host.
    """
    for problem in _problems(network, p, alone=alone):
        raise CompileError(f"{network.name}: loss and update on the chip {problem}")

"""What of a compiled model runs where, in how many bits, and what it took."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import getitem

import torch
from torch import fx

from trainwright.nn import TensorTrain
from trainwright.nn.model import trains
from trainwright.nn.untyped import named_modules
from trainwright.offload.chain import Chain
from trainwright.offload.machine import Settings
from trainwright.offload.trace import why_not
from trainwright.report.tables import markdown


@dataclass(frozen=True)
class LayerReport:
    """One module of the model that holds parameters."""

    name: str
    module: str
    where: str
    """The program, by its number, or why it runs in torch."""
    numbers: str
    """Format of its weights, and the posits of other classes of tensors."""
    ranks: tuple[int, ...]
    bits: int
    dense_bits: int
    """Of the same layer dense, in float32."""


@dataclass(frozen=True)
class Report:
    """Counts of all steps so far, without calibration; ``print`` it for a table."""

    backend: str
    batch: int
    layers: tuple[LayerReport, ...]
    steps: int
    """Training steps: calls in training mode whose backward pass ran."""
    predicted_cycles: int
    """Of a step of all programs by the cycle model; those of images once these have come."""
    cycles: int
    """Counted by the hardware; 0 on the golden model, which takes none."""
    bytes_read: int
    bytes_written: int
    """Between accelerator and external memory."""
    saturations: int
    """Values that were saturated, inputs included."""
    values: int
    """Values that were rounded, inputs included."""
    underflows: int
    """Values that were closer to 0 than the smallest posit; 0 in fixed point."""
    operators: tuple[str, ...]
    """Functions and modules without parameters that run in torch, each once."""

    @property
    def bits(self) -> int:
        """Of the model."""
        return sum(layer.bits for layer in self.layers)

    @property
    def dense_bits(self) -> int:
        """Of the dense model in float32."""
        return sum(layer.dense_bits for layer in self.layers)

    @property
    def _counted(self) -> str:
        """Say how many cycles the hardware counted, if there is any."""
        if not self.cycles:
            return "and this back end counts none"
        return f"and {self.cycles:,} were counted in all passes"

    def __str__(self) -> str:
        rows = [
            (one.name, one.module, one.where, one.numbers, " ".join(map(str, one.ranks)),
             one.bits, one.dense_bits)
            for one in self.layers
        ]  # fmt: skip
        head = ("layer", "module", "runs on", "numbers", "ranks", "bits", "dense float32")
        lines = [
            f"back end {self.backend}, batch {self.batch}: {self.bits:,} bits, "
            f"{self.dense_bits / self.bits:.1f} times fewer than dense float32",
            f"{self.steps:,} training steps; a step takes {self.predicted_cycles:,} cycles by the "
            f"cycle model, {self._counted}",
            f"{self.bytes_read:,} bytes read and {self.bytes_written:,} written, "
            f"{self.saturations / max(1, self.values):.2%} of {self.values:,} values saturated"
            + (f", {self.underflows:,} underflowed" if self.underflows else ""),
        ]
        if self.operators:
            lines.insert(0, f"also in torch: {', '.join(self.operators)}")
        return markdown(head, rows) + "\n" + "\n".join(lines)


def make_report(
    module: torch.nn.Module, settings: Settings, chains: Sequence[Chain], graph: fx.GraphModule
) -> Report:
    """The report of a model whose chains are these, in ``graph``; compiles the programs."""
    places = {
        id(layer): f"program {n}" for n, chain in enumerate(chains, 1) for layer in chain.layers
    }
    segments = [segment for chain in chains for segment in chain.segments]
    totals = [segment.runner.totals for segment in segments]
    return Report(
        backend=settings.backend,
        batch=settings.batch,
        layers=tuple(_layers(module, places, _holders(graph))),
        steps=max((chain.steps for chain in chains), default=0),
        predicted_cycles=sum(chain.predicted_cycles for chain in chains),
        cycles=sum(one.counters.cycles for one in totals),
        bytes_read=sum(one.counters.bytes_read for one in totals),
        bytes_written=sum(one.counters.bytes_written for one in totals),
        saturations=sum(one.saturations for one in totals),
        values=sum(one.values for one in totals),
        underflows=sum(one.underflows for one in totals),
        operators=tuple(dict.fromkeys(_operators(graph))),
    )


def _operators(graph: fx.GraphModule) -> Iterator[str]:
    """What torch computes without parameters, in the order of the graph."""
    for node in graph.graph.nodes:
        if node.op == "call_module":
            one = graph.get_submodule(str(node.target))
            if not isinstance(one, Chain) and not any(True for _ in one.parameters()):
                yield type(one).__name__
        elif node.op == "call_function" and not _takes_an_end(node, graph):
            yield getattr(node.target, "__name__", str(node.target))
        elif node.op == "call_method":
            yield str(node.target)


def _takes_an_end(node: fx.Node, graph: fx.GraphModule) -> bool:
    """Whether a node takes one of several outputs of a program."""
    for given in node.all_input_nodes if node.target is getitem else ():
        if given.op == "call_module":
            return isinstance(graph.get_submodule(str(given.target)), Chain)
    return False


def _holders(graph: fx.GraphModule) -> dict[int, str]:
    """Return why a layer runs in torch, by its id, where the graph has a module around it whole."""
    reasons: dict[int, str] = {}
    for node in graph.graph.nodes:
        if node.op == "call_module":
            whole = graph.get_submodule(str(node.target))
            own = type(whole).__module__.startswith("torch.")
            verb = "does not look into" if own else "cannot trace"
            for _, part in named_modules(whole):
                if part is not whole:
                    reasons[id(part)] = f"inside {type(whole).__name__}, which torch.fx {verb}"
    return reasons


def _numbers(layer: TensorTrain) -> str:
    if layer.is_float:
        return "float32"
    coded = [f"{kind} {fmt}" for kind, fmt in layer.numbers.coded if kind != "factor"]
    return ", ".join([str(layer.numbers.format("factor")), *coded])


def _layers(
    module: torch.nn.Module, places: dict[int, str], holders: dict[int, str]
) -> list[LayerReport]:
    inside = {id(part) for layer in trains(module) for part in layer.modules()} - {
        id(layer) for layer in trains(module)
    }
    rows: list[LayerReport] = []
    for name, one in named_modules(module):
        own = sum(p.numel() for p in one.parameters(recurse=False))
        if id(one) in inside or not (own or isinstance(one, TensorTrain)):
            continue
        if isinstance(one, TensorTrain):
            why = why_not(one) or holders.get(id(one), "it is not called")
            where = places.get(id(one)) or f"torch: {why}"
            bias = one.rows if one.bias is not None else 0
            dense = 32 * (one.rows * one.columns + bias)
            rows.append(
                LayerReport(
                    name, type(one).__name__, where, _numbers(one), one.ranks, one.bits, dense
                )
            )
        else:
            own_class = not type(one).__module__.startswith(("torch.", "trainwright."))
            where = f"torch: {'parameters of its own' if own_class else why_not(one)}"
            bits = 32 * own
            rows.append(LayerReport(name, type(one).__name__, where, "float32", (), bits, bits))
    return rows

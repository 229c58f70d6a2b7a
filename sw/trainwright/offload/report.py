"""Report of a compiled model: where each layer runs, in how many bits, and the work so far."""

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch.nn.parameter import is_lazy

from trainwright.nn import TensorTrain
from trainwright.nn.model import trains
from trainwright.nn.untyped import named_modules
from trainwright.offload.chain import Chain
from trainwright.offload.machine import Settings
from trainwright.offload.plan import Plan
from trainwright.offload.trace import why_not
from trainwright.support.tables import markdown
from trainwright.support.text import amount

COLUMNS = 80
"""Width of a printed report."""


@dataclass(frozen=True)
class LayerReport:
    """Module of the model that holds parameters."""

    name: str
    module: str
    where: str
    """The program, by its number, or why it runs in torch."""
    numbers: str
    """Format of its weights, and the posits of other classes of tensors."""
    ranks: tuple[int, ...]
    bits: int
    dense_bits: int
    """Bits of the same layer dense, in float32."""


@dataclass(frozen=True)
class Report:
    """Counts of all steps so far, without calibration; ``print`` it for a table."""

    backend: str
    batch: int
    layers: tuple[LayerReport, ...]
    steps: int
    """Training steps: forward passes in training mode, one or several, whose backward ran."""
    predicted_cycles: int
    """Cycles of a step of all programs by the cycle model; programs of images count once used."""
    cycles: int
    """Counted by the hardware; 0 on the golden model, which takes none."""
    bytes_read: int
    """Bytes that the accelerator read from external memory."""
    bytes_written: int
    """Bytes that the accelerator wrote to external memory."""
    saturations: int
    """Values that were saturated, inputs included."""
    values: int
    """Values that were rounded, inputs included."""
    underflows: int
    """Values that were closer to 0 than the smallest posit; 0 in fixed point."""
    operators: tuple[str, ...]
    """Functions and modules without parameters that run in torch, each once."""
    alone: tuple[tuple[str, str], ...] = ()
    """Layers that are programs of their own because torch.fx does not show them, and why."""
    why_alone: str = ""
    """Why all layers are, where torch.fx shows none of them."""

    @property
    def bits(self) -> int:
        """Bits of the model."""
        return sum(layer.bits for layer in self.layers)

    @property
    def dense_bits(self) -> int:
        """Bits of the dense model in float32."""
        return sum(layer.dense_bits for layer in self.layers)

    @property
    def _counted(self) -> str:
        """Say how many cycles the hardware counted, if there is any."""
        if not self.cycles:
            return "and this back end counts none"
        return f"and {self.cycles:,} were counted in all passes"

    def __str__(self) -> str:
        lines = [
            *_together((layer.where, layer.name) for layer in self.layers if ":" in layer.where),
            *_together(
                (layer.numbers, layer.name) for layer in self.layers if "," in layer.numbers
            ),
            *_together((f"a program of its own, {why}", name) for name, why in self.alone),
        ]
        if self.operators:
            lines.append(f"also in torch: {', '.join(self.operators)}")
        lines += [
            f"back end {self.backend}, batch {self.batch}: {amount(self.bits, 'bit')}, "
            f"{self.dense_bits / self.bits:.1f} times fewer than dense float32",
            f"{amount(self.steps, 'training step')}; a batch takes "
            f"{amount(self.predicted_cycles, 'cycle')} by the cycle model, {self._counted}",
            f"{amount(self.bytes_read, 'byte')} read and {self.bytes_written:,} written, "
            f"{self.saturations / max(1, self.values):.2%} of {amount(self.values, 'value')} "
            "saturated" + (f", {self.underflows:,} underflowed" if self.underflows else ""),
        ]
        return self._table() + "\n" + "\n".join(
            textwrap.fill(line, COLUMNS, subsequent_indent="  ", break_on_hyphens=False)
            for line in lines
        )  # fmt: skip

    def _table(self) -> str:
        """Return a row for each layer; long names are cut."""
        head = ("layer", "module", "runs on", "numbers", "ranks", "bits", "dense bits")
        rows = [
            (_cut(layer.module, 13), layer.where.split(":")[0], layer.numbers.split(", ")[0],
             " ".join(map(str, layer.ranks)), layer.bits, layer.dense_bits)
            for layer in self.layers
        ]  # fmt: skip
        rest = len(markdown(head, [("", *row) for row in rows]).split("\n")[0]) - len(head[0])
        room = max(len(head[0]), COLUMNS - rest)
        # The end of a name tells parts of one module apart.
        names = [_cut((layer.name or "(model)")[::-1], room)[::-1] for layer in self.layers]
        return markdown(head, [(name, *row) for name, row in zip(names, rows, strict=True)])


def _cut(text: str, room: int) -> str:
    """Return text that fits into ``room`` characters."""
    return text if len(text) <= room else text[: room - 1] + "…"


def _together(notes: Iterable[tuple[str, str]]) -> list[str]:
    """Return a line for each note, with all the names that it is about."""
    names: dict[str, list[str]] = {}
    for note, name in notes:
        names.setdefault(note, []).append(name or "(model)")
    return [f"{', '.join(part)}: {note}" for note, part in names.items()]


def make_report(
    module: torch.nn.Module,
    settings: Settings,
    plan: Plan,
    chains: Iterable[Chain],
    retired: Sequence[Chain],
) -> Report:
    """Report on a model whose calls run as ``plan`` says; compile the programs.

    Counts include all ``chains``, and the programs that were ``retired``.
    """
    chains, planned = list(chains), plan.chains
    numbers = {chain: f"program {n}" for n, chain in enumerate(chains, 1)}
    places = {
        id(layer): numbers[chain] for part in (chains, planned) for chain in part
        for layer in chain.layers
    }  # fmt: skip
    totals = [segment.runner.totals for chain in [*chains, *retired] for segment in chain.segments]
    return Report(
        backend=settings.backend,
        batch=settings.batch,
        layers=tuple(_layers(module, places)),
        steps=max((chain.steps for chain in [*chains, *retired]), default=0),
        predicted_cycles=sum(chain.predicted_cycles for chain in planned),
        cycles=sum(total.counters.cycles for total in totals),
        bytes_read=sum(total.counters.bytes_read for total in totals),
        bytes_written=sum(total.counters.bytes_written for total in totals),
        saturations=sum(total.saturations for total in totals),
        values=sum(total.values for total in totals),
        underflows=sum(total.underflows for total in totals),
        operators=tuple(dict.fromkeys(plan.operators())),
        alone=tuple((plan.names[layer], why) for layer, why in plan.alone.items()),
        why_alone=plan.why,
    )


def _numbers(layer: TensorTrain) -> str:
    if layer.is_float:
        return "float32"
    coded = [f"{kind} {fmt}" for kind, fmt in layer.numbers.coded if kind != "factor"]
    return ", ".join([str(layer.numbers.format("factor")), *coded])


def _layers(module: torch.nn.Module, places: dict[int, str]) -> list[LayerReport]:
    inside = {id(part) for layer in trains(module) for part in layer.modules()} - {
        id(layer) for layer in trains(module)
    }
    rows: list[LayerReport] = []
    for name, part in named_modules(module):
        own = sum(0 if is_lazy(p) else p.numel() for p in part.parameters(recurse=False))
        if id(part) in inside or not (own or isinstance(part, TensorTrain)):
            continue
        if isinstance(part, TensorTrain):
            why = why_not(part) or "it is not called"
            where = places.get(id(part)) or f"torch: {why}"
            bias = part.rows if part.bias is not None else 0
            dense = 32 * (part.weight_size + bias)
            rows.append(
                LayerReport(
                    name, type(part).__name__, where, _numbers(part), part.ranks, part.bits, dense
                )
            )
        else:
            own_class = not type(part).__module__.startswith(("torch.", "trainwright."))
            where = f"torch: {'parameters of its own' if own_class else why_not(part)}"
            bits = 32 * own
            rows.append(LayerReport(name, type(part).__name__, where, "float32", (), bits, bits))
    return rows

"""Memory of a whole training state, beside the model bits that the paper counts."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import prod
from re import fullmatch

from trainwright.compiler import CompiledStep
from trainwright.compiler.base.memory import Buffer
from trainwright.compiler.chip.memory import ChipMemory
from trainwright.network import Network
from trainwright.onchip.layout import LANES, STATE_BITS, state_rows
from trainwright.onchip.prior import COEFFICIENT_WIDTH, EXPONENT_WIDTH
from trainwright.onchip.schedule import ENTRIES as RATE_ENTRIES
from trainwright.onchip.schedule import RATE_WIDTH, SHIFT_WIDTH, WEIGHT_WIDTH
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Program
from trainwright.program.fields import DESCRIPTOR_BYTES
from trainwright.train.settings import TrainSettings
from trainwright.train.storage import master_bits, moment_bits

PLACES = ACCELERATOR, HOST, CHIP = "external memory", "host", "on chip"


@dataclass(frozen=True)
class MemoryItem:
    """Part of the training state, and its place."""

    name: str
    place: str
    """``external memory`` of the accelerator, ``host``, or ``on chip``."""
    bits: int


PROGRAMS, INPUTS = "programs", "inputs, as laid out"
KEPT = "activations and partial results kept for backward"
GRADIENTS, FACTORS = "gradients of the parameters", "factors and biases, as laid out"
BETWEEN = "gradients between layers, intermediate results"
_BUFFERS = PROGRAMS, INPUTS, KEPT, GRADIENTS, FACTORS, BETWEEN
"""Contents of the buffers of two programs, in the order of a report."""
_STATE = "weights and moments", "prior's sums and coefficients, schedule"
_RESIDENT = {
    "state": _STATE[0], "factors": _STATE[0], "prior": _STATE[1], "schedule": _STATE[1],
    "targets": INPUTS,
}  # fmt: skip
"""Contents of the buffers that only a resident program has, by the names of the buffers."""


def buffer_kind(name: str, network: Network) -> str:
    """Return what a buffer holds, by the names that a report has for parts of external memory.

    ``name`` is that of a tensor, ``PREFIX.PART.PART``, and of its layout behind a colon.
    """
    if name in _RESIDENT:
        return _RESIDENT[name]
    prefix, *parts = name.partition(":")[0].removesuffix(" copy").split(".")
    known = {*network.prefixes, *network.prefixes.values()}
    given = {node.name for node in network.nodes if not node.sources}
    readers = {
        network.prefixes[n.name] for n in network.nodes if n.sources and given >= {*n.sources}
    }
    if prefix in given or (prefix in readers and len(parts) == 1 and parts[0].startswith("x")):
        return INPUTS
    if prefix not in known and prefix.removeprefix("d") not in known:
        return PROGRAMS  # the programs themselves, and zeros, ones or an identity that they read
    if len(parts) == 1 and fullmatch(r"dG\d+|db", parts[0]):
        return GRADIENTS
    if parts and all(fullmatch(r"G\d+|b", part) for part in parts):
        return FACTORS
    of_gradients = prefix not in known or any(part.startswith("d") for part in parts)
    return BETWEEN if of_gradients else KEPT


def resident_memory(memory: ChipMemory, program: Program) -> list[MemoryItem]:
    """Return the bits that steps of a resident ``program`` keep, without the data set."""
    bits = _external_bits(memory.everything, memory.step.network, (*_STATE, *_BUFFERS))
    bits[PROGRAMS] += 8 * DESCRIPTOR_BYTES * len(program.descriptors)
    return _items(bits, memory.step.parameters)


def accelerator_memory(step: CompiledStep) -> list[MemoryItem]:
    """Return the bits of external memory that a compiled step takes, and of the chip's own.

    Those of external memory are 8 times ``step.memory_bytes``: buffers as stored, a factor once for
    every layout in which a program reads it, and the bytes up to the next buffer.
    """
    return _items(_external_bits(step.everything, step.network, _BUFFERS), step.parameters)


def _external_bits(
    buffers: Mapping[str, Buffer], network: Network, kinds: Iterable[str]
) -> dict[str, int]:
    """Return the bits of external memory that buffers take, by ``kinds`` of ``buffer_kind``."""
    bits = dict.fromkeys(kinds, 0)
    for buffer in {buffer.address: buffer for buffer in buffers.values()}.values():
        bits[buffer_kind(buffer.name, network)] += 8 * buffer.taken
    return bits


def _items(bits: dict[str, int], p: AcceleratorParameters) -> list[MemoryItem]:
    items = [MemoryItem(name, ACCELERATOR, count) for name, count in bits.items()]
    return [*items, MemoryItem("scratchpad, stores, queues", CHIP, p.on_chip_bits)]


def update_memory(initial: Network) -> list[MemoryItem]:
    """Return the bits of the state of an update on the chip, with the rows of the initial ranks.

    The host holds it as long as it computes the update.
    """
    columns = 2 * sum(map(sum, initial.ranks))
    entry = RATE_WIDTH + SHIFT_WIDTH + WEIGHT_WIDTH + EXPONENT_WIDTH
    return [
        MemoryItem("weights and moments", HOST, STATE_BITS * LANES * state_rows(initial)),
        MemoryItem(
            "prior's coefficients, schedule",
            HOST,
            columns * (COEFFICIENT_WIDTH + EXPONENT_WIDTH) + RATE_ENTRIES * entry,
        ),
    ]


def host_memory(network: Network, settings: TrainSettings) -> list[MemoryItem]:
    """Return the bits of the master weights and of Adam's moments."""
    factors = [shape for layer in network.layers for shape in layer.factor_shapes]
    biases = [(layer.output_size,) for layer in network.layers if layer.bias]
    return [
        MemoryItem(
            f"master weights, {settings.master_weights}",
            HOST,
            master_bits(settings.master_weights) * network.parameters,
        ),
        MemoryItem(
            f"Adam moments, {settings.moments}",
            HOST,
            sum(moment_bits(settings.moments, shape) for shape in (*factors, *biases)),
        ),
    ]


def float_memory(network: Network, batch: int, parameters: int) -> list[MemoryItem]:
    """Return the memory of training in float32 with Adam, W rebuilt or dense.

    ``parameters`` counts the stored elements of W.
    """
    sizes = {name: prod(shape) * network.rows_of(name) for name, shape in network.shapes.items()}
    logits = sum(sizes[name] for name in network.heads)
    kept = sum(sizes.values()) - logits
    widest = max(sizes[node.name] for node in network.nodes if node.sources)
    return [
        MemoryItem("parameters", HOST, 32 * parameters),
        MemoryItem("Adam moments, float32", HOST, 64 * parameters),
        MemoryItem("gradients of the parameters", HOST, 32 * parameters),
        MemoryItem("inputs and activations kept for backward", HOST, 32 * batch * kept),
        MemoryItem("logits, gradient between layers", HOST, 32 * batch * (logits + widest)),
    ]


def state_bits_per_parameter(settings: TrainSettings, network: Network) -> float:
    """Return the bits that a parameter's update keeps, including the factor's own where shared."""
    if settings.chip is not None:
        return STATE_BITS
    return sum(item.bits for item in host_memory(network, settings)) / network.parameters


def training_memory(
    network: Network,
    settings: TrainSettings,
    compiled: Callable[[], CompiledStep],
    *,
    initial: Network,
) -> list[MemoryItem]:
    """Return the memory of a run's training state; ``compiled`` gives its step where there is one.

    ``network`` has the present ranks, ``initial`` those of the start.
    """
    if network.widths.is_float:
        return float_memory(network, settings.batch, network.parameters)
    update = host_memory(network, settings) if settings.chip is None else update_memory(initial)
    return [*accelerator_memory(compiled()), *update]

"""Turn a compiled graph into what the driver takes: buffers, images, rules of exponents.

In: ``step.compile.StepPrograms``. Out: ``base.compiled.CompiledStep``. ``compiled`` is the entry.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache, cached_property
from math import prod
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from trainwright.compiler.base.compiled import CompiledProgram, CompiledStep
from trainwright.compiler.base.memory import Buffer
from trainwright.compiler.base.rules import COPIES, Rule, Written
from trainwright.compiler.emit.emit import Emitted
from trainwright.compiler.forms.external import Bytes, External, constant
from trainwright.compiler.step.compile import StepPrograms
from trainwright.compiler.step.stored import cached_step
from trainwright.fixed.scale import TensorClass
from trainwright.formats import Fixed
from trainwright.formats.exponents import ExponentRule
from trainwright.functions import FunctionKernel
from trainwright.graph.ir import Graph, Kernel, gradient_name
from trainwright.graph.network import SAMPLES, SEQUENCES, result_names, upper_names
from trainwright.network import Input, Network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute
from trainwright.program.elementwise import MASK
from trainwright.program.fields import Operation

if TYPE_CHECKING:
    import torch


def sample_axes(axes: tuple[str, ...]) -> int:
    """Return how many axes of a tensor count samples: the last ones."""
    return len(axes) - max((n for n, a in enumerate(axes, 1) if a not in _SAMPLES), default=0)


_SAMPLES = (SAMPLES, SEQUENCES)


@dataclass(frozen=True, kw_only=True)
class PackedBuffer(Buffer):
    """Tensor in external memory as ``outer`` has it; the host has samples first."""

    outer: External

    @property
    def size(self) -> int:
        """Bytes of the buffer, padding included."""
        return self.outer.size

    @property
    def _samples(self) -> tuple[int, ...]:
        """Sizes of the axes that count samples, the last ones."""
        return self.shape[len(self.shape) - sample_axes(self.outer.axes) :]

    def of_each(self, axis: str) -> "PackedBuffer":
        """Return a buffer that keeps the rows of each value of an axis together."""
        return replace(self, outer=self.outer.of_each(axis))

    def pack(self, values: "torch.Tensor") -> Bytes:
        """Return the bytes of the host's array: (samples, values) or values."""
        array = values.numpy()
        if self._samples:
            array = array.reshape(prod(self._samples), -1).T
        return self.outer.pack(array.reshape(self.shape))

    def unpack(self, data: Bytes) -> "torch.Tensor":
        """Return the host's array from all bytes of the buffer."""
        array = self.outer.unpack(data)
        if self._samples:
            array = array.reshape(-1, prod(self._samples)).T
        import torch

        return torch.from_numpy(np.ascontiguousarray(array))


@dataclass(frozen=True, kw_only=True)
class PackedConstant(PackedBuffer):
    """Constant in external memory: the identity, zeros, or a tensor of equal values."""

    value: int = 0
    """Word that all values of a tensor have."""

    def pack(self, values: "torch.Tensor") -> Bytes:
        """Return the bytes of the constant, whatever the values are."""
        return self._packed

    @cached_property
    def _packed(self) -> Bytes:
        known = constant(self.outer.tensor, self.outer.piece.width)
        return self.outer.pack(np.full(self.shape, self.value) if known is None else known)


Packed = TypeVar("Packed", bound=PackedBuffer)
"""Class of a buffer."""


class StepAdapter:
    """Buffers, images and rules of a compiled step."""

    def __init__(self, network: Network, step: StepPrograms):
        self.network, self.step = network, step
        self.host = set(step.graph.whole.given)
        self.buffers: dict[str, Buffer] = {}
        self.aliases: dict[str, tuple[str, ...]] = {}
        self._names = {outer.name: name for name, outer in step.always.items()}
        """Names of buffers that a loop on the chip reads, too."""
        for name in ("program.forward", "program.backward"):
            self.buffers[name] = step.buffers[name]

    def origin(self, name: str) -> str:
        """Return the tensor that a view is a view of."""
        return self.step.graph.whole.origins.get(name, name)

    def _outer(self, emitted: Emitted) -> list[External]:
        """List tensors in external memory: those that a program uses, and those of every step."""
        every = (*emitted.lowered.outer.values(), *self.step.always.values())
        return list({outer.name: outer for outer in every}.values())

    def _add_buffers(self, emitted: Emitted) -> None:
        """Add the buffers that the host writes and reads."""
        graph = emitted.lowered.graph
        factors = {f"l{n}.G{k + 1}" for n, layer in enumerate(self.network.layers, 1)
                   for k in range(layer.order)}  # fmt: skip
        for outer in self._outer(emitted):
            tensor = graph.tensors.get(outer.tensor)
            # Factors and constants are images, which the host writes anew when weights change.
            if tensor is None or outer.tensor in factors or tensor.constant:
                continue
            stored, name = self.step.buffers[outer.name], self.origin(outer.tensor)
            key = self._names.get(outer.name) or (name if name not in self.buffers else outer.name)
            # Views share a buffer: it is listed once, under the name of its origin.
            if key in self.buffers or any(
                b.address == stored.address for b in self.buffers.values()
            ):
                continue
            self.buffers[key] = self._packed(PackedBuffer, outer, name=key)
            self.aliases[name] = (*self.aliases.get(name, ()), key)

    def _packed(self, kind: type[Packed], outer: External, **fields: Any) -> Packed:
        """Return a tensor at its address in external memory."""
        known = {"name": outer.name, "address": self.step.buffers[outer.name].address}
        known |= {"shape": outer.shape, "element_bytes": outer.element_bytes, "outer": outer}
        return kind(**known | fields)

    def _images(self, emitted: Emitted) -> Iterable[PackedBuffer]:
        graph = emitted.lowered.graph
        for outer in self._outer(emitted):
            # The names of factors, ``l1.G2``, say which image they are.
            layer, dot, index = outer.tensor.rpartition(".G")
            tensor = graph.tensors.get(outer.tensor)
            if outer.tensor in self.host and dot and index.isdigit():
                place = {"layer": int(layer[1:]) - 1, "index": int(index) - 1}
                yield self._packed(PackedBuffer, outer, **place)
            elif tensor is None or tensor.constant:
                value = tensor.constant[0] if tensor and tensor.constant else 0
                yield self._packed(PackedConstant, outer, value=value)

    def _rules(self, emitted: Emitted, tensors: dict[str, Written]) -> dict[int, Rule]:
        graph = emitted.lowered.graph
        rules = {}
        layers = enumerate(self.network.layers, 1)
        zeros = {f"l{number}.b" for number, layer in layers if not layer.bias}
        for index, product in emitted.products.items():
            if product.exact:
                d, name = emitted.descriptors[index], self.origin(product.tensor)
                bias = isinstance(d, Compute) and d.operation is Operation.BIAS
                # A copy, or two parts of a sum added: nothing is rounded, so the result keeps the
                # exponent and is counted among copies.
                by = ExponentRule(adds=bias, exact=True)
                rules[index] = Rule(name, name if bias else None, tensors[COPIES], by)
                continue
            op, z = graph.makers[product.tensor], self._written(graph, product.tensor)
            body = op.body if isinstance(op, Kernel) else None
            # A mask has the exponent of its first operand.
            first, *rest = (self.origin(n) for n in op.operands[: 1 if body == MASK else None])
            second = rest[0] if rest and rest[0] not in zeros else None
            if isinstance(body, FunctionKernel):
                z = replace(z, counted=z.counted and body.automatic)
                rules[index] = Rule(first, second, z, kernel=body)
                continue
            by = op.exponents
            rules[index] = Rule(first, second, z, replace(by, exact=by.exact or not z.counted))
        return rules

    def _written(self, graph: Graph, name: str) -> Written:
        if name == COPIES:
            fmt = Fixed(self.step.parameters.word_width)
            return Written(COPIES, TensorClass.INTERMEDIATE, fmt, 1, counted=False)
        tensor = graph.tensors[name]
        return Written(
            name, tensor.kind, tensor.format, graph.count(name), counted=not tensor.exact,
            per_sample=bool(sample_axes(tensor.axes)), axes=tensor.axes,
        )  # fmt: skip

    def program(self, emitted: Emitted) -> CompiledProgram:
        """Return a program with its rules and images."""
        self._add_buffers(emitted)
        graph = emitted.lowered.graph
        tensors = {name: self._written(graph, name) for name in emitted.slots}
        return CompiledProgram(
            descriptors=emitted.descriptors,
            rules=self._rules(emitted, tensors),
            tensors=tuple(tensors.values()),
            images=tuple(self._images(emitted)),
            macs=emitted.lowered.macs,
            address=emitted.address,
            fingerprint=self.step.parameters.fingerprint,
            most_alignment=self.step.parameters.most_alignment,
            constants={t.name: t.constant[1] for t in graph.tensors.values() if t.constant},
        )


@cache
def compiled(
    network: Network, batch: int, p: AcceleratorParameters, plan: str, input_gradients: bool,
    effort: int, definitions: str,
) -> CompiledStep:  # fmt: skip
    """Return a training step compiled from its graph, for the driver. Raises ``CompileError``.

    ``definitions`` is the text of ``own_parts``, as a kernel may read names that change their
    values.
    """
    step = cached_step(network, batch, p, inputs=input_gradients, plan=plan, effort=effort)
    adapter = StepAdapter(network, step)
    forward, backward = adapter.program(step.forward), adapter.program(step.backward)
    inputs = tuple(node.name for node in network.nodes if isinstance(node, Input))
    return CompiledStep(
        network=network,
        batch=batch,
        parameters=p,
        plan=plan,
        inputs=inputs,
        input_gradients=tuple(
            adapter.origin(gradient_name(name)) for name in inputs if input_gradients
        ),
        results=result_names(network),
        uppers=upper_names(network),
        buffers=adapter.buffers,
        memory_bytes=step.memory_bytes,
        forward=forward,
        backward=backward,
        aliases=adapter.aliases,
    )

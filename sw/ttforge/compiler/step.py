"""From a network, a batch and an accelerator to the two programs of a training step."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from ttforge.compiler.backward import emit_backward
from ttforge.compiler.builder import Builder, Rule, Written
from ttforge.compiler.errors import CompileError
from ttforge.compiler.forward import emit_forward
from ttforge.compiler.images import Image, Use, image, ones
from ttforge.compiler.memory import Buffer, MemoryMap
from ttforge.compiler.names import activation_name, gradient_name, right_name
from ttforge.fixed.requantise import MAX_SHIFT
from ttforge.network import Network
from ttforge.parameters import AcceleratorParameters
from ttforge.program.descriptors import Compute, Descriptor, Program
from ttforge.program.fields import DESCRIPTOR_BYTES, Operation

PLANS = ("paper",)
MAX_ALIGNMENT = 15
"""Most bits by which a BIAS descriptor can shift an operand to the left."""


@dataclass(frozen=True)
class Bound:
    """A program with its shifts, and the exponents that follow from them.

    ``exponents`` has every tensor written and every operand; ``floors`` the least exponent of
    every tensor written: that of its exact sum.
    """

    program: Program
    exponents: dict[str, int]
    floors: dict[str, int]


@dataclass(frozen=True)
class CompiledProgram:
    """Descriptors without shifts, and the rules that give them."""

    descriptors: tuple[Descriptor, ...]
    rules: dict[int, Rule]
    tensors: tuple[Written, ...]
    images: tuple[tuple[Image, Buffer], ...]
    macs: int
    address: int
    """Where in external memory the program lies."""
    fingerprint: int

    def bind(self, wanted: Mapping[str, int], operands: Mapping[str, int]) -> Bound:
        """Set every shift for the ``wanted`` exponents of the tensors written.

        ``operands`` are the exponents of what the program reads: inputs, factors, biases, and
        tensors of the program before it. A tensor gets its wanted exponent, or that of its exact
        sum where that is larger: no shift goes to the left. A bias's exponent is moved to within
        ``MAX_ALIGNMENT`` of the sum it is added to; ``exponents`` has it as used.
        """
        exponents, floors = dict(operands), {}
        descriptors = list(self.descriptors)
        for index, rule in self.rules.items():
            d = descriptors[index]
            assert isinstance(d, Compute)
            x = exponents[rule.x]
            if d.operation is Operation.BIAS:
                assert rule.g is not None
                g = min(max(exponents[rule.g], x - MAX_ALIGNMENT), x + MAX_ALIGNMENT)
                exponents[rule.g] = g
                floor = min(x, g)
                d = replace(d, x_shift=x - floor, g_shift=g - floor)
            elif d.operation is Operation.MASK:
                floor = x
            else:
                floor = x + (exponents[rule.g] if rule.g is not None else 0)
            exact = d.operation is Operation.MASK
            exponent = floor if exact else max(floor, wanted.get(rule.z.name, floor))
            exponent = min(exponent, floor + MAX_SHIFT)
            exponents[rule.z.name], floors[rule.z.name] = exponent, floor
            descriptors[index] = replace(d, shift=exponent - floor)
        names = tuple(tensor.name for tensor in self.tensors)
        return Bound(Program(tuple(descriptors), self.fingerprint, names), exponents, floors)


@dataclass(frozen=True)
class CompiledStep:
    """The two programs of a training step, and where their tensors lie."""

    network: Network
    batch: int
    parameters: AcceleratorParameters
    plan: str
    buffers: dict[str, Buffer]
    memory_bytes: int
    """External memory used."""
    forward: CompiledProgram
    backward: CompiledProgram

    @cached_property
    def macs(self) -> int:
        """Multiply-accumulates of a step, padding not counted."""
        return self.forward.macs + self.backward.macs


def _storage_bytes(width: int) -> int:
    """Bytes of an element of ``width`` bits in external memory."""
    return 1 if width <= 8 else 2


def _check(network: Network, batch: int, p: AcceleratorParameters, plan: str) -> None:
    if plan not in PLANS:
        raise CompileError(f"unknown plan {plan!r}; there are {', '.join(PLANS)}")
    if not 1 <= batch <= 4096:
        raise CompileError(f"the batch must be from 1 to 4096 samples, not {batch!r}")
    if network.widths.factor > p.factor_width:
        raise CompileError(
            f"factors of {network.widths.factor} bits, the accelerator takes {p.factor_width}; "
            "set factor_width"
        )
    for n, layer in enumerate(network.layers, 1):
        for what, sizes in (("outputs", layer.outputs), ("inputs", layer.inputs)):
            if sizes[-1] % p.lanes:
                raise CompileError(
                    f"layer {n}: the last dimension of {what} {list(sizes)} must be a multiple of "
                    f"{p.lanes}, not {sizes[-1]}"
                )


def _lay_out(network: Network, batch: int, p: AcceleratorParameters) -> MemoryMap:
    memory = MemoryMap(p.lanes)
    memory.add_bytes("program.forward", p.program_depth * DESCRIPTOR_BYTES)
    memory.add_bytes("program.backward", p.program_depth * DESCRIPTOR_BYTES)
    small = _storage_bytes(network.widths.activation)
    memory.add("x", (batch, network.layers[0].input_size), small)
    for n, layer in enumerate(network.layers, 1):
        last = n == len(network.layers)
        memory.add(activation_name(n), (batch, layer.output_size), 2 if last else small)
        memory.add(gradient_name(n), (batch, layer.output_size), 2)
        memory.add(f"l{n}.b", (layer.output_size,), _storage_bytes(network.widths.bias))
        memory.add(f"l{n}.db", (layer.output_size,), 2)
        leading = 1
        for k, (left, j, i, right) in enumerate(layer.factor_shapes):
            shape = (left, j, i, right) if k + 1 < layer.order else (left, j, i)
            memory.add(f"l{n}.dG{k + 1}", shape, 2)
            leading *= j * i
            if k + 1 == layer.order:
                memory.add(right_name(n, k + 1), (leading // (j * i), j * i), 2)
            elif k > 0:
                memory.add(right_name(n, k + 1), (leading, right), 2)
            for use in Use:
                spec = _image_of(network, n - 1, k, use, p)
                if spec is not None:
                    memory.add_bytes(spec.name, _image_bytes(spec, p))
    spec = ones(batch, p)
    memory.add_bytes(spec.name, _image_bytes(spec, p))
    return memory


def _image_of(
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
    return image(layer, number, index, use, p) if occurs[use] else None


def _image_bytes(spec: Image, p: AcceleratorParameters) -> int:
    width = p.lanes if spec.step_entries > 1 else p.pe2_rows
    size = spec.entries * width * p.factor_storage_width // 8
    return -(-size // p.beat_bytes) * p.beat_bytes


def _finish(b: Builder, memory: MemoryMap, name: str) -> CompiledProgram:
    return CompiledProgram(
        descriptors=tuple(b.descriptors),
        rules=b.rules,
        tensors=tuple(b.tensors.values()),
        images=tuple(b.images.values()),
        macs=b.macs,
        address=memory.buffers[name].address,
        fingerprint=b.p.fingerprint,
    )


def compile_step(
    network: Network, batch: int, parameters: AcceleratorParameters, *, plan: str = "paper"
) -> CompiledStep:
    """Compile a training step of ``batch`` samples.

    ``plan`` "paper" is the schedule of the paper's Table 3, with the outer product summed over
    the batch in the accumulators. Raises ``CompileError`` where the network does not fit.
    """
    _check(network, batch, parameters, plan)
    memory = _lay_out(network, batch, parameters)
    if memory.top >= 1 << parameters.address_width:
        raise CompileError(f"{memory.top} bytes of external memory do not fit the address space")
    forward, backward = Builder(parameters), Builder(parameters)
    emit_forward(forward, network, batch, memory)
    emit_backward(backward, network, batch, memory)
    return CompiledStep(
        network=network,
        batch=batch,
        parameters=parameters,
        plan=plan,
        buffers=memory.buffers,
        memory_bytes=memory.top,
        forward=_finish(forward, memory, "program.forward"),
        backward=_finish(backward, memory, "program.backward"),
    )

"""A block with mutants as a function of Python: bits of all inputs to bits of all outputs."""

import ctypes
from pathlib import Path

from amaranth.hdl import Cat, Const, Module, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from trainwright_sim.build import build
from trainwright_sim.engines import NATIVE, Harness, Port


def port_values(component: wiring.Component) -> tuple[list[Value], list[Value]]:
    """Return inputs and outputs in the order of the signature, without those that are constants."""
    values: dict[object, list[Value]] = {In: [], Out: []}
    for _, member, port in component.signature.flatten(component):
        value = Value.cast(port)
        if not isinstance(value, Const):
            values[member.flow].append(value)
    return values[In], values[Out]


class Packed(wiring.Component):
    """A component with all of its inputs in one port, and all of its outputs in another one."""

    def __init__(self, inner: wiring.Component):
        self._inner = inner
        self._values = port_values(inner)
        widths = [len(Cat(*values)) for values in self._values]
        super().__init__({"inputs": In(widths[0]), "outputs": Out(widths[1])})

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.inner = self._inner
        inputs, outputs = (Cat(*values) for values in self._values)
        m.d.comb += [inputs.eq(self.inputs), self.outputs.eq(outputs)]
        return m


def _header(ports: dict[str, Port]) -> list[str]:
    sizes = [(name.upper(), -(-ports[f"{name}s"].width // 8)) for name in ("input", "output")]
    lines = [f"#define {name}_BYTES {size}" for name, size in sizes]
    return [*lines, *(["#define CLOCKED"] if "clk" in ports else [])]


HARNESS = Harness(
    folder=NATIVE / "mutable",
    needs=("inputs", "outputs", "mutant"),
    what="block with mutants",
    registered=False,
    header=_header,
)


class MutantModel:
    """Simulate one mutant of a block; number 0 is the unchanged block."""

    def __init__(self, rtlil: str, component: wiring.Component, number: int):
        self._library = ctypes.CDLL(str(compiled(rtlil)))
        new = self._library.trainwright_mutable_new
        new.argtypes, new.restype = [ctypes.c_uint32], ctypes.c_void_p
        self._eval = self._library.trainwright_mutable_eval
        self._eval.argtypes = [
            ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_char_p, ctypes.c_char_p
        ]  # fmt: skip
        self._eval.restype = None
        widths = (len(Cat(*values)) for values in port_values(component))
        self._in_bytes, out_bytes = (-(-width // 8) for width in widths)
        self._outputs = ctypes.create_string_buffer(out_bytes)
        self._made = new(number)

    def eval(self, inputs: int, *, clk: int = 0, rst: int = 0) -> int:
        """Apply the inputs, and return the outputs once everything has settled."""
        bits = inputs.to_bytes(self._in_bytes, "little")
        self._eval(self._made, clk, rst, bits, self._outputs)
        return int.from_bytes(self._outputs.raw, "little")

    def clock(self, inputs: int, *, rst: int = 0) -> int:
        """Apply a rising clock edge with these inputs, and return the outputs after it."""
        self.eval(inputs, rst=rst)
        outputs = self.eval(inputs, clk=1, rst=rst)
        self.eval(inputs, rst=rst)
        return outputs


def compiled(rtlil: str) -> Path:
    """Return the compiled library of the design, from the cache or built now."""
    return build(rtlil, harness=HARNESS, progress=lambda _: None)

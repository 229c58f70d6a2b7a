"""Feed random bits to blocks, as RTL and as C++ models, and compare the outputs cycle by cycle."""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
from amaranth.hdl import C, Cat, Elaboratable, Module, Mux, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from trainwright.support.native.cache import Cache
from trainwright_hw.build.convert import component_to_rtlil
from trainwright_sim.build import build
from trainwright_sim.engines import NATIVE, Harness, Port
from trainwright_sim.leaves.leaf import Leaf, replaced

RANDOM_BITS, MODE_BITS, SPARE_BITS = 2048, 16, 8
"""Random bits of all inputs in a cycle, bits of a mode, and random bits of an input beyond its
width."""
OBSERVED = "observed_"
"""Prefix of the ports that show the outputs of blocks."""

Ports = tuple[Mapping[str, Value], Mapping[str, Value]]
Stimulus = Callable[[str, int, Value, Value], Value]
"""A function from an input's name, its width, random bits and a mode to the input's value.

There are at least as many random bits as the input is wide.
"""


def _header(ports: dict[str, Port]) -> list[str]:
    observed = [(name, -(-p.width // 8)) for name, p in ports.items() if name.startswith(OBSERVED)]
    copies = " ".join(f"X(PORT_{name}, {size})" for name, size in observed)
    return [f"#define RANDOM_BYTES {RANDOM_BITS // 8}", f"#define OBSERVED(X) {copies}"]


LOCKSTEP = Harness(
    folder=NATIVE / "lockstep",
    needs=("clk", "rst", "random", "mode"),
    what="blocks in lockstep",
    header=_header,
)


class Fed(wiring.Component):
    """Blocks whose inputs are made of ``random`` and ``mode`` by ``stimulus``.

    The outputs of a block appear at ``observed_{name}``.
    """

    def __init__(self, blocks: Mapping[str, tuple[Elaboratable, Ports]], stimulus: Stimulus):
        self._blocks, self._stimulus = blocks, stimulus
        self.widths = {
            name: sum(len(value) for value in outputs.values())
            for name, (_, (_, outputs)) in blocks.items()
        }
        observed = {f"{OBSERVED}{name}": Out(width) for name, width in self.widths.items()}
        super().__init__({"random": In(RANDOM_BITS), "mode": In(MODE_BITS), **observed})

    def elaborate(self, platform) -> Module:
        m = Module()
        for name, (block, (inputs, outputs)) in self._blocks.items():
            m.submodules[name] = block
            at = sum(map(ord, name)) % RANDOM_BITS
            for port, value in inputs.items():
                bits = Cat(self.random, self.random)[at : at + len(value) + SPARE_BITS]
                m.d.comb += value.eq(self._stimulus(port, len(value), bits, self.mode))
                at = (at + len(value) + 7) % RANDOM_BITS
            m.d.comb += getattr(self, f"{OBSERVED}{name}").eq(Cat(*outputs.values()))
        return m


def stimulus(port: str, width: int, bits: Value, mode: Value) -> Value:
    """Return an input value: control bits of some density, or data of some size.

    The mode decides how often a control bit is set. Data words are small numbers of either sign,
    random numbers, or the smallest number in every lane.
    """
    if width == 1:
        dense = mode[0] | bits[1], mode[1] | bits[2] | bits[3], mode[2] | mode[3]
        return bits[0] & dense[0] & dense[1] & dense[2]
    if width < 64:
        return bits[:width]
    return sized(bits[:width], mode, word=16, low=5)


def sized(bits: Value, mode: Value, *, word: int, low: int) -> Value:
    """Return words of ``low`` signed bits, words of all bits, or least words, by the mode."""
    lanes = -(-len(bits) // word)
    few, least = (
        C(sum(value << word * n for n in range(lanes)) & ((1 << len(bits)) - 1), len(bits))
        for value in ((1 << low) - 1, 1 << (word - 1))
    )
    small = Mux(mode[6], bits | ~few, bits & few)
    return Mux(mode[4], Mux(mode[5], least, small), bits)


def logs(
    fed: Callable[[], Fed],
    leaves: Sequence[Leaf],
    *,
    seed: int,
    cycles: int,
    cache: Cache | None = None,
) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, np.ndarray[Any, Any]]]:
    """Simulate the blocks as RTL and with models, and return the outputs of every cycle.

    Each of the two mappings has an array of shape (cycles, bytes), uint8, per block. The logs begin
    at the first clock edge: before it the wrapper's registers are zero, whatever the models say.
    """
    both_logs = []
    for engine, context in (("verilator", nullcontext({})), ("leaves", replaced(leaves))):
        with context as declared:
            design = fed()
            rtlil = component_to_rtlil(design, registered_reset=True)
            rtlil += "".join(declared.values())
        library = build(rtlil, engine=engine, harness=LOCKSTEP, cache=cache)
        sizes = {name: -(-width // 8) for name, width in design.widths.items()}
        log = np.zeros((cycles + 1, sum(sizes.values())), np.uint8)
        function = ctypes.CDLL(str(library)).trainwright_lockstep
        function.argtypes = ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p
        function.restype = None
        function(seed, cycles + 1, log.ctypes.data)  # the first evaluation sees no edge
        ends = np.cumsum([0, *sizes.values()]).tolist()
        spans = zip(sizes, ends, ends[1:], strict=False)
        both_logs.append({name: log[1:, a:b] for name, a, b in spans})
    return both_logs[0], both_logs[1]

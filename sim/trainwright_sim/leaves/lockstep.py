"""Blocks fed with random bits, as RTL and with the models that stand for them: the same in every
cycle, or not.
"""

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
OBSERVED = "observed_"

Ports = tuple[Mapping[str, Value], Mapping[str, Value]]
Stimulus = Callable[[str, int, Value, Value], Value]
"""Of an input's name and width, as many random bits and more, and the mode: what it gets."""


def _header(found: dict[str, Port]) -> list[str]:
    observed = [(name, -(-p.width // 8)) for name, p in found.items() if name.startswith(OBSERVED)]
    copies = " ".join(f"X(PORT_{name}, {size})" for name, size in observed)
    return [f"#define RANDOM_BYTES {RANDOM_BITS // 8}", f"#define OBSERVED(X) {copies}"]


LOCKSTEP = Harness(
    folder=NATIVE / "lockstep",
    needs=("clk", "rst", "random", "mode"),
    what="blocks in lockstep",
    header=_header,
)


class Fed(wiring.Component):
    """Blocks by name, each with its ports: inputs from ``random`` by ``stimulus``; outputs at
    ``observed_{name}``.
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
    """Control bits that are seldom, often or not at all set, by the mode; else data of all sizes:
    few bits of either sign, all, and the least word in every lane.
    """
    if width == 1:
        dense = mode[0] | bits[1], mode[1] | bits[2] | bits[3], mode[2] | mode[3]
        return bits[0] & dense[0] & dense[1] & dense[2]
    if width < 64:
        return bits[:width]
    return sized(bits[:width], mode, word=16, low=5)


def sized(bits: Value, mode: Value, *, word: int, low: int) -> Value:
    """Words of ``low`` bits, positive or negative, of all bits, or the least one, by the mode."""
    lanes = -(-len(bits) // word)
    few, least = (
        C(sum(one << word * n for n in range(lanes)) & ((1 << len(bits)) - 1), len(bits))
        for one in ((1 << low) - 1, 1 << (word - 1))
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
    """What every block gives in every cycle, (cycles, bytes) uint8 by name: as RTL, with models.

    From the first clock edge on. Before it the wrapper's registers are zeros, whatever models give.
    """
    found = []
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
        found.append({name: log[1:, a:b] for name, a, b in spans})
    return found[0], found[1]

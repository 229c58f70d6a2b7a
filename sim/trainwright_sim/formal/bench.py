"""Write proofs: a bench holds a design of blocks, assumptions about its inputs, and claims."""

from typing import Any

from amaranth.hdl import Assert, Assume, Elaboratable, Module, Signal, Value
from amaranth.lib import wiring

from trainwright_hw.build.amaranth_text import rtlil_text
from trainwright_sim.formal.opened import Opened

TOP = "bench"


class ProofBench:
    """Blocks and claims. Inputs that nothing drives, and the reset, have any value in any cycle.

    A ``goal`` is what the proof is about. A ``lemma`` is proven with it, so that induction finds
    no state that cannot be reached; with ``lemmas`` false there are none, and what fails is a goal.

    Members: ``m``, the module that a proof adds its own logic to.
    """

    def __init__(self, *, lemmas: bool = True):
        self.m = Module()
        self._lemmas = lemmas
        self._ports: list[Value] = []
        self._names: dict[str, int] = {}

    def _name(self, name: str) -> str:
        self._names[name] = self._names.get(name, 0) + 1
        return f"{name}_{self._names[name]}" if self._names[name] > 1 else name

    def add(self, block: Elaboratable, name: str = "dut") -> Opened:
        """Add a block to the design, and return it with its inner variables accessible."""
        opened = Opened(block)
        self.m.submodules[name] = opened.fragment
        if isinstance(block, wiring.Component):
            members = [value for _, _, value in block.signature.flatten(block)]
        else:
            members = [value for value in vars(block).values() if isinstance(value, Signal)]
        self._ports += [Value.cast(member) for member in members]
        return opened

    def free(self, shape: Any, name: str) -> Any:
        """Return a signal that may have any value in any cycle."""
        signal = Signal(shape, name=name)
        self._ports.append(Value.cast(signal))
        return signal

    def constant(self, width: int, name: str) -> Signal:
        """Return a signal of any value that stays the same from one reset to the next."""
        signal = self.free(width, name)
        self.assume(~self.settled(1) | (signal == self.past(signal)))
        return signal

    def past(self, value: Any, cycles: int = 1, *, init: int = 0) -> Signal:
        """Return the value from ``cycles`` cycles ago; just after a reset, ``init``."""
        for _ in range(cycles):
            register = Signal(Value.cast(value).shape(), name=self._name("past"), init=init)
            self.m.d.sync += register.eq(value)
            value = register
        return value

    def settled(self, cycles: int) -> Signal:
        """Return a signal that is high from that many cycles after the last reset on."""
        return self.past(1, cycles)

    def assume(self, condition: Any) -> None:
        """Assume that the block's surroundings always keep this condition."""
        self.m.d.comb += Assume(condition)

    def goal(self, condition: Any) -> None:
        """Claim a condition that the proof is about."""
        self._claim("goal", condition)

    def lemma(self, condition: Any) -> None:
        """Claim a condition that is proven because it helps to prove the goals."""
        if self._lemmas:
            self._claim("lemma", condition)

    def _claim(self, kind: str, condition: Any) -> None:
        claim = Signal(name=self._name(kind))
        self.m.d.comb += [claim.eq(Value.cast(condition).any()), Assert(claim)]

    def rtlil(self) -> str:
        """Return the design as RTLIL text, with the top module ``TOP``."""
        self.past(0)  # a design without registers has a clock too
        return rtlil_text(self.m, name=TOP, ports=self._ports)

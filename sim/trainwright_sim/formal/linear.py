"""Proofs, without a solver, on blocks that only add modulo 2: each bit as a sum of variables.

A sum is an integer. Bit 0 is the constant 0 or 1; every other bit that is set stands for a variable
that is added. So ``^`` adds sums, and two sums are equal for all values of the variables if and
only if they are the same integer. The values 0 and 1 are sums, too.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from trainwright_sim.formal.bench import TOP
from trainwright_sim.formal.solve import FormalError, yosys

PASSES = (
    f"hierarchy -top {TOP}",
    "proc",
    "flatten",
    "opt_clean",
    "pmuxtree",
    "simplemap",
    "opt_clean",
)
"""Passes that leave gates of one bit, and registers with neither enable nor reset."""


class NotLinear(FormalError):
    """Error: the block does more than add. The message names the kind of gate."""


@dataclass(frozen=True)
class AnyOf:
    """Whether any of ``sums`` is 1; ``inverted``: whether none is."""

    sums: frozenset[int]
    inverted: bool = False


Bit = int | AnyOf


def variables(count: int, first: int = 1) -> list[int]:
    """Return ``count`` sums of one variable each, with numbers from ``first`` on (at least 1)."""
    return [1 << number for number in range(first, first + count)]


def span(sums: Iterable[int]) -> frozenset[int]:
    """Return the reduced basis of the space that ``sums`` span over the field of two elements.

    Two systems of equations (each sum equals 0) with the same basis have the same solutions.
    """
    basis: list[int] = []
    for row in sums:
        for right in basis:
            row = min(row, row ^ right)
        if row:
            basis = [*(min(right, right ^ row) for right in basis), row]
    return frozenset(basis)


def sums_of(bits: Iterable[Bit]) -> list[int]:
    """Return the bits, all of which must be sums. Raises ``NotLinear`` for any other bit."""
    listed = list(bits)
    sums = [bit for bit in listed if isinstance(bit, int)]
    if len(sums) < len(listed):
        raise NotLinear("a bit asks for any of several sums, where one sum was to be")
    return sums


def _not(a: Bit) -> Bit:
    return AnyOf(a.sums, not a.inverted) if isinstance(a, AnyOf) else a ^ 1


def _xor(a: Bit, b: Bit) -> Bit:
    if isinstance(a, int) and isinstance(b, int):
        return a ^ b
    for left, right in ((a, b), (b, a)):
        if left in (0, 1):
            return _not(right) if left else right
    raise NotLinear("exclusive or of more than sums")


def _or(a: Bit, b: Bit) -> Bit:
    for left, right in ((a, b), (b, a)):
        if left in (0, 1):
            return 1 if left else right
    sums: set[int] = set()
    for left in (a, b):
        if isinstance(left, AnyOf) and left.inverted:
            raise NotLinear("all of several sums, or another")
        sums |= left.sums if isinstance(left, AnyOf) else {left}
    return AnyOf(frozenset(sums))


def _mux(a: Bit, b: Bit, select: Bit) -> Bit:
    if select in (0, 1):
        return b if select else a
    if a != b:
        raise NotLinear("a choice by a variable")
    return a


_GATES = {
    "$_NOT_": _not,
    "$_XOR_": _xor,
    "$_XNOR_": lambda a, b: _not(_xor(a, b)),
    "$_OR_": _or,
    "$_AND_": lambda a, b: _not(_or(_not(a), _not(b))),
    "$_MUX_": _mux,
}
_REGISTER = "$_DFF_P_"


class Gates:
    """A design of one clock, as gates.

    Members: ``initial``, what its registers begin with, a bit each, in an order of its own.
    """

    def __init__(self, rtlil: str):
        with TemporaryDirectory(prefix="trainwright-formal-") as name:
            folder = Path(name)
            (folder / "bench.il").write_text(rtlil)
            yosys(folder, "; ".join(["read_rtlil bench.il", *PASSES, "write_json bench.json"]))
            module = json.loads((folder / "bench.json").read_text())["modules"][TOP]
        self._ports: dict[str, Any] = module["ports"]
        cells = [c for c in module["cells"].values() if c["type"] != "$scopeinfo"]
        self._registers = [c["connections"] for c in cells if c["type"] == _REGISTER]
        self._gates = {c["connections"]["Y"][0]: c for c in cells if c["type"] != _REGISTER}
        starts: dict[Any, int] = {}
        for net in module["netnames"].values():
            if init := net["attributes"].get("init"):
                starts |= zip(net["bits"], map(int, reversed(init)), strict=False)
        self.initial = [starts[register["Q"][0]] for register in self._registers]

    def cycle(
        self, state: Iterable[int], inputs: Mapping[str, Iterable[int]]
    ) -> tuple[list[int], dict[str, list[Bit]]]:
        """Return the registers one cycle later, and the outputs in this cycle.

        The registers are in ``state``, and each input is a list of sums; inputs that are left out
        are 0. Raises ``NotLinear`` where a register is not a sum, or an output neither a sum nor an
        ``AnyOf``.
        """
        known: dict[Any, Bit] = {"0": 0, "1": 1}
        for name, port in self._ports.items():
            if port["direction"] == "input":
                given = inputs.get(name, [0] * len(port["bits"]))
                known |= zip(port["bits"], given, strict=True)
        for register, sum_ in zip(self._registers, state, strict=True):
            known[register["Q"][0]] = sum_
        later = sums_of(self._bit(register["D"][0], known) for register in self._registers)
        outputs = {
            name: [self._bit(bit, known) for bit in port["bits"]]
            for name, port in self._ports.items()
            if port["direction"] == "output"
        }
        return later, outputs

    def _bit(self, net: Any, known: dict[Any, Bit]) -> Bit:
        """Return the value of a net, and store it and the nets it depends on in ``known``."""
        if net not in known:
            cell = self._gates[net]
            ins = [
                self._bit(cell["connections"][n][0], known)
                for n in "ABS"
                if n in cell["connections"]
            ]
            known[net] = _GATES[cell["type"]](*ins)
        return known[net]

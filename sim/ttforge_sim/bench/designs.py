"""Designs under test that are more, or named otherwise, than one component of ``ttforge_hw``."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import Out, connect, flipped

from ttforge.parameters import AcceleratorParameters
from ttforge_hw.fetch import OperandFetch
from ttforge_hw.requantise import Requantiser


def requantiser(parameters: AcceleratorParameters) -> wiring.Component:
    """The requantiser of PE2's engine."""
    return Requantiser(lanes=parameters.lanes, value_width=parameters.vector_width)


class Fetch(wiring.Component):
    """``OperandFetch`` with ``o_`` before the names of all but its memory ports.

    Flat names would clash (port ``x``'s ``row`` with the output ``x_row``), and ``final`` is a
    word of C++.
    """

    def __init__(self, parameters: AcceleratorParameters):
        self._inner = OperandFetch(parameters)
        members = self._inner.signature.members.items()
        self._names = {
            name: name if member.is_signature else f"o_{name}" for name, member in members
        }
        super().__init__({self._names[name]: member for name, member in members})

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.inner = inner = self._inner
        for name, member in inner.signature.members.items():
            inside, outside = getattr(inner, name), getattr(self, self._names[name])
            if member.is_signature:
                connect(m, inside, flipped(outside))
            else:
                m.d.comb += outside.eq(inside) if member.flow == Out else inside.eq(outside)
        return m

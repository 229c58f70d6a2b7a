"""The accelerator: every block, put together."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ttforge.parameters import AcceleratorParameters
from ttforge.program.fields import LOCAL_WIDTH
from ttforge_hw.axi import Axi4, Axi4Lite

TRACED_ENGINES = ("load", "pe1", "pe2")
"""Engines that write to the scratchpad."""


def accelerator_signature(
    parameters: AcceleratorParameters, *, trace: bool = False
) -> wiring.Signature:
    """The ports of ``Accelerator``."""
    members = {
        "m_axi": Out(Axi4.of(parameters)),
        "s_axil": In(Axi4Lite()),
        "interrupt": Out(1),
    }
    if trace:
        for engine in TRACED_ENGINES:
            members[f"trace_{engine}_valid"] = Out(1)
            members[f"trace_{engine}_address"] = Out(LOCAL_WIDTH)
            members[f"trace_{engine}_row"] = Out(parameters.lanes * parameters.word_width)
    return wiring.Signature(members)


class Accelerator(wiring.Component):
    """The whole accelerator (``docs/accelerator.md``).

    Members: ``m_axi``, the memory port; ``s_axil``, the host's port; ``interrupt``. With ``trace``
    also, for each engine of ``TRACED_ENGINES``, ``trace_{engine}_valid``, ``_address`` and
    ``_row``: valid in a cycle in which a scratchpad write of that engine is accepted.
    """

    def __init__(self, parameters: AcceleratorParameters, *, trace: bool = False):
        self.parameters = parameters
        self.trace = trace
        super().__init__(accelerator_signature(parameters, trace=trace))

    def elaborate(self, platform):
        m = Module()
        alive = Signal()
        m.d.sync += alive.eq(1)
        m.d.comb += self.s_axil.rdata.eq(alive)
        return m

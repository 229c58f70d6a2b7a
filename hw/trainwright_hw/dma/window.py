"""The part of the external memory that programs may touch."""

from amaranth.hdl import Cat, Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from trainwright.parameters import AcceleratorParameters
from trainwright_hw.bus.bursts import burst_layout
from trainwright_hw.control.engine_ports import PAGE_SHIFT, window_layout


def checks(parameters: AcceleratorParameters) -> dict[str, wiring.Member]:
    """With ``address_checks``, the members of a block that keeps to a window: ``window``, its first
    and last page of 4 KiB; ``outside``, high for a cycle after each burst outside of it.
    """
    if not parameters.address_checks:
        return {}
    return {"window": In(window_layout(parameters)), "outside": Out(1)}


def connect_checks(m: Module, whole, part) -> None:
    """Give ``part`` the window of ``whole``, which tells what ``part`` tells; nothing where there
    are no checks.
    """
    if whole.parameters.address_checks:
        m.d.comb += [part.window.eq(whole.window), whole.outside.eq(part.outside)]


class Window(wiring.Component):
    """Bursts as they may go out.

    A burst lies in one page. One whose page is outside of the window gets the window's first page
    instead, its place and length within it kept, and ``outside``: a read gives some words there,
    a write writes none. So the engines, which wait for every beat, end as ever.

    Members: ``asked``, a stream of bursts; ``burst``, the same; ``window`` and ``outside`` as in
    ``checks``.
    """

    def __init__(self, parameters: AcceleratorParameters):
        self.parameters = parameters
        bursts = stream.Signature(burst_layout(parameters))
        super().__init__({"asked": In(bursts), "burst": Out(bursts), **checks(parameters)})

    def elaborate(self, platform):
        m = Module()
        asked, burst, window = self.asked.payload, self.burst.payload, self.window
        page = asked.address[PAGE_SHIFT:]
        m.d.comb += [
            self.burst.valid.eq(self.asked.valid),
            self.asked.ready.eq(self.burst.ready),
            burst.eq(asked),
            burst.outside.eq((page < window.first) | (page > window.last)),
        ]
        with m.If(burst.outside):
            m.d.comb += burst.address.eq(Cat(asked.address[:PAGE_SHIFT], window.first))
        m.d.sync += self.outside.eq(self.asked.valid & self.asked.ready & burst.outside)
        return m

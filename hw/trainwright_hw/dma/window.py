"""The window: the part of external memory that programs may touch."""

from amaranth.hdl import Cat, Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from trainwright.parameters import AcceleratorParameters
from trainwright_hw.bus.bursts import burst_layout
from trainwright_hw.control.engine_ports import PAGE_SHIFT, window_layout


def checks(parameters: AcceleratorParameters) -> dict[str, wiring.Member]:
    """Return the members of a block that keeps to a window, if there are ``address_checks``.

    ``window`` is its first and last page of 4 KiB; ``outside`` is high for a cycle after each burst
    outside of the window.
    """
    if not parameters.address_checks:
        return {}
    return {"window": In(window_layout(parameters)), "outside": Out(1)}


def connect_checks(m: Module, whole, part) -> None:
    """Connect ``part``'s checks to ``whole``'s, if there are any."""
    if whole.parameters.address_checks:
        m.d.comb += [part.window.eq(whole.window), whole.outside.eq(part.outside)]


class Window(wiring.Component):
    """Filter that keeps bursts inside the window.

    A burst is within one page. A burst whose page is outside of the window is moved to the window's
    first page, with its place and length within the page kept, and marked ``outside``: a read then
    returns some words from there, a write writes none. Engines, which wait for every beat,
    therefore end as usual.

    Members: ``asked``, a stream of bursts; ``burst``, the same stream, filtered; ``window`` and
    ``outside`` as in ``checks``.
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

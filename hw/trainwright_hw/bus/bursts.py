"""Bursts of a transfer's runs."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from trainwright.parameters import AcceleratorParameters
from trainwright.program.fields import COUNT_WIDTH


def burst_width(parameters: AcceleratorParameters) -> int:
    """Return the bits of the number of beats per burst."""
    return exact_log2(parameters.burst_beats) + 1


def burst_layout(parameters: AcceleratorParameters, **more: int) -> data.StructLayout:
    """Lay out a burst: byte address, number of beats, and the bits of ``more``.

    With ``address_checks`` also ``outside``: the burst was requested elsewhere, and must write
    nothing.
    """
    if parameters.address_checks:
        more["outside"] = 1
    return data.StructLayout(
        {"address": parameters.address_width, "beats": burst_width(parameters), **more}
    )


class Bursts(wiring.Component):
    """Splitter of runs into AXI bursts, at most one burst per cycle.

    A burst ends at every multiple of ``burst_beats`` beats, so that none crosses 4 KiB, and all
    bursts except a run's first and last are whole and aligned. Address bits below a beat count as
    zero.

    Members: ``run``, a stream of (byte address, beats of the run); ``burst``, a stream of (byte
    address, beats of the burst); ``busy``, high while a run has bursts left.
    """

    def __init__(self, parameters: AcceleratorParameters):
        self.parameters = parameters
        address = parameters.address_width
        super().__init__(
            {
                "run": In(
                    stream.Signature(data.StructLayout({"address": address, "beats": COUNT_WIDTH}))
                ),
                "burst": Out(stream.Signature(burst_layout(parameters))),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        most = self.parameters.burst_beats
        beat_shift = exact_log2(self.parameters.beat_bytes)
        active = Signal()
        beat = Signal(self.parameters.address_width - beat_shift)  # address in beats
        left = Signal(COUNT_WIDTH)
        to_boundary = Signal(burst_width(self.parameters))  # beats up to the next boundary
        final = Signal()  # left <= to_boundary
        run_beat = self.run.payload.address[beat_shift:]
        run_to_boundary = Signal.like(to_boundary)
        m.d.comb += [
            run_to_boundary.eq(most - run_beat[: exact_log2(most)] if most > 1 else 1),
            self.burst.valid.eq(active),
            self.burst.payload.address.eq(Cat(Const(0, beat_shift), beat)),
            self.burst.payload.beats.eq(Mux(final, left, to_boundary)),
            self.run.ready.eq(~active | (self.burst.ready & final)),
            self.busy.eq(active),
        ]
        with m.If(self.run.valid & self.run.ready):
            m.d.sync += [
                active.eq(1),
                beat.eq(run_beat),
                left.eq(self.run.payload.beats),
                to_boundary.eq(run_to_boundary),
                final.eq(self.run.payload.beats <= run_to_boundary),
            ]
        with m.Elif(active & self.burst.ready):
            m.d.sync += [
                active.eq(~final),
                beat.eq(beat + to_boundary),
                left.eq(left - to_boundary),
                to_boundary.eq(most),
                final.eq(left <= to_boundary + most),
            ]
        return m

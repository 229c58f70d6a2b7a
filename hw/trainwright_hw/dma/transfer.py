"""Common parts of LOAD and STORE: their command port, and bursts from a descriptor."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from trainwright.parameters import AcceleratorParameters
from trainwright.program.fields import LOCAL_WIDTH, TRANSFER_LEVELS, Operation
from trainwright_hw.bus.bursts import Bursts, burst_layout
from trainwright_hw.control.engine_ports import TRANSFER_LAYOUT, EngineStatus, OrderPort
from trainwright_hw.dma.descriptor_walk import Runs
from trainwright_hw.dma.sample_addresses import SampleAddresses
from trainwright_hw.dma.window import Window, checks, connect_checks
from trainwright_hw.stream.skid_buffer import SkidBuffer


class TransferEngine(wiring.Signature):
    """Side of a transfer engine that faces the sequencer.

    Addresses in ``command`` are already resolved (registers added). ``error`` is high for one cycle
    per error response of the memory. With ``address_checks`` there are the members of
    ``window.checks``.
    """

    def __init__(self, parameters: AcceleratorParameters):
        super().__init__(
            {
                "command": In(stream.Signature(TRANSFER_LAYOUT)),
                "status": Out(EngineStatus()),
                "error": Out(1),
                **checks(parameters),
            }
        )


def start_runs(runs: Runs, command, name: str) -> list:
    """Assign a command's levels and base to ``runs``; ``name`` is "address" or "local"."""
    levels = range(TRANSFER_LEVELS)
    return [
        runs.base.eq(command[name]),
        *(getattr(runs, f"count{n}").eq(command[f"count{n}"]) for n in levels),
        *(getattr(runs, f"delta{n}").eq(command[f"{name}_delta{n}"]) for n in levels),
    ]


class BurstSource(wiring.Component):
    """Source of one transfer's bursts, in order.

    Members: ``start`` begins with ``command``, which must not change while ``busy``; ``burst``, a
    stream of (byte address, beats). ``busy`` rises in the cycle after ``start`` and falls after the
    last burst was taken. With ``samples`` it also executes SAMPLES, and has ``order``, the
    registers of the samples' generator. With ``address_checks`` it has the members of ``checks``: a
    burst outside of the window is moved into the window's first page, and marked.
    """

    def __init__(self, parameters: AcceleratorParameters, *, samples: bool = False):
        self.parameters = parameters
        self.samples = samples
        super().__init__(
            {
                "start": In(1),
                "command": In(TRANSFER_LAYOUT),
                "burst": Out(stream.Signature(burst_layout(parameters))),
                "busy": Out(1),
                **({"order": Out(OrderPort())} if samples else {}),
                **checks(parameters),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.runs = runs = Runs(self.parameters.address_width)
        m.submodules.bursts = bursts = Bursts(self.parameters)
        # The skid buffer cuts the path of `ready` from the memory controller back to the address
        # adder.
        m.submodules.skid = skid = SkidBuffer(burst_layout(self.parameters))
        if self.parameters.address_checks:
            m.submodules.window = window = Window(self.parameters)
            connect(m, bursts.burst, window.asked)
            connect(m, window.burst, skid.i)
            connect_checks(m, self, window)
        else:
            connect(m, bursts.burst, skid.i)
        connect(m, skid.o, flipped(self.burst))
        m.d.comb += [
            *start_runs(runs, self.command, "address"),
            runs.start.eq(self.start),
            bursts.run.valid.eq(runs.valid),
            bursts.run.payload.address.eq(runs.value),
            bursts.run.payload.beats.eq(self.command.beats),
            runs.next.eq(bursts.run.ready & runs.valid),
            # Busy until the last burst is taken by the bus, not only computed: the engine's command
            # must not change before.
            self.busy.eq(runs.valid | bursts.busy | skid.holding),
        ]
        if self.samples:
            m.submodules.records = records = SampleAddresses()
            connect(m, records.order, flipped(self.order))
            is_samples = self.command.operation == Operation.SAMPLES
            # Runs and records share the burst splitter; a command uses one of them, the other stays
            # idle.
            m.d.comb += [
                records.command.eq(self.command),
                records.start.eq(self.start & is_samples),
                runs.start.eq(self.start & ~is_samples),
                records.address.ready.eq(bursts.run.ready),
                bursts.run.valid.eq(runs.valid | records.address.valid),
                self.busy.eq(runs.valid | records.busy | bursts.busy | skid.holding),
            ]
            with m.If(is_samples):
                m.d.comb += bursts.run.payload.address.eq(records.address.payload)
        return m


class LocalRuns(wiring.Component):
    """Generator of one transfer's local addresses, at most one per cycle, run after run.

    Members: ``start`` begins with ``command``, of which every run has ``items`` rows, or beats of a
    program; both must not change while ``busy`` (``items`` from its first cycle on). ``address`` is
    a stream of addresses. ``busy`` rises in the cycle after ``start`` and falls after the last
    address was taken.
    """

    def __init__(self):
        super().__init__(
            {
                "start": In(1),
                "command": In(TRANSFER_LAYOUT),
                "items": In(LOCAL_WIDTH),
                "address": Out(stream.Signature(LOCAL_WIDTH)),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.runs = runs = Runs(LOCAL_WIDTH)
        m.submodules.skid = skid = SkidBuffer(LOCAL_WIDTH)
        connect(m, skid.o, flipped(self.address))
        address = skid.i
        valid, value = Signal(), Signal(LOCAL_WIDTH)
        left = Signal(LOCAL_WIDTH)  # items of this run, the present one included
        # Comparisons with constants are registered a row ahead: `left` would otherwise decide
        # `valid` and the next run's start within a cycle.
        final = Signal()  # left == 1
        m.d.comb += [
            *start_runs(runs, self.command, "local"),
            runs.start.eq(self.start),
            address.valid.eq(valid),
            address.payload.eq(value),
            # The next run is fetched in the cycle that sends this one's last item: no gap between
            # runs.
            runs.next.eq(runs.valid & (~valid | (address.ready & final))),
            self.busy.eq(runs.valid | self.address.valid),
        ]
        with m.If(runs.next):
            m.d.sync += [
                valid.eq(1),
                value.eq(runs.value),
                left.eq(self.items),
                final.eq(self.items == 1),
            ]
        with m.Elif(valid & address.ready):
            m.d.sync += [
                valid.eq(~final),
                value.eq(value + 1),
                left.eq(left - 1),
                final.eq(left == 2),
            ]
        return m

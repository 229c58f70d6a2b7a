"""The host's registers: what they read, what writes change, and when a run starts."""

from typing import Any

from amaranth.hdl import C, Cat, Module, Mux, Signal

from trainwright.accelerator import registers as offsets
from trainwright.parameters import AcceleratorParameters
from trainwright_hw.control.counters import COUNTERS
from trainwright_hw.control.csr import Registers
from trainwright_sim.formal.bench import ProofBench
from trainwright_sim.formal.mutant import Mutant
from trainwright_sim.formal.opened import Opened
from trainwright_sim.formal.proof import Proof

PARAMETERS = AcceleratorParameters()
READ_CYCLES = 2
WRITABLE = {
    offsets.PROGRAM_ADDRESS: 32,
    offsets.PROGRAM_LENGTH: 32,
    offsets.INTERRUPT_ENABLE: 1,
    offsets.WATCHDOG: 32,
}


class Written:
    """The writable registers, and STATUS's flags, as the pages describe them."""

    def __init__(self, m: Module, dut: Any):
        bus = dut.bus
        self.values = {at: Signal(width, name=f"at_{at:x}") for at, width in WRITABLE.items()}
        self.done, self.failed, self.code = Signal(), Signal(), Signal(8, name="last_code")
        self.starts = Signal()
        for at, register in self.values.items():
            with m.If(bus.write & (bus.write_address == at >> 2)):
                bits = zip(register, bus.write_mask, bus.write_data, strict=False)
                m.d.sync += register.eq(Cat(Mux(mask, new, old) for old, mask, new in bits))
        control = Signal(2)
        at_control = bus.write & (bus.write_address == offsets.CONTROL >> 2)
        m.d.comb += control.eq(Mux(at_control, bus.write_data & bus.write_mask, 0))
        m.d.comb += self.starts.eq(control[0] & ~dut.running & ~dut.start)
        with m.If(self.starts | control[1]):
            m.d.sync += [self.done.eq(0), self.failed.eq(0), self.code.eq(0)]
        with m.If(dut.finished):
            m.d.sync += [
                self.done.eq(dut.error == 0),
                self.failed.eq(dut.error != 0),
                self.code.eq(dut.error),
            ]


def registers(bench: ProofBench, block: Any) -> tuple[Any, Opened]:
    """Add the registers, and assume that the bus holds a read until it is answered."""
    dut = block(PARAMETERS)
    inside = bench.add(dut)
    bus = dut.bus
    waits = bench.past(bus.read & ~bus.read_done)
    bench.assume(~waits | (bus.read & (bus.read_address == bench.past(bus.read_address))))
    bench.assume(~bench.past(bus.read & bus.read_done) | ~bus.read)
    return dut, inside


def documented(dut: Any, written: Written) -> dict[int, Any]:
    """Return what the documentation says is read at each byte offset; 0 elsewhere."""
    status = Cat(
        dut.running, written.done, written.failed, C(0, 1), dut.hung, written.code, dut.descriptor
    )
    words = {
        offsets.IDENTITY: C(offsets.IDENTITY_VALUE, 32),
        offsets.FINGERPRINT: C(PARAMETERS.fingerprint, 32),
        offsets.STATUS: status,
        offsets.LAST: Cat(dut.last[0], dut.last[1]),
        offsets.LAST + 4: Cat(dut.last[2], dut.last[3]),
        **written.values,
    }
    for offset, name in zip(offsets.COUNTER_OFFSETS, COUNTERS, strict=True):
        unit = PARAMETERS.beat_bytes if name.startswith("beats") else 1
        value = (getattr(dut.values, name) * unit)[:64]
        words[offset] = value[:32]
        words[offset + 4] = value[32:]
    return words


def reads(bench: ProofBench, block: Any) -> None:
    """Claim the word read at any address below the statistics.

    It is the documented word from ``READ_CYCLES`` cycles before the answer.
    """
    dut, inside = registers(bench, block)
    written = Written(bench.m, dut)
    bus, word = dut.bus, Signal(32, name="documented")
    with bench.m.Switch(bus.read_address):
        for offset, value in documented(dut, written).items():
            with bench.m.Case(offset >> 2):
                bench.m.d.comb += word.eq(value)
    plain = bus.read_address < offsets.STATISTICS_BASE >> 2
    answered = bus.read & bus.read_done & plain
    bench.goal(~answered | (bus.read_data == bench.past(word, READ_CYCLES)))
    waited = bench.past(bus.read & plain & ~bus.read_done)
    twice = bench.past(waited) & waited & bus.read & plain
    bench.goal(~(twice & bench.settled(4)) | bus.read_done | bench.past(bus.read_done))
    same(bench, dut, inside, written)
    bench.lemma(~bench.past(bus.read_done) | ~bus.read_done)
    bench.lemma(~bus.read_done | (bench.past(bus.read) & bus.read))
    bench.lemma(~bus.read_done | ~plain | bench.past(bus.read, 2))
    bench.lemma(~inside["looked"] | bench.past(bus.read & ~bus.read_done))


def same(bench: ProofBench, dut: Any, inside: Opened, written: Written) -> None:
    """Claim that the registers hold what the description says they hold."""
    for at, register in (
        (offsets.PROGRAM_ADDRESS, dut.address),
        (offsets.PROGRAM_LENGTH, dut.length),
        (offsets.WATCHDOG, dut.watchdog),
        (offsets.INTERRUPT_ENABLE, inside["enable"]),
    ):
        bench.goal(register == written.values[at])
    bench.lemma(inside["done"] == written.done)
    bench.lemma(inside["failed"] == written.failed)
    bench.lemma(inside["code"] == written.code)


def writes(bench: ProofBench, block: Any) -> None:
    """Claim that registers hold what was written, byte by byte.

    Writing to start begins a program once, and does nothing while one is running.
    """
    dut, inside = registers(bench, block)
    written = Written(bench.m, dut)
    same(bench, dut, inside, written)
    bench.goal(dut.start == bench.past(written.starts))
    bench.goal(dut.clear == bench.past(written.starts, init=1))
    enabled = written.values[offsets.INTERRUPT_ENABLE]
    bench.goal(dut.interrupt == (enabled & (written.done | written.failed)))


PROOFS = (
    Proof(
        name="registers.reads",
        claim="every address below the statistics reads what the register map says, 0 elsewhere",
        block=Registers,
        build=reads,
        mutant=Mutant("DONE=done, ERROR=failed", "DONE=failed, ERROR=done"),
        depth=4,
    ),
    Proof(
        name="registers.writes",
        claim="registers hold what was written; starts, flags and the interrupt are as described",
        block=Registers,
        build=writes,
        mutant=Mutant("written[0] & ~self.running & ~self.start", "written[0] & ~self.start"),
    ),
)

"""Cycles that one command takes of its engine, and the ports whose rows it needs."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Descriptor, Transfer
from trainwright.program.elementwise import BODIES
from trainwright.program.engines import ENGINE_OF, contraction_of, pass_cycles, tile_rows
from trainwright.program.exponents import SCALARS
from trainwright.program.fields import DESCRIPTOR_BYTES, Engine
from trainwright.program.footprint import Touch, footprint, result_digits, rows_written
from trainwright.program.samples import Samples
from trainwright.program.vector import STREAMS, THREADS, Code, Vector


@dataclass(frozen=True)
class Latency:
    """Cycles of an engine in addition to the steps, or beats, of a command.

    Measured in the simulation: a command that is alone takes ``start``, its steps and ``finish`` to
    the cycle. Latencies of the external memory are added.
    """

    start: Callable[[AcceleratorParameters], int]
    """Cycles from the acceptance of a command to its first step."""
    finish: Callable[[AcceleratorParameters], int]
    """Cycles from the last step to the end, without rows that wait for that step, and without the
    cycles that coded formats add (``POSITS``)."""


LATENCIES = {
    Engine.LOAD: Latency(lambda p: 4, lambda p: 3),
    Engine.STORE: Latency(lambda p: 8, lambda p: 2),
    # A step of PE1 starts when the entries of all lanes are there, which arrive one per cycle.
    Engine.PE1: Latency(lambda p: 7 + p.lanes, lambda p: 17),
    # Lane n of PE2 is n cycles late.
    Engine.PE2: Latency(lambda p: 7, lambda p: 12 + p.lanes),
}

RECORD = 14
"""Cycles of SAMPLES for each record beyond one for each row of its pixels."""
PASS = Latency(lambda p: 3, lambda p: 13)
"""Cycles of a pass of the vector engine in addition to its instructions and its first rows."""
ROW_READ = 5
"""Cycles from the start of a pass to its first instruction that reads, beyond one for each row."""
POSITS = 4
"""Cycles by which an accelerator with posits is slower for a result: 2 to decode, 2 to encode."""
ISSUE = 4
"""Cycles of the sequencer for a descriptor."""
RESOLVED, RESOLVED_PASS = 8, 16
"""Cycles in which the exponent file resolves a descriptor's shifts, and the scalars of a pass."""
SCALE = 8
"""Cycles of SCALES for an entry."""
NEST = 3
"""Cycles from a command to the next one, beyond those in which its addresses are generated."""
ROWS_AHEAD = 16
"""Rows that an array fetches of each operand, and a STORE, before they are needed."""
BEATS_AHEAD = 128
"""Beats of a LOAD still to come when its last burst is requested: as many as its queue holds."""

RESULTS = -1
"""Port of the write-back unit, which takes a row a cycle from all arrays together."""
MEMORY = -2
"""Port of the external memory."""


@dataclass(frozen=True)
class PortRows:
    """Rows that a command reads or writes, in the order of its steps or beats.

    A port takes a row a cycle. Bank n of the scratchpad has read port n, and write port
    ``scratchpad_banks`` + n.
    """

    rate: float
    """Rows a cycle, or a beat, at full speed."""
    ports: tuple[tuple[int, float], ...]
    """Ports, each with the part of the rows that it takes."""


Traffic = tuple[Engine, float, float, tuple[PortRows, ...]]
"""Engine of a command, its beats in flight and in a burst, and the rows that it moves."""


@dataclass(frozen=True, eq=False)
class CommandWork:
    """Command's engine, the cycles or beats that it takes alone, and the rows that it moves.

    Compared by identity: speeds of commands that are at work together are cached.
    """

    engine: Engine
    cycles: float
    start: int
    """Cycles from the acceptance to the first step or beat, the memory's latency left out."""
    finish: int
    """Cycles from the last step or beat to the end, the memory's latency left out."""
    reads: tuple[PortRows, ...] = ()
    writes: tuple[PortRows, ...] = ()
    macs: int = 0
    requests: float = 0
    """Cycles in which the engine generates the command's addresses, if nothing stalls."""
    ahead: float = 0
    """Cycles, or beats, that are left when the last address is generated, at most."""
    flying: float = 0
    """Beats of a transfer that are requested and not answered, at most."""
    burst: float = 1
    """Beats of a burst, on average."""
    copied: int = 0
    """Cycles in which the vector engine copies a command before it takes it, while PE2 is idle."""

    @cached_property
    def traffic(self) -> Traffic:
        """Values that the speed beside other commands depends on."""
        return self.engine, self.flying, self.burst, self.reads + self.writes


def _rows(touch: Touch, rate: float, p: AcceleratorParameters) -> PortRows:
    """Return rows of the scratchpad that a command reads or writes at a rate."""
    first, parts = p.scratchpad_banks if touch.write else 0, []
    for bank in range(touch.start // p.bank_rows, (touch.stop - 1) // p.bank_rows + 1):
        low, high = max(touch.start, bank * p.bank_rows), min(touch.stop, (bank + 1) * p.bank_rows)
        # Whole tiles reach past the scratchpad's end: addresses start again at 0.
        port = first + bank % p.scratchpad_banks
        parts.append((port, (high - low) / (touch.stop - touch.start)))
    return PortRows(rate, tuple(parts))


def _with_unused(x: PortRows, touch: Touch, d: Compute, p: AcceleratorParameters) -> PortRows:
    """Add the rows past ``last_rows`` to the first operand, of which whole tiles are fetched."""
    rows = tile_rows(d.operation, p)
    unused = rows - d.last_rows
    reach = unused * d.x_row_stride
    if not reach or p.formats or p.address_checks:  # then it fetches the last row again
        return x
    edge = touch.stop if reach > 0 else touch.start
    low, high = sorted((edge, edge + reach))
    part = unused / rows / d.levels[d.tile_level].count
    ports = {port: share * (1 - part) for port, share in x.ports}
    for port, share in _rows(replace(touch, start=low, stop=high), x.rate, p).ports:
        ports[port] = ports.get(port, 0.0) + share * part
    return replace(x, ports=tuple(ports.items()))


def work_of(
    d: Compute | Transfer | Samples | Code | Vector, p: AcceleratorParameters
) -> CommandWork:
    """Return the work of a descriptor; a transfer's ``cycles`` are beats."""
    engine = ENGINE_OF[d.operation]
    start, end = LATENCIES[engine].start(p), LATENCIES[engine].finish(p)
    if isinstance(d, Samples):  # a row a cycle, and some for each record
        rows = (d.rows + RECORD) / p.beat_cycles
        beats = d.samples * max(d.record_beats, rows)
        return CommandWork(engine, beats, start, end, ahead=BEATS_AHEAD)
    if isinstance(d, Transfer):
        return _transfer(d, engine, start, end, p)
    if isinstance(d, Code):
        return CommandWork(engine, 1, 1, 0, copied=len(d.instructions))
    if isinstance(d, Vector):
        rows = ROW_READ + min(d.rows, THREADS) if d.reads else 0
        return CommandWork(
            engine, pass_cycles(d.rows, d.length, p), PASS.start(p) + rows, PASS.finish(p),
            copied=copied_words(p),
        )  # fmt: skip
    return _compute(d, engine, start, end + (POSITS if p.formats else 0), p)


def program_work(descriptors: int, p: AcceleratorParameters) -> CommandWork:
    """Return the work of LOAD for descriptors of the program itself."""
    latency, beats = LATENCIES[Engine.LOAD], DESCRIPTOR_BYTES // p.beat_bytes
    # Each descriptor is a run, so no burst has beats of two descriptors.
    burst = min(beats, p.burst_beats)
    return CommandWork(
        Engine.LOAD, descriptors * beats, latency.start(p), latency.finish(p), ahead=BEATS_AHEAD,
        flying=p.outstanding_bursts * burst, burst=burst,
    )  # fmt: skip


def copied_words(p: AcceleratorParameters) -> int:
    """Return the streams and scalars of a pass, which the vector engine copies one a cycle."""
    streams = STREAMS * (1 if p.engine_parts == 1 else 2)  # two walkers, or two sides of one
    return max(streams, STREAMS + SCALARS) if p.exponents else streams


def issue_cycles(d: Descriptor, p: AcceleratorParameters) -> int:
    """Return the cycles of the sequencer until it offers a descriptor to its engine."""
    if isinstance(d, Vector) and p.exponents:
        return ISSUE + RESOLVED_PASS
    return ISSUE + (RESOLVED if isinstance(d, Compute) and d.z_exponent else 0)


def _transfer(
    d: Transfer, engine: Engine, start: int, end: int, p: AcceleratorParameters
) -> CommandWork:
    bursts, beats = d.runs * -(-d.beats // p.burst_beats), d.runs * d.beats
    burst = beats / bursts
    flying = p.outstanding_bursts * burst
    (touch,) = footprint(d, p)
    rows = (_rows(touch, 1 / d.element_bytes, p),)
    if engine is Engine.LOAD:
        return CommandWork(
            engine, beats, start, end, writes=rows, requests=bursts, flying=flying, burst=burst,
            ahead=min(BEATS_AHEAD, flying),
        )  # fmt: skip
    return CommandWork(
        engine, beats, start, end, reads=rows, flying=flying, burst=burst,
        requests=max(bursts, beats / d.element_bytes),
        ahead=min(ROWS_AHEAD * d.element_bytes, flying),
    )  # fmt: skip


def _compute(
    d: Compute, engine: Engine, start: int, end: int, p: AcceleratorParameters
) -> CommandWork:
    digits, array = result_digits(d, p), contraction_of(d.operation)
    steps, tiles = d.steps // d.tiles, d.levels[d.tile_level].count  # steps of a tile
    if array is None:
        depth, rates, per_step, waiting, macs = 1, (1.0, 1.0), 1, 1, 0
        cycles = BODIES[d.operation].cycles(d.tiles, steps, digits)
    else:
        depth, rates = array.depth(p), array.rates(p)
        # Multiply-accumulates whose sums are written: rows that a tile lacks are left out.
        macs = d.steps // tiles * ((tiles - 1) * array.rows(p) + d.last_rows) * p.lanes * depth
        short = d.tiles // tiles  # tiles of ``last_rows`` rows
        cycles = array.cycles(d.tiles - short, steps, digits, p)
        cycles += array.cycles(short, steps, digits, p, d.last_rows)
        # Rows of the last tile leave after its last step, those of a tile of few steps meanwhile.
        waiting = min(steps * depth, d.last_rows * digits)
        per_step = array.rows(p) if array.along_lanes else 1
    stepping = d.steps * depth / cycles  # part of the cycles in which the array takes steps
    written = rows_written(d, p) / cycles
    # An array of such tiles holds the rows of a step while it sums, and those of the next one.
    ahead = ROWS_AHEAD // per_step + (per_step > 1)
    touches = footprint(d, p)
    x, g, z = (
        _rows(touch, rate, p)
        for touch, rate in zip(touches, (*(r * stepping for r in rates), written), strict=True)
    )
    if array and array.along_lanes:
        x = _with_unused(x, touches[0], d, p)
    return CommandWork(
        engine, cycles, start, end + waiting, reads=(x, g),
        writes=(z, PortRows(written, ((RESULTS, 1.0),))), macs=macs, requests=d.steps * per_step,
        ahead=ahead * depth / stepping,
    )  # fmt: skip


def bytes_moved(d: Descriptor, p: AcceleratorParameters) -> int:
    """Return the bytes that an execution of a descriptor moves from or to external memory."""
    if isinstance(d, Transfer):
        return d.runs * d.beats * p.beat_bytes
    return d.samples * d.record_beats * p.beat_bytes if isinstance(d, Samples) else 0

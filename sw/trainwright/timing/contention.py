"""Speeds of commands that are at work together, by the ports that they share."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from trainwright.parameters import AcceleratorParameters
from trainwright.program.fields import Engine
from trainwright.timing.commands import MEMORY, CommandWork, Traffic

DMA = (Engine.LOAD, Engine.STORE)
ROUNDS = 12
"""Most rounds in which speeds settle; three commands on one port take eight."""
SETTLED = 0.005
"""Change of a speed below which it is settled."""
MOST_KNOWN = 1 << 14
"""Entries of a table of speeds, a few MB: above it entries are computed again."""
HANDSHAKES = 2
"""Cycles of a burst beyond the memory's latency, from its request to its first beat."""


@dataclass(frozen=True, kw_only=True)
class MemoryTiming:
    """The external memory: as the simulation's default."""

    read_latency: int = 40
    write_latency: int = 10
    bandwidth: float = 0.8
    """Beats a cycle, reads and writes together."""

    def __post_init__(self) -> None:
        for name in ("read_latency", "write_latency"):
            if getattr(self, name) < 0:  # time would stand still
                raise ValueError(f"{name} must be at least 0, not {getattr(self, name)!r}")
        if not self.bandwidth > 0:
            raise ValueError(f"bandwidth must be above 0, not {self.bandwidth!r}")

    @classmethod
    def of(cls, p: AcceleratorParameters) -> "MemoryTiming":
        """Return the memory that programs are compiled for."""
        return cls(bandwidth=1 / p.beat_cycles)


class _Demand(NamedTuple):
    """Demand of a command on ports of the scratchpad, or on the external memory."""

    command: int
    rate: float
    """Rows, or cycles of the memory port, for each cycle of the command's own work."""
    ports: tuple[tuple[int, float], ...]
    """Ports that serve the rows, each with its part of them."""


def speeds(works: Sequence[CommandWork], timing: MemoryTiming) -> tuple[float, ...]:
    """Return the speed of each command next to the others: cycles of work, or beats, per cycle."""
    return _settled(tuple([work.traffic for work in works]), timing)


# Long programs have thousands of commands of few kinds: settling takes 80 us, a lookup 4.
@lru_cache(MOST_KNOWN)
def _settled(every: tuple[Traffic, ...], timing: MemoryTiming) -> tuple[float, ...]:
    """Return the speeds of commands that work at the same time, given the traffic of each.

    A port serves the commands that wait for it in turn. Each command gets an equal share; the rest
    of a share that a command does not need is divided among the others. A tensor that is spread
    over banks meets another command in a bank as often as its part in that bank says.
    """
    most = [_most(engine, flying, burst, timing) for engine, flying, burst, _ in every]
    moved = [(n, rows) for n, (*_, tensors) in enumerate(every) for rows in tensors]
    demands = [_Demand(n, rows.rate, rows.ports) for n, rows in moved]
    beats = 1 / timing.bandwidth, ((MEMORY, 1.0),)
    demands += [_Demand(n, *beats) for n, (engine, *_) in enumerate(every) if engine in DMA]
    wanted: dict[int, float] = {}  # rows a cycle of each port if every command has its full speed
    for n, rate, ports in demands:
        for port, _ in ports:
            wanted[port] = wanted.get(port, 0.0) + most[n] * rate
    contested = {port for port, total in wanted.items() if total > 1}
    users = {
        port: [(i, part) for i, d in enumerate(demands) for n, part in d.ports if n == port]
        for port in contested
    }
    now = most
    for _ in range(ROUNDS if contested else 0):
        slowness = [1 / speed for speed in most]
        for index, (n, rate, ports) in enumerate(demands):
            total = 0.0
            for port, part in ports:
                cycles = 1 / most[n]
                if port in contested:
                    competing = [
                        (demands[i].rate * now[demands[i].command], part_of_other)
                        for i, part_of_other in users[port]
                        if i != index
                    ]
                    cycles = max(cycles, rate / _share(competing))
                total += part * cycles
            slowness[n] = max(slowness[n], total)
        possible = [1 / slow for slow in slowness]
        if max(abs(old - new) for old, new in zip(now, possible, strict=True)) < SETTLED:
            return tuple(possible)
        # The mean of two rounds: a command that slows down leaves the others more than they need.
        now = [(old + new) / 2 for old, new in zip(now, possible, strict=True)]
    return tuple(now)


def _most(engine: Engine, flying: float, burst: float, timing: MemoryTiming) -> float:
    """Return the speed of a command alone: a transfer of short bursts waits for their answers.

    The next burst is asked for when the last beat of an earlier one is there.
    """
    latency = timing.read_latency if engine is Engine.LOAD else timing.write_latency
    if not flying:
        return 1.0
    # A memory that was idle has two beats at once, the later ones at its bandwidth.
    beats = min(burst - 1, 1) + max(burst - 2, 0) / timing.bandwidth
    return min(1.0, flying / (latency + HANDSHAKES + beats))


def transfer_speed(work: CommandWork, timing: MemoryTiming) -> float:
    """Return the beats a cycle of a transfer that nothing else slows down."""
    return min(timing.bandwidth, _most(work.engine, work.flying, work.burst, timing))


def _share(competing: list[tuple[float, float]]) -> float:
    """Return the rows a cycle that a port leaves to a command that always waits for the port.

    ``competing`` are other commands: the rows a cycle that each wants, and its part of the time.
    """
    left, waiting = 1.0, 1 + sum(part for _, part in competing)
    for rate, part in sorted(competing):
        if rate * waiting > left:
            break
        left -= rate * part
        waiting -= part
    return left / waiting

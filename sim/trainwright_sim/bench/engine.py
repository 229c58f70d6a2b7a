"""Common parts of the benches of PE1 and PE2: an engine with memories, against the golden model."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from random import Random

import cocotb
from cocotb.triggers import RisingEdge

from trainwright.golden.compute import compute
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Level
from trainwright.program.encoding import ProgramError
from trainwright.program.engines import tile_rows
from trainwright.program.fields import LOCAL_WIDTH, Operation
from trainwright.program.footprint import result_digits
from trainwright_sim.bench.commands import SPACE, Rows, command_bits, random_compute, random_rows
from trainwright_sim.bench.items import statistics_fields
from trainwright_sim.bench.memories import RowReadPeer, RowWritePeer
from trainwright_sim.bench.streams import StreamSink, StreamSource
from trainwright_sim.bench.testbench import TestBench
from trainwright_sim.bench.valid_words import fit, reads_of, state_of


@dataclass(frozen=True)
class Expected:
    """Golden results of one command: rows in the order of writing, and statistics."""

    written: list[tuple[int, list[int]]]
    total: int
    saturations: int
    underflows: int


def golden(d: Compute, rows: Rows, p: AcceleratorParameters) -> Expected:
    """Execute ``d`` on the golden model, without changing ``rows``."""
    done = compute(d, state_of(rows), p)
    written = list(zip(done.addresses.tolist(), done.rows.tolist(), strict=True))
    return Expected(written, done.total, done.saturations, done.underflows)


PARTS = 8
"""Parts of a row, at least as many as PE3 addresses (groups of a row)."""


@dataclass(frozen=True)
class Far:
    """Map from near addresses to far addresses, which use all bits of an address.

    The peers have ``SPACE`` rows and ignore higher bits of an address, so that a far address reads
    the row of the near one. Every distance is ``factor`` times as long, and the bases are ``x``,
    ``g`` and ``z`` higher.
    """

    factor: int
    x: int
    g: int
    z: int

    @classmethod
    def random(cls, random: Random, operation: Operation) -> "Far":
        """Draw a factor that is 1, and bases that are 0, modulo the address range of the peers."""
        wraps = SPACE * (PARTS if operation is Operation.PE3 else 1)
        factor, *bases = (random.randrange(1 << LOCAL_WIDTH) // wraps * wraps for _ in range(4))
        return cls(factor + 1, *bases)

    def moved(self, d: Compute) -> Compute:
        """Move a command to far addresses."""
        strides = ("x_row_stride", "z_row_stride", "g_row_stride")
        bases = {"x": d.x + self.x, "g": d.g + self.g, "z": d.z + self.z}
        longer = {name: getattr(d, name) * self.factor for name in strides}
        return replace(
            d,
            **{name: value % (1 << LOCAL_WIDTH) for name, value in (bases | longer).items()},
            levels=tuple(
                replace(
                    level,
                    **{name: getattr(level, name) * self.factor % (1 << LOCAL_WIDTH)
                       for name in ("x", "g", "z")},
                )
                for level in d.levels
            ),
        )  # fmt: skip

    def place(self, address: int, base: int, moved: int) -> int:
        """Return the far address of ``address``, from the near and the far (``moved``) base."""
        return (moved + (address - base) * self.factor) % (1 << LOCAL_WIDTH)


def addresses(d: Compute, name: str, rows: int, row_stride: int) -> list[int]:
    """List the addresses of the rows of ``x``, ``g`` or ``z``, in order.

    Each step reads ``rows`` rows of x or g; each tile writes ``rows`` rows of z, the last tile only
    ``last_rows``.
    """
    outer = len(d.levels) - d.reduce_levels
    levels = d.levels[:outer] if name == "z" else d.levels
    places = []
    for index in product(*(range(level.count) for level in levels)):
        steps = zip(index, levels, strict=True)
        start = getattr(d, name) + sum(n * getattr(level, name) for n, level in steps)
        is_last = index[d.tile_level] == d.levels[d.tile_level].count - 1
        count = min(rows, d.last_rows) if name == "z" and is_last else rows
        places += [(start + row * row_stride) % (1 << LOCAL_WIDTH) for row in range(count)]
    return places


SETTLED = 8
"""Cycles from the last effect of a command until its engine must be idle."""


class Status:
    """Check of an engine's flags busy and older (busy with a command before the last one).

    A flag must be high while its condition holds, and low ``SETTLED`` cycles later. A command is
    done when its rows are written and its statistics delivered. ``expect`` gives the number of rows
    of each of the next commands; an empty list turns the check off.
    """

    def __init__(self, tb: "EngineBench"):
        self._tb = tb
        self._rows: list[int] = []
        self._items = 0
        self._before, self._quiet = 0, {"busy": 0, "older": 0}
        tb.agents.append(self)

    def expect(self, rows: Sequence[int]) -> None:
        self._rows, self._items, self._before = list(rows), 0, self._tb.commands.sent

    def _undone(self) -> int:
        """Count the commands that were accepted and are not done."""
        tb = self._tb
        rows, done = len(tb.results.written), 0
        for count in self._rows:
            rows -= count
            done += rows >= 0
        return self._items - min(done, len(tb.items.items))

    def cycle(self) -> None:
        if not self._rows:
            return
        undone = self._undone()  # of the commands accepted up to the last cycle
        self._items = self._tb.commands.sent - self._before
        for name, least in (("busy", 1), ("older", 2)):
            flag = self._tb.get(f"status_{name}")
            if undone >= least:
                assert flag, f"not {name} with {undone} commands that are not done"
                self._quiet[name] = 0
            self._quiet[name] += 1
            assert not flag or self._quiet[name] <= SETTLED, f"{name} with {undone} commands"


class EngineBench(TestBench):
    """Runs commands one after the other; compares every row written and every statistic.

    ``stalled`` names the ports that stall as ``stall`` says; the others never do.
    """

    def __init__(self, dut, seed: object, stall: str, *, stalled: Sequence[str] = ("x", "g", "z")):
        super().__init__(dut, seed)
        self.rows = random_rows(self.parameters, self.random)

        def kind(port: str) -> str:
            return stall if port in stalled else "none"

        self.commands = StreamSource(self, "command", stall="none" if stall == "late" else stall)
        self.read = {
            name: RowReadPeer(self, name, self.rows, stall=kind(name)) for name in ("x", "g")
        }
        self.results = RowWritePeer(self, "z", stall=kind("z"))
        self.items = StreamSink(self, "statistics_item", stall=kind("z"))
        self.status = Status(self)
        self.invalid = 0
        """Cycles in which the engine reported a word of an operand that stands for no number."""
        self.agents.append(self)

    def cycle(self) -> None:
        if self.parameters.formats:
            self.invalid += self.get("invalid")
        p, asked = self.parameters, 0
        if self.get("z_request_valid"):
            asked = 1 << self.get("z_request_payload") % p.scratchpad_rows // p.bank_rows
        assert self.get("z_banks") == asked or self.get("rst"), "a row asks for its bank alone"

    def random_command(self, operation: Operation) -> Compute:
        return random_compute(operation, self.parameters, self.random)

    def edges(self, width: int, shift: int) -> list[int]:
        """List words that ``shift`` brings next to the limits of ``width`` bits, or to ties."""
        half, end = 1 << (shift - 1), 1 << (width - 1 + shift)
        most = (1 << (self.parameters.word_width - 1)) - 1
        places, steps = (end - 2 * half, -end, 0, 2 * half), (-half, 0, half, half + 1)
        near = [place + step for place in places for step in steps]
        return [word for word in near if -most <= word <= most]

    async def check_no_numbers(self, operation: Operation) -> None:
        """Check that words that are no numbers are reported exactly where they are operands."""
        if not self.parameters.formats:
            return
        await self.start()
        reported = []
        for _ in range(24):
            d = self.random_command(operation)
            if d.x_format or d.g_format:
                reported.append(await self.check_invalid(d))
        assert len(set(reported)) == 2

    async def check(self, commands: Sequence[Compute]) -> int:
        """Execute ``commands``, and return the cycles from the first to the end of the last."""
        fit(self.rows, commands, self.parameters)
        expected = [golden(d, self.rows, self.parameters) for d in commands]
        before = self.cycles
        self.invalid = 0
        self.status.expect([len(e.written) for e in expected])
        self.commands.items.extend(command_bits(d) for d in commands)
        await self.until(
            lambda: len(self.items.items) == len(commands) and not self.get("status_busy")
        )
        await self.run(2)
        assert not (self.get("status_stall_operand") or self.get("status_stall_result"))
        assert self.results.written == [row for e in expected for row in e.written]
        items = [statistics_fields(bits) for bits in self.items.items]
        assert items == [
            (d.slot, e.total, e.saturations, e.underflows)
            for d, e in zip(commands, expected, strict=True)
        ]
        assert not self.invalid
        self._forget()
        return self.cycles - before

    async def check_reset(self, d: Compute) -> None:
        """Check that no command is accepted during a reset; then execute ``d``."""
        self.set(rst=1, command_valid=1)
        await self.run(2)
        for _ in range(3):
            await self.run()
            assert not self.get("command_ready")
        self.set(rst=0, command_valid=0)
        await self.run(2)
        await self.check([d])

    async def check_far(self, d: Compute) -> None:
        """Execute ``d`` at near and at far addresses, and compare rows and addresses."""
        for peer in self.read.values():
            peer.asked.clear()
        await self.check([d])
        near = {name: list(peer.asked) for name, peer in self.read.items()}
        expected = golden(d, self.rows, self.parameters)
        far = Far.random(self.random, d.operation)
        moved = far.moved(d)
        for peer in self.read.values():
            peer.asked.clear()
        self.status.expect([len(expected.written)])
        self.commands.items.append(command_bits(moved))
        await self.until(lambda: self.items.items and not self.get("status_busy"))
        await self.run(2)
        digits = result_digits(d, self.parameters)  # rows of a result, always adjacent
        assert self.results.written == [
            (far.place(address - n % digits, d.z, moved.z) + n % digits, row)
            for n, (address, row) in enumerate(expected.written)
        ]
        for name, peer in self.read.items():
            if name == "g" and d.operation is Operation.PE3:
                continue  # groups are parts of rows, and the port shows addresses of rows
            bases = getattr(d, name), getattr(moved, name)
            assert peer.asked == [far.place(address, *bases) for address in near[name]], name
        self._forget()

    async def check_wild(self, d: Compute) -> None:
        """Execute ``d`` with random strides and bases of all bits, and compare all addresses."""
        draw, p = self.random.getrandbits, self.parameters
        names = ("x", "g", "z", "x_row_stride", "g_row_stride", "z_row_stride")
        outer = len(d.levels) - d.reduce_levels
        steps = [[draw(LOCAL_WIDTH) for _ in range(3)] for _ in d.levels]
        steps[outer:] = [[*step[:2], 0] for step in steps[outer:]]
        levels = (Level(level.count, *step) for level, step in zip(d.levels, steps, strict=True))
        d = replace(d, **{name: draw(LOCAL_WIDTH) for name in names}, levels=tuple(levels))
        by_entries = d.operation is Operation.PE4
        rows = tile_rows(d.operation, p)
        asked = {"x": addresses(d, "x", rows if by_entries else 1, d.x_row_stride)}
        if by_entries:
            asked["g"] = addresses(d, "g", p.lanes, d.g_row_stride)
        elif d.operation in (Operation.BIAS, Operation.MASK):
            asked["g"] = addresses(d, "g", 1, 0)
        written = addresses(d, "z", rows, d.z_row_stride)
        for peer in self.read.values():
            peer.asked.clear()
        self.status.expect([len(written)])
        self.commands.items.append(command_bits(d))
        await self.until(lambda: self.items.items and not self.get("status_busy"))
        await self.run(2)
        assert [address for address, _ in self.results.written] == written
        for name, expected in asked.items():
            assert self.read[name].asked == expected, name
        self._forget()

    def _forget(self) -> None:
        """Forget the results of the last commands."""
        self.results.written.clear()
        self.items.items.clear()
        self.status.expect([])

    async def check_waits(self, d: Compute, idle_port: str, expected: list[int]) -> None:
        """Execute ``d`` while a port is idle, and count its stalls in 100 cycles.

        ``expected`` holds the stalls for an operand and for a result.
        """
        flags = ("status_stall_operand", "status_stall_result", "status_busy")
        assert await self.share(flags, 10) == [0, 0, 0]
        task = cocotb.start_soon(self.check([d]))
        for _ in range(150):
            await RisingEdge(self.dut.clk)
        counts = [0, 0, 0]
        for _ in range(100):
            await RisingEdge(self.dut.clk)
            counts = [count + self.get(name) for count, name in zip(counts, flags, strict=True)]
        assert counts == expected, (idle_port, counts)
        await task
        assert await self.share(flags, 10) == [0, 0, 0]

    async def check_invalid(self, d: Compute) -> bool:
        """Execute ``d`` with NaR in a word that it may read; compare reports with the model.

        Returns whether the word was reported.
        """
        p, random = self.parameters, self.random
        fit(self.rows, [d], p)
        # NaR of the narrowest format, which wider formats read as a number.
        width = min(p.number_formats[n].width for n in (d.x_format, d.g_format) if n)
        near = int(random.choice(reads_of(self.rows, d, p))) + random.choice((0, 0, 0, 1, 2))
        where = near % SPACE, random.randrange(p.lanes)
        kept, self.rows[where] = int(self.rows[where]), -1 << (width - 1)
        try:
            golden(d, self.rows, p)
            expected = False
        except ProgramError:
            expected = True
        self.invalid = 0
        self.commands.items.append(command_bits(d))
        await self.until(lambda: self.items.items and not self.get("status_busy"))
        await self.run(2)
        assert bool(self.invalid) == expected
        self.rows[where] = kept
        self._forget()
        return expected

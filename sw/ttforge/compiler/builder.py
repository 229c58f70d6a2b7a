"""Emits descriptors: loop nests of the contractions, transfers, and the waits between them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod

from ttforge.compiler.errors import CompileError
from ttforge.compiler.images import Image
from ttforge.compiler.memory import Buffer, LocalMemory, Region
from ttforge.fixed.scale import TensorClass
from ttforge.parameters import AcceleratorParameters
from ttforge.program.descriptors import (
    Compute,
    Descriptor,
    End,
    Halt,
    Level,
    Loop,
    Set,
    Transfer,
    TransferLevel,
)
from ttforge.program.fields import ENGINE_OF, Engine, Operation, Target


@dataclass(frozen=True)
class Written:
    """A tensor that compute descriptors write: what its statistics and its exponent need."""

    name: str
    kind: TensorClass
    width: int
    count: int
    """Values a step, padding not counted."""


@dataclass(frozen=True)
class Rule:
    """Which tensors' exponents give the shifts of one descriptor."""

    x: str
    g: str | None
    z: Written


@dataclass(frozen=True)
class _Access:
    engine: Engine
    space: str
    start: int
    stop: int
    write: bool


class Builder:
    """A program under construction, with the local memories it allocates from."""

    def __init__(self, p: AcceleratorParameters):
        self.p = p
        self.pad = LocalMemory("scratchpad", p.scratchpad_rows)
        beat_bits = p.data_width
        self.stores = {
            Target.PE1_STORE: LocalMemory(
                "PE1 factor store",
                p.pe1_store_depth,
                align=max(1, beat_bits // (p.lanes * p.factor_storage_width)),
            ),
            Target.PE2_STORE: LocalMemory(
                "PE2 factor store",
                p.pe2_store_depth,
                align=max(1, beat_bits // (p.pe2_rows * p.factor_storage_width)),
            ),
        }
        self.descriptors: list[Descriptor] = []
        self.rules: dict[int, Rule] = {}
        self.tensors: dict[str, Written] = {}
        self.images: dict[str, tuple[Image, Buffer]] = {}
        self.macs = 0
        self._accesses: list[_Access] = []
        self._repeat = 1
        self._depth = 0

    # Hazards: a descriptor waits for every other engine that still touches what it touches.

    def _wait(self, engine: Engine, touched: Sequence[tuple[str, int, int, bool]]) -> Engine:
        wait = Engine.NONE
        for space, start, stop, write in touched:
            for a in self._accesses:
                overlap = a.space == space and a.start < stop and start < a.stop
                if overlap and (write or a.write) and a.engine is not engine:
                    wait |= a.engine
        if wait:  # those engines are idle once this is issued
            self._accesses = [a for a in self._accesses if not a.engine & wait]
        self._accesses += [_Access(engine, *access) for access in touched]
        return wait

    def _emit(self, d: Compute | Transfer, touched: Sequence[tuple[str, int, int, bool]]) -> None:
        wait = self._wait(ENGINE_OF[d.operation], touched)
        self.descriptors.append(replace(d, wait=wait))

    # Control.

    @contextmanager
    def loop(self, iterations: int, steps: Sequence[tuple[int, int]] = ()) -> Iterator[None]:
        """Repeat what is emitted inside; ``steps`` are added to registers after each iteration."""
        self._depth += 1
        if self._depth > self.p.loop_depth:
            raise CompileError(
                f"the program nests {self._depth} loops, the sequencer {self.p.loop_depth}; set "
                "loop_depth"
            )
        self.descriptors.append(Loop(iterations=iterations))
        self._repeat *= iterations
        yield
        self._repeat //= iterations
        self._depth -= 1
        self.descriptors.append(End(steps=tuple(steps), wait=Engine.ALL))
        self._accesses.clear()

    def set_registers(self, values: Sequence[tuple[int, int]]) -> None:
        """Set address registers."""
        self.descriptors.append(Set(values=tuple(values)))

    def halt(self) -> None:
        """End the program."""
        self.descriptors.append(Halt())
        if len(self.descriptors) > self.p.program_depth:
            raise CompileError(
                f"the program has {len(self.descriptors)} descriptors, the program memory holds "
                f"{self.p.program_depth}; use fewer layers or factors"
            )

    def opposite(self, x: Region, name: str, rows: int) -> Region:
        """Rows for a result at the other end of the scratchpad than its operand.

        With two live regions, one at each end, the memory never fragments, and an engine reads
        and writes different banks.
        """
        return self.pad.allocate(name, rows, top=x.stop != self.pad.size)

    # Transfers.

    def transfer(
        self,
        operation: Operation,
        buffer: Buffer,
        region: Region,
        rows: int,
        *,
        levels: Sequence[TransferLevel] = (),
        offset: int = 0,
        register: int = 0,
    ) -> None:
        """Move runs of ``rows`` rows between ``buffer`` (byte ``offset`` on) and ``region``."""
        load = operation is Operation.LOAD
        # The whole buffer counts as touched: registers move the address inside it.
        self._emit(
            Transfer(
                operation=operation,
                address=buffer.address + offset,
                address_register=register,
                local=region.start,
                beats=rows * buffer.element_bytes,  # a row of bytes is one beat
                levels=tuple(level for level in levels if level.count > 1),
                element_bytes=buffer.element_bytes,
                tensor=buffer.name,
            ),
            (
                ("memory", buffer.address, buffer.stop, not load),
                ("pad", region.start, region.stop, load),
            ),
        )

    def load(self, buffer: Buffer, region: Region, rows: int, **options: object) -> None:
        """Load runs of rows."""
        self.transfer(Operation.LOAD, buffer, region, rows, **options)  # type: ignore[arg-type]

    def store(self, buffer: Buffer, region: Region, rows: int, **options: object) -> None:
        """Store runs of rows."""
        self.transfer(Operation.STORE, buffer, region, rows, **options)  # type: ignore[arg-type]

    def load_image(self, image: Image, buffer: Buffer) -> Region:
        """Load a factor image into its store; returns its entries."""
        region = self.stores[image.target].allocate(image.name, image.entries)
        self.images[image.name] = image, buffer
        self._emit(
            Transfer(
                operation=Operation.LOAD,
                target=image.target,
                address=buffer.address,
                local=region.start,
                beats=buffer.size // self.p.beat_bytes,
                element_bytes=0,
                tensor=image.name,
            ),
            (
                ("memory", buffer.address, buffer.stop, False),
                (image.target.name, region.start, region.stop, True),
            ),
        )
        return region

    # Contractions.

    def written(self, name: str, kind: TensorClass, width: int, count: int) -> Written:
        """Declare a tensor; ``count`` values a step."""
        tensor = Written(name, kind, width, count)
        known = self.tensors.setdefault(name, tensor)
        assert known == tensor, name
        if len(self.tensors) > self.p.statistics_depth:
            raise CompileError(
                f"{len(self.tensors)} tensors are counted, there are {self.p.statistics_depth} "
                "statistics slots; use fewer layers or factors"
            )
        return tensor

    def _contraction(
        self,
        d: Compute,
        rule: Rule,
        terms: int,
        widths: tuple[int, int],
        touched: Sequence[tuple[str, int, int, bool]],
    ) -> None:
        bits = (terms << (sum(widths) - 2)).bit_length() + 1
        if bits > self.p.accumulator_width:
            raise CompileError(
                f"{rule.z.name}: {terms} products of {widths[0]} x {widths[1]} bits need "
                f"accumulators of {bits} bits, these have {self.p.accumulator_width}; set "
                "accumulator_width, or use fewer bits or a smaller batch"
            )
        d = replace(
            d,
            tensor=rule.z.name,
            out_width=rule.z.width,
            slot=list(self.tensors).index(rule.z.name),
        )
        for part in self._fitting(d):
            self.rules[len(self.descriptors)] = rule
            self._emit(part, touched)

    def _fitting(self, d: Compute) -> list[Compute]:
        """``d`` without levels of one iteration, split where its nest is too deep to encode."""
        tile = d.levels[d.tile_level]
        levels = [level for level in d.levels if level.count > 1 or level is tile]
        reduce_levels = sum(level.count > 1 for level in d.reduction)
        if len(levels) <= self.p.nest_levels:
            return [
                replace(
                    d,
                    levels=tuple(levels),
                    reduce_levels=reduce_levels,
                    tile_level=next(i for i, v in enumerate(levels) if v is tile),
                )
            ]
        peel = next(i for i, level in enumerate(levels) if level is not tile)
        outer, rest = levels[peel], [v for i, v in enumerate(levels) if i != peel]
        inner = replace(
            d,
            levels=tuple(rest),
            reduce_levels=reduce_levels,
            tile_level=next(i for i, v in enumerate(rest) if v is tile),
        )
        return [
            part
            for i in range(outer.count)
            for part in self._fitting(
                replace(inner, x=d.x + i * outer.x, g=d.g + i * outer.g, z=d.z + i * outer.z)
            )
        ]

    def pe1(
        self,
        x: Region,
        z: Region,
        image: Image,
        entries: Region,
        *,
        a: int,
        rule: Rule,
        x_width: int,
    ) -> None:
        """Equation 5 on contiguous X (a, steps) and Z (a, tiles), in rows."""
        rows, steps, tiles = self.p.pe1_rows, image.steps, image.tiles
        count = -(-a // rows)
        self.macs += self._repeat * a * image.free * image.summed
        self._contraction(
            Compute(
                operation=Operation.PE1,
                x=x.start,
                g=entries.start,
                z=z.start,
                levels=(
                    Level(count, x=rows * steps, z=rows * tiles),
                    Level(tiles, g=steps * self.p.lanes, z=1),
                    Level(steps, x=1, g=self.p.lanes),
                ),
                reduce_levels=1,
                tile_level=0,
                last_rows=a - (count - 1) * rows,
                x_row_stride=steps,
                z_row_stride=tiles,
            ),
            rule,
            image.summed,
            (x_width, self.p.factor_width),
            (
                ("pad", x.start, x.start + a * steps, False),
                (image.target.name, entries.start, entries.stop, False),
                ("pad", z.start, z.start + a * tiles, True),
            ),
        )

    def pe2(
        self,
        x: Region,
        z: Region,
        image: Image,
        entries: Region,
        *,
        a: int,
        c: int,
        rule: Rule,
        x_width: int,
    ) -> None:
        """Equation 6 on contiguous X (a, b, c) and Z (a, d, c), c in rows."""
        rows, steps, tiles = self.p.pe2_rows, image.steps, image.tiles
        self.macs += self._repeat * a * image.free * image.summed * c * self.p.lanes
        self._contraction(
            Compute(
                operation=Operation.PE2,
                x=x.start,
                g=entries.start,
                z=z.start,
                levels=(
                    Level(a, x=steps * c, z=image.free * c),
                    Level(c, x=1, z=1),
                    Level(tiles, g=steps, z=rows * c),
                    Level(steps, x=c, g=1),
                ),
                reduce_levels=1,
                tile_level=2,
                last_rows=image.free - (tiles - 1) * rows,
                z_row_stride=c,
            ),
            rule,
            image.summed,
            (x_width, self.p.factor_width),
            (
                ("pad", x.start, x.start + a * steps * c, False),
                (image.target.name, entries.start, entries.stop, False),
                ("pad", z.start, z.start + a * image.free * c, True),
            ),
        )

    def pe3(
        self,
        x: Region,
        y: Region,
        z: Region,
        *,
        batch: int,
        outputs: Sequence[int],
        inputs: Sequence[int],
        rule: Rule,
        widths: tuple[int, int],
    ) -> None:
        """W(j_1, i_1, ..., j_m, i_m) = sum over s of Y(s, j_1..j_m) X(s, i_1..i_m).

        ``x`` (batch, I) and ``y`` (batch, J) in rows; the last dimensions are multiples of lanes.
        """
        p, m = self.p, len(outputs)
        rows, groups = p.pe2_rows, p.lanes // p.pe2_rows
        j_size, i_size = prod(outputs), prod(inputs)
        z_size = j_size * i_size // p.lanes
        levels = []
        for n in range(m - 1):
            inner = prod(outputs[n + 1 :]) * prod(inputs[n + 1 :]) // p.lanes
            levels += [
                Level(outputs[n], g=prod(outputs[n + 1 :]) // rows, z=inputs[n] * inner),
                Level(inputs[n], x=prod(inputs[n + 1 :]) // p.lanes, z=inner),
            ]
        i_rows = inputs[-1] // p.lanes
        levels += [
            Level(outputs[-1] // rows, g=1, z=rows * i_rows),
            Level(i_rows, x=1, z=1),
            Level(batch, x=i_size // p.lanes, g=j_size // rows),
        ]
        self.macs += self._repeat * batch * j_size * i_size
        self._contraction(
            Compute(
                operation=Operation.PE3,
                x=x.start,
                g=y.start * groups,
                z=z.start,
                levels=tuple(levels),
                reduce_levels=1,
                tile_level=2 * (m - 1),
                last_rows=rows,
                z_row_stride=i_rows,
            ),
            rule,
            batch,
            widths,
            (
                ("pad", x.start, x.stop, False),
                ("pad", y.start, y.stop, False),
                ("pad", z.start, z.start + z_size, True),
            ),
        )

    def elementwise(
        self,
        operation: Operation,
        x: Region,
        g: Region,
        z: Region,
        *,
        levels: Sequence[Level],
        rule: Rule,
        relu: bool = False,
    ) -> None:
        """BIAS or MASK over ``levels``."""
        self.rules[len(self.descriptors)] = rule
        kept = tuple(level for level in levels if level.count > 1) or (Level(1),)
        self._emit(
            Compute(
                operation=operation,
                x=x.start,
                g=g.start,
                z=z.start,
                levels=kept,
                out_width=rule.z.width,
                slot=list(self.tensors).index(rule.z.name),
                relu=relu,
                tensor=rule.z.name,
            ),
            (
                ("pad", x.start, x.stop, False),
                ("pad", g.start, g.stop, False),
                ("pad", z.start, z.stop, True),
            ),
        )

"""Emits descriptors: loop nests of the contractions, transfers, and the waits between them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partialmethod

from trainwright.compiler.digits import by_digits, digits_of
from trainwright.compiler.formats import TensorFormats, operand_format
from trainwright.compiler.hazards import Hazards
from trainwright.compiler.images import Image
from trainwright.compiler.limits import (
    COUNTS,
    LOOPS,
    MOST_COUNT,
    PE1_STORE,
    PE2_STORE,
    PROGRAM,
    SCRATCHPAD,
    STATISTICS,
    require_accumulator,
)
from trainwright.compiler.memory import Buffer, LocalMemory, Region, largest_divisor
from trainwright.compiler.nests import fitted, pe1_nest, pe2_nest, pe3_nest
from trainwright.compiler.row_images import RowImage
from trainwright.fixed.scale import TensorClass
from trainwright.formats import Fixed, Format, Posit
from trainwright.network import Network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import (
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
from trainwright.program.fields import ENGINE_OF, Engine, Operation, Target
from trainwright.program.footprint import Touch, footprint
from trainwright.program.samples import Samples
from trainwright.program.vector import Vector

MEMORY = "memory"
"""The external memory, among the spaces of ``Touch``."""


@dataclass(frozen=True)
class Written:
    """A tensor that compute descriptors write: what its statistics and its exponent need."""

    name: str
    kind: TensorClass
    format: Format
    count: int
    """Values a step, padding not counted."""
    counted: bool = True
    """Whether its statistics say anything: those of copies do not."""

    @property
    def width(self) -> int:
        """Bits of a word."""
        return self.format.width


@dataclass(frozen=True)
class Rule:
    """Which tensors' exponents give the shifts of one descriptor.

    Without a ``g``, ``x`` is its one operand, and the other a constant.
    """

    x: str
    g: str | None
    z: Written
    exact: bool = False
    """Nothing is rounded: z's exponent is its floor."""
    sign: str = ""
    """Of MASK: the tensor whose values say what passes."""


class Builder:
    """A program under construction, with the local memories it allocates from."""

    def __init__(self, p: AcceleratorParameters, network: Network):
        self.p = p
        self._widest_factor = network.factor_width
        self.formats = TensorFormats(network)
        self.pad = LocalMemory(SCRATCHPAD, p)
        beat_bits = p.data_width
        self.stores = {
            Target.PE1_STORE: LocalMemory(
                PE1_STORE,
                p,
                align=max(1, beat_bits // (p.lanes * p.factor_storage_width)),
            ),
            Target.PE2_STORE: LocalMemory(
                PE2_STORE,
                p,
                align=max(1, beat_bits // (p.pe2_rows * p.factor_storage_width)),
            ),
        }
        self.descriptors: list[Descriptor] = []
        self.rules: dict[int, Rule] = {}
        self.tensors: dict[str, Written] = {}
        self.images: dict[str, tuple[Image | RowImage, Buffer]] = {}
        self.macs = 0
        self._hazards = Hazards()
        self._depth = 0

    def emit(self, d: Compute | Transfer | Samples | Vector, memory: Sequence[Touch] = ()) -> None:
        """Add ``d`` with the waits it needs; ``memory`` is what it touches of external memory."""
        for level in d.levels if isinstance(d, Compute | Transfer) else ():
            COUNTS.require(level.count, self.p, d.tensor)
        waits = self._hazards.issue(ENGINE_OF[d.operation], (*footprint(d, self.p), *memory))
        self.descriptors.append(replace(d, **waits._asdict()))

    # Control.

    @contextmanager
    def loop(self, iterations: int, steps: Sequence[tuple[int, int]] = ()) -> Iterator[None]:
        """Repeat what is emitted inside; ``steps`` are added to registers after each iteration.

        A single iteration outside of other loops emits no LOOP, and the registers keep their
        values.
        """
        if iterations == 1 and not self._depth:
            yield
            return
        self._depth += 1
        LOOPS.require(self._depth, self.p, "the program")
        self.descriptors.append(Loop(iterations=iterations))
        yield
        self._depth -= 1
        self.descriptors.append(End(steps=tuple(steps), wait=Engine.ALL))
        self._hazards.barrier()

    def set_registers(self, values: Sequence[tuple[int, int]]) -> None:
        """Set address registers."""
        self.descriptors.append(Set(values=tuple(values)))

    def halt(self, which: str) -> None:
        """End the program, named for messages ``which``."""
        self.descriptors.append(Halt())
        STATISTICS.require(len(self.tensors), self.p, which)
        PROGRAM.require(len(self.descriptors), self.p, which)

    def opposite(self, x: Region, name: str, rows: int) -> Region:
        """Rows for a result at the other end of the scratchpad than its operand.

        With two live regions, one at each end, the memory never fragments, and an engine reads
        and writes different banks.
        """
        return self.pad.allocate(name, rows, top=x.stop != self.pad.size)

    # Transfers.

    def _transfer(
        self,
        operation: Operation,
        buffer: Buffer,
        region: Region,
        rows: int,
        *,
        levels: Sequence[TransferLevel] = (),
        register: int = 0,
    ) -> None:
        """Move runs of ``rows`` rows between ``buffer`` and ``region``, digits of them together."""
        run, digits = largest_divisor(rows, MOST_COUNT // buffer.element_bytes), buffer.digits
        size = run * buffer.element_bytes  # in beats: a row of bytes is one
        levels = [*levels, TransferLevel(rows // run, size * self.p.beat_bytes, run)]
        levels = [replace(v, local=v.local * digits) for v in levels if v.count > 1]
        store = operation is Operation.STORE
        start, stop = buffer.address, buffer.stop
        if not register:  # else the whole buffer counts as touched: the register moves inside it
            reach = sum((level.count - 1) * level.address for level in levels)
            stop = start + reach + size * self.p.beat_bytes
        self.emit(
            Transfer(
                operation=operation,
                address=buffer.address,
                address_register=register,
                local=region.start,
                beats=size,
                levels=tuple(levels),
                element_bytes=buffer.element_bytes // digits,
                tensor=buffer.name,
            ),
            (Touch(MEMORY, start, stop, store),),
        )

    load = partialmethod(_transfer, Operation.LOAD)
    store = partialmethod(_transfer, Operation.STORE)

    def load_image(self, image: Image, buffer: Buffer) -> Region:
        """Load a factor image into its store; returns its entries."""
        region = self.stores[image.target].allocate(image.name, image.entries)
        self.images[image.name] = image, buffer
        self.emit(
            Transfer(
                operation=Operation.LOAD,
                target=image.target,
                address=buffer.address,
                local=region.start,
                beats=buffer.size // self.p.beat_bytes,
                element_bytes=0,
                tensor=image.name,
            ),
            (Touch(MEMORY, buffer.address, buffer.stop, False),),
        )
        return region

    # Contractions.

    def written(self, name: str, kind: TensorClass, width: int, count: int) -> Written:
        """Declare a tensor; ``count`` values a step.

        Of ``width`` bits in fixed point, or in its class's posit, or as the network says of it by
        name.
        """
        fmt = self.formats.of_class(kind)
        fmt = Fixed(width) if isinstance(fmt, Fixed) else fmt
        fmt = self.formats.own(name) or fmt
        tensor = Written(name, kind, fmt, count)
        known = self.tensors.setdefault(name, tensor)
        assert known == tensor, name
        return tensor

    def contraction(
        self,
        d: Compute,
        rule: Rule,
        *,
        terms: int,
        widths: tuple[int, int],
        macs: int,
        image: Image | None = None,
    ) -> None:
        """Emit a contraction of ``terms`` products of ``widths`` bits, or their own, a sum.

        ``macs`` multiply-accumulates are useful, padding not counted.
        """
        names = (rule.x, rule.g)
        if rule.g is None and d.operation is Operation.PE4:
            names = (None, rule.x)
        x, g = (
            Fixed(width) if name is None else operand_format(fmt, width)  # None: a constant
            for name, fmt, width in zip(names, self._operands(d, rule), widths, strict=True)
        )
        require_accumulator(terms, (x, g), self.p, rule.z.name)
        self.macs += macs
        self.compute(d, rule, image)

    def digits(self, name: str) -> int:
        """Rows that each row of a tensor takes in the scratchpad."""
        return digits_of(self.formats.of(name), self.p)

    def compute(self, d: Compute, rule: Rule, image: Image | None = None) -> None:
        """Emit a contraction or an element-wise operation that writes ``rule.z``.

        ``d`` is a nest on whole rows, bases and steps between the rows of a row's digits left out;
        ``image``, of the factor store, has the second operand.
        """
        slot = list(self.tensors).index(rule.z.name)
        x, g = self._operands(d, rule)
        z = rule.z.format
        if rule.exact:  # a copy, of the one operand that is no constant
            z = g if isinstance(g, Posit) else x
        self.formats.add(rule.z.name, z)
        number = self.p.format_number
        d = replace(
            d,
            tensor=rule.z.name,
            out_width=rule.z.width,
            slot=slot,
            x_format=number(x),
            g_format=number(g),
            z_format=number(z),
            underflow_zero=isinstance(z, Posit) and self.formats.underflow_zero(rule.z.kind),
        )
        for part in fitted(self._by_digits(d, rule, x, g, image), self.p.nest_levels):
            self.rules[len(self.descriptors)] = rule
            self.emit(part)

    def _by_digits(
        self, d: Compute, rule: Rule, x: Format, g: Format, image: Image | None
    ) -> Compute:
        z = digits_of(rule.z.format, self.p)
        if image:
            entries = image.digit_entries if image.digits > 1 else 0
            of_x = digits_of(x, self.p)
            return by_digits(d, self.p, x=of_x, g=image.digits, z=z, entries=entries)
        if rule.exact or not self.p.wide_tensors:
            return d
        of_x, of_g = digits_of(x, self.p), digits_of(g, self.p)
        if d.operation is Operation.MASK:
            of_g = self.digits(rule.sign)
        elif d.operation is Operation.BIAS:
            of_g = of_x  # the host writes as many
        return by_digits(d, self.p, x=of_x, g=of_g, z=z)

    def _operands(self, d: Compute, rule: Rule) -> tuple[Format, Format]:
        """The formats of a descriptor's operands: of a constant, fixed point."""
        x, constant = self.formats.of(rule.x), Fixed(self.p.word_width)
        if rule.g is not None:
            return x, self.formats.of(rule.g)
        return (constant, x) if d.operation is Operation.PE4 else (x, constant)

    def _whole(
        self,
        d: Compute,
        rule: Rule,
        terms: int,
        widths: tuple[int, int],
        image: Image | None = None,
    ) -> None:
        """A contraction that writes all of its tensor over the step."""
        macs = rule.z.count * terms
        self.contraction(d, rule, terms=terms, widths=widths, macs=macs, image=image)

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
        d = pe1_nest(self.p, image, x=x.start, g=entries.start, z=z.start, a=a)
        self._whole(d, rule, image.summed, (x_width, self._factor_width(image)), image)

    def _factor_width(self, image: Image) -> int:
        """Bits of a factor's elements, its digits together."""
        return self.p.factor_width if image.digits == 1 else self._widest_factor

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
        d = pe2_nest(self.p, image, x=x.start, g=entries.start, z=z.start, a=a, c=c)
        self._whole(d, rule, image.summed, (x_width, self._factor_width(image)), image)

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
        """The outer product of Y (batch, outputs) and X (batch, inputs), summed over the batch."""
        d = pe3_nest(
            self.p,
            x=x.start,
            y=y.start,
            z=z.start,
            batch=batch,
            outputs=outputs,
            inputs=inputs,
        )
        self._whole(d, rule, batch, widths)

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
        nest = Compute(
            operation=operation, x=x.start, g=g.start, z=z.start, levels=tuple(levels), relu=relu
        )
        self.compute(nest, rule)

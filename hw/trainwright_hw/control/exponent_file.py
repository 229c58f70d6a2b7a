"""The exponent file: shifts and scalars of descriptors, and exponents that move."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from trainwright.accelerator.registers import Error
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute
from trainwright.program.exponents import ENTRY_WORDS, MOST_SHIFT, SCALARS, MoveScales
from trainwright.program.fields import (
    DESCRIPTOR_BITS,
    INSTRUCTION_WIDTH,
    Operation,
)
from trainwright.program.vector import Vector
from trainwright_hw.control.engine_ports import (
    EXPONENT_WIDTH,
    SCALAR_WIDTH,
    HostSlot,
    TakenSum,
    whole_layout,
)

SHIFT_WIDTH = 6
ALIGNMENT_WIDTH = 4
PLACE_WIDTH = 5
"""Bits of the number of a CODE's word; SCALES stores its entries in these words."""
KEEPS_ZEROS = "keeps_zeros"
"""Attribute of a memory whose zeros are written to RTLIL; others start undefined."""
WORD_OF = {field.name: n for n, word in enumerate(ENTRY_WORDS) for field in word}
"""Number of the word of an entry that holds a field."""


class ExponentFile(wiring.Component):
    """Hardware of ``trainwright.program.exponents.ExponentFile``, an exponent per cycle.

    ``resolve`` begins the compute or VECTOR descriptor at ``descriptor``, which must stay; ``move``
    begins a SCALES. ``done`` is high for the last cycle: the 8th after the begin of a compute
    descriptor, the 16th of a VECTOR. ``error`` is then ``NONE`` or the reason of a rejection. A
    rejected descriptor changes nothing; a rejected SCALES keeps the changes of its earlier entries
    and of its copy. Results stay until the next descriptor: ``shift``, ``x_shift`` and ``g_shift``;
    ``scalars``, the values before clamping.

    Members: also ``place`` and ``word``: that word of the descriptor, read as a CODE, a cycle
    later; ``sums`` and ``host``. A reset leaves the exponents unchanged.
    """

    def __init__(self, parameters: AcceleratorParameters):
        self._parameters = parameters
        super().__init__(
            {
                "descriptor": In(DESCRIPTOR_BITS),
                "resolve": In(1),
                "move": In(1),
                "done": Out(1),
                "error": Out(Error),
                "shift": Out(SHIFT_WIDTH),
                "x_shift": Out(ALIGNMENT_WIDTH),
                "g_shift": Out(ALIGNMENT_WIDTH),
                "scalars": Out(signed(SCALAR_WIDTH)).array(SCALARS),
                "place": Out(PLACE_WIDTH),
                "word": In(INSTRUCTION_WIDTH),
                "sums": Out(TakenSum()),
                "host": Out(HostSlot()),
            }
        )
        self._first, self._second, self._third = (
            Signal(signed(EXPONENT_WIDTH), name=name, reset_less=True)
            for name in ("first", "second", "third")
        )
        self._sum = Signal(signed(SCALAR_WIDTH), reset_less=True)
        self._above = Signal(reset_less=True)  # flag of the exponent read last

    def elaborate(self, platform) -> Module:
        m = Module()
        read, write, put_above, clear_above = self._memory(m)
        layout = whole_layout(Compute.layout)
        of_compute = data.View(layout, self.descriptor[: layout.size])
        # A register separates the host's path from the file's address logic.
        m.d.sync += [self.host.done.eq(0), self.host.value.eq(read(self.host.slot))]
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += self.host.done.eq(self.host.read)
                with m.If(self.host.write):
                    write(self.host.slot, self.host.data)
                    m.d.comb += clear_above.eq(1)
                with m.If(self.resolve):
                    m.next = "X"
                    with m.If(of_compute.operation == Operation.VECTOR):
                        m.next = "PLUS"
                with m.If(self.move):
                    m.next = "PICK"
            self._shifts(m, of_compute, read, write, put_above)
            self._scalars(m, read)
            self._scales(m, read, write)
        return m

    def _memory(self, m: Module):
        """Build the file; return functions to read and write it, and two flags of a write.

        A read happens in this cycle, a write at its end. ``above`` is a flag of each slot: whether
        its exponent is above its floor, so that it may go down. The two flags of a write set
        ``above`` to whether the shift is not 0, or clear it.
        """
        slots = self._parameters.exponents
        width = exact_log2(slots)
        attrs = {"ram_style": "distributed"}
        # Nothing writes slot 0, so that its 0 must be there from the start.
        m.submodules.exponents = exponents = Memory(
            shape=signed(EXPONENT_WIDTH), depth=slots, init=[], attrs=attrs | {KEEPS_ZEROS: 1}
        )
        m.submodules.above = above = Memory(shape=1, depth=slots, init=[], attrs=attrs)
        readers = [memory.read_port(domain="comb") for memory in (exponents, above)]
        writers = [memory.write_port() for memory in (exponents, above)]
        place, to = Signal(width), Signal(width)
        put, put_above, clear_above = Signal(), Signal(), Signal()
        m.d.comb += [
            *(reader.addr.eq(place) for reader in readers),
            *(writer.addr.eq(to) for writer in writers),
            writers[0].en.eq(put & (to != 0)),  # slot 0 stays 0
            writers[1].en.eq(put_above | clear_above),
            writers[1].data.eq((self.shift != 0) & ~clear_above),
        ]
        m.d.sync += self._above.eq(readers[1].data)

        def read(slot: Value) -> Value:
            m.d.comb += place.eq(slot)
            return readers[0].data

        def write(slot: Value, value: Value) -> None:
            m.d.comb += [put.eq(1), to.eq(slot), writers[0].data.eq(value)]

        return read, write, put_above, clear_above

    def _fits(self) -> Value:
        """Return whether the sum is an exponent."""
        return Cat(bit == self._sum[-1] for bit in self._sum[EXPONENT_WIDTH - 1 : -1]).all()

    def _finish(self, m: Module) -> None:
        m.d.comb += self.done.eq(1)
        m.next = "IDLE"

    def _refuse(self, m: Module, code: Error) -> None:
        m.d.comb += self.error.eq(code)
        self._finish(m)

    def _shifts(self, m: Module, d, read, write, put_above) -> None:
        """Compute a descriptor's shifts: floor, distance above it, exponent of the result."""
        most = self._parameters.most_alignment
        first, second, third, total = self._first, self._second, self._third, self._sum
        aligned = d.operation == Operation.BIAS
        floor = Signal(signed(EXPONENT_WIDTH + 1), reset_less=True)
        apart = Signal(EXPONENT_WIDTH + 1)  # distance of the operands of BIAS
        rest = Signal(signed(SCALAR_WIDTH), reset_less=True)
        far = Signal(reset_less=True)
        shift, limit = Signal(SHIFT_WIDTH), Signal(SHIFT_WIDTH)
        # The file has one read port, so the operands' exponents are read one after another.
        with m.State("X"):
            m.d.sync += first.eq(read(d.x_exponent))
            m.next = "G"
        with m.State("G"):
            m.d.sync += second.eq(read(d.g_exponent))
            m.next = "Z"
        with m.State("Z"):
            m.d.sync += [
                third.eq(read(d.z_exponent)),
                total.eq(Mux(aligned, first - second, first + second)),
            ]
            m.next = "FLOOR"
        negative = total[-1]
        m.d.comb += apart.eq(Mux(negative, -total, total))
        # A product's exponent is the sum of the operands' exponents. Operands that are added are
        # aligned to the smaller exponent, so only the other one is shifted.
        with m.State("FLOOR"):
            m.d.sync += [
                floor.eq(Mux(aligned, Mux(negative, first, second), total)),
                self.x_shift.eq(Mux(aligned & ~negative, apart, 0)),
                self.g_shift.eq(Mux(aligned & negative, apart, 0)),
                far.eq(aligned & (apart > most)),
            ]
            m.next = "REST"
        with m.State("REST"):
            m.d.sync += rest.eq(third - floor)
            m.next = "SHIFT"
        m.d.comb += [
            shift.eq(held(rest, MOST_SHIFT)),
            limit.eq(most + self.g_shift),  # e_g is g_shift above the floor
        ]
        # The result loses bits down to its own exponent. With `grows`, its exponent exceeds the one
        # of g by at most `most`.
        with m.State("SHIFT"):
            m.d.sync += self.shift.eq(Mux(d.exact, 0, Mux(d.grows & (shift > limit), limit, shift)))
            m.next = "EXPONENT"
        with m.State("EXPONENT"):
            m.d.sync += total.eq(floor + self.shift)
            m.next = "PUT"
        # Nothing is written for a refused descriptor.
        with m.State("PUT"):
            with m.If(far):
                self._refuse(m, Error.ALIGNMENT)
            with m.Elif(~self._fits()):
                self._refuse(m, Error.EXPONENT)
            with m.Else():
                write(d.z_exponent, total)
                m.d.comb += put_above.eq(1)
                self._finish(m)

    def _scalars(self, m: Module, read) -> None:
        """Compute the scalars of a VECTOR, one after another."""
        layout = whole_layout(Vector.layout)
        d = data.View(layout, self.descriptor[: layout.size])
        number = Signal(range(SCALARS))
        value = Signal(signed(SCALAR_WIDTH))

        def field(name: str) -> Value:
            fields = [d[f"{name}{n}"] for n in range(SCALARS)]
            return Mux(
                number[1], Mux(number[0], fields[3], fields[2]), Mux(number[0], *fields[1::-1])
            )

        offset = Signal(signed(len(field("offset"))))
        m.d.comb += [offset.eq(field("offset")), value.eq(self._sum + offset)]
        with m.State("PLUS"):
            m.d.sync += self._first.eq(read(field("plus")))
            m.next = "MINUS"
        with m.State("MINUS"):
            m.d.sync += self._second.eq(read(field("minus")))
            m.next = "DIFFERENCE"
        with m.State("DIFFERENCE"):
            m.d.sync += self._sum.eq(self._first - self._second)
            m.next = "OFFSET"
        # A scalar is the difference of two exponents plus an offset of the program.
        with m.State("OFFSET"):
            for n, to in enumerate(self.scalars):
                with m.If(number == n):
                    m.d.sync += to.eq(value)
            m.d.sync += number.eq(number + 1)
            m.next = "PLUS"
            with m.If(number == SCALARS - 1):
                self._finish(m)
            with m.If(field("strict") & value[-1]):
                m.d.sync += number.eq(0)
                self._refuse(m, Error.NEGATIVE)

    def _scales(self, m: Module, read, write) -> None:
        """Process the entries of a SCALES: slots, limits against the sum, copy, exponent."""
        layout = whole_layout(MoveScales.layout)
        entries = data.View(layout, self.descriptor[: layout.size]).entries
        word = self.word
        slots = ENTRY_WORDS[WORD_OF["exponent"]]
        entry = data.View(data.StructLayout({field.name: field.width for field in slots}), word)
        low, high = WORD_OF["low"], WORD_OF["high"]
        width = exact_log2(self._parameters.exponents)
        exponent, copy = Signal(width, reset_less=True), Signal(width, reset_less=True)
        number, base = Signal(4), Signal(PLACE_WIDTH)
        over, under = (Signal(name=name, reset_less=True) for name in ("over", "under"))
        sums, total = self.sums, self.sums.total
        # One comparator serves limit < sum and limit <= sum: an extra low bit decides equality.
        inclusive, passed = Signal(), Signal()
        m.d.comb += passed.eq(Cat(~inclusive, word) < Cat(1, total))
        with m.State("PICK"):
            m.d.comb += self.place.eq(base)
            m.next = "SLOTS"
        with m.State("SLOTS"):
            m.d.sync += [
                exponent.eq(entry.exponent),
                sums.slot.eq(entry.statistics),
                copy.eq(entry.copy),
            ]
            m.d.comb += self.place.eq(base + high)
            m.next = "HIGH"
        with m.State("HIGH"):
            m.d.comb += [sums.take.eq(1), self.place.eq(base + high)]
            m.d.sync += over.eq(passed)
            with m.If(sums.there):
                m.d.comb += self.place.eq(base + low)
                m.next = "LOW"
        with m.State("LOW"):
            m.d.comb += [sums.take.eq(1), inclusive.eq(1)]
            m.d.sync += [under.eq(~passed), self._first.eq(read(exponent))]
            m.next = "COPY"
        with m.State("COPY"):
            m.d.comb += sums.take.eq(1)
            down = under & self._above
            m.d.sync += self._sum.eq(self._first + Mux(over, 1, Mux(down, -1, 0)))
            write(copy, self._first)
            m.next = "MOVE"
        with m.State("MOVE"):
            m.d.comb += sums.take.eq(1)
            with m.If((exponent != 0) & ~self._fits()):
                m.d.sync += [number.eq(0), base.eq(0)]
                self._refuse(m, Error.EXPONENT)
            with m.Else():
                m.d.comb += sums.zero.eq(1)
                write(exponent, self._sum)
                m.d.sync += [number.eq(number + 1), base.eq(base + len(ENTRY_WORDS))]
                m.next = "PICK"
                with m.If(number + 1 >= entries):
                    m.d.sync += [number.eq(0), base.eq(0)]
                    self._finish(m)


def held(value: Value, most: int) -> Value:
    """Clamp a signed value to 0 .. ``most``."""
    return Mux(value[-1], 0, Mux(value > most, most, value[: most.bit_length()]))

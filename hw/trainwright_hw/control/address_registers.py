"""The sequencer's address registers R0 to R7."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from trainwright.program.fields import REGISTER_WIDTH, REGISTERS

SELECT_WIDTH = (REGISTERS - 1).bit_length()


class AddressRegisters(wiring.Component):
    """File of ``REGISTERS`` registers; R0 is always zero.

    Members: ``clear``, due before the first use, zeroes all registers; ``set`` and ``add`` load the
    registers in ``mask`` with their element of ``values``, or add it; ``select`` is an array of
    ``readers`` register numbers, and ``value`` holds their contents.
    """

    def __init__(self, *, readers: int):
        super().__init__(
            {
                "clear": In(1),
                "set": In(1),
                "add": In(1),
                "mask": In(REGISTERS),
                "values": In(data.ArrayLayout(REGISTER_WIDTH, REGISTERS)),
                "select": In(SELECT_WIDTH).array(readers),
                "value": Out(REGISTER_WIDTH).array(readers),
            }
        )

    def elaborate(self, platform):
        m = Module()
        for number in range(1, REGISTERS):
            register = Signal(REGISTER_WIDTH, name=f"r{number}", reset_less=True)
            with m.If(self.clear):
                m.d.sync += register.eq(0)
            with m.Elif((self.set | self.add) & self.mask[number]):
                m.d.sync += register.eq(Mux(self.add, register, 0) + self.values[number])
            for select, value in zip(self.select, self.value, strict=True):
                with m.If(select == number):
                    m.d.comb += value.eq(register)
        return m

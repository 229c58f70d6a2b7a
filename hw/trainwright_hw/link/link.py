"""The host link: a serial line on one side, registers and memory on the other."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out, connect, flipped

from trainwright_hw.link.endpoint import Endpoint
from trainwright_hw.link.framing import Deframer, Framer
from trainwright_hw.link.uart import UartReceiver, UartTransmitter


class HostLink(wiring.Component):
    """Link with ``divisor`` cycles per bit.

    Members: ``rx`` (asynchronous) and ``tx``, the line, high when idle; ``registers`` and
    ``memory`` as in ``Endpoint``.
    """

    def __init__(self, *, divisor: int, memory_bytes: int, clock_hz: int):
        self._divisor = divisor
        self._endpoint = Endpoint(memory_bytes=memory_bytes, clock_hz=clock_hz)
        members = self._endpoint.signature.members
        super().__init__(
            {
                "rx": In(1, init=1),
                "tx": Out(1, init=1),
                "registers": members["registers"],
                "memory": members["memory"],
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        line = Signal(init=1)
        m.submodules.synchroniser = FFSynchronizer(self.rx, line, init=1)
        m.submodules.receiver = receiver = UartReceiver(divisor=self._divisor)
        m.submodules.deframer = deframer = Deframer()
        m.submodules.endpoint = endpoint = self._endpoint
        m.submodules.framer = framer = Framer()
        m.submodules.transmitter = transmitter = UartTransmitter(divisor=self._divisor)
        connect(m, framer.bytes, transmitter.bytes)
        connect(m, endpoint.reply, framer.words)
        connect(m, endpoint.registers, flipped(self.registers))
        connect(m, endpoint.memory, flipped(self.memory))
        m.d.comb += [
            receiver.line.eq(line),
            deframer.valid.eq(receiver.valid),
            deframer.byte.eq(receiver.byte),
            deframer.enable.eq(endpoint.receiving),
            self.tx.eq(transmitter.line),
        ]
        for name in ("word_valid", "word", "index", "good", "bad"):
            m.d.comb += getattr(endpoint, name).eq(getattr(deframer, name))
        return m

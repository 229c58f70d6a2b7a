"""Execution of the host's requests, one at a time."""

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from trainwright.link.protocol import (
    MOST_WORDS,
    VERSION,
    WORD_BYTES,
    WRITES,
    Hello,
    Request,
    Status,
)
from trainwright_hw.bus.axi import Axi4Lite
from trainwright_hw.link.framing import MOST_FRAME_WORDS
from trainwright_hw.link.host_port import HostPort

WORD_WIDTH = 8 * WORD_BYTES
_COUNT = range(MOST_WORDS + 1)
_STORE = data.StructLayout({"enable": 1, "address": range(2 * MOST_WORDS), "word": WORD_WIDTH})


class Endpoint(wiring.Component):
    """Executor of requests: takes their words, reads and writes, and returns the replies' words.

    A write with the same sequence number as the session's last request is answered again but not
    executed again, so that a host may repeat unanswered requests. HELLO opens a session; before it,
    every other request is answered with NO_SESSION, by which a host notices a reset.

    Members: ``receiving``, high while a request may arrive; ``word_valid``, ``word``, ``index``,
    ``good`` and ``bad`` as in ``Deframer``; ``reply``, a stream for ``Framer``; ``registers``, an
    AXI4-Lite port; ``memory``, a host port of ``memory_bytes`` (a power of two).
    """

    def __init__(self, *, memory_bytes: int, clock_hz: int):
        if memory_bytes < WORD_BYTES or memory_bytes & (memory_bytes - 1):
            raise ValueError(f"memory_bytes must be a power of two, not {memory_bytes!r}")
        self._memory_bytes = memory_bytes
        self._clock_hz = clock_hz
        self._address_width = (memory_bytes // WORD_BYTES - 1).bit_length()
        reply = data.StructLayout({"word": WORD_WIDTH, "last": 1})
        super().__init__(
            {
                "receiving": Out(1),
                "word_valid": In(1),
                "word": In(WORD_WIDTH),
                "index": In(range(MOST_FRAME_WORDS + 2)),
                "good": In(1),
                "bad": In(1),
                "reply": Out(stream.Signature(reply)),
                "registers": Out(Axi4Lite()),
                "memory": Out(HostPort(self._address_width)),
            }
        )
        self._sequence, self._request = Signal(8), Signal(8)
        self._words = Signal(_COUNT)
        self._address = Signal(WORD_WIDTH)
        self._status = Signal(Status)
        self._position = Signal(_COUNT)  # number of the payload's word in work
        self._access_done, self._read_data = Signal(), Signal(WORD_WIDTH)

    def elaborate(self, platform) -> Module:
        m = Module()
        # Payload of the request, later of the reply. A request's CRC is stored behind it.
        m.submodules.payload = payload = Memory(shape=WORD_WIDTH, depth=2 * MOST_WORDS, init=[])
        writer, reader = payload.write_port(), payload.read_port()
        # registers on both sides, because the memory may be placed anywhere on the device
        self._store = Signal(_STORE)
        self._loaded = Signal(WORD_WIDTH, reset_less=True)
        store = Signal(_STORE)
        m.d.sync += [store.eq(self._store), self._loaded.eq(reader.data)]
        m.d.comb += [
            writer.en.eq(store.enable),
            writer.addr.eq(store.address),
            writer.data.eq(store.word),
            reader.addr.eq(self._position),
        ]
        self._take_words(m)
        bad_frames = Signal(WORD_WIDTH)
        with m.If(self.bad):
            m.d.sync += bad_frames.eq(bad_frames + 1)
        reading, write = Signal(), Signal()
        m.d.comb += [
            write.eq((self._request == WRITES[0]) | (self._request == WRITES[1])),
            reading.eq(
                (self._request == Request.READ_REGISTERS) | (self._request == Request.READ_MEMORY)
            ),
        ]
        self._reach_registers(m, write)
        self._reach_memory(m, write)
        access = Signal()
        to_registers = (self._request == Request.READ_REGISTERS) | (
            self._request == Request.WRITE_REGISTERS
        )
        m.d.comb += self._to_registers.eq(access & to_registers)
        # registered: the memory decides the grant
        m.d.sync += self.memory.request.eq(access & ~to_registers & ~self.memory.done)
        with m.FSM():
            # The deframer fills the payload; only a frame with a right CRC counts as a request.
            with m.State("RECEIVE"):
                m.d.comb += self.receiving.eq(1)
                m.d.sync += self._position.eq(0)
                with m.If(self.good):
                    m.next = "CHECK"
            # The comparisons of `_check` take a cycle, because their sums are long.
            with m.State("CHECK"):
                acceptable = self._check(m, write, reading, to_registers)
                m.next = "DECIDE"
            with m.State("DECIDE"):
                self._decide(m, write, acceptable)
            self._access_states(m, access, reading)
            self._hello_state(m, bad_frames)
            self._reply_states(m, write)
        return m

    def _access_states(self, m: Module, access: Signal, reading: Signal) -> None:
        """Add the states that read or write the words of a request, one after the other."""
        with m.State("FETCH"):  # read the word to write from the payload
            m.next = "FETCHED"
        # The payload's memory and the register behind it take a cycle each.
        with m.State("FETCHED"):
            m.next = "ACCESS"
        # Access one word, then the next, until the request's words are done.
        with m.State("ACCESS"):
            m.d.comb += access.eq(~self._access_done)
            with m.If(self._access_done):
                m.d.comb += [
                    self._store.enable.eq(reading),
                    self._store.address.eq(self._position),
                    self._store.word.eq(self._read_data),
                ]
                m.d.sync += [
                    self._position.eq(self._position + 1),
                    self._address.eq(self._address + WORD_BYTES),
                ]
                m.next = "FETCH"
                with m.If(self._position + 1 == self._words):
                    m.d.sync += self._position.eq(0)
                    m.next = "REPLY"

    def _hello_state(self, m: Module, bad_frames: Signal) -> None:
        """Add the state that answers HELLO."""
        # Store the answers as payload of the reply, one word per cycle.
        with m.State("HELLO"):
            answers = {
                Hello.VERSION: C(VERSION, WORD_WIDTH),
                Hello.CLOCK_HZ: C(self._clock_hz, WORD_WIDTH),
                Hello.MEMORY_BYTES: C(self._memory_bytes, WORD_WIDTH),
                Hello.BAD_FRAMES: bad_frames,
            }
            m.d.comb += [self._store.enable.eq(1), self._store.address.eq(self._position)]
            with m.Switch(self._position):
                for number, answer in answers.items():
                    with m.Case(number):
                        m.d.comb += self._store.word.eq(answer)
            m.d.sync += [self._position.eq(self._position + 1), self._words.eq(len(Hello))]
            with m.If(self._position == len(Hello) - 1):
                m.d.sync += self._position.eq(0)
                m.next = "REPLY"

    def _reply_states(self, m: Module, write: Signal) -> None:
        """Add the states that send a reply."""
        # Send the reply's header. Writes and errors have no payload.
        with m.State("REPLY"):
            payload_follows = (self._status == Status.OK) & ~write
            word = self.reply.payload
            m.d.comb += [
                self.reply.valid.eq(1),
                word.word.eq(Cat(self._sequence, self._request, self._status)),
                word.last.eq(~payload_follows),
            ]
            with m.If(self.reply.ready):
                m.next = "RECEIVE"
                with m.If(payload_follows):
                    m.next = "LOAD"
        with m.State("LOAD"):
            m.next = "LOADED"
        with m.State("LOADED"):
            m.next = "SEND"
        # Send the payload; each word is read from the memory through LOAD and LOADED.
        with m.State("SEND"):
            last = self._position + 1 == self._words
            m.d.comb += [
                self.reply.valid.eq(1),
                self.reply.payload.word.eq(self._loaded),
                self.reply.payload.last.eq(last),
            ]
            with m.If(self.reply.ready):
                m.d.sync += self._position.eq(self._position + 1)
                m.next = "LOAD"
                with m.If(last):
                    m.next = "RECEIVE"

    def _take_words(self, m: Module) -> None:
        """Store header and payload of a request, and its length."""
        self._length = Signal.like(self.index)
        with m.If(self.word_valid & self.receiving):
            with m.If(self.index == 0):
                m.d.sync += [
                    Cat(self._sequence, self._request).eq(self.word),
                    self._words.eq(self.word[16:24] + 1),
                ]
            with m.Elif(self.index == 1):
                m.d.sync += self._address.eq(self.word)
            with m.Else():
                m.d.comb += [
                    self._store.enable.eq(1),
                    self._store.address.eq(self.index - 2),
                    self._store.word.eq(self.word),
                ]
        with m.If(self.good):
            m.d.sync += self._length.eq(self.index)

    def _check(self, m: Module, write, reading, to_registers) -> Value:
        """Return whether a complete request can be executed, a cycle later."""
        known, long_enough, inside = Signal(), Signal(), Signal()
        end = self._address + (self._words << 2)
        m.d.sync += [
            known.eq(write | reading),
            long_enough.eq(self._length == Mux(write, self._words + 3, 3)),
            # The address must be a multiple of a word, and the last word must exist.
            inside.eq(
                (self._address[:2] == 0)
                & (end <= Mux(to_registers, 1 << len(self.registers.araddr), self._memory_bytes))
            ),
        ]
        return known & long_enough & inside

    def _decide(self, m: Module, write, acceptable) -> None:
        """Choose the action or the error reply for a request."""
        session, last = Signal(), Signal(8)
        hello = self._request == Request.HELLO
        m.d.sync += self._status.eq(Status.OK)
        with m.If(hello):
            m.d.sync += [session.eq(1), last.eq(self._sequence)]
            m.next = "HELLO"
        with m.Elif(~session):
            m.d.sync += self._status.eq(Status.NO_SESSION)
            m.next = "REPLY"
        with m.Elif(~acceptable):
            m.d.sync += self._status.eq(Status.REFUSED)
            m.next = "REPLY"
        # The host repeats a write if its reply was lost: answer it, but do not write twice.
        with m.Elif(write & (last == self._sequence)):
            m.next = "REPLY"
        with m.Else():
            m.d.sync += last.eq(self._sequence)
            m.next = "FETCH"

    def _reach_registers(self, m: Module, write) -> None:
        """Make one AXI4-Lite access for ``_to_registers``, until ``_access_done``."""
        lite = self.registers
        self._to_registers = Signal()
        addressed, filled = Signal(), Signal()
        m.d.comb += [
            lite.awaddr.eq(self._address),
            lite.araddr.eq(self._address),
            lite.wdata.eq(self._loaded),
            lite.wstrb.eq(~0),
            lite.awvalid.eq(self._to_registers & write & ~addressed),
            lite.wvalid.eq(self._to_registers & write & ~filled),
            lite.arvalid.eq(self._to_registers & ~write & ~addressed),
            lite.bready.eq(1),
            lite.rready.eq(1),
        ]
        with m.If((lite.awvalid & lite.awready) | (lite.arvalid & lite.arready)):
            m.d.sync += addressed.eq(1)
        with m.If(lite.wvalid & lite.wready):
            m.d.sync += filled.eq(1)
        m.d.sync += self._access_done.eq(lite.bvalid | lite.rvalid | self.memory.done)
        with m.If(lite.bvalid | lite.rvalid):
            m.d.sync += [addressed.eq(0), filled.eq(0), self._read_data.eq(lite.rdata)]

    def _reach_memory(self, m: Module, write) -> None:
        port = self.memory
        m.d.comb += [
            port.write.eq(write),
            port.address.eq(self._address[2:]),
            port.write_data.eq(self._loaded),
        ]
        with m.If(port.done):
            m.d.sync += self._read_data.eq(port.read_data)

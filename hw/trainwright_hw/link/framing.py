"""Conversion between frames and bytes (``trainwright.link.protocol``)."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.crc import Processor, catalog
from amaranth.lib.wiring import In, Out

from trainwright.link.protocol import ESCAPE, ESCAPE_XOR, FLAG, MOST_WORDS, WORD_BYTES

MOST_FRAME_WORDS = MOST_WORDS + 3
"""Words of the longest frame: header, payload and CRC."""


def frame_crc() -> Processor:
    """Create the unit of a frame's CRC, a byte per cycle; it matches ``zlib.crc32``."""
    return catalog.CRC32_ISO_HDLC().create()


class Deframer(wiring.Component):
    """Extractor of frames' words from a stream of bytes.

    Bytes are dropped while ``enable`` is low, and from then on up to the next flag. Members:
    ``valid`` with ``byte``; ``word_valid``, high for one cycle with each ``word`` of a frame, the
    CRC included, and the ``index`` of the word in the frame; ``good`` or ``bad``, high for one
    cycle at the end of a frame, when ``index`` is the length in words. A frame is good if it has
    whole words, at most ``MOST_FRAME_WORDS``, and a correct CRC. Adjacent flags are no frame.
    """

    def __init__(self):
        super().__init__(
            {
                "enable": In(1),
                "valid": In(1),
                "byte": In(8),
                "word_valid": Out(1),
                "word": Out(8 * WORD_BYTES),
                "index": Out(range(MOST_FRAME_WORDS + 2)),
                "good": Out(1),
                "bad": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.crc = crc = frame_crc()
        # Hunting after an error or at the start: bytes are dropped up to the next flag.
        hunting, escaped, anything = Signal(init=1), Signal(), Signal()
        place = Signal(range(WORD_BYTES))
        # Register the byte and its classification, so that comparisons do not lengthen the path of
        # the CRC.
        valid, byte = Signal(), Signal(8)
        flag, escape, data_byte = Signal(), Signal(), Signal(8)
        m.d.sync += [
            valid.eq(self.valid & self.enable & (self.byte != FLAG)),
            flag.eq(self.valid & self.enable & (self.byte == FLAG)),
            escape.eq(self.byte == ESCAPE),
            byte.eq(self.byte),
        ]
        take, end = Signal(), Signal()
        complete = Signal()  # this byte completes a word
        m.d.comb += [
            end.eq(flag & ~hunting & anything & self.enable),
            # An escape is not part of the frame; the byte after it is, whatever it is.
            take.eq(valid & ~hunting & (~escape | escaped)),
            data_byte.eq(Mux(escaped, byte ^ ESCAPE_XOR, byte)),
            crc.valid.eq(take),
            crc.data.eq(data_byte),
            crc.start.eq(flag),
            complete.eq(take & (place == WORD_BYTES - 1)),
        ]
        # A frame that ends within a word or an escape is damaged, even if its CRC should match.
        whole = (place == 0) & (self.index <= MOST_FRAME_WORDS) & ~escaped
        m.d.sync += [
            self.word_valid.eq(complete),
            self.good.eq(end & whole & crc.match_detected),
            self.bad.eq(end & ~(whole & crc.match_detected)),
        ]
        # The count stops beyond the longest frame: wrapped around, a long frame would look short.
        with m.If(self.word_valid & (self.index <= MOST_FRAME_WORDS)):
            m.d.sync += self.index.eq(self.index + 1)
        with m.If(take):
            m.d.sync += [
                # Words arrive with the lowest byte first.
                self.word.eq(Cat(self.word[8:], data_byte)),
                place.eq(place + 1),
                anything.eq(1),
                escaped.eq(0),
            ]
        with m.Elif(valid):  # an escape byte
            # A frame of one escape has content, so it is bad and not empty.
            m.d.sync += [escaped.eq(1), anything.eq(1)]
        with m.If(flag):
            m.d.sync += [hunting.eq(0), place.eq(0), anything.eq(0), escaped.eq(0)]
        with m.If((flag & ~end) | self.good | self.bad):
            m.d.sync += self.index.eq(0)
        with m.If(~self.enable):
            m.d.sync += [hunting.eq(1), self.index.eq(0)]
        return m


class Framer(wiring.Component):
    """Sender of frames of words as bytes: escaped, with CRC and flags.

    Members: ``words``, a stream of words, each with ``last`` of its frame; ``bytes``, a stream.
    """

    def __init__(self):
        layout = data.StructLayout({"word": 8 * WORD_BYTES, "last": 1})
        super().__init__({"words": In(stream.Signature(layout)), "bytes": Out(stream.Signature(8))})

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.crc = crc = frame_crc()
        word, last = Signal(8 * WORD_BYTES), Signal()
        left = Signal(range(WORD_BYTES + 1))  # bytes of the word still to send
        escaped = Signal()
        out, sent = self.bytes, Signal()
        byte = word[:8]
        # Flags and escapes inside a frame are replaced by an escape and a changed byte: a flag on
        # the wire is always the end of a frame, so a receiver can join at any time.
        special = (byte == FLAG) | (byte == ESCAPE)
        m.d.comb += [sent.eq(out.valid & out.ready), crc.data.eq(byte)]

        def send_word() -> None:
            escape = special & ~escaped
            m.d.comb += [
                out.valid.eq(1),
                out.payload.eq(Mux(escape, ESCAPE, Mux(escaped, byte ^ ESCAPE_XOR, byte))),
            ]
            with m.If(sent):
                m.d.sync += escaped.eq(escape)
                with m.If(~escape):
                    m.d.sync += [word.eq(word >> 8), left.eq(left - 1)]

        with m.FSM():
            with m.State("FLAG"):
                m.d.comb += [
                    out.valid.eq(self.words.valid),
                    out.payload.eq(FLAG),
                    crc.start.eq(1),
                ]
                with m.If(sent):
                    m.next = "NEXT"
            with m.State("NEXT"):
                m.d.comb += self.words.ready.eq(1)
                with m.If(self.words.valid):
                    payload = self.words.payload
                    m.d.sync += [word.eq(payload.word), last.eq(payload.last), left.eq(WORD_BYTES)]
                    m.next = "WORD"
            with m.State("WORD"):
                send_word()
                # The CRC covers the frame's bytes, not their escapes.
                m.d.comb += crc.valid.eq(sent & ~(special & ~escaped))
                with m.If(crc.valid & (left == 1)):
                    m.next = "NEXT"
                    with m.If(last):
                        m.next = "CRC"
            with m.State("CRC"):
                # The CRC needs a cycle after the last byte, which is why this state sends nothing.
                m.d.sync += [word.eq(crc.crc), left.eq(WORD_BYTES)]
                m.next = "SEND-CRC"
            with m.State("SEND-CRC"):
                send_word()
                with m.If(sent & ~(special & ~escaped) & (left == 1)):
                    m.next = "END"
            with m.State("END"):
                m.d.comb += [out.valid.eq(1), out.payload.eq(FLAG)]
                with m.If(sent):
                    m.next = "FLAG"
        return m

"""Lanes that accept coded formats and fixed point: the same exact sums, of decoded integers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from amaranth.hdl import Module, Value

from trainwright.formats import Coded
from trainwright_hw.arith.decoder import (
    ROM_DECODE_CYCLES,
    SHIFT_DECODE_CYCLES,
    RomDecoder,
    ShiftDecoder,
    check_tables,
)
from trainwright_hw.arith.encoder import Encoder, check_encoder, encode_cycles
from trainwright_hw.arith.fixed import FixedArithmetic

assert ROM_DECODE_CYCLES == SHIFT_DECODE_CYCLES


@dataclass(frozen=True, kw_only=True)
class CodedArithmetic(FixedArithmetic):
    """Products and sums of the integers that words decode to.

    ``select`` 0 is fixed point, n > 0 is ``formats[n - 1]``. Raises ``ValueError`` for formats
    whose integers do not fit the operands, for sums that the encoder does not accept, for tables
    that fit no block RAM, and for random bits, which serve fixed point only.
    """

    formats: tuple[Coded, ...]
    tables: bool = False
    """Whether a block RAM decodes two lanes (``RomDecoder``) instead of shifts."""

    decode_cycles = SHIFT_DECODE_CYCLES

    def __post_init__(self) -> None:
        check_encoder(self.accumulator_width, self.formats, self.word_width)
        for width in (self.left_width, self.right_width):
            for fmt in self.formats:
                if not fmt.fits(width):
                    raise ValueError(
                        f"integers of {fmt} have {fmt.decoded_width} bits, operands {width}: "
                        f"choose {fmt.narrower}"
                    )
        if self.tables:
            check_tables(self.formats)
        if self.with_random:
            raise ValueError(
                "stochastic rounding works with fixed point only: choose it or the formats "
                + ", ".join(map(str, self.formats))
            )

    def encode_cycles(self, lanes: int) -> int:
        """Return the encoder's latency in cycles."""
        return encode_cycles(lanes)

    def decode(
        self, m: Module, name: str, words: Sequence[Value], select: Value
    ) -> tuple[list[Value], list[Value]]:
        """Add a decoder per word, or per two words with tables."""
        values, invalid = [], []
        step = 2 if self.tables else 1
        for start in range(0, len(words), step):
            kind = RomDecoder if self.tables else ShiftDecoder
            decoder = kind(self.formats, word_width=self.word_width)
            m.submodules[f"{name}_{start}"] = decoder
            m.d.comb += decoder.format.eq(select)
            given = words[start : start + step]
            ports = decoder.word if self.tables else [decoder.word]
            m.d.comb += [port.eq(word) for port, word in zip(ports, given, strict=False)]
            for collected, port in ((values, decoder.value), (invalid, decoder.invalid)):
                collected += list(port)[: len(given)] if self.tables else [port]
        return values, invalid

    def encoder(self, *, lanes: int, value_width: int) -> Encoder:
        """Return the encoder, whose first format is fixed point."""
        return Encoder(
            lanes=lanes,
            value_width=value_width,
            formats=self.formats,
            word_width=self.word_width,
        )

    @property
    def settings(self) -> Mapping[str, str]:
        """Ports of fixed point, the format, and the rule for underflows."""
        return {**super().settings, "format": "z_format", "zero": "underflow_zero"}

    @property
    def underflows(self) -> bool:
        """Always true: coded words can underflow."""
        return True

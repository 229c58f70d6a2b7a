"""Lanes that take posits beside fixed point: the same exact sums, of decoded integers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from amaranth.hdl import Module, Value

from trainwright.formats import Posit
from trainwright_hw.arith.fixed import FixedArithmetic
from trainwright_hw.arith.posit_decoder import (
    ROM_DECODE_CYCLES,
    SHIFT_DECODE_CYCLES,
    RomDecoder,
    ShiftDecoder,
    check_tables,
)
from trainwright_hw.arith.posit_encoder import PositEncoder, check_encoder, encode_cycles

assert ROM_DECODE_CYCLES == SHIFT_DECODE_CYCLES


@dataclass(frozen=True, kw_only=True)
class PositArithmetic(FixedArithmetic):
    """Products and sums of integers that words were decoded to; ``select`` 0 is fixed point, n > 0
    is ``formats[n - 1]``.

    Raises ``ValueError`` for formats whose integers the operands do not hold, for sums that the
    encoder does not take, for tables that no block RAM holds, and for random bits: rounding by them
    is of fixed point alone.
    """

    formats: tuple[Posit, ...]
    tables: bool = False
    """Decode by a block RAM for two lanes (``RomDecoder``) instead of by shifts."""

    decode_cycles = SHIFT_DECODE_CYCLES

    def __post_init__(self) -> None:
        check_encoder(self.accumulator_width, self.formats, self.word_width)
        for width in (self.left_width, self.right_width):
            for fmt in self.formats:
                if not fmt.fits(width):
                    raise ValueError(
                        f"integers of {fmt} have {fmt.decoded_width} bits, operands {width}: "
                        "choose a format of fewer, or one that is clamped"
                    )
        if self.tables:
            check_tables(self.formats)
        if self.with_random:
            raise ValueError(
                "stochastic rounding is of fixed point alone: choose it or the posits "
                + ", ".join(map(str, self.formats))
            )

    def encode_cycles(self, lanes: int) -> int:
        """Those of the encoder."""
        return encode_cycles(lanes)

    def decode(
        self, m: Module, name: str, words: Sequence[Value], select: Value
    ) -> tuple[list[Value], list[Value]]:
        """A decoder a word, or one for two."""
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
            for found, port in ((values, decoder.value), (invalid, decoder.invalid)):
                found += list(port)[: len(given)] if self.tables else [port]
        return values, invalid

    def encoder(self, *, lanes: int, value_width: int) -> PositEncoder:
        """The encoder, whose first format is fixed point."""
        return PositEncoder(
            lanes=lanes,
            value_width=value_width,
            formats=self.formats,
            word_width=self.word_width,
        )

    @property
    def settings(self) -> Mapping[str, str]:
        """Those of fixed point, the format and the rule for underflows."""
        return {**super().settings, "format": "z_format", "zero": "underflow_zero"}

    @property
    def underflows(self) -> bool:
        """Of posits."""
        return True

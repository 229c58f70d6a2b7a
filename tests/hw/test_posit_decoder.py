"""The decoders against ``trainwright.formats``: every word of every format."""

from itertools import product
from random import Random

import pytest
from amaranth.sim import Simulator
from format_kinds import BYTES, SAMPLES
from slowly import mostly_slow

from trainwright.formats import Coded, Posit, parse_coded
from trainwright_hw.arith.decoder import (
    ROM_DECODE_CYCLES,
    SHIFT_DECODE_CYCLES,
    RomDecoder,
    ShiftDecoder,
    check_tables,
    decoding,
)

SETS = {
    "the accelerator's": ("posit(8,0)", "posit(8,1)c"),
    "of 18 bits": ("posit(10,0)", "posit(6,1)", "posit(4,2)"),
    "of 27 bits": ("posit(8,1)", "posit(5,2)"),
    "four of 8 bits": ("posit(8,0)", "posit(8,1)c", "posit(6,1)", "posit(4,0)"),
    "one": ("posit(3,0)",),
    **{f"samples of {kind.__name__}": tuple(map(str, each)) for kind, each in BYTES.items()},
    "a sample of each class": tuple(str(each[-1]) for each in BYTES.values()),
}
SAMPLED = [kind for kind in SETS if "sample" in kind]


def formats_of(kind: str) -> list[Coded]:
    return parse_coded(",".join(SETS[kind]))


def words_of(formats: list[Coded], width: int = 16) -> list[tuple[int, int, int | None]]:
    """Return the format's number, each word and its integer.

    Fixed point has some words of all sizes; words that stand for no number have None.
    """
    limit = 1 << width - 1
    words: list[tuple[int, int, int | None]] = [
        (0, word, word)
        for word in (*range(-300, 300), -32768, 32767, 12345, -21846)
        if -limit <= word < limit
    ]
    for number, fmt in enumerate(formats, 1):
        words += [(number, w, int(fmt.decode(w))) for w in range(-fmt.largest, fmt.largest + 1)]
        beyond = range(fmt.largest + 1, 1 << (fmt.width - 1))
        words += [(number, w, None) for word in beyond for w in (word, -word)]
        words.append((number, -1 << (fmt.width - 1), None))
    Random(1).shuffle(words)
    return words


def simulate(dut, testbench) -> None:
    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(testbench)
    simulator.run()


@mostly_slow(
    "kind, width",
    [*((kind, 16) for kind in SETS), ("four of 8 bits", 8)],
    lambda kind, width: (kind, width) != ("four of 8 bits", 16),
)
def test_shift_decoder_matches_formats_word_by_word(kind, width):
    """The formats one after the other: a word each cycle, another format with each."""
    formats = formats_of(kind)
    dut, cases = ShiftDecoder(formats, word_width=width), words_of(formats, width)
    assert len(dut.value) == max(width, *(fmt.decoded_width for fmt in formats))

    async def testbench(ctx):
        waiting = [None] * SHIFT_DECODE_CYCLES
        for case in [*cases, *waiting]:
            number, word, _ = case or (0, 0, 0)
            ctx.set(dut.format, number)
            ctx.set(dut.word, word)
            waiting.append(case)
            if due := waiting.pop(0):
                assert ctx.get(dut.invalid) == (due[2] is None), due
                assert due[2] in (None, ctx.get(dut.value)), due
            await ctx.tick()

    simulate(dut, testbench)


@pytest.mark.parametrize(
    ("kind", "width"),
    [
        ("the accelerator's", 16),
        ("four of 8 bits", 16),
        ("one", 16),
        ("the accelerator's", 8),
        *((kind, 16) for kind in SAMPLED),
    ],
)
def test_table_decoder_matches_formats_word_by_word(kind, width):
    """Two lanes of one format, with words of their own."""
    formats = formats_of(kind)
    dut, cases = RomDecoder(formats, word_width=width), words_of(formats, width)
    by_format = {number: [case for case in cases if case[0] == number] for number, _, _ in cases}
    random = Random(2)

    async def testbench(ctx):
        waiting = [None] * ROM_DECODE_CYCLES
        for case in [*cases, *waiting]:
            number, word, integer = case or (0, 0, 0)
            _, other, other_integer = random.choice(by_format[number])
            ctx.set(dut.format, number)
            for lane, given in enumerate((word, other)):
                ctx.set(dut.word[lane], given)
            waiting.append(case and (case, integer, other_integer))
            if due := waiting.pop(0):
                for lane, want in enumerate(due[1:]):
                    assert ctx.get(dut.invalid[lane]) == (want is None), due
                    assert want in (None, ctx.get(dut.value[lane])), due
            await ctx.tick()

    simulate(dut, testbench)


def test_every_format_has_a_decoding():
    """Generate the shift decoder for formats that fit no multiplier, too."""
    plain = [Posit(n, es) for n, es in product(range(3, 11), range(3)) if (n - 2) << es <= 30]
    for fmt in (*plain, *SAMPLES):
        for rest in range(1 << (fmt.width - 1)):
            for negative in (False, True):
                place = decoding(fmt, rest, negative=negative)
                word = -rest - 1 if negative else rest
                if abs(word) > fmt.largest:
                    assert place is None  # no number
                    continue
                assert place is not None
                prefix, cut = place
                bits = rest ^ prefix
                assert (~bits if negative else bits) << cut == int(fmt.decode(word))
                assert bits < 1 << (fmt.width - 1)


def test_table_decoder_rejects_formats_beyond_block_ram():
    with pytest.raises(ValueError, match="1 to 4 tables, not 5"):
        check_tables([Posit(8, 0)] * 5)
    with pytest.raises(ValueError, match=r"posit\(10,0\) has words of 10 bits .* ShiftDecoder"):
        check_tables([Posit(10, 0)])
    with pytest.raises(ValueError, match=r"posit\(8,1\) has words of 8 bits and integers of 26"):
        check_tables([Posit(8, 1)])

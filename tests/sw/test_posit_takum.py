"""Linear takums: all words against the definition, and rounding against every neighbour."""

import json
import random
from fractions import Fraction

import pytest
from slowly import mostly_slow

from trainwright import cli
from trainwright.posit import PositError
from trainwright.posit.explain import explain, explain_code, nearest, parse_format
from trainwright.posit.takum import TakumFormat, fields, round_exact, value

SIZES = [2, 3, 5, 6, 8, 11, 12, 16]
WIDTHS = pytest.mark.parametrize("n", SIZES)


def defined(code, n):
    """Return a value by the definition: (1 - 3 S + m) 2^e on the word as it stands, padded."""
    bits = format(code, f"0{n}b").ljust(max(n, 12), "0")
    s, d, r = int(bits[0]), int(bits[1]), int(bits[2:5], 2)
    if not int(bits[1:], 2):
        return None if s else Fraction(0)
    r = r if d else 7 - r
    c = int(bits[5 : 5 + r] or "0", 2) + ((1 << r) - 1 if d else 1 - (1 << (r + 1)))
    mantissa = bits[5 + r :]
    m = Fraction(int(mantissa or "0", 2), 1 << len(mantissa))
    return (1 - 3 * s + m) * Fraction(2) ** ((-1) ** s * (c + s))


def rounded(x, n):
    """Return the word nearest to x > 0 among all, half-way being the words of n + 1 bits."""
    best = max((code for code in range(1, 1 << (n - 1)) if defined(code, n) <= x), default=1)
    if best < (1 << (n - 1)) - 1 and x > defined(best, n):
        half = defined(2 * best + 1, n + 1)
        best += x > half or (x == half and best % 2 == 1)
    return best


@mostly_slow("n", SIZES, lambda n: n < 16)
def test_takum_values_of_every_word_are_those_of_the_definition(n):
    fmt = TakumFormat(n)
    values = [value(code, fmt) for code in range(1 << n)]
    assert values == [defined(code, n) for code in range(1 << n)]
    order = values[(1 << (n - 1)) + 1 :] + values[: 1 << (n - 1)]
    assert order == sorted(set(order))  # words are ordered as integers in two's complement
    for code in range(0, 1 << n, 1 if n < 16 else 13):
        assert nearest(values[code], fmt) == code


@WIDTHS
def test_takum_ties_and_their_neighbours_round_to_the_nearest_word(n):
    fmt, step = TakumFormat(n), Fraction(1, 10**90)
    codes = range(1, (1 << (n - 1)) - 1, 1 if n < 16 else 97)
    for code in codes:
        half = defined(2 * code + 1, n + 1)
        even = code + code % 2
        for x, want in ((half, even), (half * (1 - step), code), (half * (1 + step), code + 1)):
            assert nearest(x, fmt) == want
            assert nearest(-x, fmt) == (1 << n) - want


def test_takum_rounding_of_random_numbers_is_nearest_of_all_words():
    draw = random.Random(1)
    for n in (4, 7, 9, 10):
        for _ in range(60):
            x = Fraction(draw.getrandbits(40) + 1) * Fraction(2) ** draw.randint(-320, 290)
            assert nearest(x, TakumFormat(n)) == rounded(x, n)


@pytest.mark.parametrize("n", [2, 8, 16, 32, 64])
def test_takums_never_round_to_0_or_nar(n):
    fmt = TakumFormat(n)
    for shift in (254, 255, 5000):
        assert round_exact(3, shift, fmt) == fmt.nar - 1
        assert round_exact(-1, shift + 1, fmt) == fmt.nar + 1
        assert round_exact(1, -shift - 2, fmt) == 1
        assert round_exact(-1, -shift - 2, fmt) == fmt.mask
    assert round_exact(0, 7, fmt) == 0 and nearest(None, fmt) == fmt.nar
    assert value(fmt.nar, fmt) is None and fields(0, fmt) is None


def test_takum_range_reaches_from_2_to_the_minus_255_to_2_to_the_255():
    fmt = TakumFormat(64)
    assert value(fmt.nar - 1, fmt) == Fraction(2) ** 254 * (2 - Fraction(1, 1 << 52))
    assert value(1, fmt) == Fraction(2) ** -255 * (1 + Fraction(1, 1 << 52))
    assert value(1 << 62, fmt) == 1


def test_takums_and_posits_are_explained_by_one_command(capsys):
    shown = {}
    for name in ("16,2", "takum16", "takum(8)"):
        assert cli.main(["posit", "--json", "3.14159", "--format", name]) == 0
        shown[name] = json.loads(capsys.readouterr().out)
    assert shown["takum16"]["value"] == 3.140625 and shown["takum16"]["code"] == 0x4A48
    assert shown["takum16"]["fields"] == {
        "sign": "0", "direction": "1", "regime": "001", "charact.": "0", "mantissa": "1001001000",
    }  # fmt: skip
    assert shown["takum(8)"]["format"] == "takum8"
    assert shown["16,2"]["value"] == 3.1416015625
    assert cli.main(["posit", "1e90", "--format", "takum16"]) == 0
    assert "beyond maxpos" in capsys.readouterr().out
    assert explain_code(1, TakumFormat(4)).value == defined(1, 4)
    assert explain(Fraction(1, 3), TakumFormat(16)).error == value(
        nearest(Fraction(1, 3), TakumFormat(16)), TakumFormat(16)
    ) - Fraction(1, 3)


def test_formats_side_by_side_are_columns_of_exact_words(capsys):
    names = ["16,2", "takum16", "takum64"]
    given = [part for name in names for part in ("--format", name)]
    assert cli.main(["posit", "1e40", *given]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "---" not in line]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    table = {row[0]: row[1:] for row in rows}
    assert table[""] == ["posit(16,2)", "takum16", "takum64"]
    formats = [parse_format(name) for name in names]
    words = [nearest(Fraction(10**40), fmt) for fmt in formats]
    assert [int(word, 16) for word in table["word"]] == words
    assert table["scale"] == ["2^56", "2^132", "2^132"]
    assert table["fraction bits"] == ["0", "4", "52"]
    assert table["value"][0] == str(2**56) and table["above"][0] == "nar"
    for shown, word, fmt in list(zip(table["fields"], words, formats, strict=True))[1:]:
        assert shown.replace(" ", "") == f"{word:0{fmt.n}b}"
    assert cli.main(["posit", "1e40", *given, "--json"]) == 0
    together = json.loads(capsys.readouterr().out)["formats"]
    for name, own in zip(names, together, strict=True):
        assert cli.main(["posit", "1e40", "--format", name, "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == own
    assert cli.main(["posit", "nar", *given]) == 0
    assert "1000000000000000" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["takum1", "takum65", "takum", "takum(16", "takum16,2", "takum-8"])
def test_takum_format_of_another_form_is_an_error(text, capsys):
    with pytest.raises(PositError, match="takum"):
        parse_format(text)
    with pytest.raises(SystemExit, match="2"):
        cli.main(["posit", "1", "--format", text])
    assert "takum" in capsys.readouterr().err


def test_takum_code_outside_the_format_is_an_error():
    with pytest.raises(PositError, match="codes of takum8 are 0 to 255, not 256"):
        explain_code(256, TakumFormat(8))

"""``trainwright posit``: one number, field by field."""

import json
from fractions import Fraction

import pytest

from trainwright import cli
from trainwright.posit import PositError, PositFormat
from trainwright.posit.explain import explain, explain_code, parse_number, rows

PI = """\
posit(16,2): word 0x4c91 = 0100110010010001
  sign      0            positive
  regime    10           1 one: k = 0, times 16^0
  exponent  01           times 2^1
  fraction  10010010001  times 1 + 1169/2048
value       2^1 x 1.57080078125 = 3.1416015625
error       +1.156e-05, +3.68e-06 of the number
neighbours  3.140625 and 3.142578125
"""


def test_posit_explain_shows_pi(capsys):
    assert cli.main(["posit", "3.14159", "--format", "16,2"]) == 0
    assert capsys.readouterr().out == PI


def told(capsys, *options):
    assert cli.main(["posit", "--json", *options]) == 0
    return json.loads(capsys.readouterr().out)


def test_numbers_are_read_without_rounding(capsys):
    tie = "1.000244140625"  # half-way between 1 and 1 + 2^-11
    assert told(capsys, tie)["code"] == 0x4000
    assert told(capsys, tie + "0" * 60 + "1")["code"] == 0x4001
    assert told(capsys, "1/3")["value"] == pytest.approx(1 / 3, rel=2**-12)
    assert told(capsys, "0x1.8p1")["value"] == 3
    assert parse_number("-0x1.00000000000000001p-3") == -Fraction(2**68 + 1, 2**71)
    assert told(capsys, "--format", "8,0", "--", "-1/3")["fields"] == {
        "sign": "1", "regime": "001", "exponent": "-", "fraction": "0101",
    }  # fmt: skip


def test_ends_and_special_values(capsys):
    assert told(capsys, "1e30")["code"] == 0x7FFF
    assert told(capsys, "1e-30")["code"] == 1
    assert told(capsys, "nar") == {
        "format": "posit(16,2)", "code": 0x8000, "fields": {"word": "1000000000000000"},
        "value": None, "error": None, "below": None, "above": None,
    }  # fmt: skip
    zero = told(capsys, "0", "--format", "2,0")
    assert (zero["value"], zero["below"], zero["above"]) == (0, -1, 1)
    assert told(capsys, "--code", "0x8001")["value"] == -(2.0**56)
    assert cli.main(["posit", "1e30"]) == 0
    assert "beyond maxpos" in capsys.readouterr().out
    assert cli.main(["posit", "1e-30"]) == 0
    assert "below minpos" in capsys.readouterr().out
    assert cli.main(["posit", "inf"]) == 0
    assert "NaR" in capsys.readouterr().out


@pytest.mark.parametrize(
    "number, note",
    [
        ("0x1.fp-57", "; below minpos, for nothing becomes 0"),
        ("0x1.01p-56", ""),
        ("0x1.8p-56", ""),
        ("0x1.8p55", ""),
        ("0x1.ffp55", ""),
        ("0x1.01p56", "; beyond maxpos, which nothing exceeds"),
    ],
)
def test_posit_explain_notes_other_rounding(number, note, capsys):
    """From minpos to maxpos nothing is: 2^-56 and 2^56."""
    for given in (number, f"-{number}"):
        assert cli.main(["posit", "--", given]) == 0
        (error,) = (line for line in capsys.readouterr().out.splitlines() if "error" in line)
        assert error.endswith(f"of the number{note}")


@pytest.mark.parametrize("n, es", [(8, 0), (8, 2), (6, 4), (3, 1), (2, 0)])
def test_fields_make_up_the_word(n, es):
    fmt = PositFormat(n, es)
    for code in range(1 << n):
        explanation = explain_code(code, fmt)
        table = {name: bits.strip("-") for name, bits, _ in rows(explanation)}
        if explanation.fields is None:
            assert code in (0, fmt.nar)
            continue
        body = int("0" + table["regime"] + table["exponent"] + table["fraction"], 2)
        assert (-body if table["sign"] == "1" else body) & fmt.mask == code
        assert explain(explanation.value, fmt).code == code and explanation.error == 0


@pytest.mark.parametrize("text", ["x", "1/0", "", "0x", "1e"])
def test_posit_explain_rejects_other_text(text, capsys):
    with pytest.raises(PositError, match="a number is written"):
        parse_number(text)


@pytest.mark.parametrize(
    "options, message",
    [
        ([], "give a number or --code WORD"),
        (["1", "--code", "3"], "give a number or --code WORD"),
        (["--code", "70000"], "codes of posit(16,2) are 0 to 65535, not 70000"),
    ],
)
def test_posit_explain_rejects_bad_options(options, message, capsys):
    assert cli.main(["posit", *options]) == 2
    assert message in capsys.readouterr().err


def test_posit_command_json_gives_exact_neighbours_beyond_float64(capsys):
    assert cli.main(["posit", "1", "--format", "takum64", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["value"] == 1.0
    below, above = Fraction(result["below"]), Fraction(result["above"])
    assert below < 1 < above and 1 - below <= above - 1 <= Fraction(1, 2**58)
    assert cli.main(["posit", "1e400", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert Fraction(result["error"]) == 2**56 - 10**400 and result["above"] is None

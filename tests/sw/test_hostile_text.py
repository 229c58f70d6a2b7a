"""Texts that nobody means: one line, soon, and no longer than a line can be."""

import json
import re
import time
import tomllib
from fractions import Fraction
from random import Random

import numpy as np
import pytest

from trainwright.cli import main
from trainwright.network import NetworkError, load_network, network_from_dict
from trainwright.network.layer import MOST_SIZE
from trainwright.posit import PositError
from trainwright.posit.explain import parse_number
from trainwright.support.errors import MOST_LINE, one_line
from trainwright.support.text import MOST_SHOWN, amount, shortened, shown

TOML = """
name = "some"
classes = 10
image = [8, 8]
[[layers]]
outputs = [8, 16]
inputs = [4, 16]
ranks = [16]
relu = true
[[layers]]
outputs = [1, 16]
inputs = [8, 16]
ranks = [8]
[widths]
factor = 4
"""


@pytest.fixture
def complaint(tmp_path, capsys):
    """Return the message of ``trainwright plan`` about a text that is no network."""

    def told(text: str) -> str:
        path = tmp_path / "n.toml"
        path.write_text(text)
        assert main(["plan", str(path)]) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and len(said) <= MOST_LINE + 30
        return said

    return told


NINES = "9" * 5000


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("classes = 10", f"classes = {NINES}", "not a TOML file: Exceeds the limit"),
        ("classes = 10", f"classes = 0x{'f' * 5000}", "not <int of 20,000 bits>"),
        ("[8, 16]\ninputs = [4", f"[0x{'f' * 5000}, 16]\ninputs = [4", "not <int of 20,000 bits>"),
        ("image = [8, 8]", f"image = [8, 0x{'f' * 5000}]", "is over 1048576 on a side"),
        ("factor = 4", f"factor = 0x{'f' * 5000}", "not <int of 20,000 bits>"),
        ("classes = 10", f"classes = {'[' * 20000}{']' * 20000}", "nested too deep"),
        ("classes = 10", f"classes = {'{a=' * 20000}1{'}' * 20000}", "nested too deep"),
        ("ranks = [8]", f"ranks = [{'8, ' * 10000}8]", "(30,003 characters)"),
        ('name = "some"', f'name = "{"x" * 70000}"', "(70,002 characters)"),
        ("classes = 10", f"c{'x' * 70000} = 1\nclasses = 10", "(70,003 characters)"),
        ("factor = 4", "# " + "x" * (1 << 20), "over 1,048,576 bytes are no network"),
        (
            "[8, 16]\ninputs = [4",
            "[4, 1000000000]\ninputs = [4",
            "from 1 to 1048576, not 1000000000",
        ),
        ("[8, 16]\ninputs = [4", "[1048576, 16]\ninputs = [4", "multiply to 16,777,216, at most"),
        ("ranks = [16]", f"ranks = [16{', 1' * 20}]", "2 factors have 1 rank"),
    ],
)
def test_networks_that_nobody_means(complaint, old, new, message):
    assert TOML.count(old) == 1
    began = time.process_time()
    assert message in complaint(TOML.replace(old, new))
    assert time.process_time() - began < 5


def layered(count: int):
    layer = {"outputs": [4, 16], "inputs": [4, 16], "ranks": [4]}
    return network_from_dict({"classes": 2, "image": [8, 8], "layers": [layer] * count})


def test_many_layers_are_refused_before_they_are_compiled():
    with pytest.raises(NetworkError, match="has 500 layers, there can be from 1 to 64"):
        layered(500)


def test_many_factors_are_refused():
    layer = {"outputs": [1] * 300 + [16], "inputs": [4] + [1] * 299 + [16], "ranks": [1] * 300}
    with pytest.raises(NetworkError, match="at most 16 factors, not 301"):
        network_from_dict({"classes": 2, "image": [8, 8], "layers": [layer]})


def test_hostile_text_size_may_be_the_largest():
    layer = {"outputs": [1, MOST_SIZE], "inputs": [4, 16], "ranks": [4]}
    network_from_dict({"classes": 2, "image": [8, 8], "layers": [layer]})
    layer["outputs"] = [1, MOST_SIZE + 1]
    with pytest.raises(NetworkError, match="from 1 to 1048576, not 1048577"):
        network_from_dict({"classes": 2, "image": [8, 8], "layers": [layer]})


def test_hostile_text_in_networks_is_one_error(tmp_path):
    """Seeded: a network or a ``NetworkError``, whatever the text has become."""
    path, networks = tmp_path / "n.toml", 0
    words = ["[", "]", "=", "-1", "0x7f", "1e9", "inf", "true", '"', "\n", "[[layers]]", "ranks",
             "{", "}", "1979-05-27", "#", "\\", "99999999999999999999", "'''", ","]  # fmt: skip
    for seed in range(600):
        random = Random(f"toml {seed}")
        text = re.findall(r"\w+|\W", TOML)
        for _ in range(random.randint(1, 4)):
            at = random.randrange(len(text))
            kind = random.random()
            if kind < 0.5:
                at = random.choice([n for n, token in enumerate(text) if token.isdigit()])
                text[at] = random.choice(("1", "2", "4", "8", "16", "17", *words))
            elif kind < 0.8:
                text[at : at + random.randrange(9)] = []
            else:
                text[at] = chr(random.randrange(1, 0x2000))
        path.write_text("".join(text))
        try:
            load_network(str(path))
            networks += 1
        except NetworkError as error:
            assert len(one_line(error)) <= MOST_LINE
    assert 10 < networks < 590


def test_toml_of_other_systems_is_read(tmp_path):
    path = tmp_path / "n.toml"
    path.write_bytes(TOML.replace("\n", "\r\n").encode())
    assert load_network(str(path)) == network_from_dict(tomllib.loads(TOML))
    path.write_bytes(b"\xef\xbb\xbf" + TOML.encode())
    assert load_network(str(path)) == network_from_dict(tomllib.loads(TOML))


# Numbers and messages.


@pytest.mark.parametrize(
    ("number", "message"),
    [
        ("1e40000000", "at most 2000 digits, exponent included, not '1e40000000'"),
        ("1e-40000000", "at most 2000 digits"),
        ("1E4_0000_000", "at most 2000 digits"),
        (f"1e{'0' * 30}40000000", "at most 2000 digits"),
        ("1e2001", "at most 2000 digits"),
        (NINES, "(5,002 characters)"),
        ("1e5_", "is written 3.14159"),
        ("1/0", "is written 3.14159"),
        ("0x1p99999", "is written 3.14159"),
        ("e", "is written 3.14159"),
    ],
)
def test_numbers_that_nobody_means(capsys, number, message):
    with pytest.raises(PositError):
        parse_number(number)
    assert main(["posit", number]) == 2
    said = capsys.readouterr().err
    assert message in said and len(said) < 300


@pytest.mark.parametrize("number", ["1e400", "-1e400", "1e-400", "1e2000", "1e-2000", "0x1e99"])
def test_numbers_beyond_float64(capsys, number):
    for fmt in ("16,2", "32,4", "2,0"):
        assert main(["posit", "--format", fmt, "--", number]) == 0
        assert ("beyond maxpos" if "e-" not in number else "below minpos") in (
            capsys.readouterr().out + ("beyond maxpos" if number == "0x1e99" else "")
        )
        assert main(["posit", "--json", "--format", fmt, "--", number]) == 0
        said = capsys.readouterr().out
        assert "Infinity" not in said
        shown = json.loads(said)
        exact = Fraction(shown["value"]) - parse_number(number)
        assert abs(Fraction(shown["error"]) - exact) <= abs(exact) / 2**53  # a float64, or exact


def test_hostile_text_word_of_thousands_of_digits(capsys):
    assert main(["posit", "--code", f"0x{'f' * 5000}"]) == 2
    assert "are 0 to 65535, not <int of 20,000 bits>" in capsys.readouterr().err


def test_options_of_thousands_of_characters(capsys):
    for argv in (
        ["posit", "1", "--format", f"{NINES},2"],
        ["plan", "--ranks", NINES],
        ["plan", "x" * 100_000],
        ["plan", "--batch", "9" * 4000],
        ["plan", "--accelerator", f"lanes={NINES}"],
        ["plan", "--accelerator", f"lanes=0x{'f' * 5000}"],
        ["plan", "--accelerator", "x" * 100_000],
        ["y" * 100_000],
    ):
        try:
            status = main(argv)
        except SystemExit as stop:
            status = stop.code
        said = capsys.readouterr().err
        assert status == 2 and said.count("\n") == 1 and len(said) < MOST_LINE + 100, argv[1][:20]


def test_hostile_text_short_word_is_shown_whole():
    for value in (7, "text", [1, 2], None):
        assert shown(value) == repr(value)
    assert shown(10**5000) == "<int of 16,610 bits>" and shown([10**5000]) == "<list>"
    assert len(shown("x" * 10**6)) == MOST_SHOWN
    assert shortened("a" * 50 + "b" * 50, 60) == "a" * 22 + " ... (100 characters) ... " + "b" * 12
    assert shortened("x" * 60, 60) == "x" * 60 and len(shortened("x" * 61, 60)) == 60


def test_amount_of_a_noun_follows_its_count():
    counts = [(1, "sample"), (2, "batch"), (0, "entry"), (1.0, "epoch"), (0.5, "epoch"), (2, "day")]
    wanted = ["1 sample", "2 batches", "0 entries", "1 epoch", "0.5 epochs", "2 days"]
    assert [amount(count, noun) for count, noun in counts] == wanted
    assert amount(np.int64(1234567), "value") == "1,234,567 values"

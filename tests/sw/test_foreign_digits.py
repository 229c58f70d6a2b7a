"""Numbers in digits of other scripts, which ``int`` and ``float`` take: refused wherever typed."""

import argparse

import pytest

from trainwright.cli.bench.libraries import _size as bench_size
from trainwright.cli.check import _sizes as product_sizes
from trainwright.cli.declare import natural, number, positive
from trainwright.cli.options import parse_ranks
from trainwright.cli.posit import _code
from trainwright.data.own import parse_image_size
from trainwright.formats.parse import parse_format
from trainwright.functions.registry import function_of
from trainwright.link.backend import SerialAccelerator
from trainwright.link.mapped import parse_place
from trainwright.parameters import AcceleratorParameters, parse_overrides
from trainwright.posit import PositFormat
from trainwright.posit.explain import parse_number
from trainwright.posit.takum import TakumFormat
from trainwright.precision import get_format
from trainwright.support.text import read_integer, read_number

ARABIC = str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩")
WIDE = {ord("0") + n: 0xFF10 + n for n in range(10)}
READERS = {
    "integer": (positive, "12"),
    "natural number": (natural, "0"),
    "number": (number, "0.5"),
    "ranks": (parse_ranks, "12,5|16"),
    "product": (product_sizes, "32x64x16"),
    "matrix": (bench_size, "64x32"),
    "image": (parse_image_size, "28x28"),
    "word": (_code, "19601"),
    "posit number": (parse_number, "3.25"),
    "posit": (PositFormat.parse, "16,2"),
    "takum": (TakumFormat.parse, "takum16"),
    "precision": (get_format, "posit(16,2)"),
    "fixed": (parse_format, "fixed(8)"),
    "coded": (parse_format, "posit(8,1)c"),
    "float": (parse_format, "float(4,3)"),
    "size": (lambda text: parse_overrides(["lanes=" + text]), "16"),
    "function": (lambda text: function_of(f"leaky_relu({text})"), "0.125"),
    "place": (lambda text: parse_place(text, "m", 4096), "/dev/mem@4096+8192"),
}


@pytest.mark.parametrize("digits", [ARABIC, WIDE], ids=["arabic", "wide"])
@pytest.mark.parametrize(("reader", "text"), READERS.values(), ids=READERS)
def test_number_in_foreign_digits_is_refused(reader, text, digits):
    reader(text)
    with pytest.raises((ValueError, argparse.ArgumentTypeError)):
        reader(text.translate(digits))


def test_serial_rate_in_foreign_digits_is_refused():
    with pytest.raises(ValueError, match="rate behind @ must be a positive integer"):
        SerialAccelerator(AcceleratorParameters(), target="/dev/null@٣٠٠٠")


def test_read_integer_takes_bases_and_signs():
    assert read_integer("-12") == -12 and read_integer("0x1F", 0) == 31
    assert read_number("-2.5e-1") == -0.25

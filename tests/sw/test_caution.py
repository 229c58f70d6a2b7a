"""Warnings name the line of the user's code that led to them."""

import re
import sys
import threading
import warnings
from pathlib import Path

import pytest
import torch

import trainwright
from trainwright import ape
from trainwright.fixed.health import LostTensorWarning
from trainwright.nn import TTLinear
from trainwright.support.caution import warn_user

ROOT = Path(__file__).parents[2]


def line():
    """Return the line of the call."""
    return sys._getframe(1).f_lineno


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda layer: layer,
        lambda layer: torch.nn.Sequential(torch.nn.Sequential(layer)),
        lambda layer: trainwright.compile(layer, batch=4),
    ],
    ids=("layer", "model", "compiled"),
)
def test_warning_of_a_layer_names_the_line_that_calls_the_model(wrapped):
    layer = TTLinear(16, 16, rank=2)
    with torch.no_grad():
        for factor in layer.factors:
            factor.zero_()
    model = wrapped(layer)
    with pytest.warns(LostTensorWarning, match="all zeros") as caught:
        _, number = model(torch.rand(4, 16)), line()
    places = [(w.filename, w.lineno) for w in caught if "all zeros" in str(w.message)]
    assert places == [(__file__, number)]


def test_warning_of_a_product_out_of_range_names_the_line_of_the_call():
    x = torch.full((1, 1), 1e30)
    with pytest.warns(UserWarning, match="out of the range") as caught:
        _, number = ape.gemm(x, x, dtype="fp32-f"), line()
    assert (caught[0].filename, caught[0].lineno) == (__file__, number)


def test_warning_in_a_thread_without_a_line_of_the_user_names_its_caller():
    thread = threading.Thread(target=warn_user, args=("alone",))
    with warnings.catch_warnings(record=True, action="always") as caught:
        thread.start()
        thread.join()
    assert [Path(w.filename).name for w in caught] == ["threading.py"]


@pytest.mark.parametrize("folder", ("sw", "hw", "sim", "boards"))
def test_packages_warn_by_warn_user_alone(folder):
    paths = (ROOT / folder).rglob("*.py")
    calls = [p.name for p in paths if re.search(r"\bwarnings\.warn(_explicit)?\(", p.read_text())]
    assert calls == ["caution.py"] * (folder == "sw")

"""Fixtures and options of every test."""

import gc
import os
from pathlib import Path

import pytest

from trainwright.compiler import plans

gc.set_threshold(100_000, 50, 100)
"""Netlists, programs and graphs are many objects in few cycles: a twentieth of the tests' time."""


os.environ["TRAINWRIGHT_PROGRAM_CACHE"] = "0"
"""Tests that replace a part of the compiler must neither fill the user's cache nor read from it."""


@pytest.fixture(scope="session")
def data_root() -> Path:
    """Return the folder of data sets that do not ship with the project (MNIST and the like)."""
    root = os.environ.get("TRAINWRIGHT_DATA")
    if root is None:
        pytest.skip("TRAINWRIGHT_DATA names no folder of data sets")
    return Path(root)


@pytest.fixture(scope="module")
def first_programs():
    """Compile networks to the first programs that fit, in half the time that the best ones take.

    For files whose tests hold for every program: the search took half of their time. Tests that
    compare plans cannot use it, as first programs of two plans may contract in different orders.
    Compiled steps are kept by effort, so that no test elsewhere is given these.
    """
    compiled = plans.compiled

    def first(network, batch, p, plan, input_gradients, effort, own):
        return compiled(network, batch, p, plan, input_gradients, 1, own)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(plans, "compiled", first)
        yield

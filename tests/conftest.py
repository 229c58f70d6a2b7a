"""Fixtures and options of every test."""

import gc
import os
from pathlib import Path

import pytest

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

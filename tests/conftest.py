"""Fixtures and options of every test."""

import gc
import os
import signal
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from trainwright.compiler import plans
from trainwright.compiler.base.tuning import TUNING

gc.set_threshold(400_000, 50, 100)
"""Netlists, programs and graphs are many objects in few cycles: a twentieth of the tests' time."""


def pytest_collection_finish():
    """Freeze modules and tests, which live to the end: collections skip half a million objects."""
    gc.freeze()


os.environ["TRAINWRIGHT_PROGRAM_CACHE"] = "0"
"""Tests that replace a part of the compiler must neither fill the user's cache nor read from it."""


@pytest.fixture(scope="session")
def data_root() -> Path:
    """Return the folder of data sets that do not ship with the project (MNIST and the like)."""
    root = os.environ.get("TRAINWRIGHT_DATA")
    if root is None:
        pytest.skip("TRAINWRIGHT_DATA names no folder of data sets")
    return Path(root)


@pytest.fixture(scope="session")
def drawing():
    """Draw no pictures for finished runs, except within the context that is yielded.

    Six figures take 1.3 of the 1.5 s of a run of 3 steps, and over a hundred tests finish runs.
    """
    from trainwright.report import pictures  # imports matplotlib, for the folders that train

    draw_all = pictures.draw_all

    @contextmanager
    def drawing():
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(pictures, "draw_all", draw_all)
            yield

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pictures, "draw_all", lambda *_: {})
        yield drawing


@contextmanager
def tuning():
    """Yield a function that changes numbers of the compiler's search until the context ends.

    The records are changed in place: every module of the compiler holds the same ones.
    """
    before: list[tuple[object, str, object]] = []

    def change(section, **values):
        record = getattr(TUNING, section)
        for name, value in values.items():
            before.append((record, name, getattr(record, name)))
            object.__setattr__(record, name, value)

    yield change
    for record, name, value in reversed(before):
        object.__setattr__(record, name, value)


@pytest.fixture
def tune():
    """Change numbers of the compiler's search until the test ends: ``tune("block", cuts=1)``."""
    with tuning() as change:
        yield change


@contextmanager
def narrow_search():
    """Compile networks to the first programs of a narrow search, in a third of the time."""
    compiled = plans.compiled

    def first(network, batch, p, plan, input_gradients, effort, own):
        return compiled(network, batch, p, plan, input_gradients, 1, own)

    with pytest.MonkeyPatch.context() as patched, tuning() as change:
        patched.setattr(plans, "compiled", first)
        change("choose", beam=1, least_beam=1)
        change("lower", timed=1)
        change("draft", cuts=1, combined_cuts=1)
        change("weave", predicted=1, transfers=2)
        yield


@pytest.fixture(scope="module")
def first_programs():
    """Search narrowly in files whose tests hold for every program.

    The search took half of their time. Tests that compare plans cannot use it, as first programs of
    two plans may contract in different orders. Compiled steps are kept by effort, so that no test
    elsewhere is given these.
    """
    with narrow_search():
        yield


@pytest.fixture
def first_program(request):
    """Search narrowly in a test that holds for every program, in a file where others do not.

    Slow cases of the test search as users do.
    """
    with nullcontext() if request.node.get_closest_marker("slow") else narrow_search():
        yield


@pytest.fixture
def interruptible():
    """Let SIGINT interrupt: a script's background jobs, with tests in them, ignore the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)

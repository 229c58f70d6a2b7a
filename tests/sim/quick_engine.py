"""Verilator with fewer passes before it: three quarters of a build's time, two thirds of the speed.

For designs of which a test simulates thousands of cycles, not millions.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pytest

from trainwright_sim import build, engines

PASSES = (
    "proc; flatten; opt_expr -mux_undef -undriven -mux_bool; opt_merge; opt_clean; memory_collect"
)
QUICK = replace(
    engines.VERILATOR,
    generate=partial(engines._verilator, passes=PASSES),
    options=(PASSES, *engines.VERILATOR_OPTIONS),
)
COMPILE = tuple("-O1" if option == "-O2" else option for option in build.COMPILE)


@contextmanager
def quick_builds() -> Iterator[None]:
    """Let Verilator build what it builds in here with fewer passes."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(build, "COMPILE", COMPILE)
        patched.setitem(engines.ENGINES, QUICK.name, QUICK)
        yield

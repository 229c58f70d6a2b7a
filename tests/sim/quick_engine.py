"""Verilator with fewer passes before it: three quarters of a build's time, two thirds of the speed.

For designs of which a test simulates thousands of cycles, not millions.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from trainwright.support.native.tools import BuildLog, Tool
from trainwright_sim import build, engines

PASSES = (
    "proc; flatten; opt_expr -mux_undef -undriven -mux_bool; opt_merge; opt_clean; memory_collect"
)
QUICK = replace(
    engines.VERILATOR,
    generate=partial(engines._verilator, passes=PASSES),
    options=(PASSES, *engines.VERILATOR_OPTIONS),
)
LEVEL = {"-O2": "-O1"}
"""Optimisation of the design's code; code that all designs share is that of users' simulators."""


@contextmanager
def quick_builds() -> Iterator[None]:
    """Let Verilator build what it builds in here with fewer passes."""
    compile_as_users_do = build._compile

    def compile_quickly(log: BuildLog, cxx: Tool, base: list[str], files: list[Path]) -> list[Path]:
        is_design = all(file.stem.startswith("unit") for file in files)
        flags = [LEVEL.get(option, option) for option in base] if is_design else base
        return compile_as_users_do(log, cxx, flags, files)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(build, "_compile", compile_quickly)
        patched.setitem(engines.ENGINES, QUICK.name, QUICK)
        yield

"""A third array: its record and its kernel in a copy of the package, which then uses it."""

import os
from pathlib import Path

import pytest
from third_array import copy_with_third_array, run_python

USE = """
from collections import Counter

from test_lowering import check_step, checked
from trainwright.compiler.forms.calls import Contract
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import load_network
from trainwright.parameters import AcceleratorParameters

p, network = AcceleratorParameters(), load_network("digits")
step = checked(network, 32, p)
calls = [c for each in (step.forward, step.backward) for c in each.lowered.calls]
used = Counter(c.engine.name for c in calls if isinstance(c, Contract))
assert used["PE3"] > 3, used
with GoldenAccelerator(p, memory_bytes=1 << 20) as golden:
    done = check_step(network, 32, golden)
assert done.comparison.values > 1e5 and not done.differing
"""


@pytest.mark.slow
def test_third_array_is_used_once_it_has_a_record_and_a_kernel(tmp_path):
    """Words and statistics are the graph's, and those of the kernel are the interpreter's."""
    environment = dict(copy_with_third_array(tmp_path))
    environment["PYTHONPATH"] += os.pathsep + str(Path(__file__).parent)
    run_python(environment, "-m", "trainwright.program.records")
    run_python(environment, "-c", USE)

"""A third array: its record and its kernel in a copy of the package, which then uses it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "sw" / "trainwright"
CHANGES = {
    "program/fields.py": (
        ("DESCRIPTOR_BITS = 1024\n", "DESCRIPTOR_BITS = 1152\n"),
        ("    PE3 = 5\n", "    PE5 = 3\n    PE3 = 5\n"),
        ("    PE2 = 8\n    ALL = 15\n", "    PE2 = 8\n    PE3 = 16\n    ALL = 31\n"),
    ),
    "program/engines.py": (
        (
            "    PE2,\n)\n",
            "    PE2,\n    EngineSpec(\n        Engine.PE3, (Operation.PE5,), "
            'rows_parameter="pe1_rows", along_lanes=True\n    ),\n)\n',
        ),
    ),
    "program/descriptors.py": (
        ("    Operation.PE3: Compute,\n", "    Operation.PE3: Compute, Operation.PE5: Compute,\n"),
    ),
    "timing/commands.py": (
        ("LATENCIES = {\n", "LATENCIES = {\n    Engine.PE3: Latency(lambda p: 7, lambda p: 17),\n"),
    ),
}
"""Changes of each file: a text, and what takes its place."""
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
    package = tmp_path / "trainwright"
    shutil.copytree(SOURCES, package, ignore=shutil.ignore_patterns("__pycache__"))
    for name, changes in CHANGES.items():
        text = (package / name).read_text()
        for old, new in changes:
            assert text.count(old) == 1, f"{name}: {old!r}"
            text = text.replace(old, new)
        (package / name).write_text(text)
    path = map(str, (tmp_path, *Path(__file__).parents[:2]))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path)}
    for arguments in (["-m", "trainwright.program.records"], ["-c", USE]):
        done = subprocess.run(
            [sys.executable, *arguments], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr

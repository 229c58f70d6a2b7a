"""A copy of the packages with a third array: its records and its hardware."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
RECORDS = {
    # A mask of five engines exceeds a descriptor of 1,024 bits, and the program memory holds
    # descriptors of 2^n beats.
    "trainwright/program/fields.py": (
        ("DESCRIPTOR_BITS = 1024\n", "DESCRIPTOR_BITS = 2048\n"),
        ("    PE3 = 5\n", "    PE5 = 3\n    PE3 = 5\n"),
        ("    PE2 = 8\n    ALL = 15\n", "    PE2 = 8\n    PE3 = 16\n    ALL = 31\n"),
    ),
    "trainwright/program/engines.py": (
        (
            "    PE2,\n)\n",
            "    PE2,\n    EngineSpec(\n        Engine.PE3, (Operation.PE5,), "
            'rows_parameter="pe2_rows", along_lanes=@LANES@\n    ),\n)\n',
        ),
    ),
    "trainwright/program/descriptors.py": (
        ("    Operation.PE3: Compute,\n", "    Operation.PE3: Compute, Operation.PE5: Compute,\n"),
    ),
    "trainwright/timing/commands.py": (
        ("LATENCIES = {\n", "LATENCIES = {\n    Engine.PE3: Latency(lambda p: 7, lambda p: 17),\n"),
    ),
}
"""Changes of each file for programs and models: a text, and what takes its place."""
HARDWARE = {
    "trainwright/accelerator/interface.py": (
        (
            "    stall_store: int = 0\n",
            "    stall_store: int = 0\n    busy_pe3: int = 0\n    stall_pe3_operand: int = 0\n"
            "    stall_pe3_result: int = 0\n",
        ),
    ),
    "trainwright_hw/compute/arrays.py": (("Engine.PE2: Pe2}", "Engine.PE2: Pe2, @CLASS@}"),),
}
"""Changes for the hardware: counters, and a class."""
CLASSES = {
    # With as many rows as PE2 it has others than PE1, whose class it shares.
    True: "Engine.PE3: lambda p: Pe1(__import__('dataclasses').replace(p, pe1_rows=p.pe2_rows))",
    False: "Engine.PE3: Pe2",
}
"""Class of the third array by its property ``along_lanes``."""


def copy_with_third_array(
    to: Path, *, along_lanes: bool = True, hardware: bool = False
) -> Mapping[str, str]:
    """Copy the packages, with the third array; return the environment of their programs."""
    changes = dict(RECORDS)
    packages = ["sw/trainwright"]
    if hardware:
        changes |= HARDWARE
        packages += ["hw/trainwright_hw", "sim/trainwright_sim"]
    for package in map(Path, packages):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, to / package.name, ignore=ignored)
    for name, pairs in changes.items():
        text = (to / name).read_text()
        for old, new in pairs:
            assert text.count(old) == 1, f"{name}: {old!r}"
            new = new.replace("@LANES@", str(along_lanes)).replace("@CLASS@", CLASSES[along_lanes])
            text = text.replace(old, new)
        (to / name).write_text(text)
    return os.environ | {"PYTHONPATH": os.pathsep.join((str(to), str(ROOT / "tests")))}


def run_python(environment: Mapping[str, str], *arguments: str) -> str:
    """Run Python with the packages of a copy; return what it prints."""
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout

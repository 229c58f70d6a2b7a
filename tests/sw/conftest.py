"""Helpers beside these tests can be imported by name; torch uses one thread."""

import struct
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from trainwright.compiler.chip import beside
from trainwright.compiler.chip import resident as steps
from trainwright.data.idx import IMAGES, LABELS, STEMS
from trainwright.driver import resident
from trainwright.posit import native
from trainwright.support.native import without

sys.path.insert(0, str(Path(__file__).parent))
torch.set_num_threads(1)  # more of them spin against each other on tensors this small


@pytest.fixture(scope="session", autouse=True)
def undrawn(drawing):
    """Draw no pictures for finished runs."""


@pytest.fixture(scope="module")
def programs_once():
    """Compile a resident step once for equal steps and choices.

    A test that replaces what chooses, orders or updates gets a program of its own.
    """
    memories = []  # holds the steps, too, so that no id of theirs is used again
    compiled = resident.resident_step

    @cache
    def of(step, layout, kept, arguments, options, by):
        return compiled(memories[-1], *arguments, **dict(options))

    def once(memory, *arguments, **options):
        memories.append(memory)
        choices = tuple(sorted(options.items()))
        by = steps.woven, beside.update_program
        return of(id(memory.step), memory.layout, memory.kept, arguments, choices, by)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(resident, "resident_step", once)
        yield


@pytest.fixture(params=["native", "torch"])
def posit_path(request):
    """Run a test with the native kernels of posits, and without any."""
    if request.param == "native":
        if not native.usable(torch.zeros(1), torch.zeros(1, dtype=torch.float64)):
            pytest.skip("no C compiler")
        yield request.param
        return
    with without():
        yield request.param


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Write a Fashion-MNIST of 256 + 64 images, each class a bar at its own height."""
    path = tmp_path_factory.mktemp("data") / "fashion-mnist"
    path.mkdir()
    random = np.random.RandomState(0)
    for split, count in (("train", 256), ("test", 64)):
        labels = random.randint(0, 10, count).astype(np.uint8)
        images = random.randint(0, 40, (count, 28, 28)).astype(np.uint8)
        for image, label in zip(images, labels, strict=True):
            image[2 * label : 2 * label + 4] += 200
        for stem, magic, array in zip(
            STEMS[split], (IMAGES, LABELS), (images, labels), strict=True
        ):
            header = struct.pack(f">{1 + array.ndim}I", magic, *array.shape)
            (path / stem).write_bytes(header + array.tobytes())
    return path.parent

"""Helpers beside the tests of this package can be imported by name; torch uses one thread."""

import sys
from pathlib import Path

import pytest
import torch

from trainwright.posit import native
from trainwright.support.native import without

sys.path.insert(0, str(Path(__file__).parent))
torch.set_num_threads(1)  # more of them spin against each other on tensors this small


@pytest.fixture(params=["native", "torch"])
def posit_path(request):
    """Runs a test with the native kernels of posits, and without any."""
    if request.param == "native":
        if not native.usable(torch.zeros(1), torch.zeros(1, dtype=torch.float64)):
            pytest.skip("no C compiler")
        yield request.param
        return
    with without():
        yield request.param

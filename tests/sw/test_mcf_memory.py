"""Which memory is moved into large pages."""

import pytest
import torch

from ttforge import mcf
from ttforge.mcf import memory


@pytest.fixture
def asked(monkeypatch):
    """(address, bytes) of every request."""
    ranges = []
    monkeypatch.setattr(memory, "_madvise", lambda: lambda *a: ranges.append(a[:2]) or -1)
    return ranges


@pytest.mark.parametrize("of", ["tensor", "components"])
def test_what_a_large_tensor_fills(asked, of):
    data = torch.ones(1 << 19, 3, dtype=torch.float32)  # 6 MiB
    made = mcf.MCTensor.from_components(data) if of == "components" else mcf.tensor(data, nc=2)
    ((begin, size),) = asked
    assert begin % memory.LARGE_PAGE == 0 == size % memory.LARGE_PAGE and size > 0
    held = made.components.untyped_storage()
    assert held.data_ptr() <= begin and begin + size <= held.data_ptr() + held.nbytes()


def test_small_ones_shared_ones_and_results_stay(asked):
    small = mcf.tensor(torch.ones(1000), nc=2)
    shared = mcf.MCTensor.from_components(torch.ones(1 << 20, 2), normalise=False)
    assert (small + 1).nc == (shared + 1).nc == 2
    assert asked == []


def test_the_numbers_are_the_same_after_it():
    data = torch.randn(1 << 20, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    made = mcf.tensor(data, nc=2, dtype=torch.float32)
    lead = data.float()
    assert torch.equal(made.components[..., 0], lead)
    assert torch.equal(made.components[..., 1], (data - lead.double()).float())


def test_elsewhere_nothing_is_asked(monkeypatch):
    memory._madvise.cache_clear()
    monkeypatch.setattr(memory.sys, "platform", "darwin")
    try:
        assert memory._madvise() is None
        assert mcf.tensor(torch.ones(1 << 20), nc=2).shape == (1 << 20,)
    finally:
        memory._madvise.cache_clear()

"""Which memory asks for large pages."""

import pytest
import torch

from ttforge.mcf import memory


@pytest.fixture
def asked(monkeypatch):
    """(address, bytes) of every request."""
    ranges = []
    monkeypatch.setattr(memory, "_madvise", lambda: lambda *a: ranges.append(a[:2]) or -1)
    return ranges


def test_large_tensors_ask_for_what_they_fill(asked):
    like = torch.empty(0)
    made = memory.planes((1 << 19,), 3, like)  # 6 MiB
    ((begin, size),) = asked
    assert begin % memory.LARGE_PAGE == 0 == size % memory.LARGE_PAGE and size > 0
    assert made.data_ptr() <= begin and begin + size <= made.data_ptr() + made.nbytes
    assert made.shape == (3, 1 << 19) and made.dtype is torch.float32


def test_small_ones_do_not(asked):
    assert memory.empty((5, 7), 2, torch.empty(0, dtype=torch.float64)).shape == (5, 7, 2)
    assert memory.planes((0, 1 << 30), 2, torch.empty(0)).numel() == 0
    assert asked == []


def test_elsewhere_nothing_is_asked(monkeypatch):
    memory._madvise.cache_clear()
    monkeypatch.setattr(memory.sys, "platform", "darwin")
    try:
        assert memory.planes((1 << 20,), 2, torch.empty(0)).fill_(1).sum() == 1 << 21
    finally:
        memory._madvise.cache_clear()

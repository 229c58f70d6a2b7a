"""Methods whose results an object keeps: one call for each set of arguments, no cycle."""

import gc
from weakref import ref

import pytest

from trainwright.support.memo import CachedMethod


class Counter:
    def __init__(self, unit):
        self.unit, self.calls = unit, []

    @CachedMethod
    def times(self, count, *, less=0):
        self.calls.append(count)
        if count < 0:
            raise ValueError(count)
        return self.unit * count - less


def test_cached_method_same_arguments_calls_once_an_object():
    two, three = Counter(2), Counter(3)
    assert [two.times(4), three.times(4), two.times(4), two.times(4, less=1)] == [8, 12, 8, 7]
    assert two.calls == [4, 4] and three.calls == [4]


def test_cached_method_that_raises_is_called_again():
    counter = Counter(1)
    for _ in range(2):
        with pytest.raises(ValueError, match="-1"):
            counter.times(-1)
    assert counter.calls == [-1, -1]


def test_cached_method_used_object_is_freed_without_collection():
    counter = Counter(1)
    counter.times(1)
    gc.disable()
    try:
        kept = ref(counter)
        del counter
        assert kept() is None
    finally:
        gc.enable()

"""Searches of the compiler that remember what they were asked: the same answers, found once."""

from itertools import permutations
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from trainwright.compiler.base.hazards import rows_of
from trainwright.compiler.chip import beside
from trainwright.compiler.cut.stages import _by_loads, _nest_loads, _Read
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Level
from trainwright.program.fields import Operation

P = AcceleratorParameters()
AXES = "abcd"


def commands(count):
    levels = (Level(1),)
    return [
        Compute(operation=Operation.MASK, levels=levels, x=10 * n, g=10 * n + 1, z=10 * n + 2)
        for n in range(count)
    ]


def test_rows_of_main_commands_are_found_once_for_each_range(monkeypatch):
    asked: list[int] = []

    def counted(descriptors, p):
        asked.append(len(descriptors))
        return rows_of(descriptors, p)

    monkeypatch.setattr(beside, "rows_of", counted)
    memory: Any = SimpleNamespace(step=SimpleNamespace(parameters=P))
    main, slots = commands(5), SimpleNamespace()
    work = beside.Beside(memory, slots, main, 2)  # pyright: ignore[reportArgumentType]
    for first, stop in ((1, None), (1, 3), (1, None), (2, None), (1, 3)):
        assert [*work._rows(first, stop)] == rows_of(main[first:stop], P)
    assert asked == [4, 2, 3]


@pytest.mark.parametrize("seed", range(20))
def test_permutations_by_loads_have_those_that_load_least_first(seed):
    random = Random(f"loads {seed}")
    nest = tuple((axis, random.randint(1, 5), random.randint(5, 30)) for axis in AXES)
    reads = tuple(
        _Read(name, frozenset(random.sample(AXES, 2)), random.randint(1, 99), weight, weight < 3)
        for name, weight in zip("xyz", (1, 2, 4), strict=True)
    )
    outer, inner, left = nest[:3], nest[3:], random.choice((0.0, 40.0))
    orders = [(*order, *inner) for order in permutations(outer)]
    rising = [_nest_loads(reads, orders[n], left)[0] for n in _by_loads(reads, outer, inner, left)]
    assert rising == sorted(_nest_loads(reads, order, left)[0] for order in orders)
    assert _nest_loads(reads, orders[0], 0.0)[0] == sum(loaded(read, orders[0]) for read in reads)


def loaded(read, nest):
    """Return the weighted rows that a nest loads, where no tensor stays."""
    slices = [-(-size // chunk) for _, chunk, size in nest]
    deepest = max((n for n, (axis, *_) in enumerate(nest) if axis in read.axes), default=-1)
    times = 1
    for (axis, *_), count in [*zip(nest, slices, strict=True)][: deepest + 1]:
        times *= 1 if axis in read.axes else count
    return read.rows * times * read.weight

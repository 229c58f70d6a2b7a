"""Effort of compiling a convolution network: counts of evaluated alternatives, never seconds."""

from collections import Counter
from itertools import permutations

import pytest

from trainwright.lowering.clocks import State
from trainwright.lowering.compile import compile_step
from trainwright.lowering.place import Placement
from trainwright.lowering.stages import Stages
from trainwright.lowering.tile import Tiler
from trainwright.network import load_network
from trainwright.parameters import AcceleratorParameters

MOST = {"orders": 4_000, "rows": 8_000, "states": 14_000, "places": 30_000, "tiled": 10}
"""Alternatives of each kind that `fashion-conv` with a batch of 16 may evaluate.

About a third above the counts of today; orders of loops were 108,982 before impossible ones
were left out.
"""
COUNTED = {
    "orders": (Stages, "_loaded"), "rows": (Stages, "_rows_for"), "states": (State, "key"),
    "places": (Placement, "_place"), "tiled": (Tiler, "run"),
}  # fmt: skip


@pytest.fixture(scope="module")
def compiled():
    """Compile `fashion-conv`; return the counts, and cuts whose order of loops is free."""
    counts: Counter[str] = Counter()
    free = []

    def counting(kind, method):
        def counted(*args, **options):
            counts[kind] += 1
            return method(*args, **options)

        return counted

    def recording(method):
        def recorded(stages, group, cuts):
            for cut in method(stages, group, cuts):
                free.append((stages, group, cut.loops))
                yield cut

        return recorded

    with pytest.MonkeyPatch.context() as patch:
        for kind, (owner, name) in COUNTED.items():
            patch.setattr(owner, name, counting(kind, getattr(owner, name)))
        patch.setattr(Stages, "_deep", recording(Stages._deep))
        compile_step(load_network("fashion-conv"), 16, AcceleratorParameters())
    return counts, free


@pytest.mark.parametrize("kind", COUNTED)
def test_compile_of_a_convolution_evaluates_a_bounded_number_of_alternatives(compiled, kind):
    counts, _ = compiled
    assert 0 < counts[kind] <= MOST[kind]


def test_rows_in_any_order_of_loops_are_at_least_the_bound(compiled):
    _, free = compiled
    few = [entry for entry in free if len(entry[2]) <= 5]
    assert len(few) > 200
    exact = 0
    for stages, group, loops in few[:: len(few) // 200]:
        bound = stages._rows_for(group, loops, any_order=True)
        rows = [stages._rows_for(group, order) for order in permutations(loops)]
        assert bound <= min(rows) * (1 + 1e-9)
        exact += bound > 0.99 * min(rows)
    assert exact  # a bound of nothing would hold, too

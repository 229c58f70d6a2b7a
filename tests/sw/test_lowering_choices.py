"""How programs are chosen: bounds that lose nothing, divisions along slices, small work first."""

from dataclasses import replace

import pytest
from test_lowering import DEFAULT, LOW

from trainwright.compiler.base.tuning import TUNING
from trainwright.compiler.choose.choose import Chooser
from trainwright.compiler.choose.divisions import variants
from trainwright.compiler.cut.slices import Stage
from trainwright.compiler.forms.choices import Choice, ProgramSpec, Work
from trainwright.compiler.forms.impls import implementations
from trainwright.compiler.schedule import place as place_module
from trainwright.compiler.step import lower as lower_module
from trainwright.compiler.step.blocks import MODES as BLOCK_MODES
from trainwright.compiler.step.compile import compile_network, with_ones
from trainwright.compiler.step.lower import MODES
from trainwright.graph.ir import Einsum, urgent
from trainwright.graph.order import ordered
from trainwright.graph.step import step_graph
from trainwright.network import load_network

DIGITS = load_network("digits")


def program(network, which, batch=64):
    """Compile a network with products of two operands."""
    graph = step_graph(network, batch)
    orders = [ordered(graph.whole, site)[0] for site in graph.sites.values()]
    return with_ones(getattr(graph.ordered(orders), which))


@pytest.mark.parametrize("mode", (*MODES, *BLOCK_MODES))
def test_bound_of_a_candidate_is_at_most_its_score(mode, monkeypatch):
    graph = program(DIGITS, "forward")
    given, stored = dict.fromkeys(graph.given, ()), dict.fromkeys(graph.results)
    chooser, pruned, checked = Chooser(ProgramSpec(graph, given, stored, DEFAULT)), [], []

    def checking(self, op, candidates, n):
        for candidate in candidates:
            if candidate.works is not None:
                state = self._computed(candidate.state, op, candidate.works)
                if state is not None:
                    score = self._score(state.clocks, state.loads, state.shared)
                    checked.append(candidate.least <= score + 1e-6)
        pruned.append(op.out)
        return original(self, op, candidates, n)

    original = Chooser._pruned
    monkeypatch.setattr(Chooser, "_pruned", checking)
    chooser.search(mode)
    assert len(pruned) == len(graph.ops) and len(checked) > 50 and all(checked)


def test_lowering_choices_ignore_earlier_compilations():
    first = compile_network(DIGITS, 32, DEFAULT)
    compile_network(DIGITS, 16, DEFAULT)
    again = compile_network(DIGITS, 32, DEFAULT)
    assert first.forward.descriptors == again.forward.descriptors
    assert first.backward.descriptors == again.backward.descriptors


def test_operations_are_divided_along_slices():
    graph = program(LOW, "forward")
    op = graph.makers["l1.G1.G2.x"]
    assert isinstance(op, Einsum)
    impls = implementations(graph, op, DEFAULT)
    dot = next(i for i in impls if i.array.along_lanes and i.along == ("s",))
    outer = next(i for i in impls if not i.array.along_lanes and i.along == ("s",))
    works = Work(dot, ("l1.i4", 0, 8)), Work(outer, ("l1.i4", 8, 16))
    stage = Stage((Choice(op, works, ()),), (("l1.r2", 1), ("s", 16)))
    single, two = variants(graph, [stage], DEFAULT.lanes)
    assert single == [stage]
    (choice,) = two[0].choices
    assert [work.cut for work in choice.works] == [("s", 0, 32), ("s", 32, 64)]
    assert [work.impl for work in choice.works] == [dot, outer]
    works = Work(dot, ("l1.i4", 0, 5)), Work(outer, ("l1.i4", 5, 16))
    uneven = Stage((Choice(op, works, ()),), (("l1.i3", 1),))
    assert list(variants(graph, [uneven], DEFAULT.lanes)) == [[uneven]]


def test_lowering_choices_worse_placement_is_taken_back(monkeypatch):
    again = []

    def place(issue, p, *, tries=0, stores=False):
        addresses = place_module.place(issue, p, tries=tries, stores=stores)
        again[:] = [tries] if tries else []
        return {} if tries else addresses

    cycles_of = lower_module.cycles_of
    monkeypatch.setattr(
        lower_module, "cycles_of", lambda *args: 1 << 40 if again else cycles_of(*args)
    )
    monkeypatch.setattr(lower_module, "place", place)
    assert compile_network(DIGITS, 16, DEFAULT).cycles < 1 << 40


def test_small_operations_come_before_large_ones():
    graph = program(load_network("fashion"), "backward")
    names = [op.out for op in urgent(graph, TUNING.lower.urgent).ops]
    assert sorted(names) == sorted(op.out for op in graph.ops)
    sums = names.index("l1.db")
    assert names.index("l1.dy") < sums < names.index("l1.x.dy")
    order = [op.out for op in urgent(graph).ops]
    assert order.index("l1.db") > order.index("l1.x.dy")


def test_modes_of_a_long_program_are_compared_by_the_cycle_model():
    """By the first mode alone this step takes 150,090 cycles, as by the better estimate."""
    p = replace(DEFAULT, vector_engine=1)
    assert compile_network(load_network("tagger-64"), 1, p).cycles < 140_000

"""A model that stands for a block: it knows every field of a command that the block reads."""

from types import SimpleNamespace

import pytest
from amaranth.hdl import Fragment
from amaranth.lib import data

from trainwright.parameters import AcceleratorParameters
from trainwright.support.native.cache import Cache
from trainwright_hw.compute.loop_nest import LoopNest
from trainwright_hw.compute.pe2.vector import VectorUnit
from trainwright_hw.control.engine_ports import COMPUTE_LAYOUT
from trainwright_hw.storage.scratchpad import Scratchpad
from trainwright_hw.writeback.lanes import EncodedLanes
from trainwright_sim import backend, design
from trainwright_sim.design import kept_rtlil
from trainwright_sim.leaves import catalogue
from trainwright_sim.leaves.catalogue import LEAVES, LOOP_NEST, VECTOR_UNIT
from trainwright_sim.leaves.leaf import replaced

P = AcceleratorParameters()


def converted(block):
    with replaced(LEAVES) as declared:
        Fragment.get(block, None)
    return declared


@pytest.mark.parametrize(
    "p",
    [P, AcceleratorParameters(word_width=8), AcceleratorParameters(word_width=8, wide_tensors=1)],
    ids=["words", "narrow", "wide"],
)
def test_replaced_blocks_with_known_fields_become_models(p):
    assert len(converted(LoopNest(p))) == 1
    assert len(converted(VectorUnit(P))) == 1


@pytest.mark.parametrize(("block", "leaf"), [(LoopNest, LOOP_NEST), (VectorUnit, VECTOR_UNIT)])
def test_replaced_block_that_reads_an_unknown_field_is_an_error(monkeypatch, block, leaf):
    original = block.elaborate

    def elaborate(self, platform):
        assert len(self.command.stochastic) == 1
        return original(self, platform)

    monkeypatch.setattr(block, "elaborate", elaborate)
    with pytest.raises(ValueError, match=f"{block.__name__} reads stochastic .*{leaf.model}.h"):
        converted(block(P))


@pytest.mark.parametrize("leaf", [LOOP_NEST, VECTOR_UNIT], ids=lambda leaf: leaf.model)
def test_leaf_fields_are_all_read_by_some_block(leaf):
    """A field that is named without need hides the day on which a block begins to read it."""
    wide = AcceleratorParameters(word_width=8, wide_tensors=1)
    for name in leaf.fields:
        pruned = SimpleNamespace(**{**vars(leaf), "fields": leaf.fields - {name}})
        p = wide if leaf is LOOP_NEST else P
        with pytest.raises(ValueError, match=f"reads {name} of its command"):
            with replaced([pruned]):
                Fragment.get(leaf.block(p), None)


def test_leaf_of_levels_with_another_field_among_them_is_an_error(monkeypatch):
    members = {}
    for name, shape in COMPUTE_LAYOUT.members.items():
        members[name] = shape
        if name.startswith("x_delta"):
            members[f"w_{name}"] = 20
    monkeypatch.setattr(catalogue, "COMPUTE_LAYOUT", data.StructLayout(members))
    with pytest.raises(ValueError, match="w_x_delta0 is among the levels of COMPUTE"):
        converted(LoopNest(P))


@pytest.mark.parametrize(
    ("block", "p", "uncovered"),
    [
        (LoopNest, P, set()),
        (Scratchpad, P, set()),
        (Scratchpad, AcceleratorParameters(vector_engine=1), {"Scratchpad"}),
        (EncodedLanes, AcceleratorParameters(stochastic_rounding=1), {"EncodedLanes"}),
    ],
)
def test_replaced_blocks_without_a_model_are_named(block, p, uncovered):
    names = set()
    with replaced(LEAVES, names) as declared:
        Fragment.get(block(p), None)
    assert names == uncovered
    assert any(leaf.model in name for leaf in LEAVES for name in declared) or uncovered


def test_kept_design_names_uncovered_blocks_again_from_the_cache(tmp_path, monkeypatch):
    p = AcceleratorParameters(vector_engine=1)
    names = ("Scratchpad", "VectorEngine")
    monkeypatch.setattr(design, "_converted", lambda *_: ("design", names))
    cache = Cache(tmp_path)
    for _ in range(2):
        assert kept_rtlil(p, trace=True, cache=cache, leaves=True) == ("design", names)
        monkeypatch.setattr(design, "_converted", lambda *_: pytest.fail("converted again"))


def test_rtl_accelerator_with_uncovered_blocks_names_them_once(monkeypatch):
    told = []
    monkeypatch.setattr(backend, "kept_rtlil", lambda *_, **__: ("design", ("Scratchpad",)))
    machine = object.__new__(backend.RtlAccelerator)
    machine.__dict__ |= {"_design": None, "_engine": "leaves", "_parameters": P, "_cache": None}
    machine.__dict__ |= {"_progress": told.append, "uncovered": ()}
    assert [machine._rtlil(trace) for trace in (True, False)] == ["design", "design"]
    assert told == [
        "--engine leaves: RTL simulates Scratchpad, which no C++ model covers with these parameters"
    ]

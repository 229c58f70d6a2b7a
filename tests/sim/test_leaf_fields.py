"""A model that stands for a block: it knows every field of a command that the block reads."""

from types import SimpleNamespace

import pytest
from amaranth.hdl import Fragment

from trainwright.parameters import AcceleratorParameters
from trainwright_hw.compute.loop_nest import LoopNest
from trainwright_hw.compute.pe2.vector import VectorUnit
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

"""Connections of leaf models, read from the text of a flattened design."""

import pytest

from trainwright.accelerator import AcceleratorError
from trainwright_sim.leaves.netlist import header, placed, top_text
from trainwright_sim.perf_counter import SOFTWARE, TASK_CLOCK, PerfCounter

KINDS = ("registered_queue", "outer_array", "drain")
QUEUE, ARRAY, DRAIN = "leaf_registered_queue_8_4_0_0", "leaf_outer_array_1_1_8_8_0", "leaf_drain_1"


def flat(*lines: str) -> str:
    """Return a top module after ``EVERT``: two queues, the first feeding the second."""
    return "\n".join(
        (
            "\nmodule \\trainwright",
            "  wire \\reset",
            "  wire width 8 \\word",
            "  wire \\there",
            f"  wire output 1 \\a.{QUEUE}__rst",
            f"  wire width 8 input 2 \\a.{QUEUE}__r_data",
            f"  wire input 3 \\a.{QUEUE}__r_rdy",
            f"  wire output 4 \\b.{QUEUE}__rst",
            f"  wire width 8 output 5 \\b.{QUEUE}__w_data",
            f"  wire output 6 \\b.{QUEUE}__w_en",
            *lines,
            f"  connect \\a.{QUEUE}__rst \\reset",
            f"  connect \\word \\a.{QUEUE}__r_data",
            f"  connect \\there \\a.{QUEUE}__r_rdy",
            f"  connect \\b.{QUEUE}__rst \\reset",
            f"  connect \\b.{QUEUE}__w_data \\word",
            f"  connect \\b.{QUEUE}__w_en \\word [3]",
            "end\n",
        )
    )


def test_models_are_linked_and_share_drivers():
    a, b = placed(top_text(flat()), KINDS)
    assert a.outputs == {} and a.inputs == {"rst": (f"a.{QUEUE}__rst", 1)}
    assert b.inputs == a.inputs
    text = header([a, b], KINDS)
    assert "leaf::link(leaf1_.w_data, leaf0_.r_data);" in text
    assert "leaf::link<3, 1>(leaf1_.w_en, leaf0_.r_data);" in text
    assert "leaf::registered_queue<8, 4, 0, 0> leaf1_;" in text
    assert "store" not in text


@pytest.mark.parametrize(
    "line",
    ["  cell $not $1\n    connect \\A \\word\n  end", "  connect \\other \\word [1:0]"],
)
def test_leaf_output_with_other_reader_is_exported(line):
    a, _ = placed(top_text(flat(line)), KINDS)
    assert set(a.outputs) == {"r_data"}


def test_leaf_output_of_design_is_exported():
    text = flat().replace("wire width 8 \\word", "wire width 8 output 7 \\word")
    a, _ = placed(top_text(text), KINDS)
    assert set(a.outputs) == {"r_data"}


def test_leaf_combinational_output_rejects_other_readers():
    lines = (
        "  wire width 8 \\sum",
        f"  wire width 8 input 7 \\c.{ARRAY}__value",
        f"  connect \\sum \\c.{ARRAY}__value",
    )
    linked = (f"  wire width 8 output 8 \\d.{DRAIN}__sum", f"  connect \\d.{DRAIN}__sum \\sum")
    assert "leaf::link(leaf3_.sum, leaf2_.value);" in header(
        placed(top_text(flat(*lines, *linked)), KINDS), KINDS
    )
    models = placed(top_text(flat(*lines, "  connect \\other \\sum")), KINDS)
    with pytest.raises(AcceleratorError, match="logic outside of models takes value"):
        header(models, KINDS)


def test_requests_of_the_scratchpad_come_from_models():
    pad = "leaf_scratchpad_4_16_8_1_0_4"
    lines = (f"  wire output 7 \\p.{pad}__read_valid0", f"  connect \\p.{pad}__read_valid0 \\there")
    kinds = (*KINDS, "scratchpad")
    models = placed(top_text(flat(*lines)), kinds)
    text = header(models, kinds)
    assert text.index("leaf0_.clock();") < text.index(
        "leaf::link(leaf2_.read_valid0, leaf0_.r_rdy);"
    )
    models = placed(top_text(flat(lines[0], lines[1].replace("there", "reset"))), kinds)
    with pytest.raises(AcceleratorError, match="read_valid0 does not come from a model"):
        header(models, kinds)


def test_perf_counter_counts_until_closed():
    """Hardware's may not be there; the clock of the thread is."""
    counter = PerfCounter(SOFTWARE, TASK_CLOCK)
    before = counter.read()
    if before is None:
        pytest.skip("the system lets no process have counters")
    sum(range(100_000))
    after = counter.read()
    assert after is not None and after > before
    counter.close()
    assert counter.read() is None

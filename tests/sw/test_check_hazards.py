"""Programs of hazards: every pair of engines, valid on every accelerator that has room."""

import pytest
from folded import each

from trainwright.check.hazards import (
    PROGRAM,
    check_hazards,
    given_rows,
    has_room,
    hazard_program,
    hazards,
    named,
)
from trainwright.golden.backend import GoldenAccelerator
from trainwright.parameters import AcceleratorParameters, preset
from trainwright.program.engines import ENGINE_OF
from trainwright.program.fields import Engine

LEAST = AcceleratorParameters(
    lanes=4, pe1_rows=2, pe2_rows=2, accumulator_width=24, scratchpad_rows=64, scratchpad_banks=2,
    program_depth=4, nest_levels=3, statistics_depth=1,
)  # fmt: skip
MACHINES = {
    "default": AcceleratorParameters(),
    "least": LEAST,
    "wide": AcceleratorParameters(word_width=8, wide_tensors=1),
    "alone": AcceleratorParameters(vector_engine=1, sample_loads=1, engine_lanes=4),
    "posits": AcceleratorParameters(formats="posit(8,0)"),
    **{name: preset(name) for name in ("zu3eg-w8", "ecp5-85f", "gw5ast-138c")},
}


def test_hazards_of_engines_include_every_pair_that_meets():
    queue = {"VECTOR": "PE2", "SAMPLES": "LOAD"}
    for name, more in (("default", set()), ("alone", {"VECTOR"}), ("alone", {"SAMPLES"})):
        met = {
            (named(h.before), h.writes, named(h.after), h.writes_after)
            for h in hazards(MACHINES[name])
        }
        readers = {"STORE", "PE1", "PE2"} | more - {"SAMPLES"}
        writers = {"LOAD", "PE1", "PE2"} | more

        def pairs(first, second):
            return {(a, b) for a in first for b in second if queue.get(a, a) != queue.get(b, b)}

        assert {(a, b) for a, wa, b, wb in met if wa and not wb} >= pairs(writers, readers)
        assert {(a, b) for a, wa, b, wb in met if not wa and wb} >= pairs(readers, writers)
        assert {(a, b) for a, wa, b, wb in met if wa and wb} >= pairs(writers, writers)
    within = {(named(h.before), named(h.after)) for h in hazards(MACHINES["alone"])}
    assert {("VECTOR", "VECTOR"), ("VECTOR", "PE2"), ("PE2", "VECTOR")} <= within
    memory = {(named(h.before), named(h.after)) for h in hazards(MACHINES["alone"]) if h.external}
    assert memory == {
        ("STORE", "LOAD"), ("LOAD", "STORE"), ("STORE", "SAMPLES"), ("SAMPLES", "STORE")
    }  # fmt: skip


@each(
    "hazard",
    list(hazards(AcceleratorParameters(vector_engine=1, sample_loads=1))),
    ids=lambda hazard: hazard.name,
)
def test_hazard_program_last_command_waits_for_the_first(hazard):
    descriptors = hazard_program(hazard, MACHINES["alone"]).descriptors
    last = next(d for d in descriptors if getattr(d, "tensor", "").endswith("last"))
    older = ENGINE_OF[hazard.before] if hazard.older else Engine.NONE
    assert last.wait_older is older
    assert last.wait is (Engine.NONE if hazard.older else ENGINE_OF[hazard.before])


@pytest.mark.parametrize("name", MACHINES)
def test_hazard_programs_of_accelerator_run_on_kernel_and_interpreter_alike(name):
    p = MACHINES[name]
    memory_bytes = PROGRAM + given_rows(p, 0).size
    assert has_room(p, memory_bytes)
    with GoldenAccelerator(p, memory_bytes=memory_bytes, interpreted=True) as interpreter:
        comparison = check_hazards(interpreter, seed=3)
    assert comparison.mismatches == {} and comparison.values > 10_000


def test_hazard_programs_without_room_compare_nothing():
    p = MACHINES["default"]
    with GoldenAccelerator(p, memory_bytes=PROGRAM) as golden:
        assert check_hazards(golden).values == 0

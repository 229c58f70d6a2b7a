"""Records of engines: operations, rows and cycles, as compiler and cycle model ask for them."""

import re
import tokenize
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from trainwright.accelerator.registers import COUNTER_NAMES
from trainwright.compiler.base.estimates import PASS_START
from trainwright.compiler.forms.calls import PassCall
from trainwright.compiler.step.compile import compile_network
from trainwright.formats.exponents import ExponentRule
from trainwright.golden.compute import compute
from trainwright.golden.state import MachineState
from trainwright.graph.ir import Einsum, Kernel, View
from trainwright.graph.step import step_graph
from trainwright.network import load_network
from trainwright.parameters import AcceleratorParameters, preset
from trainwright.program.descriptors import Compute, Level
from trainwright.program.elementwise import MASK, SUM
from trainwright.program.engines import (
    ARRAYS,
    ENGINES,
    PE1,
    PE2,
    SPEC_OF,
    EngineSpec,
    rivals,
    tile_rows,
)
from trainwright.program.fields import Engine, Operation
from trainwright.program.vector import Vector
from trainwright.timing.commands import LATENCIES, work_of

SEQUENCERS = {Operation.HALT, Operation.LOOP, Operation.END, Operation.SET, Operation.SCALES}


def test_engines_execute_every_operation_but_those_of_the_sequencer_once():
    executed = Counter(operation for spec in ENGINES for operation in spec.operations)
    assert set(executed) == set(Operation) - SEQUENCERS
    assert set(executed.values()) == {1}
    assert all(operation in spec.operations for operation, spec in SPEC_OF.items())


def test_engines_have_a_record_in_every_layer():
    """Name the record that a new engine lacks, as CONTRIBUTING.md lists them."""
    sequencer = pytest.importorskip("trainwright_hw.control.sequencer")
    accelerator = pytest.importorskip("trainwright_hw.accelerator")
    every = set(Engine.ALL)
    for name, known in (
        ("ENGINES of program/engines.py", {spec.engine for spec in ENGINES}),
        ("COMMANDS of hw/trainwright_hw/control/sequencer.py", set(sequencer.COMMANDS)),
        ("HARDWARE of hw/trainwright_hw/compute/arrays.py", set(accelerator.CLASSES)),
        (
            "Counters of accelerator/interface.py",
            {spec.engine for spec in ENGINES if counters_of(spec) <= set(COUNTER_NAMES)},
        ),
        ("LATENCIES of timing/commands.py", set(LATENCIES)),
    ):
        assert known == every, f"{name}: {known ^ every}"
    assert every == {engine for engine in Engine if engine not in (Engine.NONE, Engine.ALL)}


def counters_of(spec: EngineSpec) -> set[str]:
    """Return the names of the counters that an engine must have."""
    name, array = spec.name.lower(), spec.engine in ARRAYS
    stalls = {f"stall_{name}_operand", f"stall_{name}_result"} if array else {f"stall_{name}"}
    return {f"busy_{name}", *stalls}


NAMES = re.compile(r"(.*_)?pe[12](_.*)?|Pe[12]|PE[1-4]")
DESCRIBED = {
    "sw/trainwright/accelerator/interface.py",  # names of counters
    "sw/trainwright/parameters.py",
    "sw/trainwright/program/descriptors.py",  # classes of descriptors by operation
    "sw/trainwright/program/engines.py",
    "sw/trainwright/program/fields.py",
    "sw/trainwright/timing/commands.py",  # latencies
    "hw/trainwright_hw/compute/arrays.py",
}
"""Modules that describe arrays, beside the hardware of each array."""


def test_arrays_are_named_only_where_they_are_described():
    """Any other module asks the records: a third array changes none of them."""
    root, naming = Path(__file__).parents[2], set()
    for path in (*(root / "sw" / "trainwright").rglob("*.py"), *(root / "hw").rglob("*.py")):
        with path.open() as lines:
            tokens = {t.string.strip("\"'") for t in tokenize.generate_tokens(lines.readline)}
        if any(map(NAMES.fullmatch, tokens)):
            naming.add(str(path.relative_to(root)))
    own = "hw/trainwright_hw/compute/pe"
    assert {path for path in naming if not path.startswith(own)} == DESCRIBED


def test_arrays_have_tiles_of_their_own_rows():
    p = AcceleratorParameters(pe1_rows=8, pe2_rows=4)
    assert list(ARRAYS) == [Engine.PE1, Engine.PE2]
    rows = [tile_rows(operation, p) for operation in (Operation.PE4, Operation.PE3, Operation.BIAS)]
    assert rows == [8, 4, 1]
    assert (PE1.rates(p), PE2.rates(p)) == ((0.5, 1.0), (1.0, 1.0))


def test_rivals_are_other_arrays_of_the_same_direction(monkeypatch):
    assert [rivals(spec) for spec in ENGINES] == [[]] * len(ENGINES)
    third = replace(PE1, rows_parameter="pe2_rows")
    monkeypatch.setitem(ARRAYS, Engine.ALL, third)
    assert (rivals(PE1), rivals(third), rivals(PE2)) == ([third], [PE1], [])


def test_array_cycles_wait_for_results_of_short_sums():
    """A tile of PE2 with 3 terms leaves it in 4 rows, of two digits each."""
    p = AcceleratorParameters(pe1_rows=8, pe2_rows=4)
    assert [PE2.cycles(10, steps, 1, p) for steps in (3, 4, 7)] == [40, 40, 70]
    assert [PE2.cycles(10, 3, 2, p), PE1.cycles(10, 1, 1, p), PE1.cycles(10, 1, 3, p)] == [
        80, 160, 240
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["zu3eg", "ecp5-85f"])
def test_estimates_of_calls_are_cycles_of_their_descriptors(name):
    """The search and the schedule count a call as the cycle model counts its descriptors."""
    p = preset(name)
    step = compile_network(load_network("digits"), 64, p)
    for program in (step.forward, step.backward):
        estimated, predicted = Counter[Engine](), Counter[Engine]()
        for call in program.lowered.calls:
            estimated[call.engine] += call.cycles
        for d in program.descriptors:
            if isinstance(d, Compute):
                predicted[work_of(d, p).engine] += work_of(d, p).cycles
        assert {engine: estimated[engine] for engine in ARRAYS} == dict(predicted)


def test_estimates_of_passes_are_cycles_of_their_descriptors():
    """A kernel counts as its passes do, and each pass what the cycle model adds for a start."""
    p = AcceleratorParameters(vector_engine=1)
    step = compile_network(load_network("encoder-64"), 4, p, effort=1)  # any program will do
    for program in (step.forward, step.backward):
        passes = [d for d in program.descriptors if isinstance(d, Vector)]
        estimated = sum(c.cycles for c in program.lowered.calls if isinstance(c, PassCall))
        assert passes
        assert estimated == sum(PASS_START + work_of(d, p).cycles for d in passes)


@pytest.mark.parametrize("x_shift, relu", [(0, False), (3, True)])
def test_golden_sum_has_the_integers_of_its_record(x_shift, relu):
    x, g = np.arange(-8, 8), np.arange(16)[::-1] - 7
    levels = (Level(1, x=1, g=1, z=1),)
    d = Compute(
        operation=Operation.BIAS, levels=levels, x=0, g=1, z=2, relu=relu, x_shift=x_shift,
        out_width=16,
    )  # fmt: skip
    assert _result(d, x, g) == replace(SUM, relu=relu).exact(x * 2**x_shift, g).tolist()


def test_golden_mask_has_the_integers_of_its_record():
    x, g = np.arange(-8, 8), np.arange(16)[::-1] - 7
    d = Compute(
        operation=Operation.MASK, levels=(Level(1, x=1, g=1, z=1),), x=0, g=1, z=2, out_width=16
    )
    assert _result(d, x, g) == MASK.exact(x, g).tolist()
    assert MASK.exact(x, g).tolist() == [v if s > 0 else 0 for v, s in zip(x, g, strict=True)]


def _result(d, x, g):
    """Return the row that an element-wise descriptor writes for rows ``x`` and ``g``."""
    p = AcceleratorParameters()
    state = MachineState.fresh(np.zeros(0, np.uint8), p)
    state.write(np.array([0, 1]), np.stack([x, g]).astype(np.int16))
    return compute(d, state, p).rows[0].tolist()


def test_operations_name_their_engines_and_rules_of_exponents():
    assert Einsum("z", ("x", "g")).engines == (PE1, PE2)
    assert Einsum("z", ("x", "g")).exponents == ExponentRule()
    assert View("z", "x").engines == ()
    for body in (SUM, MASK):
        op = Kernel("z", ("x", "g"), body)
        assert op.engines == (SPEC_OF[body.operation],) and op.exponents is body.exponents
    function = load_network("encoder-64")
    kernels = [op for op in step_graph(function, 4).whole.ops if isinstance(op, Kernel)]
    assert {spec for op in kernels for spec in op.engines} == {SPEC_OF[Operation.VECTOR]}

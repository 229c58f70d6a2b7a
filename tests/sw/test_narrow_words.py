"""Accelerators whose words are 8 bits: steps, what they refuse, how far operands are aligned."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from cases import random_case
from reference import ReferenceAccelerator
from slowly import mostly_slow

from trainwright.check.step import random_inputs
from trainwright.compiler import CompileError, compile_step
from trainwright.compiler.base.compiled import CompiledProgram
from trainwright.compiler.base.digits import cut
from trainwright.compiler.base.rules import Rule, Written
from trainwright.driver import Driver
from trainwright.fixed.scale import TensorClass
from trainwright.formats import Fixed
from trainwright.formats.exponents import ExponentRule
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import load_network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import (
    Compute,
    Halt,
    Level,
    Program,
    Transfer,
    digit_count,
)
from trainwright.program.encoding import decode_descriptor, encode_descriptor
from trainwright.program.errors import ProgramError
from trainwright.program.fields import Operation
from trainwright.program.validation import check_program

pytestmark = pytest.mark.usefixtures("first_programs")

P = AcceleratorParameters(word_width=8)
FORMATS = {
    "fixed": "factor=fixed(4),activation=fixed(8),intermediate=fixed(8),gradient=fixed(8)",
    "odd": "factor=fixed(8),activation=fixed(5),intermediate=fixed(7),gradient=fixed(6)",
    "wide": "factor=fixed(12),activation=fixed(8),intermediate=fixed(8),gradient=fixed(8)",
    "widest": "factor=fixed(16),activation=fixed(6),intermediate=fixed(8),gradient=fixed(8)",
    "wide-tensors": "factor=fixed(12),activation=fixed(8),intermediate=fixed(12),"
    "gradient=fixed(15)",
    "posits": "factor=posit(4,0),activation=posit(8,0),"
    "intermediate=posit(8,1)c,gradient=posit(8,1)c",
}


def narrow_case(seed: int, name: str):
    case = random_case(seed)
    network = case.network.with_formats(FORMATS[name])
    network = replace(network, widths=replace(network.widths, bias=8))
    posits = tuple(dict.fromkeys(str(fmt) for _, fmt in network.coded))
    width = min(8, network.widths.factor)
    p = replace(case.parameters, factor_width=width, formats=posits, word_width=8)
    if name == "wide-tensors":  # two of the levels that a nest sums over are digits
        p = replace(p, wide_tensors=True, nest_levels=max(6, p.nest_levels))
    return network, case.batch, p


# Factors of 16 bits have the digits of those of 12.
@mostly_slow("name", FORMATS, lambda name: name != "wide")
@mostly_slow("seed", range(12), quick=[0])
def test_steps_are_those_of_the_literal_interpreter(seed, name):
    network, batch, p = narrow_case(seed, name)
    with GoldenAccelerator(p, memory_bytes=1 << 22) as golden:
        driver = Driver(golden, network, batch)
        given = random_inputs(network, driver, seed)
        memories = []
        for accelerator in (golden, ReferenceAccelerator(p, memory_bytes=1 << 22)):
            driver = Driver(accelerator, network, batch, trace=True)
            forward = driver.forward(given.inputs, given.model, given.scales).run
            backward = driver.backward(given.gradient, given.scales).run
            memories.append((accelerator.read(0, 1 << 22), forward, backward))
        (ours, *runs), (theirs, *references) = memories
        assert np.array_equal(ours, theirs)
        for run, other in zip(runs, references, strict=True):
            for what in ("sums", "saturations", "underflows"):
                assert np.array_equal(getattr(run, what), getattr(other, what))
            for engine, trace in run.traces.items():
                assert np.array_equal(trace.rows, other.traces[engine].rows)
                assert len(trace.rows) == 0 or -128 <= trace.rows.min() <= trace.rows.max() < 128


def test_three_digits_times_three_are_refused():
    network = load_network("digits").with_formats(
        "intermediate=fixed(16),gradient=fixed(16),factor=fixed(16)"
    )
    p = replace(P, factor_width=8, wide_tensors=1)
    with pytest.raises(CompileError, match=r"have 3 digits .* choose fixed\(15\)"):
        compile_step(network, 8, p)
    with pytest.raises(ValueError, match="wide_tensors is for words"):
        AcceleratorParameters(wide_tensors=1)


@pytest.mark.parametrize("operation", (Operation.BIAS, Operation.MASK))
def test_narrow_words_element_has_as_many_digits_as_the_widest_result(operation):
    """The vector unit's sums hold those of 16 bits, aligned by up to 7."""
    p = replace(P, wide_tensors=True)
    for count in (3, 4):
        levels = (Level(1), Level(count, x=1, g=1))
        d = Compute(
            operation=operation, levels=levels, x=0, g=8, z=16, reduce_levels=1, digits=1,
            out_width=16,
        )  # fmt: skip
        program = Program((d, Halt()), p.fingerprint)
        if count == 3:
            check_program(program, p)
            continue
        with pytest.raises(ProgramError, match="4 digits of an element, whose sums hold 3; cut"):
            check_program(program, p)


def computes(program: CompiledProgram) -> list[Compute]:
    return [d for d in program.descriptors if isinstance(d, Compute)]


def test_digits_make_up_their_integers():
    for width in range(2, 17):
        values = torch.arange(-(1 << width - 1), 1 << width - 1)
        digits = cut(values, digit_count(width))
        high, *lower = digits
        assert high.min() >= -128 and high.max() < 128
        assert all(digit.min() >= 0 and digit.max() < 128 for digit in lower)
        total = torch.zeros_like(values)
        for digit in digits:
            total = total * 128 + digit
        assert torch.equal(total, values)
    assert [digit_count(width) for width in (2, 8, 9, 15, 16)] == [1, 1, 2, 2, 3]


def test_sums_of_digits_are_proven_as_those_of_their_integers():
    """16 x 8 bits need 8 bits more than 8 x 8, however they are computed."""
    formats = "factor=fixed({}),intermediate=fixed(8),gradient=fixed(8)"
    p = replace(P, factor_width=8, accumulator_width=26)
    network = load_network("digits")
    assert compile_step(network.with_formats(formats.format(8)), 8, p)
    said = r"products of (8 x 16|16 x 8) bits need accumulators of"
    with pytest.raises(CompileError, match=said):
        compile_step(network.with_formats(formats.format(16)), 8, p)


def test_programs_keep_their_digits():
    network = load_network("digits").with_formats(FORMATS["wide"])
    step = compile_step(network, 8, replace(P, factor_width=8))
    of_digits = [d for d in computes(step.forward) if d.digits]
    assert of_digits
    for d in of_digits:
        again = decode_descriptor(encode_descriptor(d))
        assert isinstance(again, Compute) and again.digits
        assert again.reduction == d.reduction


def test_factors_that_multipliers_do_not_take():
    network = load_network("digits").with_formats(FORMATS["wide"])
    assert compile_step(network, 8, replace(P, factor_width=8))
    with pytest.raises(CompileError, match=r"takes at most 4: .* factor_width=8"):
        compile_step(network, 8, P)
    with pytest.raises(CompileError, match=r"takes at most 4: .* factor_width=12"):
        compile_step(network, 8, AcceleratorParameters())


def test_every_tensor_takes_a_byte():
    network = load_network("digits").with_formats(FORMATS["fixed"])
    step = compile_step(network, 8, P)
    for program in (step.forward, step.backward):
        for d in program.descriptors:
            assert not isinstance(d, Transfer) or d.element_bytes < 2
            assert not isinstance(d, Compute) or d.out_width <= 8


@pytest.mark.parametrize("name", ("activation", "intermediate", "gradient", "bias"))
def test_wider_tensors_are_refused(name):
    network = load_network("digits").with_formats(FORMATS["fixed"])
    network = replace(network, widths=replace(network.widths, **{name: 12}))
    with pytest.raises(
        CompileError, match=rf"{name}e?s of 12 bits, .* have 8: choose .*{name} ?= ?"
    ):
        compile_step(network, 8, P)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x_shift": 8}, "x_shift = 8 is not from 0 to 7"),
        ({"g_shift": 8}, "g_shift = 8 is not from 0 to 7"),
        ({"out_width": 9}, "out_width = 9 is not from 1 to 8"),
    ],
)
def test_narrow_words_wider_field_is_rejected(change, message):
    d = Compute(operation=Operation.BIAS, levels=(Level(1),), x=0, g=0, z=1, out_width=8)
    check_program(Program((d, Halt()), P.fingerprint), P)
    digits = replace(d, operation=Operation.PE3, levels=(Level(1), Level(2)), reduce_levels=1)
    digits = replace(digits, digits=True)
    check_program(Program((digits, Halt()), P.fingerprint), P)
    wide = AcceleratorParameters()
    with pytest.raises(ProgramError, match="digits are of contractions on words of 8 bits"):
        check_program(Program((digits, Halt()), wide.fingerprint), wide)
    with pytest.raises(ProgramError, match=message):
        check_program(Program((replace(d, **change), Halt()), P.fingerprint), P)
    pair = Transfer(operation=Operation.LOAD, address=0, local=0, beats=2, element_bytes=2)
    with pytest.raises(ProgramError, match="element_bytes = 2 is not from 1 to 1"):
        check_program(Program((pair, Halt()), P.fingerprint), P)


def test_alignment_takes_no_wider_multipliers():
    assert (AcceleratorParameters().most_alignment, P.most_alignment) == (15, 7)
    posits = replace(P, formats="posit(8,0)")
    assert (posits.most_alignment, posits.operand_width, posits.narrow) == (15, 18, False)
    assert P.narrow and P.device_multipliers * 2 == P.multipliers + 2 * P.lanes


@pytest.mark.parametrize("wanted", (-9, -2, 0, 3, 7, 8, 40))
def test_narrow_words_running_sum_is_within_reach_of_its_parts(wanted):
    """Whatever its wanted exponent; a bias follows its sum, as the host can shift it."""
    part, total = (Written(name, TensorClass.GRADIENT, Fixed(8), 1) for name in ("t.part", "t.sum"))
    add = Compute(operation=Operation.BIAS, levels=(Level(1),), x=0, g=1, z=2)
    adds = ExponentRule(adds=True)
    program = CompiledProgram(
        descriptors=(replace(add, operation=Operation.PE3), add, add, add),
        rules={
            0: Rule("x", "g", part),
            1: Rule("t.part", "t.part", total, adds),
            2: Rule("t.sum", "t.part", total, adds),
            3: Rule("t.sum", "b", replace(total, name="t"), adds),
        },
        tensors=(part, total),
        images=(),
        macs=0,
        address=0,
        fingerprint=0,
        most_alignment=P.most_alignment,
    )
    bound = program.bind({"t.sum": wanted}, {"x": 0, "g": 0, "b": -20})
    _, _, again, bias = (d for d in bound.program.descriptors if isinstance(d, Compute))
    reached = min(max(wanted, 0), 7)
    assert bound.exponents["t.part"] == 0 and bound.exponents["t.sum"] == reached
    assert (again.x_shift, again.g_shift, again.shift) == (reached, 0, reached)
    assert bound.exponents["b"] == reached - 7 and (bias.x_shift, bias.g_shift) == (7, 0)

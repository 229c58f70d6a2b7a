"""Softmax and LayerNorm: real numbers, passes of the vector engine, steps of hand-built graphs."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from function_networks import kernels_dropped
from group_cases import (
    CASES,
    between,
    compiled,
    layer_norm,
    random_case,
    require_exact,
    softmax,
)
from slowly import mostly_slow

import trainwright
from trainwright.compiler.base.errors import CompileError
from trainwright.functions import definition_of
from trainwright.functions.groups import product
from trainwright.functions.library import gelu
from trainwright.golden import vector as golden_vector
from trainwright.golden.backend import GoldenAccelerator
from trainwright.golden.state import MachineState
from trainwright.kernels import Body, KernelError, Rounding, evaluate
from trainwright.kernels.phases import STORED, GroupLayout, Role, lower_groups
from trainwright.parameters import AcceleratorParameters
from trainwright.program.vector import THREADS, Kind, Stream, Total

ENGINE = AcceleratorParameters(vector_engine=1)
LANES = 16


def applied(kernel, operands, widths, width, exponents, wanted=None):
    """Evaluate a kernel on groups in rows, without instructions; return words and scale."""
    body = kernel.traced(widths, width)
    scaling = kernel.bound(exponents, width, wanted)
    rows = {f"x{n}": words for n, words in enumerate(operands)}
    words = evaluate(body, rows, constants=scaling.constants, checks=True).rows["z"]
    return words, scaling


def error(real, words, exponent, width):
    """Return the largest error in units of the last place, for results within the range."""
    most = 1 << (width - 1)
    return np.abs(np.clip(real * 2.0**-exponent, -most, most - 1) - words).max()


def shape_of(group):
    """Return groups for a test, about as many values for each size of a group."""
    return max(4, 4096 // group), group


# -- real numbers ----------------------------------------------------------------------------------
@pytest.mark.parametrize(("group", "scale"), ((1, 1.0), (5, 0.3), (32, 0.125), (48, 1.0), (500, 1)))
@pytest.mark.parametrize("exponent", (-9, -14))
def test_softmax_of_random_scores_is_within_its_bound(group, scale, exponent):
    rng, kernel = np.random.default_rng(group), softmax(group, scale).forward
    scores = np.clip(rng.normal(0, 2 / scale / 2.0**exponent, shape_of(group)), -32768, 32767)
    scores = scores.astype(np.int64)
    real = torch.softmax(torch.from_numpy(scores * 2.0**exponent) * scale, -1).numpy()
    for width, bound in ((8, 0.51), (16, 4.5)):
        words, scaling = applied(kernel, [scores], (16,), width, [exponent])
        assert error(real, words, scaling.exponent, width) <= bound


@pytest.mark.parametrize(("exponent", "spread"), ((-9, 1 << 10), (-15, 1 << 15)))
def test_masked_softmax_is_that_of_the_values_left(exponent, spread):
    """Scores that are masked exceed the others by far; groups of one value and of none are there.

    Words of -32768 are the greatest of some groups, as small as the words that stand for a mask.
    """
    group, rng = 12, np.random.default_rng(3)
    kernel = definition_of("masked_softmax").make(0.5).sized(group).forward
    scores = np.clip(rng.normal(0, spread, (600, group)), -32768, 32767).astype(np.int64)
    mask = (rng.random(scores.shape) < rng.random((600, 1))).astype(np.int64)
    scores[:300] = np.where(mask[:300], scores[:300], 32767)
    scores[300:400] = np.where(mask[300:400], -32768, scores[300:400])
    words, scaling = applied(kernel, [scores, mask], (16, 2), 8, [exponent, 0])
    counts = mask.sum(1)
    assert {0, 1, group} <= set(counts.tolist())
    powers = np.zeros(scores.shape)
    for row, kept, out in zip(scores, mask, powers, strict=True):
        values = row[kept > 0] * 2.0**exponent * 0.5
        out[kept > 0] = np.exp(values - values.max(initial=-np.inf))
        out /= out.sum() or 1
    assert error(powers, words, scaling.exponent, 8) <= 0.51 and not words[mask == 0].any()


@pytest.mark.parametrize(("group", "scale"), ((5, 0.3), (32, 0.125), (48, 1.0)))
def test_softmax_gradient_is_within_its_bound_of_torch(group, scale):
    rng, function = np.random.default_rng(group), softmax(group, scale)
    scores = np.clip(rng.normal(0, 2**10 / scale, shape_of(group)), -32768, 32767)
    scores = scores.astype(np.int64)
    p, scaling = applied(function.forward, [scores], (16,), 8, [-9])
    upper = rng.integers(-(1 << 15), 1 << 15, scores.shape)
    real = function.backward.real(torch.from_numpy(upper * 2.0**-5), torch.from_numpy(p * 2.0**-7))
    exponents = [-5, scaling.exponent]
    least = applied(function.backward, [upper, p], (16, 8), 16, exponents)[1].floor
    for wanted, bound in ((least + 6, 2.5), (least + 9, 0.8)):
        words, scaling = applied(function.backward, [upper, p], (16, 8), 16, exponents, wanted)
        assert scaling.exponent == wanted and np.abs(words).max() > 50
        assert error(real.numpy(), words, wanted, 16) <= bound


NORMS = ((8, 20, 60), (8, 3, 0), (8, 0.5, 100), (16, 1500, 300), (16, 300, -5000), (4, 1.5, 1))


@pytest.mark.parametrize("group", (5, 12, 64, 768, 4096))
@pytest.mark.parametrize(("width", "deviation", "mean"), NORMS)
def test_layer_norm_is_within_its_bound_of_torch(group, width, deviation, mean):
    rng, function = np.random.default_rng(group), layer_norm(group)
    most = 1 << (width - 1)
    x = np.rint(rng.normal(mean, deviation, shape_of(group)))
    x = np.clip(x, -most, most - 1).astype(np.int64)
    real = torch.nn.functional.layer_norm(torch.from_numpy(x * 1.0), (group,), eps=1e-12).numpy()
    words, scaling = applied(function.forward, [x], (width,), 8, [-4])
    assert error(real, words, scaling.exponent, 8) <= 0.65
    words, scaling = applied(function.forward, [x], (width,), 16, [-4])
    # 16 bits are as exact as a root of 17 bits, and as the mean of few words.
    assert error(real, words, scaling.exponent, 16) <= max(8, 2.0 ** (12 - np.log2(group)))


@pytest.mark.parametrize("group", (12, 64, 768, 4096))
@pytest.mark.parametrize(("width", "deviation", "mean"), (NORMS[0], NORMS[1], NORMS[3], NORMS[5]))
def test_layer_norm_gradient_is_within_its_bound_of_torch(group, width, deviation, mean):
    rng, function = np.random.default_rng(group), layer_norm(group)
    most = 1 << (width - 1)
    x = np.rint(rng.normal(mean, deviation, shape_of(group)))
    x = np.clip(x, -most, most - 1).astype(np.int64)
    upper = np.clip(rng.normal(0, 2000, x.shape), -32768, 32767).astype(np.int64)
    leaf = torch.from_numpy(x * 2.0**-4).requires_grad_()
    y = torch.nn.functional.layer_norm(leaf, (group,), eps=1e-12)
    y.backward(torch.from_numpy(upper * 1.0))
    real = leaf.grad.numpy()
    wanted = int(np.ceil(np.log2(np.abs(real).max()))) - 14
    words, scaling = applied(function.backward, [upper, x], (width and 16, width), 16, [0, -4],
                             wanted)  # fmt: skip
    assert error(real, words, scaling.exponent, 16) <= 3


def test_layer_norm_of_equal_values_is_zero():
    function, x = layer_norm(24), np.repeat([[-128], [0], [77], [127]], 24, 1)
    for width in (8, 16):
        assert not applied(function.forward, [x], (8,), width, [-4])[0].any()
    upper = np.arange(96).reshape(4, 24) * 300
    assert not applied(function.backward, [upper, x], (16, 8), 16, [0, -4])[0].any()


def test_softmax_of_extreme_scores_is_one_hot():
    scores = np.array([[-32768, 32767, -32768], [32767, 32767, -32768]])
    words, _ = applied(softmax(3).forward, [scores], (16,), 8, [-4])
    assert words.tolist() == [[0, 127, 0], [64, 64, 0]]


def test_group_kernels_are_pickled_by_text():
    for function in (softmax(32, 0.125), layer_norm(768)):
        for kernel in (function.forward, function.backward):
            assert pickle.loads(pickle.dumps(kernel)) == kernel


# -- passes ----------------------------------------------------------------------------------------
class Engine:
    """The golden model's vector engine, with groups of a kernel in rows of its own."""

    def __init__(self, kernel, widths, width, layout):
        self.kernel, self.widths, self.width, self.layout = kernel, widths, width, layout
        self.state = MachineState.fresh(np.zeros(0, np.uint8), ENGINE)

    def rows(self, words):
        """Lay groups (n, group) out as (rows of groups, rows of a group, lanes)."""
        if self.layout.across:
            return words.reshape(len(words), -1, LANES)
        return words.reshape(-1, LANES, self.kernel.group).transpose(0, 2, 1)

    def run(self, operands, constants):
        """Execute all passes; return the words of the groups."""
        parts = [self.rows(words) for words in operands]
        count, size, _ = parts[0].shape
        for n, part in enumerate(parts):
            places = np.arange(n * count * size, (n + 1) * count * size)
            self.state.write(places, part.transpose(1, 0, 2).reshape(-1, LANES).astype(np.int16))
        result = len(parts) * count * size
        scratch = result + count * size
        phases = self.kernel.passes(self.widths, self.width, self.layout)
        total = 0
        for first in range(0, count, 1 if self.layout.joined else THREADS):
            for phase in phases:
                streams, outer, inner = {}, 1, THREADS
                for name in phase.code.streams:
                    if name in ("z", STORED):
                        base = result
                    elif phase.role is Role.SWEEP:
                        base = int(name[1:]) * count * size
                    else:
                        base = scratch + THREADS * int(name[7:])
                    if phase.role is Role.SWEEP and self.layout.joined:
                        streams[name], inner = Stream(base + first, 0, count), size
                    elif phase.role is Role.SWEEP:
                        streams[name], outer = Stream(base + first, count, 1), size
                    elif phase.role is Role.JOIN_OUT:
                        streams[name] = Stream(base, 0, 1)
                    else:
                        streams[name], outer = Stream(base, 1, 0), THREADS
                self.state.code = dict(enumerate(phase.code.instructions))
                d = phase.code.vector(streams, outer=outer, inner=inner)
                given = (*constants, *d.constants[len(constants) :])
                done = golden_vector.vector(replace(d, constants=given), self.state, ENGINE)
                total += done.total
        words = self.state.pad[result:scratch].astype(np.int64).reshape(size, count, LANES)
        if self.layout.across:
            return words.transpose(1, 0, 2).reshape(count, -1), total
        return words.transpose(1, 2, 0).reshape(-1, size), total


@pytest.mark.parametrize("joined", (False, True))
@pytest.mark.parametrize("across", (False, True))
@pytest.mark.parametrize("function", (softmax(32, 0.3), layer_norm(32), layer_norm(48)))
def test_passes_of_a_group_kernel_equal_its_reference(function, across, joined):
    rng, layout = np.random.default_rng(7), GroupLayout(across, joined)
    for width, result in ((16, 8), (8, 16)):
        x = rng.integers(-(1 << (width - 1)), 1 << (width - 1), (8 if across else 128,
                         function.forward.group))  # fmt: skip
        reference, scaling = applied(function.forward, [x], (width,), result, [-9])
        engine = Engine(function.forward, (width,), result, layout)
        np.testing.assert_array_equal(engine.run([x], scaling.constants)[0], reference)
        second, bits = (reference, result) if function.reads == "result" else (x, width)
        upper = rng.integers(-(1 << 15), 1 << 15, x.shape)
        operands, wanted = [upper, second], 4
        reference, scaling = applied(function.backward, operands, (16, bits), 16, [-5, -4], wanted)
        engine = Engine(function.backward, (16, bits), 16, layout)
        words, total = engine.run(operands, scaling.constants)
        np.testing.assert_array_equal(words, reference)
        assert total == np.abs(reference).sum()


@pytest.mark.parametrize("second", range(3))
@pytest.mark.parametrize("first", range(3))
@pytest.mark.parametrize("rounding", (Rounding.EVEN, Rounding.FLOOR))
def test_roundings_one_after_the_other_equal_their_reference(first, second, rounding):
    """A shift of 0, as of ``k.fixed`` in the result's own units, lost the shift before it."""

    def body(k, x):
        return (x * 5).rounded(first, rounding).rounded(second, Rounding.EVEN)

    with kernels_dropped():
        kernel = trainwright.kernel(name="own", over="features")(body).make().sized(32).forward
        x = np.random.default_rng(7).integers(-4096, 4096, (128, 32))
        layout = GroupLayout(across=False, joined=True)
        words = Engine(kernel, (16,), 16, layout).run([x], ())[0]
    down = np.floor if rounding is Rounding.FLOOR else np.rint
    exact = np.rint(down(x * 5 / 2**first) / 2**second)
    np.testing.assert_array_equal(words, np.clip(exact, -32768, 32767))


def sweeps(kernel, widths, result, *, joined=True):
    """Return the passes of a kernel, and the instructions of its passes over rows."""
    phases = kernel.passes(widths, result, GroupLayout(across=False, joined=joined))
    return phases, [p.code.instructions for p in phases if p.role is Role.SWEEP]


@pytest.mark.parametrize("joined", (False, True))
def test_sizes_of_a_counted_result_are_summed_over_lanes_once(joined):
    """A row takes an instruction to negate its words, and one to add the sizes."""
    phases, (rows,) = sweeps(product.make().sized(32).forward, (16, 8), 16, joined=joined)
    assert len(rows) == 5 and all(i.kind is not Kind.SUM for i in rows)
    (total,) = phases[-1].code.instructions
    assert (total.kind, total.total, phases[-1].role) == (Kind.SUM, Total.SUM, Role.FINISH)


def test_values_that_all_rows_share_are_computed_before_the_rows():
    """A register has the shift that an exponent gives: no row makes it from a lane's number."""
    phases, (rows,) = sweeps(gelu.make().forward, (8,), 8)
    assert phases[0].role is Role.FINISH and not phases[0].code.streams
    assert len(rows) == 4 and all(i.kind is not Kind.LANE for i in rows)


def test_limit_that_the_range_proves_takes_no_step():
    k = Body()
    v = k.read("x", 3, 9)
    assert v.at_least(3) is v and v.at_least(4) is not v and (0 - v).kind is Kind.PRODUCT
    assert len(k.steps) == 3


def test_kernel_that_keeps_too_much_names_its_line():
    def kernel(k):
        x = k.read("x")
        sums = [k.sum(x + n) for n in range(9)]
        k.write("z", sum(sums[1:], sums[0]).clip(16))

    with pytest.raises(KernelError, match=r"test_group_kernels.py:\d+: a kernel keeps more than 8"):
        lower_groups(kernel, 16, GroupLayout(across=False, joined=False))


def test_sum_that_threads_cannot_join_names_its_line():
    def kernel(k):
        x = k.read("x")
        k.write("z", (k.sum(x * x) >> 20).clip(16))

    lower_groups(kernel, 16, GroupLayout(across=False, joined=False))
    with pytest.raises(KernelError, match=r"test_group_kernels.py:\d+: sums from 0 to \d+"):
        lower_groups(kernel, 16, GroupLayout(across=False, joined=True))


# -- steps -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", CASES)
def test_group_kernel_between_contractions_is_exact(name):
    function, sizes, over = CASES[name]
    step = compiled(between(function, sizes, over, next(iter(sizes))), ENGINE)
    with GoldenAccelerator(ENGINE, memory_bytes=step.memory_bytes, interpreted=True) as golden:
        require_exact(step, golden)


@mostly_slow("seed", range(24), quick=range(4))
def test_random_group_kernels_are_exact(seed):
    rows = {} if seed % 3 else {"lanes": 8, "pe1_rows": 2, "pe2_rows": 4}
    p = AcceleratorParameters(vector_engine=1, **rows)
    step = compiled(random_case(seed), p)
    with GoldenAccelerator(p, memory_bytes=step.memory_bytes, interpreted=seed % 2) as golden:
        require_exact(step, golden, seed)


def test_accelerator_without_an_engine_refuses_group_kernels():
    function, sizes, over = CASES["softmax of keys in rows"]
    with pytest.raises(CompileError, match="is computed by the vector engine"):
        compiled(between(function, sizes, over, "h"), AcceleratorParameters())

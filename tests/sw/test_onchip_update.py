"""Update, prior and state on the chip: literal definitions, an element at a time."""

from dataclasses import replace
from fractions import Fraction
from math import log2, prod

import numpy as np
import pytest
import table_functions as tabled
import torch

from trainwright.fixed.random_bits import mixed, unit_bytes
from trainwright.kernels import evaluate, trace
from trainwright.network import Layer, Network, Widths, load_network
from trainwright.onchip import prior
from trainwright.onchip.layout import LANES, make_layout, state_rows
from trainwright.onchip.optimiser import IntegerSGD
from trainwright.onchip.prior import kept_columns, make_pulls
from trainwright.onchip.schedule import RATE, RATE_SHIFT, Entry
from trainwright.onchip.state import ChipState, UpdateStep
from trainwright.onchip.update import (
    GRADIENT,
    MOMENT,
    WEIGHT,
    PartUpdate,
    pulls_of,
    values_kernel,
)
from trainwright.train.storage_prior import column_cost, storage_gradients

NETWORK = Network(
    name="small",
    layers=(Layer((2, 3, 2), (3, 2, 5), (4, 3), relu=True), Layer((1, 5), (4, 3), (3,))),
    classes=3,
    image=(5, 6),
    padded=(5, 6),
)
EXPONENTS = ((-3, -4, -3), (-2, -3))
BIAS_EXPONENTS = (-5, -6)
ENTRY = Entry(rate=11, rate_shift=5, weight=200, weight_exponent=-14)
STEP = UpdateStep(number=8, seed=77, entry=ENTRY)


def make_state(seed=0, network=NETWORK):
    random = np.random.default_rng(seed)
    layout = make_layout(network, EXPONENTS, BIAS_EXPONENTS)
    weights = np.zeros((layout.rows, LANES), np.int64)
    for part in layout.parts:
        values = random.normal(size=part.size) * 1200
        weights.ravel()[part.places] = values.astype(np.int64).clip(*part.limits)
    return ChipState(layout, weights)


def gradients(state, seed=0, size=900.0):
    random = np.random.default_rng(seed)
    return [
        (random.normal(size=q.shape) * size).astype(np.int64).clip(-32768, 32767)
        for q in state.quantised()
    ]


EXPONENT_LIST = [-18, -19, -20, -17, -18, -19, -16]


def stochastic(value, shift, byte):
    """Return floor((value + r) / 2^shift) with nine known bits of r below 2^shift."""
    return (Fraction(value) + Fraction((2 * byte + 1) << shift, 512).__floor__()) // (1 << shift)


def literal(state, given, exponents, step, pulls):
    """Apply the equations of ``onchip.update`` to each element; (weights, moments) flat."""
    layout, rows = state.layout, state.layout.rows
    weights = state.weights.ravel().tolist()
    moments = state.moments.ravel().tolist()
    bytes_ = []
    for number in range(2):
        stream = step.seed + (2 * step.number + number) * 0x9E3779B9
        bytes_.append(unit_bytes(mixed(stream, 16 * np.arange(rows)), LANES).ravel().tolist())
    for n, (part, gradient) in enumerate(zip(layout.parts, given, strict=True)):
        for k, g in enumerate(gradient.ravel().tolist()):
            at = part.places[k]
            g = min(max(g + pulls[n].ravel()[k], -(1 << 17)), (1 << 17) - 1)
            m = moments[at] + stochastic(g - 16 * moments[at], 8, bytes_[0][at])
            m = min(max(m, -128), 127)
            shift = step.entry.rate_shift + (2 if part.index < 0 else 0)
            if step.optimiser == "momentum":
                shift = step.entry.rate_shift + part.exponent - part.hidden - exponents[n] - 4
            w = weights[at] - stochastic(m * step.entry.rate, min(max(shift, 0), 31), bytes_[1][at])
            weights[at] = min(max(w, -2048), 2048 - (1 << part.hidden))
            moments[at] = m
    return weights, moments


def no_pulls(state):
    return [np.zeros(q.shape, np.int64) for q in state.quantised()]


@pytest.mark.parametrize("optimiser", ["esgd", "momentum"])
@pytest.mark.parametrize("size", [900.0, 30000.0])
def test_onchip_update_step_is_the_equations_element_by_element(optimiser, size):
    state = make_state()
    step = replace(STEP, optimiser=optimiser, entry=replace(ENTRY, weight=0))
    for number in range(3):
        step = replace(step, number=number)
        given = gradients(state, number, size)
        wanted = literal(state, given, EXPONENT_LIST, step, no_pulls(state))
        state.step(given, EXPONENT_LIST, step)
        assert (state.weights.ravel().tolist(), state.moments.ravel().tolist()) == wanted


def test_gradients_beyond_18_bits_say_no_more_than_saturated_ones():
    moments = np.tile(np.arange(-128, 128).reshape(-1, LANES), (2, 1))
    part = PartUpdate(8, left=False, right=False)
    for byte in (0, 255):
        random = np.full(moments.shape, byte)
        for gradient in (131071, 1 << 20, -131072, -(1 << 20)):
            given = moments * 0, moments, moments * 0 + gradient
            rows = dict(zip((WEIGHT, MOMENT, GRADIENT), given, strict=True))
            body = trace(values_kernel, part=part)
            for step in body.steps:  # as a gradient with its pull, wider than a word
                if getattr(step, "stream", "") == GRADIENT:
                    step.low, step.high = -(1 << 20), 1 << 20
            following = evaluate(
                body, rows, random=(random, random), constants=(1,), shifts=(0,),
                registers={RATE.number: 0, RATE_SHIFT.number: 0},
            ).rows[MOMENT]  # fmt: skip
            assert (following == (127 if gradient > 0 else -128)).all()


def test_sums_of_gradients_of_parts_of_a_batch_saturate_to_a_word():
    summed, cut = make_state(), make_state()
    given = [4 * gradient for gradient in gradients(summed, size=20000.0)]
    summed.step(given, EXPONENT_LIST, STEP)
    cut.step([g.clip(-32768, 32767) for g in given], EXPONENT_LIST, STEP)
    assert summed.moments.tolist() == cut.moments.tolist()


def test_moments_move_with_the_exponent_of_their_gradient():
    state = make_state()
    step = replace(STEP, entry=Entry(0, 0))
    state.step(gradients(state), EXPONENT_LIST, step)
    before = state.moments.copy()
    moved = [e + by for e, by in zip(EXPONENT_LIST, (0, 1, -1, 3, -2, 1, -40), strict=True)]
    shifted = ChipState(state.layout, state.weights.copy())
    shifted.exponents = np.array(moved)
    for part, by in zip(state.layout.parts, (0, 1, -1, 3, -2, 1, -40), strict=True):
        rows = slice(part.row, part.row + part.rows)
        exact = [round(Fraction(int(old)) / Fraction(2) ** by) for old in before[rows].ravel()]
        shifted.moments[rows] = np.clip(exact, -128, 127).reshape(-1, LANES)
    step = replace(STEP, number=9)
    given = gradients(state, 1)
    state.step(given, moved, step)
    shifted.step(given, moved, step)
    assert state.moments.tolist() == shifted.moments.tolist()
    assert state.exponents.tolist() == moved


def test_rows_hold_every_tensor_from_a_new_row():
    layout = make_layout(NETWORK, EXPONENTS, BIAS_EXPONENTS)
    row = 0
    for part in layout.parts:
        assert part.row == row
        *lines, along = part.shape[:-1] if part.shape[-1] == 1 else part.shape
        row += prod(lines) * -(-along // 16)
        assert part.places.tolist() == [
            16 * (part.row + n // along * -(-along // 16)) + n % along for n in range(part.size)
        ]
    assert layout.rows == row == state_rows(NETWORK)
    assert [part.hidden for part in layout.parts] == [8, 8, 8, 4, 8, 8, 4]
    assert state_rows(load_network("fashion")) == 925
    whole = make_layout(load_network("digits"), ((0, 0), (0, 0)), (0, 0))
    assert [part.rows for part in whole.parts] == [32, 256, 8, 8, 128, 1]
    assert whole.rows == state_rows(whole.network) == 433
    assert state_rows(replace(NETWORK, layers=(replace(NETWORK.layers[0], bias=False),
                                               NETWORK.layers[1]))) == row - 1  # fmt: skip


def test_wide_factors_are_refused_with_the_remedy():
    wide = replace(NETWORK, widths=Widths(factor=11))
    with pytest.raises(ValueError, match=r"factor widths of up to 10 bits, not 11; use --update"):
        make_layout(wide, EXPONENTS, BIAS_EXPONENTS)


def factor_values(state):
    """Return weights as floats, a list of factors a layer."""
    layers = [[] for _ in state.layout.network.layers]
    for part in state.layout.parts:
        if part.index >= 0:
            values = state.weights.ravel()[part.places].reshape(part.shape)
            layers[part.layer].append(
                torch.from_numpy(values) * 2.0 ** (part.exponent - part.hidden)
            )
    return layers


def pull_of(layout, weights, pulls, exponents):
    """Return the pull of every element (rows, LANES), as kernels of the update have it."""
    low_bits = 15

    def kernel(k):
        pull, _ = pulls_of(k, PartUpdate(8), k.read("weight"))
        k.write("low", pull & ((1 << low_bits) - 1))
        k.write("high", pull >> low_bits)

    rows = {"weight": weights, **prior.pull_rows(layout, pulls, np.array(exponents))}
    words = evaluate(trace(kernel), rows).rows
    return (words["high"] << low_bits) + words["low"]


def test_onchip_update_pull_is_the_storage_priors_gradient():
    state = make_state()
    state.weights &= ~15  # the sums see all of it
    layout = state.layout
    sums = prior.sums_of_squares(layout, state.weights)
    entry = replace(ENTRY, weight_exponent=-21)
    pulls = make_pulls(layout, sums, prior.column_costs(layout, state.kept), entry)
    assert set(np.unique(pulls.coefficients)) <= {0, *range(128, 256)}
    pull = pull_of(layout, state.weights, pulls, EXPONENT_LIST)
    weight = entry.weight * 2.0**entry.weight_exponent
    exact = [storage_gradients(layer, weight) for layer in factor_values(state)]
    for n, part in enumerate(layout.parts):
        got = pull.ravel()[part.places].reshape(part.shape)
        if part.index < 0:
            assert not got.any()
            continue
        wanted = exact[part.layer][part.index].numpy() * 2.0 ** -EXPONENT_LIST[n]
        assert np.abs(wanted).max() > 100  # it says something
        # half a unit for each side, and the coefficients' 0.8 %
        assert (np.abs(got - wanted) <= 1 + 0.008 * np.abs(wanted)).all()


def test_coefficients_are_exact_to_their_bits():
    layout = make_layout(NETWORK, EXPONENTS, BIAS_EXPONENTS)
    sums = np.arange(layout.columns) ** 3  # column 0 belongs to none
    costs = np.array([35, 70, 900])
    pulls = make_pulls(layout, sums, costs, ENTRY)
    for bond, cost in zip(layout.bonds, costs, strict=True):
        for side in (bond.left, bond.right):
            part = layout.parts[side.part]
            for column in range(side.first, side.first + side.columns):
                exact = (
                    ENTRY.weight * 2.0**ENTRY.weight_exponent * cost / 2
                    / (float(sums[column]) * 4.0**prior.TOP_SHIFT)
                    * 2.0 ** -(part.exponent - part.hidden)
                )  # fmt: skip
                got = pulls.coefficients[column] * 2.0 ** pulls.exponents[column]
                assert got == pytest.approx(exact, rel=0.008)
    assert pulls.coefficients[0] == 0
    zeros = make_pulls(layout, sums * 0, costs, ENTRY)
    assert not zeros.coefficients.any()


def drawn_sums(layout, seed):
    """Draw sums of squares of all sizes that two words hold, some of them 0."""
    random = np.random.default_rng(seed)
    sums = random.integers(0, 1 << 30, layout.columns) >> random.integers(0, 30, layout.columns)
    return np.where(random.random(layout.columns) < 0.1, 0, sums), random


@pytest.mark.parametrize("seed", range(20))
def test_pulls_are_normalised_products_by_the_table_of_reciprocals(seed):
    layout = make_layout(NETWORK, EXPONENTS, BIAS_EXPONENTS)
    sums, random = drawn_sums(layout, seed)
    costs = random.integers(2, 1 << 15, len(layout.bonds))
    entry = replace(ENTRY, weight=int(random.integers(128, 256)))
    pulls = make_pulls(layout, sums, costs, entry)
    for bond, cost in zip(layout.bonds, costs, strict=True):
        constant, scale = tabled.normalised(entry.weight * cost)
        for side in (bond.left, bond.right):
            part = layout.parts[side.part]
            for column in range(side.first, side.first + side.columns):
                got = pulls.coefficients[column], pulls.exponents[column]
                if not sums[column]:
                    assert got == (0, 0)
                    continue
                inverse, below = tabled.reciprocal(sums[column])
                coefficient, above = tabled.normalised(constant * inverse, 8)
                exponent = above + scale + below + entry.weight_exponent - 1 - 2 * prior.TOP_SHIFT
                exponent -= part.exponent - part.hidden
                assert got == (coefficient, np.clip(exponent, -128, 127))


@pytest.mark.parametrize("seed", range(20))
def test_columns_are_kept_by_the_table_of_logarithms(seed):
    layout = make_layout(NETWORK, EXPONENTS, BIAS_EXPONENTS)
    sums, random = drawn_sums(layout, seed)
    columns = [bond.left.columns for bond in layout.bonds]
    kept = [np.sort(random.permutation(n)[: random.integers(1, n + 1)]) for n in columns]
    distance = int(random.integers(1, 20))
    for bond, own, left in zip(
        layout.bonds, kept, kept_columns(layout, sums, kept, distance), strict=True
    ):
        both = sums[bond.left.first + own], sums[bond.right.first + own]
        logs = sum(tabled.log2(np.maximum(side, 1)) for side in both)
        strength = np.where((both[0] > 0) & (both[1] > 0), (logs + (1 << 15)) >> 16, -1)
        strongest = strength.max()
        wanted = own[strength > strongest - distance] if strongest >= 0 else own[:1]
        assert left.tolist() == wanted.tolist()


def test_onchip_update_pull_is_two_rounded_products_of_18_bits():
    layout = make_layout(NETWORK, EXPONENTS, BIAS_EXPONENTS)
    random = np.random.default_rng(3)
    pulls = prior.Pulls(
        random.integers(128, 256, layout.columns), random.integers(-30, -8, layout.columns)
    )
    pulls.coefficients[0] = 0
    weights = make_state().weights
    weights = np.where(random.random(weights.shape) < 0.3, -1, weights)
    pull = pull_of(layout, weights, pulls, EXPONENT_LIST).ravel()
    for n, part in enumerate(layout.parts):
        for at in part.places.tolist():
            total = 0
            for column in layout.column_of[:, at].tolist():
                shift = EXPONENT_LIST[n] - int(pulls.exponents[column])
                coefficient = int(pulls.coefficients[column])
                if shift < 0:
                    coefficient = min(coefficient << min(-shift, 16), (1 << 15) - 1)
                product = Fraction(int(weights.ravel()[at]) * coefficient, 1 << max(shift, 0))
                rounded = (product + Fraction(1, 2)).__floor__()
                total += min(max(rounded, -(1 << 17)), (1 << 17) - 1)
            assert pull[at] == total


def test_onchip_update_coefficient_serves_eight_steps():
    state = make_state()
    state.step(gradients(state), EXPONENT_LIST, replace(STEP, number=16))
    first = state.pulls
    assert first.coefficients.any()
    for number in range(17, 24):
        state.step(gradients(state, number), EXPONENT_LIST, replace(STEP, number=number))
        assert state.pulls is first
    state.step(gradients(state), EXPONENT_LIST, replace(STEP, number=24))
    assert state.pulls is not first
    assert state.pulls.coefficients.tolist() != first.coefficients.tolist()


def weaken(state, bond, column, by):
    """Divide a column by 2^by on both sides."""
    for side in (bond.left, bond.right):
        mask = np.isin(state.layout.column_of, side.first + column).any(0).reshape(-1, LANES)
        state.weights = np.where(mask, state.weights >> by, state.weights)


def test_columns_twelve_powers_of_two_below_the_strongest_are_cut():
    assert [prior.cut_distance(t) for t in (0.02, 0.5, 0.25, 0.01)] == [12, 2, 4, 14]
    for distance in (5, 12):
        state = make_state()
        bond = state.layout.bonds[1]
        weaken(state, bond, 2, 2)
        sums = prior.sums_of_squares(state.layout, state.weights)
        strength = [
            log2(sums[bond.left.first + n] * sums[bond.right.first + n])
            for n in range(bond.left.columns)
        ]
        wanted = [
            n for n, s in enumerate(strength)
            if round(s) > max(map(round, strength)) - distance
        ]  # fmt: skip
        state.cut(distance)
        assert state.kept[1].tolist() == wanted
        assert (distance == 5) == (2 not in wanted)


def test_onchip_update_column_at_the_distance_is_cut_and_one_above_stays():
    layout = make_state().layout
    bond, kept = layout.bonds[0], [np.arange(b.left.columns) for b in layout.bonds]
    sums = np.ones(layout.columns, np.int64)
    sums[bond.left.first :][:4] = 1 << np.array([20, 9, 8, 7])
    columns = kept_columns(layout, sums, kept, 12)[0].tolist()
    assert columns == [0, 1]
    sums[bond.right.first + 2] = 2  # the other side counts as much
    assert kept_columns(layout, sums, kept, 12)[0].tolist() == [0, 1, 2]


def test_onchip_update_column_of_zeros_goes_and_the_last_column_stays():
    state = make_state()
    weaken(state, state.layout.bonds[2], 1, 12)
    state.weights = np.where(state.weights == -1, 0, state.weights)
    assert state.cut(12) and state.kept[2].tolist() == [0, 2]
    state.weights[:] = 0
    assert state.cut(12) and [len(k) for k in state.kept] == [1, 1, 1]


def test_onchip_update_cut_zeroes_weights_and_moments_and_frees_the_ranks():
    state = make_state()
    state.step(gradients(state), EXPONENT_LIST, STEP)
    weaken(state, state.layout.bonds[0], 3, 9)
    before = state.quantised()
    assert state.cut(12) and state.ranks == [[3, 3], [3]]
    gone = np.isin(
        state.layout.column_of,
        [state.layout.bonds[0].left.first + 3, state.layout.bonds[0].right.first + 3],
    ).any(0).reshape(-1, LANES)  # fmt: skip
    assert not state.weights[gone].any() and not state.moments[gone].any()
    assert state.moments[~gone].any()
    assert state.quantised()[0].tolist() == before[0][..., :3].tolist()
    assert state.quantised()[1].tolist() == before[1][:3].tolist()
    assert not state.cut(12)


def test_costs_follow_the_ranks_that_are_left():
    state = make_state()
    for kept in ([4, 3, 3], [2, 3, 3], [4, 1, 2]):
        state.kept = [np.arange(n) for n in kept]
        state.compiled = state.kept
        factors = [torch.from_numpy(q) for q in state.quantised() if q.ndim == 4]
        pairs = [(0, 1), (1, 2), (3, 4)]
        wanted = [column_cost(factors[a], factors[b]) for a, b in pairs]
        assert prior.column_costs(state.layout, state.kept).tolist() == wanted


def test_onchip_update_cut_leaves_other_columns_unchanged():
    """Compare columns as zeros of a whole network and as ranks of a cut network."""
    whole, cut = make_state(), make_state()
    weaken(whole, whole.layout.bonds[1], 0, 11)
    cut.weights = whole.weights.copy()
    assert cut.cut(12)
    mask = np.isin(whole.layout.column_of, [
        side.first for side in (whole.layout.bonds[1].left, whole.layout.bonds[1].right)
    ]).any(0).reshape(-1, LANES)  # fmt: skip
    whole.weights = np.where(mask, 0, whole.weights)
    step = replace(STEP, entry=replace(ENTRY, weight=0))
    for number in range(4):
        given = gradients(cut, number)
        filled = []
        positions = cut._positions(cut.compiled)
        for part, live, g in zip(cut.layout.parts, positions, given, strict=True):
            flat = np.zeros(part.size, np.int64)
            flat[live] = g
            filled.append(flat.reshape(part.shape))
        cut.step(given, EXPONENT_LIST, replace(step, number=number))
        whole.step(filled, EXPONENT_LIST, replace(step, number=number))
    assert (cut.weights == whole.weights).all() and (cut.moments == whole.moments).all()


def test_onchip_update_state_is_twenty_bits_and_comes_back():
    state = make_state()
    for number in range(5):
        state.step(gradients(state, number), EXPONENT_LIST, replace(STEP, number=number))
    weaken(state, state.layout.bonds[0], 1, 9)
    state.cut(12)
    arrays = state.to_arrays()
    for part in state.layout.parts:
        q = arrays["factors"].ravel()[part.places]
        assert q.min() >= -(1 << (part.width - 1)) and q.max() < 1 << (part.width - 1)
    assert arrays["state"].dtype == np.uint16
    back = ChipState.from_arrays(state.layout, arrays)
    for number in range(5, 18):
        given = gradients(state, number)
        for copy in (state, back):
            copy.step(given, EXPONENT_LIST, replace(STEP, number=number))
    ours, theirs = state.to_arrays(), back.to_arrays()
    assert ours.keys() == theirs.keys()
    assert all((ours[name] == theirs[name]).all() for name in ours)
    with pytest.raises(ValueError, match="state of"):
        ChipState.from_arrays(state.layout, {**arrays, "state": arrays["state"][1:]})


def optimised(optimiser, steps=6):
    """Train a network of one factor's shape by torch's optimiser, and by the state."""
    torch.manual_seed(0)
    parameters = [torch.nn.Parameter(torch.randn(shape) * 0.2) for shape in ((5, 7), (3, 2, 4))]
    lr = 11 / 32 if optimiser == "esgd" else 11 / 4
    integer = IntegerSGD(parameters, lr=lr, optimiser=optimiser, seed=77)
    return parameters, integer, steps


@pytest.mark.parametrize("optimiser", ["esgd", "momentum"])
def test_onchip_update_optimiser_of_torch_is_the_twin_of_the_state(optimiser):
    parameters, ours, steps = optimised(optimiser)
    random = np.random.default_rng(5)
    given = [[random.normal(size=tuple(p.shape)) * 1e-3 for p in parameters] for _ in range(steps)]
    entry = Entry(11, 5 if optimiser == "esgd" else 2)
    rows = [-(-p.numel() // LANES) for p in parameters]
    for number in range(steps):
        for p, g in zip(parameters, given[number], strict=True):
            p.grad = torch.from_numpy(g).to(torch.float32)
        before = [dict(ours.state[p]) for p in parameters]
        ours.step()
        if number == 0:
            continue  # the first step chooses the exponents
        for n, (p, was) in enumerate(zip(parameters, before, strict=True)):
            now = ours.state[p]
            e = was["gradient_exponent"]
            g = (p.grad.double() * 2.0**-e).round().clamp(-32768, 32767).to(torch.int64)
            first = sum(rows[:n])
            for k in range(p.numel()):
                row, lane = first + k // LANES, k % LANES
                bits = [
                    int(
                        unit_bytes(mixed(77 + (2 * number + q) * 0x9E3779B9, [16 * row]), 16)[
                            0, lane
                        ]
                    )
                    for q in range(2)
                ]
                m = int(was["moments"].ravel()[k])
                by = e - was["moment_exponent"]
                m = min(max(round(Fraction(m) / Fraction(2) ** by), -128), 127)
                m = min(max(m + stochastic(int(g.ravel()[k]) - 16 * m, 8, bits[0]), -128), 127)
                shift = entry.rate_shift
                if optimiser == "momentum":
                    shift += was["exponent"] - 8 - e - 4
                w = int(was["weights"].ravel()[k]) - stochastic(
                    m * entry.rate, min(max(shift, 0), 31), bits[1]
                )
                w = min(max(w, -2048), 1792)
                assert int(now["moments"].ravel()[k]) == m and int(now["weights"].ravel()[k]) == w
                assert float(p.ravel()[k].detach()) == ((w + 128) >> 8) * 2.0 ** now["exponent"]


def test_onchip_update_optimiser_goes_on_from_its_state_dict():
    ends = []
    for interrupted in (False, True):
        parameters, optimiser, steps = optimised("esgd")
        random = np.random.default_rng(5)
        for number in range(steps):
            if interrupted and number == 3:
                stored = optimiser.state_dict()
                optimiser = IntegerSGD(parameters, lr=11 / 32, seed=77)
                optimiser.load_state_dict(stored)
            for p in parameters:
                p.grad = torch.from_numpy(random.normal(size=tuple(p.shape))).to(torch.float32)
            optimiser.step()
        ends.append([p.detach().clone() for p in parameters])
    assert all(torch.equal(a, b) for a, b in zip(*ends, strict=True))


def test_onchip_update_optimiser_learns_and_refuses_nonsense():
    torch.manual_seed(1)
    model = torch.nn.Linear(16, 4)
    x = torch.randn(256, 16)
    y = (x @ torch.randn(16, 4)).argmax(1)
    optimiser = IntegerSGD(model.parameters(), lr=2.0, width=6)
    for _ in range(100):
        optimiser.zero_grad()
        loss = optimiser.step(lambda: _backward(model, x, y))
    assert (model(x).argmax(1) == y).float().mean() > 0.85 and loss < 1
    for options in ({"lr": 8.0}, {"lr": -1.0}, {"width": 11}, {"optimiser": "adam"}, {"seed": -1}):
        with pytest.raises(ValueError, match=next(iter(options))):
            IntegerSGD(model.parameters(), **options)


def _backward(model, x, y):
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    return loss

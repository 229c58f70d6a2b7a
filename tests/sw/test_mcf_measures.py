"""Extremes, norms, variances and dimensions of multi-component floats against torch and mpmath."""

import math

import mpmath
import pytest
import torch
from folded import each

from trainwright import mcf

INF = math.inf
SHAPES = {"cube": (2, 3, 4), "empty": (0, 3), "number": (), "vector": (4,), "square": (3, 3)}
TIES = torch.tensor([[1.0, 3, 3], [2, 3, 1]], dtype=torch.float64)
GAPS = torch.tensor([[1.0, math.nan, 3], [2, 3, 1]], dtype=torch.float64)


def example(name):
    generator = torch.Generator().manual_seed(3)
    given = {"ties": TIES, "gaps": GAPS}
    if name in given:
        return given[name]
    return torch.randn(SHAPES[name], dtype=torch.float64, generator=generator)


def outcome(call, x):
    """Return the results of a call as float64 tensors, None where it is an error."""
    try:
        results = call(x)
    except (IndexError, RuntimeError, ValueError, TypeError):
        return None
    results = results if isinstance(results, tuple) else (results,)
    return [t.to_float64() if isinstance(t, mcf.MCTensor) else t for t in results]


CALLS = {
    f"{name}-{dim}-{keepdim}": lambda t, n=name, d=dim, k=keepdim: getattr(t, n)(dim=d, keepdim=k)
    for name in ("max", "min", "amax", "amin", "argmax", "argmin", "var", "std", "sum", "mean")
    for dim in (0, -1, 1, 5)
    for keepdim in (False, True)
}
CALLS |= {
    f"{name}-{dim}": lambda t, n=name, d=dim: getattr(t, n)(dim=d)
    for name in ("amax", "amin", "var", "std", "sum")
    for dim in ((0,), (0, -1), (0, 1), (-1, -1))
}
CALLS |= {name: lambda t, n=name: getattr(t, n)() for name in ("max", "argmin", "std", "norm", "t")}
CALLS |= {
    f"norm {p}": lambda t, p=p: (t.norm(p), torch.linalg.vector_norm(t, p, 0, True))
    for p in (0, 1, 2, INF, -INF)
}
CALLS |= {
    "pairs": lambda t: torch.max(t, -t),
    "biased": lambda t: torch.var(t, False),
    "frobenius": lambda t: torch.linalg.norm(t, "fro", (0, 1)),
    "second order of more than a vector": lambda t: torch.linalg.norm(t[None, None, None], 2),
    "correction": lambda t: torch.std(t, 0, correction=2),
    "tril": torch.tril,
    "triu": lambda t: t.triu(1),
    "cat": lambda t: torch.cat([t, t], 2),
    "cat from the end": lambda t: torch.cat([t, t], -4),
    "stack": lambda t: torch.stack([t, t], 4),
    "expand": lambda t: t.expand(-1, *t.shape),
}


@pytest.mark.parametrize("name", [*SHAPES, "ties", "gaps"])
@each("call", CALLS)
@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_mcf_measure_of_any_shape_and_dimension_is_torchs(name, call):
    plain = example(name)
    wanted, got = (outcome(CALLS[call], x) for x in (plain, mcf.tensor(plain, nc=2)))
    if wanted is None:
        assert got is None
        return
    assert got is not None
    for ours, theirs in zip(got, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-13, equal_nan=True)


def test_mcf_extremes_of_numbers_with_equal_leads_see_lower_components():
    x = mcf.tensor(["1", "1.00000000000000000001", "1.00000000000000000002"], nc=2)
    assert (x.argmax().item(), x.argmin().item(), x.max(0).indices.item()) == (2, 0, 2)
    assert (x.max() - x[2]).exact_item() == 0


@pytest.mark.parametrize("scale", [0, 900, -900])
def test_mcf_norm_variance_and_determinant_have_all_components(scale):
    x = mcf.tensor([["1", "0.7", "3.3"], ["2.1", "-5", "0.1"], ["0.3", "4", "9"]], nc=2,
                   dtype=torch.float64) * 2.0**scale  # fmt: skip
    with mpmath.workprec(400):
        rows = [[mpmath.mpf(f.numerator) / f.denominator for f in row] for row in x.fractions()]
        values = [value for row in rows for value in row]
        mean = mpmath.fsum(values) / 9
        variance = mpmath.fsum((value - mean) ** 2 for value in values) / 8
        wanted = {
            x.norm(): mpmath.norm(values, 2),
            x.std(): mpmath.sqrt(variance),
            torch.slogdet(x).logabsdet: mpmath.log(abs(mpmath.det(mpmath.matrix(rows)))),
        }
        if not scale:
            wanted[x.var()] = variance
        for got, value in wanted.items():
            exact = got.exact_item()
            error = abs(mpmath.mpf(exact.numerator) / exact.denominator - value)
            assert error <= abs(value) * mpmath.mpf(2) ** -102


@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 2), (2, 5), (0, 3), (2, 0, 0)])
def test_mcf_pseudoinverse_and_sign_are_torchs(shape):
    plain = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    x = mcf.tensor(plain, nc=2)
    torch.testing.assert_close(torch.linalg.pinv(x).to_float64(), torch.linalg.pinv(plain))
    if shape[-1] == shape[-2]:
        ours, theirs = torch.slogdet(x), torch.slogdet(plain)
        torch.testing.assert_close(ours.sign.to_float64(), theirs.sign)
        torch.testing.assert_close(ours.logabsdet.to_float64(), theirs.logabsdet)


def test_mcf_pseudoinverse_omits_values_below_its_tolerances():
    plain = torch.diag(torch.tensor([4.0, 1.0, 0.01], dtype=torch.float64))
    x = mcf.tensor(plain, nc=2)
    for options in ({"rtol": 0.1}, {"atol": 0.5}, {"rtol": 0.001, "atol": 2.0}, {}):
        got = torch.linalg.pinv(x, **options).to_float64()
        torch.testing.assert_close(got, torch.linalg.pinv(plain, **options))


MEASURES = [
    torch.max, torch.norm, torch.var, lambda t: t.max(0).values, lambda t: t.amin(-1).sum(),
    lambda t: torch.slogdet(t @ t.mT + 1)[1], lambda t: torch.linalg.pinv(t).sum(),
]  # fmt: skip


@pytest.mark.parametrize("measure", MEASURES)
def test_mcf_measure_gradients_are_those_of_plain_tensors(measure):
    plain = (TIES + 0.25).requires_grad_()
    ours = mcf.tensor(plain.detach(), nc=2).requires_grad_()
    for x in (plain, ours):
        measure(x).sum().backward()
    torch.testing.assert_close(ours.grad, plain.grad)


@pytest.mark.parametrize("name", ["inv", "det", "cholesky", "svdvals", "norm", "pinv"])
def test_mcf_function_with_out_is_refused_and_writes_nothing(name):
    x, out = mcf.tensor(torch.eye(3), nc=2), torch.full((3, 3), 7.0)
    with pytest.raises(TypeError, match="of MCTensor: 'out' is not supported"):
        getattr(torch.linalg, name)(x, out=out)
    assert bool((out == 7).all())


@pytest.mark.parametrize("name", ["sum", "mean", "norm", "softmax"])
def test_mcf_reduction_to_its_own_type_is_the_reduction(name):
    x, own = mcf.tensor(["0.1", "0.2"]), {"dtype": torch.float32}
    run = getattr(torch, name) if name != "softmax" else lambda x, **how: torch.softmax(x, 0, **how)
    assert torch.equal(run(x, **own), run(x))
    with pytest.raises(TypeError, match="keeps its type"):
        run(x, dtype=torch.float64)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 0, 0)])
def test_mcf_pinv_of_an_empty_matrix_stays_in_the_graph(shape):
    x = mcf.tensor(torch.zeros(shape, dtype=torch.float64), nc=2, requires_grad=True)
    torch.linalg.pinv(x).sum().backward()
    assert x.grad.shape == shape

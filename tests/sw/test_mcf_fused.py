"""Fused expressions: the bits, the derivatives and the errors of the function itself."""

import random

import pytest
import torch

from trainwright import mcf

KINDS = [(torch.float32, 2), (torch.float32, 3), (torch.float32, 4), (torch.float64, 2),
         (torch.float64, 3)]  # fmt: skip


def drawn(shape, dtype, nc, seed=0):
    generator = torch.Generator().manual_seed(seed)
    parts = torch.randn(*shape, nc, generator=generator, dtype=torch.float64)
    scale = 2.0 ** -(24 if dtype is torch.float32 else 53)
    return mcf.MCTensor.from_components((parts * scale ** torch.arange(nc)).to(dtype))


def expression(rng, depth):
    """Draw the text of an expression of a, b, c, a plain p, a row r, a scalar s and numbers."""
    if depth == 0:
        return rng.choice(("a", "b", "c", "a", "b", "p", "r", "s", "2", "0.1"))
    left, right = expression(rng, depth - 1), expression(rng, rng.randrange(depth))
    return rng.choice((f"({left} + {right})", f"({left} - {right})", f"({left} * {right})",
                       f"({left} / {right})", f"(-{left})"))  # fmt: skip


@pytest.mark.parametrize(("dtype", "nc"), KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_fused_random_expression_has_bits_of_function(dtype, nc, seed):
    rng = random.Random(f"{dtype} {nc} {seed}")
    # Blocks have 256 elements: a part of one, whole ones, and a rest.
    shape = rng.choice(((5,), (3, 256), (1, 700), (2, 3, 129)))
    a, b, c = (drawn(shape, dtype, nc, seed=3 * seed + n) for n in range(3))
    values = {
        "p": torch.randn(shape, dtype=dtype), "r": drawn(shape[-1:], dtype, nc, seed=9),
        "s": drawn((), dtype, nc, seed=10),
    }  # fmt: skip
    for depth in (1, 2, 3):
        text = f"{expression(rng, depth)} * a"
        function = eval(f"lambda a, b, c, p, r, s: {text}")
        wanted = function(a, b, c, **values)
        computed = mcf.fused(function)(a, b, c, *values.values())
        assert computed.shape == wanted.shape and computed.nc == nc
        same = torch.equal(computed.components.nan_to_num(7), wanted.components.nan_to_num(7))
        assert same, text


@pytest.mark.parametrize(("dtype", "nc"), KINDS[:4:3])
def test_fused_near_ends_of_range_has_bits_of_function(dtype, nc):
    top, least = torch.finfo(dtype).max, torch.finfo(dtype).tiny
    x = mcf.tensor(
        torch.tensor([0.0, -0.0, top, -top / 3, least, least / 8, torch.inf, torch.nan, 1.5] * 40,
                     dtype=dtype), nc=nc,
    )  # fmt: skip
    y = x.flip(0)
    for function in (lambda a, b: a / b - b, lambda a, b: (a + b) * a, lambda a, b: 1 / (a * b)):
        wanted, computed = function(x, y), mcf.fused(function)(x, y)
        bits = f"int{8 * dtype.itemsize}"
        whole, other = (z.components.nan_to_num(nan=7, posinf=torch.inf, neginf=-torch.inf)
                        for z in (wanted, computed))  # fmt: skip
        assert torch.equal(whole.view(getattr(torch, bits)), other.view(getattr(torch, bits)))


def test_fused_reads_strided_operands_and_writes_new_memory():
    a = drawn((40, 30), torch.float32, 2)
    function = mcf.fused(lambda x, y: x * y + x)
    wanted = a.T * a.T[:1] + a.T
    assert torch.equal(function(a.T, a.T[:1]).components, wanted.components)
    assert function(a[:0], a[:1]).shape == (0, 30)


def test_fused_gradients_equal_those_of_function():
    def function(a, b, weight):
        return (a * b - 2) / (b + 3) * weight

    grads = []
    for call in (function, mcf.fused(function)):
        a, b = (drawn((7,), torch.float64, 2, seed=n).requires_grad_() for n in (1, 2))
        weight = torch.arange(7, dtype=torch.float64, requires_grad=True)
        call(a, b, weight).sum().backward()
        grads.append([a.grad, b.grad, weight.grad])
    for wanted, computed in zip(*grads, strict=True):
        assert torch.equal(wanted, computed) and wanted.any()


def test_fused_gradients_of_numbers_alone_equal_those_of_function():
    x = drawn((4,), torch.float64, 2).requires_grad_()
    mcf.fused(lambda a: a * a + a)(x).sum().backward()
    assert torch.equal(x.grad, 2 * x.fc + 1)


def test_fused_records_plain_tensors_that_the_function_closes_over():
    weight = torch.ones(4, requires_grad=True)
    x = drawn((4,), torch.float32, 2)
    mcf.fused(lambda a: weight * a + weight)(x).sum().backward()
    assert torch.equal(weight.grad, x.fc + 1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: drawn((5,), torch.float32, 5),
        lambda: mcf.tensor(torch.randn(5).half(), nc=2),
        lambda: mcf.tensor(torch.randn(5), nc=1),
        lambda: torch.randn(5),
    ],
)
def test_fused_without_kernels_calls_function(make):
    x = make()

    def function(a, b):
        return a * b + 1

    wanted, computed = function(x, x), mcf.fused(function)(x, x)
    assert type(computed) is type(wanted)
    assert torch.equal(torch.as_tensor(computed.fc if hasattr(x, "fc") else computed),
                       wanted.fc if hasattr(x, "fc") else wanted)  # fmt: skip


def test_fused_long_or_unused_expressions_have_bits_of_function():
    a, b = drawn((300,), torch.float32, 2, 1), drawn((2, 300), torch.float32, 2, 2)

    def long(x, y):
        for _ in range(20):
            x = x * x + x
        return x

    def unused(x, y):
        _ = x + y
        return -x

    for function in (long, unused, lambda x, y: y, lambda x, y: 4):
        wanted, computed = function(a, b), mcf.fused(function)(a, b)
        if isinstance(wanted, int):
            assert computed == 4
            continue
        assert torch.equal(wanted.components.nan_to_num(), computed.components.nan_to_num())


def test_fused_of_unknown_operations_and_shapes_is_refused():
    a = drawn((3,), torch.float32, 2)
    with pytest.raises(TypeError, match="each MCTensor as an argument"):
        mcf.fused(lambda x: x * a)(a)
    for function in (torch.exp, lambda x: x.exp(), lambda x: x**2, lambda x: x * (x == 0)):
        with pytest.raises(TypeError, match=r"uses \+ - \* / and negation"):
            mcf.fused(function)(a)
    with pytest.raises(ValueError, match=r"\(3,\) and \(4,\)"):
        mcf.fused(lambda x, y: x + y)(a, drawn((4,), torch.float32, 2))
    with pytest.raises(ValueError, match="2 and 3 components"):
        mcf.fused(lambda x, y: x + y)(a, drawn((3,), torch.float32, 3))
    with pytest.raises(ValueError, match="do not mix"):
        mcf.fused(lambda x, y: x + y)(a, torch.ones(3, dtype=torch.float64))

"""Exponents of what is added: within reach of each other, from the start."""

import pytest
from graph_shifts import bind

from trainwright.fixed.scale import TensorClass
from trainwright.formats import Fixed
from trainwright.graph.ir import Einsum, Graph, Kernel, Tensor
from trainwright.program.elementwise import MASK, SUM


def graph(*ops):
    names = {name for op in ops for name in (op.out, *op.operands)}
    tensors = {n: Tensor(n, ("s",), TensorClass.ACTIVATION, Fixed(8)) for n in names}
    outputs = {op.out for op in ops}
    return Graph({"s": 2}, tensors, ops, tuple(names - outputs), (ops[-1].out,))


def added(out, x, y):
    return Kernel(out, (x, y), SUM)


def test_align_moves_host_tensor_near_its_sum():
    binding = bind(graph(added("z", "x", "b")), {}, {"x": -4, "b": -30}, most_alignment=15)
    assert binding.exponents == {"x": -4, "b": -19, "z": -19}
    assert (binding.shifts["z"].x, binding.shifts["z"].y) == (15, 0)


def test_align_bias_far_above_its_sum_keeps_its_exponent():
    # Made finer, it would saturate: a layer whose weights decay would lose its bias.
    ops = Einsum("p", ("x", "x")), added("z", "p", "b")
    binding = bind(graph(*ops), {"p": -30, "z": -8}, {"x": -15, "b": -8}, most_alignment=15)
    assert binding.exponents == {"x": -15, "b": -8, "p": -23, "z": -8}
    assert (binding.shifts["z"].x, binding.shifts["z"].y) == (0, 15)


def test_align_bias_added_twice_is_moved_before_it_is_first_added():
    given = {"x": -4, "y": 6, "b": -30}
    binding = bind(graph(added("z", "x", "b"), added("w", "y", "b")), {}, given, most_alignment=15)
    assert binding.exponents["b"] == -9
    assert (binding.shifts["z"].x, binding.shifts["z"].y) == (5, 0)
    assert (binding.shifts["w"].x, binding.shifts["w"].y) == (15, 0)


def test_align_finer_of_two_is_made_coarser():
    mask = Kernel("m", ("p", "x"), MASK)
    ops = Einsum("p", ("x", "x")), mask, Einsum("q", ("y", "y")), added("z", "q", "m")
    binding = bind(graph(*ops), {}, {"x": -20, "y": -2}, most_alignment=15)
    assert binding.exponents["p"] == binding.exponents["m"] == -19
    assert binding.exponents["q"] == -4
    assert binding.shifts["p"].result == 21
    assert (binding.shifts["z"].x, binding.shifts["z"].y) == (15, 0)


def test_align_names_tensor_that_cannot_be_near_both():
    with pytest.raises(ValueError, match="b is added to values that are more than 15 bits away"):
        bind(
            graph(added("z", "x", "b"), added("w", "y", "b")),
            {},
            {"x": 0, "y": 40, "b": 0},
            most_alignment=15,
        )

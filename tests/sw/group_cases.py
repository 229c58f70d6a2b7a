"""Hand-built graphs of kernels over groups, run and compared with their own values."""

import random
from math import prod

import numpy as np
from graph_cases import random_words, settled
from graph_runner import Runner

from trainwright.compiler.step.compile import compile_graph, order_cost
from trainwright.fixed.scale import TensorClass
from trainwright.formats import Fixed
from trainwright.functions import function_of
from trainwright.graph.differentiate import differentiate
from trainwright.graph.ir import Einsum, Graph, Kernel, Tensor
from trainwright.graph.order import ordered
from trainwright.graph.step import split
from trainwright.parameters import AcceleratorParameters

ENGINE = AcceleratorParameters(vector_engine=1)


def softmax(group, scale=1.0):
    """Return softmax over groups of a size."""
    return function_of(f"softmax({scale})").sized(group)


def layer_norm(group):
    """Return LayerNorm over groups of a size."""
    return function_of("layer_norm").sized(group)


def between(function, sizes, over, kept, width=16, result=8):
    """Build a step of a kernel between two contractions: z = A x, y = f(z), w = B y.

    ``sizes`` give the axes of z, in order.
    """
    axes = tuple(sizes)
    every = {**sizes, "i": 5, "o": 6}
    first = kept if kept in axes else axes[0]
    tensors = {
        "A": Tensor("A", ("i", first), TensorClass.INTERMEDIATE, Fixed(4)),
        "x": Tensor("x", ("i", *axes), TensorClass.ACTIVATION, Fixed(8)),
        "z": Tensor("z", axes, TensorClass.INTERMEDIATE, Fixed(width)),
        "y": Tensor("y", axes, TensorClass.ACTIVATION, Fixed(result)),
        "B": Tensor("B", ("o", first), TensorClass.INTERMEDIATE, Fixed(4)),
        "w": Tensor("w", ("o", *(a for a in axes if a != first)), TensorClass.INTERMEDIATE,
                    Fixed(16)),
    }  # fmt: skip
    f = function
    ops = (
        Einsum("z", ("A", "x")),
        Kernel("y", ("z",), f.forward, f, over=over),
        Einsum("w", ("B", "y")),
    )
    forward = Graph(every, tensors, ops, ("A", "x", "B"), ("w",))
    like = Tensor("dw", (), TensorClass.GRADIENT, Fixed(16))
    backward = differentiate(forward, {"w": "dw"}, ("A", "B"), like)
    whole = Graph(every, backward.tensors, (*forward.ops, *backward.ops),
                  (*forward.given, "dw"), ("w", *backward.results))  # fmt: skip
    return split(whole, ("w",), backward.results)


def compiled(step, p):
    """Compile a step of a hand-built graph."""
    cost = order_cost(p)
    orders = [
        ordered(step.whole, site, cost=cost, most=1, word=16, accumulator=p.accumulator_width)[0]
        for site in step.sites.values()
    ]
    return compile_graph(step.ordered(orders), p)


def require_exact(step, accelerator, seed=0):
    """Run a step; require that words and statistics are those of its graph."""
    words = random_words(step.graph.whole, seed)
    exponents = dict.fromkeys(words, -4)
    ahead, words, every = settled(step.forward.lowered.graph, words, exponents)
    behind, words, _ = settled(step.backward.lowered.graph, words, every)
    programs = step.forward, step.backward
    results = {op.out for program in programs for op in program.lowered.graph.ops}
    given = {name: value for name, value in words.items() if name not in results}
    runner = Runner(step, accelerator)
    forward = runner.run(step.forward, given, exponents, ahead)
    between = {**exponents, **forward.binding.exponents}
    backward = runner.run(step.backward, given, between, behind)
    for ran in (forward, backward):
        assert ran.words
        for name, value in ran.words.items():
            np.testing.assert_array_equal(value, words[name], err_msg=name)
        for name, counted in ran.counted.items():
            assert counted.total == np.abs(words[name]).sum(), name
    return forward, backward


CASES = {
    "softmax of keys in rows": (softmax(7, 0.5), {"h": 3, "t": 7, "s": 32}, ("t",)),
    "softmax of keys in lanes": (softmax(40), {"h": 9, "s": 5, "t": 40}, ("t",)),
    "softmax of odd queries": (softmax(6), {"t": 6, "h": 8, "s": 21}, ("t",)),
    "norm of tokens in lanes": (layer_norm(60), {"j": 12, "k": 5, "s": 17}, ("j", "k")),
    "softmax of groups in short rows": (softmax(297), {"a": 33, "b": 9, "s": 1}, ("a", "b")),
    "norm of tokens in rows": (layer_norm(24), {"s": 16, "j": 24}, ("j",)),
}


def random_case(seed):
    """Draw a function, the sizes of its axes, and the axes of a group."""
    draw = random.Random(f"groups {seed}")
    names = ["a", "b", "s"][-draw.choice((2, 3)) :]
    sizes = {name: draw.choice((1, 2, 3, 5, 8, 9, 16, 17, 20, 33)) for name in names}
    while prod(sizes.values()) > 6000:
        sizes[draw.choice(names)] = 3
    over = tuple(name for name in names if draw.random() < 0.5) or (draw.choice(names),)
    over = over[:-1] if len(over) == len(names) else over
    group = prod(sizes[name] for name in over)
    function = layer_norm(group) if draw.random() < 0.5 else softmax(group, draw.choice((1, 0.3)))
    widths = {"width": draw.choice((8, 16)), "result": draw.choice((8, 8, 12, 16))}
    return between(function, sizes, over, draw.choice(names), **widths)

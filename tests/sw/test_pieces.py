"""Pieces of tensors as they are asked for: what is padded, loaded again, and transposed whole."""

import pytest

from trainwright.compiler.forms.calls import Clear, Move, Transpose
from trainwright.compiler.forms.external import External
from trainwright.compiler.forms.layout import Layout
from trainwright.compiler.tile.demands import Demands
from trainwright.compiler.tile.pieces import Pieces
from trainwright.fixed.scale import TensorClass
from trainwright.formats import Fixed
from trainwright.graph.ir import Graph, Slide, Tensor, Unfold
from trainwright.parameters import AcceleratorParameters

LANES = 4
P = AcceleratorParameters(lanes=LANES, pe1_rows=2, pe2_rows=2)


def pieces(sizes, axes, layout=None, *ops):
    """Return pieces of a tensor ``t``, and of its windows if there are ``ops``."""
    kind = TensorClass.ACTIVATION, Fixed(8)
    tensors = {"t": Tensor("t", axes, *kind)}
    tensors |= {op.out: Tensor(op.out, WINDOW_AXES, *kind) for op in ops}
    graph = Graph(sizes, tensors, ops, ("t",), ())
    sources = (External.of(graph, "t", layout, {}, LANES),) if layout else ()
    return Pieces(graph, {"t": sources}, Demands(graph, LANES), P, spare=True)


def test_padding_that_another_reader_needs_comes_with_the_first_load():
    """Also for an index that takes whole rows by itself."""
    stage = pieces({"a": 8, "b": 3, "l": 4}, ("a", "b", "l"))
    stage.demands.padding["t", ("l",)] = ("b",)
    first = stage.obtain("t", ("l",), {}, ("a",))
    assert first.layout.padded == ("b",) and first.rows == 8 * LANES
    assert stage.obtain("t", ("l",), {}, ("b",)) is first
    (call,) = stage.calls
    assert isinstance(call, Move) and call.writes[0].piece is first


WINDOW_AXES = ("n", "p", "k", "l")


@pytest.mark.parametrize(("n", "pad", "lines"), [(3, False, 3), (3, True, 4), (4, True, 4)])
def test_windows_have_rows_of_zeros_only_where_they_are_to(n, pad, lines):
    window = Unfold("w", "t", (Slide("h", "p", "k", 1, 1, -1),))
    sizes = {"n": n, "h": 5, "p": 5, "k": 3, "l": 4}
    stage = pieces(sizes, ("n", "h", "l"), None, window)
    piece = stage.obtain("w", ("l",), {}, ("n",), pad=pad)
    assert piece.storage.rows == lines * (5 + 2)  # a place of zeros on both sides
    assert [type(call) for call in stage.calls] == [Clear, Move]
    assert stage.outer["zeros"].element_bytes == 1  # as it is read, see Emitter


@pytest.mark.parametrize(
    ("cut", "transposed"),
    [((4, 7), {"b": (4, 7)}), ((0, 3), {"b": (0, 3)}), ((3, 7), {})],
)
def test_pieces_cut_along_lanes_is_transposed_whole(cut, transposed):
    """Unless it starts at a first lane."""
    stage = pieces({"a": 8, "b": 7}, ("a", "b"), Layout(("a",), ("b",)))
    whole = stage.obtain("t", ("b",), {})
    piece = stage.obtain("t", ("a",), {"b": cut})
    assert piece.ranges == transposed and piece.covers({"b": cut})
    call = stage.calls[-1]
    assert isinstance(call, Transpose) and call.reads[1].piece is whole and call.reads[1].is_even

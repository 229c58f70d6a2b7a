"""Bi-directional contraction: T(u, k, q) = Right X, then Y = Left T, slice by slice.

PE1's array and PE2's share the samples of T; PE2's makes Y of a slice while T of the next is made.
"""

from itertools import accumulate

from ttforge.compiler.blocks import Block
from ttforge.compiler.builder import Written
from ttforge.compiler.gradients import row_major, store_strided
from ttforge.compiler.merged import Merged, Split
from ttforge.compiler.plans import ForwardBidirectional
from ttforge.compiler.workspace import Operand, Workspace
from ttforge.fixed.scale import TensorClass


def turned_left(
    w: Workspace, split: Split, left: Operand, *, at: int | None = None, spare: int = 0
) -> Operand:
    """Left as (u, k, p/)."""
    lanes, name = w.p.lanes, split.name("left_p")
    sizes = {"u": split.u, "k": split.k, "p_": -(-split.p // lanes)}
    return w.turn(left, name, rows="k", entries="p", at=at, spare=spare, **sizes)


def middle(split: Split) -> str:
    """Name of T; forward stores it, backward loads it."""
    return split.name("t")


def places(split: Split, plan: ForwardBidirectional, rows: int, lanes: int) -> dict[str, int]:
    """Where each tensor lies if there is room; ``rows`` of samples.

    What PE1 reads for T lies low, what PE2 reads high, and Left twice: so that few of what is read
    at the same time shares a bank.
    """
    outside = plan.dot_samples * split.layer.input_size
    slice_t = rows * split.u * split.k * plan.slice_q
    sizes = {
        "b": outside,
        "y": split.layer.output_size * rows,
        "right": split.k * split.q * split.v // lanes,
        "left_p": split.u * split.k * -(-split.p // lanes),
        "t0": slice_t,
        "right_t": split.k * split.v * split.q // lanes,
        "t1": slice_t,
        "a": split.layer.input_size * (rows - plan.dot_samples),
    }
    return dict(zip([*sizes, "left_high"], accumulate(sizes.values(), initial=0), strict=True))


class BidirectionalForward:
    """Emits the forward pass of a layer: ``prepare``, then ``multiply``.

    T is made by both arrays: PE1 takes the first rows of samples, PE2 the others.
    """

    def __init__(self, w: Workspace, split: Split, plan: ForwardBidirectional, merged: Merged, batch: int):
        self.w, self.split, self.plan, self.merged, self.batch = w, split, plan, merged, batch
        self.rows = -(-batch // w.p.lanes)
        self.tensor = w.written(
            middle(split),
            TensorClass.INTERMEDIATE,
            split.network.widths.intermediate,
            split.u * split.k * split.q * batch,
        )

    def prepare(self) -> None:
        """Turn Left and Right into the orders in which they are used."""
        w, split, lanes = self.w, self.split, self.w.p.lanes
        self.places = places(split, self.plan, self.rows, lanes)
        left = turned_left(w, split, self.merged.left, at=self.places["left_p"])
        self.merged.free(left=True)
        sizes = {"u": split.u, "k": split.k, "p_": left.block.size("p/")}
        high = w.block(left.name, at=self.places["left_high"], **sizes)
        self.lefts = w.copy(left, high, f"{left.name}.high"), left
        self.right_t: Operand | None = None
        if self.plan.dot_samples < self.rows:
            right = self.merged.right
            right = right.seen(right.block.part("k", 0, split.k))
            sizes = {"k": split.k, "v": split.v, "q_": split.q // lanes}
            name = split.name("right_t")
            self.right_t = w.turn(right, name, rows="v", entries="q", at=self.places["right_t"], **sizes)

    def multiply(self, a: Operand | None, b: Operand | None, y: Block, tensor: Written) -> None:
        """Y(j, s/) from X: ``a`` (i, s/) of PE2's samples, ``b`` (s, i/) of PE1's."""
        w, split, plan = self.w, self.split, self.plan
        slices = split.q // plan.slice_q
        sizes = {"s_": self.rows, "u": split.u, "k": split.k, "q": plan.slice_q}
        starts = self.places["t0"], self.places["t1"]
        buffers = [w.block(middle(split), at=at, **sizes) for at in starts[: min(2, slices)]]
        y = y.split("j", (("p", split.p), ("q", split.q)))
        for t in range(slices + 1):
            w.b.settle()
            before = (t - 1) * plan.slice_q
            if t:
                self._store(buffers[(t - 1) % 2], before)
                part = y.part("q", before, plan.slice_q)
                self._product(buffers[(t - 1) % 2], self.lefts[(t - 1) % 2], part, tensor)
            if t < slices:
                self._by_dot(b, buffers[t % 2], t * plan.slice_q)
                self._by_outer(a, buffers[t % 2], t * plan.slice_q)
        w.free(*buffers)

    def _macs(self, z: Block, samples: int) -> int:
        return self.split.u * self.split.k * z.size("q") * self.split.v * samples

    def _by_dot(self, b: Operand | None, z: Block, q: int) -> None:
        split, lanes, dots = self.split, self.w.p.lanes, self.plan.dot_samples
        if not b:
            return
        right = self.merged.right
        x = right.block.part("k", 0, split.k).part("q", q, z.size("q"))
        g = b.block.split("i/", (("u", split.u), ("v/", split.v // lanes)))
        self.w.dot(
            right.seen(x),
            b.seen(g),
            z.part("s/", 0, dots),
            self.tensor,
            rows="q",
            entries="s",
            summed=("v/",),
            macs=self._macs(z, min(self.batch, dots * lanes)),
        )

    def _by_outer(self, a: Operand | None, z: Block, q: int) -> None:
        split, lanes, first = self.split, self.w.p.lanes, self.plan.dot_samples
        if not a or not self.right_t:
            return
        self.w.outer(
            a.seen(a.block.split("i", (("u", split.u), ("v", split.v)))),
            self.right_t,
            z.part("s/", first, self.rows - first),
            self.tensor,
            rows="q",
            group=q // self.w.p.pe2_rows,
            summed=("v",),
            macs=self._macs(z, self.batch - min(self.batch, first * lanes)),
        )

    def _product(self, x: Block, left: Operand, z: Block, tensor: Written) -> None:
        split = self.split
        self.w.outer(
            Operand(x, self.tensor.name, self.tensor.width),
            left,
            z,
            tensor,
            rows="p",
            summed=("u", "k"),
            macs=split.p * split.u * split.k * z.size("q") * self.batch,
        )

    def _store(self, t: Block, q: int) -> None:
        """Store a slice of T, for the way back, where (s/, u, k, q) lie in rows."""
        split = self.split
        sizes = [("s/", self.rows), ("u", split.u), ("k", split.k), ("q", split.q)]
        store_strided(self.w, self.tensor.name, t, row_major(sizes), q)

    def free(self) -> None:
        """Give back what ``prepare`` made."""
        self.w.free(*(left.block for left in self.lefts))
        if self.right_t:
            self.w.free(self.right_t.block)
        self.merged.free(right=True)

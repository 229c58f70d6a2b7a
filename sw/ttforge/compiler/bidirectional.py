"""Bi-directional contraction: T(u, k, q) = Right X, then Y = Left T, slice by slice.

PE1's array and PE2's share the samples of T; PE2's makes Y of a slice while T of the next is made.
"""

from ttforge.compiler.blocks import Block
from ttforge.compiler.builder import Written
from ttforge.compiler.merged import Merged, Split
from ttforge.compiler.plans import ForwardBidirectional
from ttforge.compiler.workspace import Operand, Workspace
from ttforge.fixed.scale import TensorClass


def turned_left(w: Workspace, split: Split, left: Operand, *, bank: int, spare: int = 0) -> Operand:
    """Left as (u, k, p/)."""
    lanes, name = w.p.lanes, split.name("left_p")
    sizes = {"u": split.u, "k": split.k, "p_": -(-split.p // lanes)}
    return w.turn(left, name, rows="k", entries="p", bank=bank, spare=spare, **sizes)


class SharedT:
    """T(u, k, q, s/) = sum over v of Right(k, q, v) X(u, v, s), by both arrays or one."""

    def __init__(self, w: Workspace, split: Split, merged: Merged, batch: int, dot_samples: int):
        self.w, self.split, self.right = w, split, merged.right
        self.batch, self.dot_samples = batch, dot_samples
        self.rows = -(-batch // w.p.lanes)
        lanes, width = w.p.lanes, split.network.widths.intermediate
        self.tensor = w.written(
            split.name("t"),
            TensorClass.INTERMEDIATE,
            width,
            split.u * split.k * split.q * batch,
        )
        self.right_t: Operand | None = None
        if dot_samples < self.rows:
            right = self.right.seen(self.right.block.part("k", 0, split.k))
            sizes = {"k": split.k, "v": split.v, "q_": split.q // lanes}
            name = split.name("right_t")
            self.right_t = w.turn(right, name, rows="v", entries="q", bank=3, top=True, **sizes)

    def free(self) -> None:
        """Give back what was turned."""
        if self.right_t:
            self.w.free(self.right_t.block)

    def _macs(self, z: Block, samples: int) -> int:
        return z.size("u") * self.split.k * z.size("q") * self.split.v * samples

    def by_dot(self, b: Operand | None, z: Block, u: int, q: int) -> None:
        """PE1's share of a slice from (u, q), from X as (s, i/) with the samples of that share."""
        w, split, lanes = self.w, self.split, self.w.p.lanes
        if not self.dot_samples:
            return
        assert b is not None
        g = b.block.split("i/", (("u", split.u), ("v/", split.v // lanes)))
        x = self.right.block.part("k", 0, split.k).part("q", q, z.size("q"))
        w.dot(
            self.right.seen(x),
            b.seen(g.part("u", u, z.size("u"))),
            z.part("s/", 0, self.dot_samples),
            self.tensor,
            rows="q",
            entries="s",
            summed=("v/",),
            macs=self._macs(z, min(self.batch, self.dot_samples * lanes)),
        )

    def by_outer(self, a: Operand | None, z: Block, u: int, q: int) -> None:
        """PE2's share of a slice from (u, q), from X as (i, s/) with the samples of that share."""
        w, split, first = self.w, self.split, self.dot_samples
        if self.right_t is None:
            return
        assert a is not None
        x = a.block.split("i", (("u", split.u), ("v", split.v))).part("u", u, z.size("u"))
        w.outer(
            a.seen(x),
            self.right_t,
            z.part("s/", first, self.rows - first),
            self.tensor,
            rows="q",
            group=q // w.p.pe2_rows,
            summed=("v",),
            macs=self._macs(z, self.batch - min(self.batch, first * w.p.lanes)),
        )


class BidirectionalForward:
    """Emits the forward pass of a layer: ``prepare``, then ``multiply``."""

    def __init__(self, w: Workspace, split: Split, plan: ForwardBidirectional, merged: Merged, batch: int):
        self.w, self.split, self.plan, self.merged, self.batch = w, split, plan, merged, batch

    def prepare(self) -> None:
        """Turn Left and Right into the orders in which they are used."""
        self.left = turned_left(self.w, self.split, self.merged.left, bank=0)
        self.merged.free(left=True)
        self.t = SharedT(self.w, self.split, self.merged, self.batch, self.plan.dot_samples)

    def multiply(self, a: Operand | None, b: Operand | None, y: Block, tensor: Written) -> None:
        """Y(j, s/) from X, as ``a`` (i, s/) and, where PE1 makes some of T, as ``b`` (s, i/)."""
        w, split, plan = self.w, self.split, self.plan
        rows, slices = self.t.rows, split.q // plan.slice_q
        sizes = {"u": split.u, "k": split.k, "q": plan.slice_q, "s_": rows}
        buffers = [w.block(split.name("t"), top=True, **sizes) for _ in range(min(2, slices))]
        y = y.split("j", (("p", split.p), ("q", split.q)))
        for t in range(slices + 1):
            if t < slices:
                q = t * plan.slice_q
                self.t.by_dot(b, buffers[t % 2], 0, q)
                self.t.by_outer(a, buffers[t % 2], 0, q)
            if t:
                q = (t - 1) * plan.slice_q
                self._product(buffers[(t - 1) % 2], y.part("q", q, plan.slice_q), tensor)
        w.free(*buffers)

    def _product(self, x: Block, z: Block, tensor: Written) -> None:
        split = self.split
        self.w.outer(
            Operand(x, self.t.tensor.name, self.t.tensor.width),
            self.left,
            z,
            tensor,
            rows="p",
            summed=("u", "k"),
            macs=split.p * split.u * split.k * z.size("q") * self.batch,
        )

    def free(self) -> None:
        """Give back what ``prepare`` made."""
        self.t.free()
        self.w.free(self.left.block)
        self.merged.free(right=True)

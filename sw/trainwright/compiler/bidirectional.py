"""Bi-directional contraction: T(u, k, q) = Right X, then Y = Left T, slice by slice.

PE2's array makes Y of a slice while both make T of the next.
"""

from trainwright.compiler.blocks import Block
from trainwright.compiler.builder import Written
from trainwright.compiler.gradients import row_major, store_strided
from trainwright.compiler.merged import Merged, Split
from trainwright.compiler.plans import ForwardBidirectional
from trainwright.compiler.workspace import Operand, Workspace
from trainwright.fixed.scale import TensorClass

_TURNS = 3
"""Slices of T held at once, in banks 1 to 3: one is made, one read for Y, one stored."""


def transposed_left(
    w: Workspace,
    split: Split,
    left: Operand,
    *,
    bank: int | None = None,
    at: int | None = None,
    spare: int = 0,
) -> Operand:
    """Left as (u, k, p/)."""
    lanes, name = w.p.lanes, split.name("left_p")
    sizes = {"u": split.u, "k": split.k, "p_": -(-split.p // lanes)}
    return w.transpose(left, name, rows="k", entries="p", bank=bank, at=at, spare=spare, **sizes)


def middle(split: Split) -> str:
    """Name of T; forward stores it, backward loads it."""
    return split.name("t")


class BidirectionalForward:
    """Emits the forward pass of a layer: ``prepare``, then ``multiply``.

    T is made by both arrays: PE1 takes the first values of u, PE2 the others. What is read at the
    same time lies in different banks: X for PE1 in bank 0; in banks 1 to 3, alternating, T for Y,
    Left for Y, and T to be stored with Right for PE1, which are read at half the speed. So Left and
    Right lie there three times.
    """

    def __init__(
        self, w: Workspace, split: Split, plan: ForwardBidirectional, merged: Merged, batch: int
    ):
        self.w, self.split, self.plan, self.merged, self.batch = w, split, plan, merged, batch
        self.rows = -(-batch // w.p.lanes)
        self.slices = [
            (s, q)
            for s in range(0, self.rows, plan.sample_rows_per_slice)
            for q in range(0, split.q, plan.q_per_slice)
        ]
        self.tensor = w.written(
            middle(split),
            TensorClass.INTERMEDIATE,
            split.network.widths.intermediate,
            split.u * split.k * split.q * batch,
        )

    def prepare(self) -> None:
        """Transpose Left and Right into the layouts in which they are read."""
        w, split, lanes = self.w, self.split, self.w.p.lanes
        left = transposed_left(w, split, self.merged.left, bank=1)
        self.merged.free(left=True)
        self.lefts = self._copies(left)
        self.rights = self._copies(self.merged.right)
        self.right_t: Operand | None = None
        if self.plan.pe1_u < split.u:
            right = self.merged.right
            right = right.view(right.block.part("k", 0, split.k))
            sizes = {"k": split.k, "v": split.v, "q_": split.q // lanes}
            name = split.name("right_t")
            self.right_t = w.transpose(right, name, rows="v", entries="q", bank=3, **sizes)

    def _copies(self, x: Operand) -> list[Operand]:
        """``x`` in bank 1, and copies of it in banks 2 and 3."""
        w, copies = self.w, [x]
        if len(self.slices) > 1:
            sizes = {axis.name.replace("/", "_"): axis.size for axis in x.block.axes}
            for bank in range(2, 1 + _TURNS):
                name = f"{x.name}.{bank}"
                copies.append(w.copy(x, w.block(name, bank=bank, **sizes), name))
        return copies

    def multiply(self, a: Operand | None, b: Operand | None, y: Block, tensor: Written) -> None:
        """Y(j, s/) from X: ``a`` (i, s/) of PE2's values of u, ``b`` (s, i/) of PE1's."""
        w, split, plan = self.w, self.split, self.plan
        sizes = {
            "s_": plan.sample_rows_per_slice,
            "u": split.u,
            "k": split.k,
            "q": plan.q_per_slice,
        }
        some = min(_TURNS, len(self.slices))
        ts = [w.block(middle(split), bank=1 + n, **sizes) for n in range(some)]
        y = y.split("j", (("p", split.p), ("q", split.q)))
        # Step t: Y from T of step t - 1, T of step t, and the store of T of step t - 2.
        for t in range(len(self.slices) + 2):
            if 0 < t <= len(self.slices):
                s, q = self.slices[t - 1]
                part = y.part("q", q, plan.q_per_slice).part("s/", s, plan.sample_rows_per_slice)
                self._product(ts[(t - 1) % some], self.lefts[t % some], part, tensor, s)
            if t < len(self.slices):
                s, q = self.slices[t]
                for row in range(plan.sample_rows_per_slice):
                    z = ts[t % some].part("s/", row, 1)
                    self._by_dot(b, self.rights[(t + 1) % some], z, s + row, q)
                    if row == 0 and t > 1:
                        self._store(ts[(t - 2) % some], *self.slices[t - 2])
                    self._by_outer(a, z, s + row, q)
            elif t > 1:
                self._store(ts[(t - 2) % some], *self.slices[t - 2])
        w.free(*ts)

    def _samples(self, first: int, rows: int) -> int:
        """Samples in ``rows`` rows from row ``first``."""
        return min(rows * self.w.p.lanes, self.batch - first * self.w.p.lanes)

    def _macs(self, z: Block, s: int) -> int:
        size = z.size("u") * self.split.k * z.size("q") * self.split.v
        return size * self._samples(s, z.size("s/"))

    def _by_dot(self, b: Operand | None, right: Operand, z: Block, s: int, q: int) -> None:
        split, lanes, us = self.split, self.w.p.lanes, self.plan.pe1_u
        if not b:
            return
        z = z.part("u", 0, us)
        x = right.block.part("k", 0, split.k).part("q", q, z.size("q"))
        g = b.block.part("s", s * lanes, z.size("s/") * lanes)
        self.w.dot(
            right.view(x),
            b.view(g.split("i/", (("u", us), ("v/", split.v // lanes)))),
            z,
            self.tensor,
            rows="q",
            entries="s",
            summed=("v/",),
            macs=self._macs(z, s),
        )

    def _by_outer(self, a: Operand | None, z: Block, s: int, q: int) -> None:
        split, first = self.split, self.plan.pe1_u
        if not a or not self.right_t:
            return
        z = z.part("u", first, split.u - first)
        x = a.block.part("s/", s, z.size("s/"))
        self.w.outer(
            a.view(x.split("i", (("u", split.u - first), ("v", split.v)))),
            self.right_t,
            z,
            self.tensor,
            rows="q",
            group=q // self.w.p.pe2_rows,
            summed=("v",),
            macs=self._macs(z, s),
        )

    def _product(self, x: Block, left: Operand, z: Block, tensor: Written, s: int) -> None:
        split = self.split
        size = split.p * split.u * split.k * z.size("q")
        self.w.outer(
            Operand(x, self.tensor.name, self.tensor.width),
            left,
            z,
            tensor,
            rows="p",
            summed=("u", "k"),
            macs=size * self._samples(s, z.size("s/")),
        )

    def _store(self, t: Block, s: int, q: int) -> None:
        """Store a slice of T for the backward pass, where (s/, u, k, q) lie in rows."""
        split = self.split
        sizes = [("s/", self.rows), ("u", split.u), ("k", split.k), ("q", split.q)]
        strides = row_major(sizes)
        store_strided(self.w, self.tensor.name, t, strides, s * strides["s/"] + q)

    def free(self) -> None:
        """Give back what ``prepare`` made."""
        self.w.free(*(x.block for x in (*self.lefts, *self.rights[1:])))
        if self.right_t:
            self.w.free(self.right_t.block)
        self.merged.free(right=True)

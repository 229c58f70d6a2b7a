"""Backward from both sides: U = Left^T Y' and T = Right X, a slice of u at a time, and no W.

From them the gradients of Right (a sum over s and u, by PE1), of Left (over s and q, by PE1) and of
the input (over k and q, by PE2). PE2 makes U, the arrays share T.
"""

from ttforge.compiler.bidirectional import SharedT, turned_left
from ttforge.compiler.blocks import Block
from ttforge.compiler.errors import CompileError
from ttforge.compiler.gradients import (
    RunningSum,
    left_target,
    right_level,
    store_left,
    store_right,
)
from ttforge.compiler.merged import Merged, Split
from ttforge.compiler.plans import BackwardBidirectional
from ttforge.compiler.row_images import padded
from ttforge.compiler.workspace import Operand, Workspace
from ttforge.fixed.scale import TensorClass


class BidirectionalGradient:
    """Emits the gradients of Left and Right of a layer, and of its input."""

    def __init__(
        self,
        w: Workspace,
        split: Split,
        plan: BackwardBidirectional,
        merged: Merged,
        batch: int,
    ):
        self.w, self.split, self.plan, self.merged, self.batch = w, split, plan, merged, batch
        if split.p % w.p.lanes:
            raise CompileError(
                f"layer {split.number + 1}: bi-directional gradients at bond {split.bond} need "
                f"{split.p} outputs on its left to be a multiple of {w.p.lanes}"
            )

    def emit(
        self, dy: Operand, a: Operand, b: Operand | None, dx: tuple[Block, str] | None
    ) -> None:
        """Emit all slices; ``a`` is X(i, s/), ``b`` X(s, i/), ``dx`` (i, s/) and its name."""
        w, split, plan = self.w, self.split, self.plan
        slices = split.u // plan.slice_u
        rows, width = dy.block.size("s/"), split.network.widths.gradient
        spare = -plan.slice_u * split.k % w.p.lanes
        left_p = turned_left(w, split, self.merged.left, bank=1, spare=spare)
        if spare:
            stop = w.region(left_p.block).stop
            w.clear(stop - spare, spare)
        left_uk = self._left_uk(left_p, slices)
        t_maker = SharedT(w, split, self.merged, self.batch, plan.dot_samples)
        back = self._right_rows() if dx else None
        sizes = {"u": plan.slice_u, "k": split.k, "q": split.q, "s_": rows}
        doubles = min(2, slices)
        ts = [w.block(split.name("t"), bank=2, **sizes) for _ in range(doubles)]
        us = [w.block(split.name("u"), bank=3, **sizes) for _ in range(doubles)]
        count = split.u * split.k * split.q * self.batch
        u_tensor = w.written(split.name("u"), TensorClass.GRADIENT, width, count)
        left = self._left_target()
        right = RunningSum(
            w,
            right_level(split, split.layer.order),
            split.k * split.q * split.v,
            slices,
            bank=0,
            k=split.k,
            q=split.q,
            v_=split.v // w.p.lanes,
        )
        first = plan.dot_samples
        inside = a.seen(a.block.part("s/", first, rows - first))
        x = a.seen(a.block.split("i", (("u", split.u), ("v", split.v))))
        y = dy.seen(dy.block.split("j", (("p", split.p), ("q", split.q))))
        # PE2 makes T and U of a slice while PE1 sums over those of the slice before.
        for t in range(slices + 1):
            u = t * plan.slice_u
            if t < slices:
                t_maker.by_dot(b, ts[t % 2], u, 0)
                t_maker.by_outer(inside, ts[t % 2], u, 0)
            if t:
                uu = Operand(us[(t - 1) % 2], u_tensor.name, width)
                self._right(uu, x, right, t - 1)
            if t < slices:
                self._u(y, left_uk.seen(left_uk.block.at("t", t)), us[t % 2], u_tensor)
                if dx and back:
                    self._dx(Operand(us[t % 2], u_tensor.name, width), back, dx, u)
            if t:
                tt = Operand(ts[(t - 1) % 2], t_maker.tensor.name, t_maker.tensor.width)
                self._left(tt, y, left, t - 1)
            if t > 1:
                right.add(t - 2)
        right.add(slices - 1)
        result = right.result.block
        store_right(w, split, result, 0)
        self._store_left(left)
        w.free(*ts, *us, left_p.block, left_uk.block, left.block)
        if back:
            w.free(back.block)
        t_maker.free()
        right.free()

    def _left_uk(self, left_p: Operand, slices: int) -> Operand:
        """Left as (t, p, uk/): the scalars of U, a slice after the other."""
        w, split, plan = self.w, self.split, self.plan
        uk = plan.slice_u * split.k
        block = left_p.block.joined("u", "k", "uk").split("uk", (("t", slices), ("uk", uk)))
        sizes = {"t": slices, "p": split.p, "uk_": -(-uk // w.p.lanes)}
        name = split.name("left_uk")
        return w.turn(left_p.seen(block), name, rows="p", entries="uk", bank=1, **sizes)

    def _right_rows(self) -> Operand:
        """Right as (k, q, v/): the scalars of the input's gradient."""
        w, split, right = self.w, self.split, self.merged.right
        block = right.block.part("k", 0, split.k)
        z = w.block(split.name("right_r"), bank=0, k=split.k, q=split.q, v_=split.v // w.p.lanes)
        return w.copy(right.seen(block), z, split.name("right_r"))

    def _left_target(self) -> Operand:
        """The gradient of Left as (u, k, p/)."""
        w, split = self.w, self.split
        width = split.network.widths.gradient
        tensor = w.written(
            split.name("dleft"), TensorClass.GRADIENT, width, split.u * split.k * split.p
        )
        block = w.block(tensor.name, bank=1, u=split.u, k=split.k, p_=split.p // w.p.lanes)
        return Operand(block, tensor.name, width)

    def _u(self, y: Operand, left: Operand, z: Block, tensor) -> None:
        split = self.split
        self.w.outer(
            y,
            left,
            z.joined("u", "k", "uk"),
            tensor,
            rows="uk",
            summed=("p",),
            macs=split.p * split.q * split.k * self.plan.slice_u * self.batch,
        )

    def _dx(self, u: Operand, right: Operand, dx: tuple[Block, str], first: int) -> None:
        w, split = self.w, self.split
        block, name = dx
        size = split.layer.input_size * self.batch
        width = split.network.widths.gradient
        tensor = w.written(name, TensorClass.GRADIENT, width, size)
        z = block.split("i", (("u", split.u), ("v", split.v))).part("u", first, self.plan.slice_u)
        w.outer(
            u,
            right,
            z,
            tensor,
            rows="v",
            summed=("k", "q"),
            macs=split.k * split.q * split.v * self.plan.slice_u * self.batch,
        )

    def _right(self, u: Operand, x: Operand, total: RunningSum, t: int) -> None:
        split, some = self.split, self.plan.slice_u
        self.w.dot(
            u,
            x.seen(x.block.part("u", t * some, some)),
            total.block(t),
            total.part,
            rows="q",
            entries="v",
            summed=("u", "s/"),
            macs=split.k * split.q * split.v * some * self.batch,
        )

    def _left(self, tt: Operand, y: Operand, left: Operand, t: int) -> None:
        split, some = self.split, self.plan.slice_u
        z = left.block.part("u", t * some, some).joined("u", "k", "uk")
        self.w.dot(
            tt.seen(tt.block.joined("u", "k", "uk")),
            y,
            z,
            self.w.b.tensors[left.name],
            rows="uk",
            entries="p",
            summed=("q", "s/"),
            macs=split.p * split.q * split.k * some * self.batch,
        )

    def _store_left(self, left: Operand) -> None:
        """Turn (u, k, p/) to (p, u, k/), with zeros where k is padded, and store it."""
        w, split = self.w, self.split
        lanes, rank = w.p.lanes, padded(split.k, w.p)
        source = left
        if rank != split.k:
            wide = w.block(left.name, bank=2, u=split.u, k=rank, p_=split.p // lanes)
            w.clear(wide.base, split.u * rank * split.p // lanes)
            w.copy(left, wide.part("k", 0, split.k), split.name("dleft_k"))
            source = Operand(wide, split.name("dleft_k"), left.width)
        sizes = {"p": split.p, "u": split.u, "k_": rank // lanes}
        turned = w.turn(source, left_target(split), rows="p", entries="k", bank=2, **sizes)
        store_left(w, split, turned.block)
        w.free(turned.block)
        if source is not left:
            w.free(source.block)

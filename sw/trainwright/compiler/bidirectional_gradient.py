"""Bidirectional backward pass: U = Left^T Y', and T = Right X as the forward pass stored it.

Slice by slice of the samples and of u: the gradient of Left is the sum over s and q of Y' T, that
of Right the sum over s and u of U X, that of the input the sum over k and q of Right U. Where no
gradient of the input is wanted PE1 makes U(s, u, k, q/) and the gradient of Left, PE2 the gradient
of Right from X(s, i/); else PE2 makes U(u, k, q, s/) and the gradient of the input, PE1 those of
Right, from X(i, s/), and of Left.
"""

from math import prod

from trainwright.compiler.bidirectional import middle, transposed_left
from trainwright.compiler.blocks import Block
from trainwright.compiler.builder import Written
from trainwright.compiler.errors import CompileError
from trainwright.compiler.gradients import (
    RunningSum,
    left_target,
    load_strided,
    ordered_left,
    ordered_right,
    row_major,
)
from trainwright.compiler.merged import Merged, Split
from trainwright.compiler.plans import BackwardBidirectional
from trainwright.compiler.row_images import padded
from trainwright.compiler.workspace import Operand, Workspace
from trainwright.fixed.scale import TensorClass


class BidirectionalGradient:
    """Emits the gradients of Left and Right of a layer, and of its input if ``dx`` is given.

    ``inputs`` is the buffer of X: (I, batch) with ``dx``, (batch, I) without. ``dx`` is where the
    gradient (i, s/) goes, and its name.
    """

    def __init__(
        self,
        w: Workspace,
        split: Split,
        plan: BackwardBidirectional,
        merged: Merged,
        batch: int,
        *,
        inputs: str,
        dx: tuple[Block, str] | None,
    ):
        self.w, self.split, self.plan, self.merged, self.batch = w, split, plan, merged, batch
        self.inputs, self.dx = inputs, dx
        self.lanes, self.width = w.p.lanes, split.network.widths.gradient
        self.rows = -(-batch // self.lanes)
        if split.p % self.lanes:
            raise CompileError(
                f"layer {split.number + 1}: bi-directional gradients at bond {split.bond} need the "
                f"outputs on its left, {split.p}, to be a multiple of the {self.lanes} lanes; plan "
                "another bond, or the full gradient"
            )
        self.slices = [
            (s, u)
            for s in range(0, self.rows, plan.sample_rows_per_slice)
            for u in range(0, split.u, plan.u_per_slice)
        ]

    def emit(self, dy: Operand) -> tuple[Block, Block]:
        """Emit all slices, from ``dy`` (j, s/).

        Gives the gradients of Left and of Right, in the order of their factors' chains.
        """
        w, split, plan = self.w, self.split, self.plan
        y = dy.view(dy.block.split("j", (("p", split.p), ("q", split.q))))
        w.flush()  # the slices need the rows
        self._prepare(y)
        per_u = split.u // plan.u_per_slice
        ts, us, xs = self._buffers()
        left, right = self._sums(len(self.slices) // per_u)
        u_tensor = self._written("u", split.u * split.k * split.q * self.batch)
        for t in range(len(self.slices) + 1):
            if t < len(self.slices):
                s, u = self.slices[t]
                self._u(y, us[t % 2], u_tensor, s, u)
            if t:
                s, u = self.slices[t - 1]
                uu = Operand(us[(t - 1) % 2], u_tensor.name, self.width)
                x = Operand(xs[(t - 1) % 2], self._x_name, split.network.widths.activation)
                self._right(uu, x, right, t - 1, s)
                if self.dx:
                    self._dx(uu, s, u)
            if t < len(self.slices):
                self._load_x(xs[t % 2], *self.slices[t])
                self._load_t(ts[t % 2], *self.slices[t])
            if t:
                part = (t - 1) // per_u
                self._left(ts[(t - 1) % 2], y, left, part, *self.slices[t - 1])
                if t % per_u == 0 and t > per_u:
                    left.add(t // per_u - 2)
            if t > 1:
                right.add(t - 2)
        left.add(left.parts - 1)
        right.add(right.parts - 1)
        w.free(*ts, *us, *xs, *self._transposed)
        return self._ordered(left, right)

    @property
    def _x_name(self) -> str:
        return self.inputs if self.split.number else "x"

    def _written(self, name: str, count: int) -> Written:
        return self.w.written(self.split.name(name), TensorClass.GRADIENT, self.width, count)

    def _prepare(self, y: Operand) -> None:
        """What is transposed once: Left, and Y' or Right."""
        w, split, plan, lanes = self.w, self.split, self.plan, self.lanes
        uk = plan.u_per_slice * split.k
        spare = -uk % lanes if self.dx else 0
        first = max(min(2, len(self.slices)) * self._u_rows, w.p.bank_rows)
        self.left_p = transposed_left(w, split, self.merged.left, at=first, spare=spare)
        self._transposed = [self.left_p.block]
        if not self.dx:
            sizes = {"s": self.batch, "q": split.q, "p_": split.p // lanes}
            self.y_s = w.transpose(y, f"{y.name}.s", rows="s", entries="p", bank=3, **sizes)
            self._transposed.append(self.y_s.block)
            self.merged.free(left=True, right=True)
            return
        if spare:
            w.clear(w.region(self.left_p.block).stop - spare, spare)
        block = self.left_p.block.joined("u", "k", "uk")
        block = block.split("uk", (("t", split.u // plan.u_per_slice), ("uk", uk)))
        sizes = {"t": split.u // plan.u_per_slice, "p": split.p, "uk_": -(-uk // lanes)}
        name = split.name("left_uk")
        self.left_uk = w.transpose(
            self.left_p.view(block), name, rows="p", entries="uk", bank=1, **sizes
        )
        right = self.merged.right
        block = right.block.part("k", 0, split.k)
        name = split.name("right_r")
        z = w.block(name, bank=0, k=split.k, q=split.q, v_=split.v // lanes)
        self.right_r = w.copy(right.view(block), z, name)
        self._transposed += [self.left_uk.block, z]
        self.merged.free(left=True, right=True)

    def _sums(self, s_slices: int) -> tuple[RunningSum, RunningSum]:
        w, split, lanes = self.w, self.split, self.lanes
        left = RunningSum(
            w,
            split.name("dleft"),
            split.u * split.k * split.p,
            s_slices,
            banks=(2, 1),
            u=split.u,
            k=split.k,
            p_=split.p // lanes,
        )
        right = RunningSum(
            w,
            split.name("dright"),
            split.k * split.q * split.v,
            len(self.slices),
            banks=(2, 0),
            k=split.k,
            q=split.q,
            v_=split.v // lanes,
        )
        return left, right

    def _buffers(self) -> tuple[list[Block], list[Block], list[Block]]:
        """Two each of T (s/, u, k, q), of U and of X: one in use, one being filled.

        U, which PE2 reads, from row 0 on; then T, which PE1 reads, and X, which PE2 reads: in banks
        of their own, or at least as few rows as possible in banks that they share.
        """
        w, split, lanes = self.w, self.split, self.lanes
        plan, two = self.plan, range(min(2, len(self.slices)))
        sizes = {
            "s_": plan.sample_rows_per_slice,
            "u": plan.u_per_slice,
            "k": split.k,
            "q": split.q,
        }
        t_sizes, name = sizes, split.name("u")
        if self.dx:
            x_sizes = {"u": plan.u_per_slice, "v": split.v, "s_": plan.sample_rows_per_slice}
        else:
            samples = plan.sample_rows_per_slice * lanes
            sizes = {"s": samples, "u": plan.u_per_slice, "k": split.k, "q_": split.q // lanes}
            x_sizes = {"s": samples, "u": plan.u_per_slice, "v_": split.v // lanes}
        rows, first = self._u_rows, w.region(self.left_p.block).stop
        us = [w.block(name, at=n * rows, **sizes) for n in two]
        ts = [w.block(middle(split), at=first + n * rows, **t_sizes) for n in two]
        after, some = w.region(ts[-1]).stop, prod(x_sizes.values())
        after = max(after, 2 * w.p.bank_rows)
        xs = [w.block(self.inputs, at=after + n * some, **x_sizes) for n in two]
        return ts, us, xs

    @property
    def _u_rows(self) -> int:
        """Rows of a slice of U, and of one of T."""
        plan, split = self.plan, self.split
        return plan.sample_rows_per_slice * plan.u_per_slice * split.k * split.q

    def _load_t(self, z: Block, s: int, u: int) -> None:
        split = self.split
        sizes = [("s/", self.rows), ("u", split.u), ("k", split.k), ("q", split.q)]
        strides = row_major(sizes)
        load_strided(self.w, middle(split), z, strides, s * strides["s/"] + u * strides["u"])

    def _load_x(self, z: Block, s: int, u: int) -> None:
        split, lanes = self.split, self.lanes
        if self.dx:
            strides = row_major([("u", split.u), ("v", split.v), ("s/", self.rows)])
            first = u * strides["u"] + s
        else:
            columns = [("u", split.u), ("v/", split.v // lanes)]
            strides = row_major([("s", self.rows * lanes), *columns])
            first = s * lanes * strides["s"] + u * strides["u"]
        load_strided(self.w, self.inputs, z, strides, first)

    def _u(self, y: Operand, z: Block, tensor: Written, s: int, u: int) -> None:
        w, split, plan, lanes = self.w, self.split, self.plan, self.lanes
        samples = self._samples(s)
        macs = split.p * split.q * split.k * plan.u_per_slice * samples
        if self.dx:
            left = self.left_uk.block.at("t", u // plan.u_per_slice)
            w.outer(
                y.view(y.block.part("s/", s, plan.sample_rows_per_slice)),
                self.left_uk.view(left),
                z.joined("u", "k", "uk"),
                tensor,
                rows="uk",
                summed=("p",),
                macs=macs,
            )
            return
        left = self.left_p.block.part("u", u, plan.u_per_slice).joined("u", "k", "uk")
        w.dot(
            self.left_p.view(left),
            self.y_s.view(self.y_s.block.part("s", s * lanes, samples)),
            z.joined("u", "k", "uk").part("s", 0, samples),
            tensor,
            rows="uk",
            entries="q",
            summed=("p/",),
            macs=macs,
        )

    def _samples(self, s: int) -> int:
        """Samples in the slice from row ``s`` of samples."""
        return min(self.plan.sample_rows_per_slice * self.lanes, self.batch - s * self.lanes)

    def _right(self, u: Operand, x: Operand, total: RunningSum, t: int, s: int) -> None:
        split, some, samples = self.split, self.plan.u_per_slice, self._samples(s)
        macs = split.k * split.q * split.v * some * samples
        if self.dx:
            self.w.dot(
                u,
                x,
                total.block(t),
                total.part,
                rows="q",
                entries="v",
                summed=("u", "s/"),
                macs=macs,
            )
            return
        self.w.outer(
            x.view(x.block.part("s", 0, samples)),
            u.view(u.block.part("s", 0, samples)),
            total.block(t),
            total.part,
            rows="q",
            summed=("s", "u"),
            macs=macs,
        )

    def _dx(self, uu: Operand, s: int, u: int) -> None:
        assert self.dx
        split, plan, (block, name) = self.split, self.plan, self.dx
        tensor = self.w.written(
            name, TensorClass.GRADIENT, self.width, split.layer.input_size * self.batch
        )
        z = block.split("i", (("u", split.u), ("v", split.v))).part("u", u, plan.u_per_slice)
        self.w.outer(
            uu,
            self.right_r,
            z.part("s/", s, plan.sample_rows_per_slice),
            tensor,
            rows="v",
            summed=("k", "q"),
            macs=split.k * split.q * split.v * plan.u_per_slice * self._samples(s),
        )

    def _left(self, t: Block, y: Operand, total: RunningSum, part: int, s: int, u: int) -> None:
        split, plan = self.split, self.plan
        z = total.block(part).part("u", u, plan.u_per_slice).joined("u", "k", "uk")
        x = Operand(t.joined("u", "k", "uk"), middle(split), split.network.widths.intermediate)
        self.w.dot(
            x,
            y.view(y.block.part("s/", s, plan.sample_rows_per_slice)),
            z,
            total.part,
            rows="uk",
            entries="p",
            summed=("q", "s/"),
            macs=split.p * split.q * split.k * plan.u_per_slice * self._samples(s),
        )

    def _ordered(self, left: RunningSum, right: RunningSum) -> tuple[Block, Block]:
        """Both gradients in the order of their factors' chains."""
        w, split, lanes = self.w, self.split, self.lanes
        rank, source, made = padded(split.k, w.p), left.result, []
        if rank != split.k:  # zeros where k is padded
            name = split.name("dleft_k")
            wide = w.block(name, bank=2, u=split.u, k=rank, p_=split.p // lanes)
            w.clear(wide.base, split.u * rank * split.p // lanes)
            source = w.copy(source, wide.part("k", 0, split.k), name).view(wide)
            made.append(wide)
        sizes = {"p": split.p, "u": split.u, "k_": rank // lanes}
        name = left_target(split) if split.bond == 1 else split.name("dleft_t")
        transposed = w.transpose(source, name, rows="p", entries="k", bank=2, **sizes)
        whole = ordered_right(w, split, right.result)
        lefts = transposed.block
        if split.bond > 1:
            lefts = ordered_left(w, split, transposed)
            made.append(transposed.block)
        w.free(*made)
        left.free()
        right.free()
        return lefts, whole

"""Backward by the full gradient: G(j, i) = sum over s of Y'(j, s) X(i, s), a slice of q at a time.

While a slice is on chip it gives its part of the gradient of Left (a sum over q and v, by PE1) and
its slice of the gradient of Right (a sum over p and u, by PE2). PE1 makes G for the first values
of u from X(i, s/), PE2 for the others from X(s, i/) and Y'(s, j/).
"""

from math import ceil

from trainwright.compiler.blocks import Block
from trainwright.compiler.gradients import (
    RunningSum,
    by_sub_axes,
    left_target,
    right_block,
    right_level,
    right_slice,
)
from trainwright.compiler.memory import largest_divisor
from trainwright.compiler.merged import Merged, Split
from trainwright.compiler.plans import BackwardFull
from trainwright.compiler.workspace import Operand, Workspace
from trainwright.fixed.scale import TensorClass


def _filling(size: int, tile: int) -> float:
    """Part of the rows of a tile that is used."""
    return size / (tile * ceil(size / tile))


class FullGradient:
    """Emits the gradients of Left and Right of a layer, and of its input."""

    def __init__(self, w: Workspace, split: Split, plan: BackwardFull, merged: Merged, batch: int):
        self.w, self.split, self.plan, self.merged, self.batch = w, split, plan, merged, batch
        self.lanes = w.p.lanes
        self.shared = plan.pe1_u < split.u
        self.along_p = split.p % self.lanes == 0
        if not self.shared:
            tile = w.p.pe1_rows
            self.along_p = _filling(split.p, tile) >= _filling(plan.q_per_slice, tile)
        layer, width = split.layer, split.network.widths.gradient
        self.tensor = w.written(
            split.name("dw"), TensorClass.GRADIENT, width, layer.output_size * layer.input_size
        )

    def prepare_input_gradient(self) -> None:
        """Transpose Right into the layout in which W is rebuilt."""
        w, split = self.w, self.split
        right = self.merged.right
        sizes = {"q": split.q, "v": split.v, "k_": right.block.size("k") // self.lanes}
        name = split.name("right_k")
        self.right_k = w.transpose(right, name, rows="v", entries="k", bank=3, **sizes)

    def input_gradient(self, dy: Operand, z: Block, name: str) -> Operand:
        """X'(i, s/) = sum over j of W(j, i) Y'(j, s/): W rebuilt by PE1, the product by PE2."""
        w, split, lanes, left = self.w, self.split, self.lanes, self.merged.left
        layer, widths = split.layer, split.network.widths
        size = layer.output_size * layer.input_size
        kind = TensorClass.INTERMEDIATE
        weights = w.written(split.name("w"), kind, widths.intermediate, size)
        count = self.batch * layer.input_size
        tensor = w.written(name, TensorClass.GRADIENT, widths.gradient, count)
        rows_a_u = split.p * split.q * split.v // lanes
        some = largest_divisor(split.u, max(1, w.b.pad.largest_gap // 4 // rows_a_u))
        strips = [
            w.block(weights.name, bank=3, p=split.p, u=some, q=split.q, v_=split.v // lanes)
            for _ in range(min(2, split.u // some))
        ]
        y = dy.block.split("j", (("p", split.p), ("q", split.q)))
        target = z.split("i", (("u", split.u), ("v", split.v)))
        for t, u in enumerate(range(0, split.u, some)):
            strip = strips[t % 2]
            w.dot(
                left.view(left.block.part("u", u, some)),
                self.right_k,
                strip,
                weights,
                rows="u" if some >= split.p else "p",
                entries="v",
                summed=("k/",),
                macs=size // split.u * some * split.k,
            )
            w.outer(
                dy.view(y),
                Operand(strip, weights.name, weights.width),
                target.part("u", u, some),
                tensor,
                rows="v",
                summed=("p", "q"),
                macs=size // split.u * some * self.batch,
            )
        w.free(*strips, self.right_k.block)
        return Operand(z, name, tensor.width)

    def emit(self, dy: Operand, a: Operand, b: Operand | None) -> tuple[RunningSum, Block]:
        """Emit all slices; ``a`` is X(u, v, s/), ``b`` X(s, u, v/), each for its values of u.

        Gives the gradients of Left (p, u, k/) and of Right (``right_block``).
        """
        w, split, plan, lanes = self.w, self.split, self.plan, self.lanes
        transposed = self._transposed(dy) if self.shared else None
        slices = split.q // plan.q_per_slice
        sizes = {"u": split.u, "p": split.p, "q": plan.q_per_slice, "v_": split.v // lanes}
        g = w.block(split.name("dw"), bank=2, banks=2, **sizes)
        count = split.k * split.q * split.v
        name = right_level(split, split.layer.order)
        right = w.written(name, TensorClass.GRADIENT, split.network.widths.gradient, count)
        whole = right_block(w, split, bank=1)
        left = RunningSum(
            w,
            left_target(split) if split.bond == 1 else split.name("dleft"),
            split.p * split.u * split.k,
            slices,
            banks=(1, 0),
            p=split.p,
            u=split.u,
            k_=self.merged.left.block.size("k/"),
        )
        for t in range(slices):
            q = t * plan.q_per_slice
            self._dot(dy, a, g, q)
            if transposed:
                assert b is not None
                self._outer(transposed, b, g, q)
            product = Operand(g, self.tensor.name, self.tensor.width)
            w.outer(
                product.view(by_sub_axes(w, split, g, q)),
                self.merged.left,
                right_slice(w, split, whole, q, plan.q_per_slice),
                right,
                rows="k",
                summed=("u", "p"),
                macs=count // slices * split.p * split.u,
            )
            self._left(product, left, t, q)
            if t == 0:
                w.flush()
            else:
                left.add(t - 1)
        left.add(slices - 1)
        w.free(g, *([transposed.block] if transposed else []))
        return left, whole

    def _transposed(self, dy: Operand) -> Operand:
        """Y' as (s, q, p/), or as (s, p, q/) where p is no multiple of the lanes."""
        w, split = self.w, self.split
        y = dy.view(dy.block.split("j", (("p", split.p), ("q", split.q))))
        name = f"{dy.name}.s"
        if self.along_p:
            sizes = {"s": self.batch, "q": split.q, "p_": split.p // self.lanes}
        else:
            sizes = {"s": self.batch, "p": split.p, "q_": split.q // self.lanes}
        entries = "p" if self.along_p else "q"
        return w.transpose(y, name, rows="s", entries=entries, bank=2, **sizes)

    def _macs(self, us: int) -> int:
        return self.split.p * self.plan.q_per_slice * us * self.split.v * self.batch

    def _dot(self, dy: Operand, a: Operand, g: Block, q: int) -> None:
        split, plan = self.split, self.plan
        y = dy.block.split("j", (("p", split.p), ("q", split.q))).part("q", q, plan.q_per_slice)
        self.w.dot(
            dy.view(y),
            a,
            g.part("u", 0, plan.pe1_u),
            self.tensor,
            rows="p" if self.along_p else "q",
            entries="v",
            summed=("s/",),
            macs=self._macs(plan.pe1_u),
        )

    def _outer(self, y: Operand, b: Operand, g: Block, q: int) -> None:
        split, plan = self.split, self.plan
        us = split.u - plan.pe1_u
        scalars = y.block.part("q", q, plan.q_per_slice) if self.along_p else y.block
        self.w.outer(
            b,
            y.view(scalars),
            g.part("u", plan.pe1_u, us),
            self.tensor,
            rows="p" if self.along_p else "q",
            group=0 if self.along_p else q // self.w.p.pe2_rows,
            summed=("s",),
            macs=self._macs(us),
        )

    def _left(self, product: Operand, total: RunningSum, t: int, q: int) -> None:
        """The part of the gradient of Left. PE1 reads what was made last first, as PE2 reads what
        was made first."""
        split, plan, u = self.split, self.plan, self.plan.pe1_u
        right = self.merged.right
        entries = right.view(right.block.part("q", q, plan.q_per_slice))
        tile = self.w.p.pe1_rows
        for first, count in ((u, split.u - u), (0, u)):
            if not count:
                continue
            by_p = _filling(split.p, tile) >= _filling(count, tile)
            self.w.dot(
                product.view(product.block.part("u", first, count)),
                entries,
                total.block(t).part("u", first, count),
                total.part,
                rows="p" if by_p else "u",
                entries="k",
                summed=("q", "v/"),
                macs=split.p * count * split.k * plan.q_per_slice * split.v,
            )

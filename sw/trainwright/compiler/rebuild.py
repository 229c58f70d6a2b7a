"""Forward by rebuilding: W strip by strip from Left and Right, then its product with X.

PE2's array takes strips as W^T(u, v, q/) against X(i, s/), PE1's as W(u, q, v/) against X(s, i/);
each builds its own, so that neither waits for the other.
"""

from dataclasses import dataclass

from trainwright.compiler.blocks import Block
from trainwright.compiler.builder import Written
from trainwright.compiler.merged import Merged, Split
from trainwright.compiler.plans import ForwardRebuild
from trainwright.compiler.workspace import Operand, Workspace
from trainwright.fixed.scale import TensorClass


@dataclass(frozen=True)
class Strip:
    """Part of W: values of p (in groups of ``strip_p``) and of q."""

    group: int
    q: int


def strips(split: Split, plan: ForwardRebuild) -> tuple[list[Strip], list[Strip]]:
    """The strips of W that PE1 takes, and those that PE2 takes."""
    every = [
        Strip(group, q)
        for group in range(split.p // plan.strip_p)
        for q in range(0, split.q, plan.strip_q)
    ]
    half = len(every) // 2 if plan.shared else 0
    return every[:half], every[half:]


class RebuildForward:
    """Emits the forward pass of a layer: ``prepare``, then ``multiply``."""

    def __init__(self, w: Workspace, split: Split, plan: ForwardRebuild, merged: Merged):
        self.w, self.split, self.plan, self.merged = w, split, plan, merged
        self.dots, self.outers = strips(split, plan)
        size = split.layer.output_size * split.layer.input_size
        width = split.network.widths.intermediate
        self.tensor = w.written(split.name("w"), TensorClass.INTERMEDIATE, width, size)

    def prepare(self) -> None:
        """Transpose Left and Right into the layouts in which strips are built."""
        w, split, plan, lanes = self.w, self.split, self.plan, self.w.p.lanes
        left, right = self.merged.left, self.merged.right
        groups, pu = split.p // plan.strip_p, plan.strip_p * split.u
        block = left.block.joined("p", "u", "pu").split("pu", (("g", groups), ("pu", pu)))
        self.left = left.view(block)  # (g, pu, k/)
        columns = -(-pu // lanes)
        if self.outers:
            x = right.view(right.block.part("k", 0, split.k))
            self.right_t = w.transpose(
                x,
                split.name("right_t"),
                rows="v",
                entries="q",
                bank=2,
                k=split.k,
                v=split.v,
                q_=split.q // lanes,
            )
            self.left_t = w.transpose(
                self.left,
                split.name("left_t"),
                rows="k",
                entries="pu",
                bank=0,
                g=groups,
                k=split.k,
                pu_=columns,
            )
        if self.dots:
            self.right_k = w.transpose(
                right,
                split.name("right_k"),
                rows="v",
                entries="k",
                bank=3,
                top=True,
                q=split.q,
                v=split.v,
                k_=right.block.size("k") // lanes,
            )

        self.merged.free(right=True)
        pu, name = plan.strip_p * split.u, self.tensor.name
        dot_w = outer_w = None
        if self.outers:
            outer_w = w.block(name, bank=2, pu=pu, v=split.v, q_=plan.strip_q // lanes)
        if self.dots:
            dot_w = w.block(name, bank=3, top=True, pu=pu, q=plan.strip_q, v_=split.v // lanes)
        self.strips = dot_w, outer_w

    def multiply(self, a: Operand | None, b: Operand | None, y: Block, tensor: Written) -> None:
        """Y(j, s/) from X, as ``a`` (i, s/) and, where PE1 takes strips, as ``b`` (s, i/)."""
        split, (dot_w, outer_w) = self.split, self.strips
        y = y.split("j", (("p", split.p), ("q", split.q)))
        for t in range(max(len(self.dots), len(self.outers))):
            if t < len(self.dots) and dot_w:
                self._build_dot(self.dots[t], dot_w)
            if t < len(self.outers) and outer_w:
                self._build_outer(self.outers[t], outer_w)
            if t < len(self.dots) and dot_w:
                assert b is not None
                self._dot(self.dots[t], dot_w, b, self._target(y, self.dots[t]), tensor)
            if t < len(self.outers) and outer_w:
                assert a is not None
                self._outer(self.outers[t], outer_w, a, self._target(y, self.outers[t]), tensor)

    def free(self) -> None:
        """Give back what ``prepare`` made, and Left."""
        self.merged.free(left=True)
        self.w.free(*(block for block in self.strips if block))
        if self.outers:
            self.w.free(self.right_t.block, self.left_t.block)
        if self.dots:
            self.w.free(self.right_k.block)

    def _target(self, y: Block, strip: Strip) -> Block:
        plan = self.plan
        y = y.part("p", strip.group * plan.strip_p, plan.strip_p)
        return y.part("q", strip.q, plan.strip_q)

    @property
    def _strip_size(self) -> int:
        return self.plan.strip_p * self.plan.strip_q * self.split.layer.input_size

    def _build_outer(self, strip: Strip, z: Block) -> None:
        lanes, plan = self.w.p.lanes, self.plan
        x = self.right_t.block.part("q/", strip.q // lanes, plan.strip_q // lanes)
        self.w.outer(
            self.right_t.view(x),
            self.left_t.view(self.left_t.block.at("g", strip.group)),
            z,
            self.tensor,
            rows="pu",
            summed=("k",),
            macs=self._strip_size * self.split.k,
        )

    def _build_dot(self, strip: Strip, z: Block) -> None:
        self.w.dot(
            self.left.view(self.left.block.at("g", strip.group)),
            self.right_k.view(self.right_k.block.part("q", strip.q, self.plan.strip_q)),
            z,
            self.tensor,
            rows="pu",
            entries="v",
            summed=("k/",),
            macs=self._strip_size * self.split.k,
        )

    def _outer(self, strip: Strip, g: Block, a: Operand, z: Block, tensor: Written) -> None:
        split, plan = self.split, self.plan
        x = a.block.split("i", (("u", split.u), ("v", split.v)))
        g = g.split("pu", (("p", plan.strip_p), ("u", split.u)))
        self.w.outer(
            a.view(x),
            Operand(g, self.tensor.name, self.tensor.width),
            z,
            tensor,
            rows="q",
            summed=("u", "v"),
            macs=self._products(tensor),
        )

    def _dot(self, strip: Strip, x: Block, b: Operand, z: Block, tensor: Written) -> None:
        split, plan, lanes = self.split, self.plan, self.w.p.lanes
        x = x.split("pu", (("p", plan.strip_p), ("u", split.u)))
        g = b.block.split("i/", (("u", split.u), ("v/", split.v // lanes)))
        self.w.dot(
            Operand(x, self.tensor.name, self.tensor.width),
            b.view(g),
            z,
            tensor,
            rows="q",
            entries="s",
            summed=("u", "v/"),
            macs=self._products(tensor),
        )

    def _products(self, tensor: Written) -> int:
        """Multiply-accumulates of a strip with the batch."""
        return tensor.count // self.split.layer.output_size * self._strip_size

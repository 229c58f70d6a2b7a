"""From choices and cuts to commands: pieces of tensors, loaded, transposed and computed in turn."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from trainwright.compiler.cut.slices import Block, Stage, in_parts, overlap, refitted, slices_of
from trainwright.compiler.forms.calls import Call
from trainwright.compiler.forms.choices import Choice, Given, Pad, Stored
from trainwright.compiler.forms.layout import Ranges, Storage
from trainwright.compiler.tile.operations import Operations
from trainwright.graph.ir import Einsum, Graph, Op
from trainwright.graph.network import SAMPLES
from trainwright.parameters import AcceleratorParameters


def _used(calls: Sequence[Call]) -> list[Call]:
    """The commands whose results are read, or stored."""
    read: set[Storage] = set()
    kept = []
    for call in reversed(calls):
        if not call.writes or any(piece.storage in read for piece in call.writes):
            kept.append(call)
            read.update(piece.storage for piece in call.reads)
    return kept[::-1]


class Tiler(Operations):
    """Makes the commands of one program.

    ``blocks`` are the samples of which all stages that are ``blocked`` are computed before others.
    """

    def __init__(
        self,
        graph: Graph,
        given: Mapping[str, Given],
        stored: Stored,
        pads: Sequence[Pad],
        spilled: Collection[str],
        p: AcceleratorParameters,
        *,
        spare: bool = False,
        blocks: Sequence[Block] = (),
    ):
        super().__init__(graph, given, stored, pads, spilled, p, spare=spare)
        self.blocks = blocks

    def run(self, stages: Sequence[Stage]) -> list[Call]:
        """The commands of all stages, in the order of the operations."""
        stages = [
            refitted(
                self.graph,
                in_parts(self.graph, stage, self.p.lanes, self.blocks),
                self.p,
                self.blocks,
            )
            for stage in stages
        ]
        ops = {choice.op.out: choice.op for stage in stages for choice in stage.choices}
        self.graph = replace(self.graph, ops=tuple(ops[op.out] for op in self.graph.ops))
        self.every = [choice for stage in stages for choice in stage.choices]
        self._demands()
        self._leads(stages)
        for blocked, some in groupby(stages, lambda stage: stage.blocked):
            together = list(some)
            for block in self.blocks if blocked else (None,):
                self.block = block
                for stage in together:
                    self._stage(stage)
                self._leave()
        return _used(self.calls)

    def _leave(self) -> None:
        """Nobody reads the pieces of a block of samples after it."""
        if self.block:
            for key, found in self.pieces.items():
                self.pieces[key] = [piece for piece in found if SAMPLES not in piece.ranges]
        self.block = None

    # Stages.

    def _stage(self, stage: Stage) -> None:
        inside = {choice.op.out for choice in stage.choices}
        for choice in self.every:
            if choice not in stage.choices:
                inside -= set(choice.op.operands) - self.spilled
        self.inside = inside
        slices = list(slices_of(self.graph, stage, self.p.lanes, self.block))
        begin = 1 if self._both(stage, slices[0]) else 2
        for slice_ in slices[:begin]:  # neither array waits for what the other one's slice needs
            for choice in stage.choices:
                self._before(choice, stage, slice_)
        for n in range(0, len(slices), stage.together):
            some = slices[n : n + stage.together]
            if n >= begin:
                self._forget(stage, some)
            if stage.together > 1:  # or one array's copies wait for what it computes itself
                for slice_ in some:
                    for choice in stage.choices:
                        self._before(choice, stage, slice_)
            for choice in stage.choices:
                for slice_ in reversed(some) if self._backwards(choice, stage) else some:
                    self._choice(choice, slice_)
        for choice in stage.choices:
            alone = choice.op.out in self.stored and choice.op.out not in inside
            if alone and self._is_summed(choice.op):
                self._store(choice, self._whole)
            if choice.op.out in self.spilled:
                self._spill(choice.op.out)

    def _is_summed(self, op: Op) -> bool:
        """Whether a result is whole after this block of samples."""
        summed = isinstance(op, Einsum) and SAMPLES in self.graph.summed(op)
        return not self.block or not summed or self.block == self.blocks[-1]

    def _spill(self, name: str) -> None:
        """From now on a tensor lies in outer memory alone."""
        (outer,) = (outer for outer in self.outer.values() if outer.tensor == name)
        self.given[name] = Given(outer.layout)
        for key in [key for key in self.pieces if key[0] == name]:
            del self.pieces[key]

    def _both(self, stage: Stage, slice_: Ranges) -> bool:
        """Whether a slice has something of every work."""
        return all(
            self._within(choice.op, work, slice_) is not None
            for choice in stage.choices
            if isinstance(choice.op, Einsum)
            for work in choice.works
        )

    def _before(self, choice: Choice, stage: Stage, slice_: Ranges) -> None:
        """Have the operands of an operation that its stage does not make."""
        made = {one.op.out for one in stage.choices}
        if isinstance(choice.op, Einsum) and stage.loops and not made & set(choice.op.operands):
            for work in reversed(choice.works):
                self._operands(choice.op, work, slice_)

    @staticmethod
    def _backwards(choice: Choice, stage: Stage) -> bool:
        """Whether an operation takes the slices the other way round, so that arrays are apart.

        It is one of PE2's, or of PE1's where PE2's take parts of sums in their order.
        """
        made = {one.op.out for one in stage.choices}
        parts = [one for one in stage.choices if isinstance(one.op, Einsum) and one.op.parts]
        impls = [work.impl for work in choice.works]
        if choice in parts or len(impls) != 1 or not made & set(choice.op.operands):
            return False
        others = [work.impl for one in parts for work in one.works]
        return impls[0] is not None and impls[0].dot == any(i and not i.dot for i in others)

    def _forget(self, stage: Stage, slices: Sequence[Ranges]) -> None:
        """Drop the parts of what is given that no slice reads: they are loaded again."""
        depths, loops = dict(stage.kept), [axis for axis, _ in stage.loops]
        for (name, lanes), found in self.pieces.items():
            if name in self.given:
                axes = set(self.graph.tensors[name].axes) & set(loops[: depths.get(name)])
                mine = [{a: r for a, r in one.items() if a in axes} for one in slices]
                kept = [p for p in found if any(overlap(p.ranges, m) is not None for m in mine)]
                self.pieces[name, lanes] = kept

"""Run the stages of a program: commands on pieces that are loaded, transposed and computed.

``Tiler.run`` is the entry, used by ``step.drafts`` and ``step.blocks``. Commands come in the order
of the operations, slice by slice. The operands of a slice are loaded or transposed just before the
slice, those of the first slices before all commands of a stage: so no array waits at the start.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from trainwright.compiler.cut.slices import Block, Stage, in_parts, overlap, refitted, slices_of
from trainwright.compiler.forms.calls import Call
from trainwright.compiler.forms.choices import Choice, Given, Pad, Stored
from trainwright.compiler.forms.layout import Ranges, Storage
from trainwright.compiler.tile.demands import Demands
from trainwright.compiler.tile.operations import Operations
from trainwright.graph.ir import Einsum, Graph, Op
from trainwright.graph.network import SAMPLES
from trainwright.parameters import AcceleratorParameters
from trainwright.program.fields import Engine


def _used(calls: Sequence[Call]) -> list[Call]:
    """Return the commands whose results are read or stored.

    Pieces are prepared for slices in advance; some turn out to be needed by no command.
    """
    read: set[Storage] = set()
    kept = []
    for call in reversed(calls):
        if not call.writes or any(piece.storage in read for piece in call.writes):
            kept.append(call)
            read.update(piece.storage for piece in call.reads)
    return kept[::-1]


class Tiler(Operations):
    """Commands of one program.

    All stages that are ``blocked`` are computed for one of ``blocks`` of samples after the other.
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
        """Return the commands of all stages, in the order of the operations."""
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
        # From here on the graph has sums in parts: what is compiled has to be computed exactly so
        # by the golden model.
        self.graph = replace(self.graph, ops=tuple(ops[op.out] for op in self.graph.ops))
        self.every = [choice for stage in stages for choice in stage.choices]
        self.demands = Demands.of(self.graph, stages, self.pads, self.p.lanes)
        for blocked, group in groupby(stages, lambda stage: stage.blocked):
            together = list(group)  # stages share the loop over blocks with their neighbours
            for block in self.blocks if blocked else (None,):
                self.block = block
                for stage in together:
                    self._stage(stage)
                self._leave()
        return _used(self.calls)

    def _leave(self) -> None:
        """Forget the pieces of a block of samples, which no later block reads."""
        if self.block:
            for key, pieces in self.pieces.items():
                self.pieces[key] = [piece for piece in pieces if SAMPLES not in piece.ranges]
        self.block = None

    # -- stages ------------------------------------------------------------------------------------

    def _stage(self, stage: Stage) -> None:
        inside = {choice.op.out for choice in stage.choices}
        for choice in self.every:
            if choice not in stage.choices:
                # A tensor that an operation outside the stage reads has to be kept whole.
                inside -= set(choice.op.operands) - self.spilled
        self.inside = inside
        slices = list(slices_of(self.graph, stage, self.p.lanes, self.block))
        # If the arrays compute alternate slices, the first two slices have the first one of each.
        begin = 1 if self._both(stage, slices[0]) else 2
        # Operands of the first slices come before all other commands: else one array would wait
        # for a transpose that PE1 only does after its own first slice.
        for slice_ in slices[:begin]:
            for choice in stage.choices:
                self._before(choice, stage, slice_)
        for n in range(0, len(slices), stage.together):
            batch = slices[n : n + stage.together]
            if n >= begin:
                self._forget(stage, batch)
            # Likewise for slices that are computed together: operands of the second slice would
            # otherwise be transposed after PE1's work on the first.
            if stage.together > 1:
                for slice_ in batch:
                    for choice in stage.choices:
                        self._before(choice, stage, slice_)
            for choice in stage.choices:
                for slice_ in reversed(batch) if self._backwards(choice, stage) else batch:
                    self._choice(choice, slice_)
        for choice in stage.choices:
            alone = choice.op.out in self.stored and choice.op.out not in inside
            if alone and self._is_summed(choice.op):
                self._store(choice, self._whole)
            if choice.op.out in self.spilled:
                self._spill(choice.op.out)

    def _is_summed(self, op: Op) -> bool:
        """Return whether a result is complete after this block of samples."""
        summed = SAMPLES in self.graph.summed(op)
        return not self.block or not summed or self.block == self.blocks[-1]

    def _spill(self, name: str) -> None:
        """Move a tensor to external memory: from now on its readers load it from there."""
        (outer,) = (outer for outer in self.outer.values() if outer.tensor == name)
        self.given[name] = Given(outer.layout)
        for key in [key for key in self.pieces if key[0] == name]:
            del self.pieces[key]

    def _both(self, stage: Stage, slice_: Ranges) -> bool:
        """Return whether a slice has values of every work of the stage's contractions."""
        return all(
            self._within(choice.op, work, slice_) is not None
            for choice in stage.choices
            if isinstance(choice.op, Einsum)
            for work in choice.works
        )

    def _before(self, choice: Choice, stage: Stage, slice_: Ranges) -> None:
        """Prepare the operands of an operation that reads no result of its stage."""
        results = {member.op.out for member in stage.choices}
        if isinstance(choice.op, Einsum) and stage.loops and not results & set(choice.op.operands):
            for work in reversed(choice.works):
                self._operands(choice.op, work, slice_)

    @staticmethod
    def _backwards(choice: Choice, stage: Stage) -> bool:
        """Return whether an operation takes its slices in reverse, away from the other array.

        Only one of the two arrays may be reversed: PE2, or PE1 where PE2 adds parts of sums, whose
        order is fixed.
        """
        results = {member.op.out for member in stage.choices}
        parts = [
            member for member in stage.choices if isinstance(member.op, Einsum) and member.op.parts
        ]
        impls = [work.impl for work in choice.works]
        if choice in parts or len(impls) != 1 or not results & set(choice.op.operands):
            return False
        of_parts = {
            work.impl.engine for member in parts for work in member.works if work.impl is not None
        }
        in_order = Engine.PE2 if Engine.PE2 in of_parts else Engine.PE1
        return impls[0] is not None and impls[0].engine is not in_order

    def _forget(self, stage: Stage, slices: Sequence[Ranges]) -> None:
        """Drop the pieces of earlier slices that the next ``slices`` do not read.

        Parts of given tensors that a later slice reads are loaded again.
        """
        depths, loops = dict(stage.kept), [axis for axis, _ in stage.loops]
        passing = self._passing(stage)
        for (name, lanes), pieces in self.pieces.items():
            if name in self.given or name in passing:
                axes = set(self.graph.tensors[name].axes) & set(loops[: depths.get(name)])
                mine = [{a: r for a, r in slice_.items() if a in axes} for slice_ in slices]
                kept = [p for p in pieces if any(overlap(p.ranges, m) is not None for m in mine)]
                self.pieces[name, lanes] = kept

    def _passing(self, stage: Stage) -> set[str]:
        """Return the tensors whose slices are computed and read in one iteration of the loops only.

        Keeping their pieces made each search for a piece longer, and took a quarter of the compile
        time of `fashion` in 512 samples.
        """
        axes = {axis for axis, _ in stage.loops}
        inside = {choice.op.out for choice in stage.choices}
        outside = {n for c in self.every if c.op.out not in inside for n in c.op.operands}
        windows = {window.x for window in self.graph.windows.values()} | set(self.graph.windows)
        return {
            name
            for name in inside - outside - windows - set(self.stored)
            if axes <= set(self.graph.tensors[name].axes)
        }

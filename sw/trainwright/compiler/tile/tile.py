"""Make the commands of a program: pieces are loaded, transposed, computed, and stored.

``tiled`` is the entry, used by ``step.drafts`` and ``step.blocks``. Commands come in the order of
the operations, slice by slice. Each operation finds or makes the pieces of its operands
(``pieces``), chooses the piece of its result, and appends a command. The operands of a slice are
loaded or transposed just before the slice; those of the first slices come before all commands of a
stage, so that no array waits at the start.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import prod

from trainwright.compiler.base.tuning import TUNING
from trainwright.compiler.cut.slices import (
    Block,
    Stage,
    block_axis,
    in_parts,
    overlap,
    refitted,
    slices_of,
)
from trainwright.compiler.forms.calls import (
    Call,
    Contract,
    Elementwise,
    PassCall,
)
from trainwright.compiler.forms.choices import Choice, Cut, Pad, ProgramSpec, Work, ranges_of
from trainwright.compiler.forms.digits import element_digits
from trainwright.compiler.forms.external import External
from trainwright.compiler.forms.impls import Impl, contraction_cycles
from trainwright.compiler.forms.layout import (
    ROW,
    Addresses,
    Axes,
    CutError,
    Part,
    Piece,
    Ranges,
    Storage,
    counts_of,
)
from trainwright.compiler.forms.nests import whole_and_rest
from trainwright.compiler.forms.passes import PassPlan
from trainwright.compiler.tile.demands import Demands
from trainwright.compiler.tile.pieces import Pieces
from trainwright.graph.ir import Einsum, Graph, Kernel, Op, Unfold, View
from trainwright.program.elementwise import SUM, ArrayBody
from trainwright.program.engines import TRANSPOSER
from trainwright.program.fields import Engine


@dataclass(frozen=True)
class Lowered:
    """Program as commands, with its graph, stages, and tensors in external memory."""

    graph: Graph
    """Operations, with the parts in which sums are taken."""
    stages: tuple[Stage, ...]
    calls: tuple[Call, ...]
    outer: Mapping[str, External]
    macs: int
    addresses: Addresses = field(default_factory=dict)
    """First rows of the pieces; empty before they are placed."""

    @property
    def rows(self) -> int:
        """Rows of the scratchpad in use."""
        return max((base + storage.rows for storage, base in self.addresses.items()), default=0)


def _used(calls: Sequence[Call]) -> list[Call]:
    """Return the commands whose results are read or stored.

    Pieces are prepared for slices in advance, and some are then read by no command.
    """
    read: set[Storage] = set()
    kept = []
    for call in reversed(calls):
        if not call.writes or not read.isdisjoint(call.targets):
            kept.append(call)
            read.update(call.sources)
    return kept[::-1]


class Tiler:
    """Builder of the commands of one program.

    ``spilled`` tensors are stored in external memory and loaded again. Stages that are ``blocked``
    are computed for one of ``blocks`` of samples after the other. With ``spare`` only as many rows
    of zeros are loaded as needed.
    """

    def __init__(
        self,
        spec: ProgramSpec,
        stages: Sequence[Stage],
        pads: Sequence[Pad],
        spilled: Collection[str],
        blocks: Sequence[Block],
        *,
        spare: bool,
    ):
        p = self.p = spec.p
        self.stages = [
            refitted(spec.graph, in_parts(spec.graph, stage, p.lanes, blocks), p, blocks)
            for stage in stages
        ]
        self.choices = {choice.op.out: choice for stage in self.stages for choice in stage.choices}
        # From here on the graph has sums in parts, as the golden model must compute the same parts.
        ops = tuple(self.choices[op.out].op for op in spec.graph.ops)
        self.graph = replace(spec.graph, ops=ops)
        self.demands = Demands.of(self.graph, self.stages, pads, p.lanes)
        self.pieces = Pieces(self.graph, spec.given, self.demands, p, spare=spare)
        self.calls = self.pieces.calls
        self.layouts, self.spilled, self.blocks = spec.stored, set(spilled), blocks
        self.stored = {*spec.stored, *spilled}
        self._along = block_axis(self.graph)
        self.block: Block | None = None
        """Block of samples that is computed at present, in a blocked stage."""
        self.inside: set[str] = set()
        """Tensors of the present stage that exist in slices only."""
        self.macs = 0

    def run(self) -> None:
        """Append the commands of all stages, in the order of the operations."""
        for blocked, group in groupby(self.stages, lambda stage: stage.blocked):
            together = list(group)  # neighbouring blocked stages share the loop over blocks
            for block in self.blocks if blocked else (None,):
                self.block = block
                for stage in together:
                    self._stage(stage)
                if block:
                    self.pieces.leave_block()
                self.block = None

    # -- stages ------------------------------------------------------------------------------------

    def _stage(self, stage: Stage) -> None:
        # A tensor that an operation outside the stage reads has to be kept whole.
        self.inside = inside = stage.results - (self._read_outside(stage) - self.spilled)
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
                self._store(choice, self._block_ranges)
            if choice.op.out in self.spilled:
                self.pieces.spill(choice.op.out)

    def _is_summed(self, op: Op) -> bool:
        """Return whether a result is complete after this block of samples."""
        summed = self._along in self.graph.summed(op)
        return not self.block or not summed or self.block == self.blocks[-1]

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
        is_first = stage.results.isdisjoint(choice.op.operands)
        if isinstance(choice.op, Einsum) and stage.loops and is_first:
            for work in reversed(choice.works):
                self._operands(choice.op, work, slice_)

    @staticmethod
    def _backwards(choice: Choice, stage: Stage) -> bool:
        """Return whether an operation takes its slices in reverse.

        The arrays then read different slices. One array keeps the order: the last array
        that adds parts of sums, as their order is fixed, or else the array that transposes.
        """
        parts = [member for member in stage.choices if member.op.parts]
        impls = [work.impl for work in choice.works]
        if choice in parts or len(impls) != 1 or stage.results.isdisjoint(choice.op.operands):
            return False
        of_parts = {
            work.impl.engine for member in parts for work in member.works if work.impl is not None
        }
        in_order = max(of_parts, default=TRANSPOSER.engine)
        return impls[0] is not None and impls[0].engine is not in_order

    def _forget(self, stage: Stage, slices: Sequence[Ranges]) -> None:
        """Drop the pieces of earlier slices that the next ``slices`` do not read.

        Parts of given tensors that a later slice reads are loaded again.
        """
        depths, loops = dict(stage.kept), [axis for axis, _ in stage.loops]
        passing = self._passing(stage)
        for name in {name for name, _ in self.pieces.by_layout}:
            if name in self.pieces.given or name in passing:
                axes = set(self.graph.tensors[name].axes) & set(loops[: depths.get(name)])
                self.pieces.drop_outside(
                    name, [{a: r for a, r in slice_.items() if a in axes} for slice_ in slices]
                )

    def _passing(self, stage: Stage) -> set[str]:
        """Return the tensors whose slices are computed and read in one iteration of the loops only.

        Dropping their pieces at once keeps searches for a piece short: otherwise they took a
        quarter of the compile time of `fashion` with 512 samples.
        """
        axes = {axis for axis, _ in stage.loops}
        windows = {window.x for window in self.graph.windows.values()} | set(self.graph.windows)
        return {
            name
            for name in stage.results - self._read_outside(stage) - windows - self.stored
            if axes <= set(self.graph.tensors[name].axes)
        }

    def _read_outside(self, stage: Stage) -> set[str]:
        """Return the tensors that operations outside a stage read."""
        inside, every = stage.results, self.choices.values()
        return {name for c in every if c.op.out not in inside for name in c.op.operands}

    # -- operations --------------------------------------------------------------------------------

    @property
    def _block_ranges(self) -> dict[str, tuple[int, int]]:
        """Ranges of the values that are computed together: none, or the samples of a block."""
        return {self._along: self.block} if self.block else {}

    def _ranges(self, name: str, lanes: Axes, slice_: Ranges, cut: Cut) -> dict:
        """Return the values of a tensor that a piece should have, for one work of one slice."""
        tensor, ranges = self.graph.tensors[name], self.pieces.own_ranges(name, slice_)
        small = TUNING.cut.whole_share * self.p.lanes * self.p.scratchpad_rows
        if name in self.pieces.given and self.graph.count(name) * tensor.digits <= small:
            ranges = {}
        # If only this array reads the layout, nobody needs values outside its cut.
        if cut and cut[0] in tensor.axes and self.demands.cuts.get((name, lanes)) == {cut}:
            return overlap(ranges, ranges_of(cut)) or {}
        return ranges

    def _target(self, name: str, lanes: Axes, slice_: Ranges, cut: Cut) -> Piece:
        """Return the piece that a result is written to: of the slice, or the whole tensor."""
        ranges = self.pieces.own_ranges(name, slice_ if name in self.inside else self._block_ranges)
        if cut and not self._joined(name):
            narrowed = overlap(ranges, ranges_of(cut))
            assert narrowed is not None
            ranges = narrowed
        pieces = self.pieces
        return pieces.existing(name, lanes, ranges) or pieces.result_piece(name, lanes, ranges)

    def _joined(self, name: str) -> bool:
        """Return whether all parts of a tensor have one layout."""
        return len({work.impl.along for work in self.choices[name].works if work.impl}) == 1

    def _choice(self, choice: Choice, slice_: Ranges) -> None:
        match choice.op:
            case View():
                self._view(choice, slice_)
            case Unfold():
                return  # readers of a window step through the rows of its source
            case Einsum():
                # Prepare operands of the transposing array last: its transposes for the other array
                # then come before its own work.
                parts = [self._operands(choice.op, work, slice_) for work in reversed(choice.works)]
                for work, operands in zip(choice.works, reversed(parts), strict=True):
                    if operands:
                        self._contract(choice.op, work, slice_, operands)
            case Kernel(body=ArrayBody() as body):
                self._elementwise(choice.op, body, choice.lanes, slice_)
            case Kernel():
                self._pass(choice.op, choice.lanes, slice_)
        wanted = choice.op.out in self.stored and choice.op.out in self.inside
        if wanted and self._is_whole(choice.op, slice_):
            self._store(choice, slice_)

    @staticmethod
    def _is_whole(op: Op, slice_: Ranges) -> bool:
        """Return whether a slice of a result is complete: all parts of its sums are added."""
        return not op.parts or all(slice_.get(axis, cut) == cut for axis, cut in op.parts[-1])

    def _view(self, choice: Choice, slice_: Ranges) -> None:
        op = choice.op
        if op.operands[0] in self.spilled:
            self.pieces.view_outside(op.out, op.operands[0])
        else:
            self.pieces.view(op.out, op.operands[0], choice.lanes, slice_)

    def _within(self, op: Einsum, work: Work, slice_: Ranges) -> dict | None:
        """Return the values that a work makes and sums in a slice; ``None`` if there are none."""
        axes = self.graph.tensors[op.out].axes
        # A sum in parts is also cut along summed axes, whose ranges are those of the cell.
        axes += tuple(axis for axis, _ in op.parts[0]) if op.parts else ()
        return overlap({a: r for a, r in slice_.items() if a in axes}, ranges_of(work.cut))

    def _operands(self, op: Einsum, work: Work, slice_: Ranges) -> list[Part] | None:
        """Return the operands of a work; ``None`` if the work computes nothing in the slice."""
        assert work.impl
        ranges = self._within(op, work, slice_)
        if ranges is None:
            return None
        parts = []
        for need in work.impl.needs:
            mine = self.pieces.own_ranges(need.tensor, ranges)
            wanted = self._ranges(need.tensor, need.lanes, slice_, work.cut)
            piece = self.pieces.existing(need.tensor, need.lanes, mine, need.entries)
            piece = piece or self.pieces.obtain(need.tensor, need.lanes, wanted, need.entries)
            parts.append(Part(piece, mine))
        return parts

    def _even(self, impl: Impl, x: Part, z: Part) -> Impl:
        """Drop first axes of a tile's rows until the rest is evenly spaced in ``x`` and ``z``."""
        tries = (impl.rows[n:] for n in range(len(impl.rows) + 1))
        best = next(r for r in tries if x.joint(r) is not None and z.joint(r) is not None)
        return impl if best == impl.rows else replace(impl, rows=best)

    def _contract(self, op: Einsum, work: Work, slice_: Ranges, parts: list[Part]) -> None:
        impl, graph, p = work.impl, self.graph, self.p
        assert impl
        z_axes = graph.tensors[op.out].axes
        ranges = self._within(op, work, slice_)
        assert ranges is not None
        target = self._target(op.out, impl.along, slice_, work.cut)
        sizes = counts_of(tuple(graph.sizes), graph.sizes, ranges)
        written = self.pieces.own_ranges(op.out, ranges)
        total, cell = Part(target, written), ()
        if op.parts:
            cell = tuple((axis, ranges[axis]) for axis, _ in op.parts[0])
        follows = op.parts and cell != op.parts[0]
        if follows:
            # The first part of a sum goes to the sum's rows, a later part to rows of its own: an
            # array never adds to rows of the scratchpad.
            target = self.pieces.detached(op.out, impl.along, written)
        free = prod(sizes[a] for a in z_axes)
        summed = prod(sizes[a] for a in graph.summed(op))
        # Count multiply-accumulates of the network, without padding and digits.
        self.macs += free * summed
        cycles = contraction_cycles(graph, op, impl, p, sizes)
        z = Part(target, written)
        if impl.array.along_lanes:
            impl = self._even(impl, parts[0], z)
        self.calls.append(
            Contract(
                engine=impl.engine, cycles=cycles, reads=tuple(parts), writes=(z,),
                op=op, impl=impl, macs=free * summed, counted=not op.parts,
            )
        )  # fmt: skip
        if op.parts and follows:
            self._add(z, total, last=cell == op.parts[-1])

    def _add(self, x: Part, z: Part, *, last: bool) -> None:
        """Add a part of a sum to the sum of the earlier parts."""
        cycles = SUM.cycles(z.rows, x.digits, z.digits)
        self.calls.append(
            Elementwise(
                engine=SUM.spec.engine, cycles=cycles, reads=(z, x), writes=(z,),
                exact=True, counted=last,
            )
        )  # fmt: skip

    def _elementwise(self, op: Kernel, body: ArrayBody, lanes: Axes, slice_: Ranges) -> None:
        pieces, ranges = self.pieces, self.pieces.own_ranges(op.out, slice_)
        x_name, g_name = op.operands
        of_x, of_g = element_digits(op, self.graph)
        x = Part(pieces.widened(x_name, lanes, ranges, of_x), ranges)
        z = Part(self._target(op.out, lanes, slice_, None), ranges)
        mine = pieces.own_ranges(g_name, ranges)
        # Both operands have all axes, or the second lacks samples and is broadcast along them.
        broadcast = self.graph.tensors[g_name].axes != self.graph.tensors[op.out].axes
        # A broadcast operand is one row for all blocks of lanes. A last block that is not full
        # needs another row, because lanes beyond the samples must stay zero for statistics and
        # sums.
        every = whole_and_rest(z.counts[lanes[0]], self.p.lanes)
        spans = every if broadcast else [(0, z.blocks, 0)]
        for first, blocks, count in spans:
            if broadcast:
                g = pieces.broadcast(g_name, lanes[0], count, mine, of_g)
            else:
                g = pieces.widened(g_name, lanes, ranges, of_g)
            rows = prod(z.counts[a] for a in z.piece.layout.rows) * blocks
            self.calls.append(
                Elementwise(
                    engine=body.spec.engine, cycles=body.cycles(rows, x.digits, z.digits),
                    reads=(x, Part(g, mine)), writes=(z,), body=body,
                    blocks=(first, blocks), broadcast=broadcast,
                )
            )  # fmt: skip

    def _pass(self, op: Kernel, lanes: Axes, slice_: Ranges) -> None:
        ranges = self.pieces.own_ranges(op.out, slice_)
        operands = tuple(
            Part(self.pieces.obtain(name, lanes, ranges), ranges) for name in op.operands
        )
        z = Part(self._target(op.out, lanes, slice_, None), ranges)
        passes = PassPlan.of(op, self.graph.tensors, (*operands, z), self.p)
        writes = [z]
        if rows := passes.scratch_rows:
            counts = {"row": rows, "lane": self.p.lanes}
            joined = Piece.new(f"{op.out} sums", ROW, counts, {}, self.p.lanes)
            writes.append(Part(joined, {}))
        self.calls.append(
            PassCall(
                engine=op.body.spec.engine, cycles=passes.cycles, reads=operands,
                writes=tuple(writes), op=op, passes=passes,
            )
        )  # fmt: skip

    def _store(self, choice: Choice, slice_: Ranges) -> None:
        name = choice.op.out
        pieces, layout = self.pieces, self.layouts.get(name)
        if name in pieces.views and layout in (None, pieces.given[name][0].layout):
            # Its origin was stored, and the view has the same rows.
            view = replace(pieces.given[name][0], view_of=pieces.views[name])
            pieces.outer.setdefault(view.name, view)
            return
        for lanes, outside in self._stored_as(choice):
            mine = overlap(pieces.own_ranges(name, slice_), outside)
            if mine is None:
                continue
            if layout:
                piece = pieces.obtain(name, layout.lanes, mine)
            else:
                piece = pieces.existing(name, lanes, mine)
            if piece is None:
                raise CutError(f"{name} is not there in one piece of {mine}")
            kept = layout or piece.layout
            # Rows of zeros go outside with a whole piece only: readers of slices clear their own.
            if not dict(outside) == dict(piece.ranges) == dict(mine):
                kept = replace(kept, padded=())
            pieces.move(Engine.STORE, piece, mine, pieces.external(piece, kept, outside))

    def _stored_as(self, choice: Choice) -> list[tuple[Axes, Ranges]]:
        """Return lanes and ranges of a result, or of each part if parts have different layouts."""
        works = [(w.impl.along, ranges_of(w.cut)) for w in choice.works if w.impl]
        if works and not self._joined(choice.op.out):
            return works
        return [(works[0][0] if works else choice.lanes, {})]


def tiled(
    spec: ProgramSpec,
    stages: Sequence[Stage],
    pads: Sequence[Pad],
    spilled: Collection[str] = (),
    blocks: Sequence[Block] = (),
    *,
    spare: bool = False,
) -> Lowered:
    """Return the program of cut stages, as ``Tiler`` describes. Raises ``CutError``."""
    tiler = Tiler(spec, stages, pads, spilled, blocks, spare=spare)
    tiler.run()
    calls = tuple(_used(tiler.calls))
    return Lowered(tiler.graph, tuple(stages), calls, tiler.pieces.outer, tiler.macs)

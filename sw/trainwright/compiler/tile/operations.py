"""Make the commands of single operations, for a slice of their results each.

``Operations`` has one method for each operation of the graph. Each finds or makes its operands
(``pieces``), chooses the piece that the result goes to, and appends a command.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import prod

from trainwright.compiler.cut.slices import Block, overlap
from trainwright.compiler.forms.calls import Accumulate, Contract, Elementwise, GroupCall, PassCall
from trainwright.compiler.forms.choices import Choice, Cut, Given, Pad, Stored, Work, ranges_of
from trainwright.compiler.forms.digits import element_digits
from trainwright.compiler.forms.group_passes import GroupPlan
from trainwright.compiler.forms.impls import Impl, contraction_cycles
from trainwright.compiler.forms.layout import (
    ROW,
    Axes,
    CutError,
    Layout,
    Part,
    Piece,
    Ranges,
    Storage,
    counts_of,
)
from trainwright.compiler.forms.passes import lowered
from trainwright.compiler.tile.pieces import Pieces
from trainwright.graph.ir import Add, Einsum, Graph, Kernel, Mask, Op, Unfold, View
from trainwright.graph.network import SAMPLES
from trainwright.parameters import AcceleratorParameters
from trainwright.program.engines import elementwise_cycles, pass_cycles
from trainwright.program.fields import Engine

SMALL = 32
"""Share of the scratchpad, as its inverse, below which a tensor is loaded whole and not in slices.
"""


class Operations(Pieces):
    """Commands of operations.

    ``given`` are the tensors of external memory, ``stored`` the ones that are written there and
    ``spilled`` the ones that are read from there again. With ``spare`` no more rows of zeros are
    loaded than needed.
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
    ):
        super().__init__(graph, dict(given), p, spare=spare)
        self.block: Block | None = None
        """Samples that are computed at present, by stages that take blocks of them."""
        self.inside: set[str] = set()
        """Tensors that exist in slices only, within the stage that is computed at present."""
        self.stored, self.pads, self.spilled = {*stored, *spilled}, pads, set(spilled)
        self.stored_layouts = stored
        self.macs = 0
        self.every: list[Choice] = []
        """Choices of all stages."""

    @property
    def _whole(self) -> dict[str, tuple[int, int]]:
        """Ranges of the values that are computed together: none, or the samples of a block."""
        return {SAMPLES: self.block} if self.block else {}

    def _ranges(self, name: str, lanes: Axes, slice_: Ranges, cut: Cut) -> dict:
        """Return the values of a tensor that a piece should have, for one work of one slice."""
        axes = self.graph.tensors[name].axes
        ranges = {a: r for a, r in slice_.items() if a in axes}
        if (
            name in self.given
            and self.graph.count(name) * self.graph.tensors[name].digits * SMALL
            <= self.p.lanes * self.p.scratchpad_rows
        ):
            ranges = {}
        # Only this array reads the layout, so that values outside its cut would be loaded for
        # nobody.
        if cut and cut[0] in axes and self.demands.cuts.get((name, lanes)) == {cut}:
            return overlap(ranges, ranges_of(cut)) or {}
        return ranges

    def _target(self, name: str, lanes: Axes, slice_: Ranges, cut: Cut) -> Piece:
        """Return the piece that a result is written to: of the slice, or the whole tensor."""
        axes = self.graph.tensors[name].axes
        slice_ranges = slice_ if name in self.inside else self._whole
        ranges = {a: r for a, r in slice_ranges.items() if a in axes}
        if cut and not self._joined(name):
            whole = overlap(ranges, ranges_of(cut))
            assert whole is not None
            ranges = whole
        return self.existing(name, lanes, ranges) or self.result_piece(name, lanes, ranges)

    def _joined(self, name: str) -> bool:
        """Return whether all parts of a tensor lie in one layout."""
        choice = next(c for c in self.every if c.op.out == name)
        return len({work.impl.along for work in choice.works if work.impl}) == 1

    def _choice(self, choice: Choice, slice_: Ranges) -> None:
        match choice.op:
            case View():
                self._view(choice, slice_)
            case Unfold():
                return  # its readers step through the rows of its source
            case Einsum():
                # PE2's operands first: where PE1 transposes one of them, the transpose runs before
                # PE1's own work.
                parts = [self._operands(choice.op, work, slice_) for work in reversed(choice.works)]
                for work, operands in zip(choice.works, reversed(parts), strict=True):
                    if operands:
                        self._contract(choice.op, work, slice_, operands)
            case Add() | Mask():
                self._elementwise(choice, slice_)
            case Kernel():
                self._pass(choice.op, choice.lanes, slice_)
        wanted = choice.op.out in self.stored and choice.op.out in self.inside
        if wanted and self._is_whole(choice.op, slice_):
            self._store(choice, slice_)

    @staticmethod
    def _is_whole(op: Op, slice_: Ranges) -> bool:
        """Return whether a slice of a result is complete: all parts of its sums are added."""
        parts = op.parts if isinstance(op, Einsum) else ()
        return not parts or all(slice_.get(axis, cut) == cut for axis, cut in parts[-1])

    def _view(self, choice: Choice, slice_: Ranges) -> None:
        op = choice.op
        if op.operands[0] in self.spilled:
            self._view_outside(op.out, op.operands[0])
            return
        source_axes = self.graph.tensors[op.operands[0]].axes
        axes = self.graph.tensors[op.out].axes
        # A view may name the axis along the lanes anew, as keys are the tokens of queries.
        lanes = choice.lanes if set(choice.lanes) <= set(axes) else axes[-1:]
        if lanes != choice.lanes and {*lanes, *choice.lanes} & set(slice_):
            raise CutError(f"{op.out} has other lanes than {op.operands[0]} and is cut there")
        ranges = {a: r for a, r in slice_.items() if a in source_axes}
        source = self.ensure(
            op.operands[0],
            choice.lanes,
            ranges,
            tuple(a for a in source_axes if a not in choice.lanes),
            pad=False,
        )
        layout = Layout(tuple(a for a in axes if a not in lanes), lanes)
        counts = counts_of(axes, self.graph.sizes, source.ranges)
        piece = Piece(
            op.out, layout, counts, source.ranges, self.p.lanes, source.storage,
            digits=source.digits,
        )  # fmt: skip
        if piece.rows > source.rows:  # fewer rows are fine: the source may have zeros behind
            raise CutError(f"{op.out} does not lie in the rows of {op.operands[0]}")
        self.pieces.setdefault((op.out, lanes), []).append(piece)

    def _view_outside(self, name: str, source: str) -> None:
        """Note a view of a tensor in external memory: its readers load the rows of the source."""
        given, axes = self.given[source].layout, self.graph.tensors[name].axes
        if given is None or given.padded or not set(given.lanes) <= set(axes):
            raise CutError(f"{name} does not lie in the rows of {source}")
        layout = Layout(tuple(a for a in axes if a not in given.lanes), given.lanes)
        self.given[name] = Given(layout)
        self.views[name] = source

    def _within(self, op: Einsum, work: Work, slice_: Ranges) -> dict | None:
        """Return the values that a work makes and sums in a slice; ``None`` if there are none."""
        axes = self.graph.tensors[op.out].axes
        # A sum in parts is also cut along axes that it sums; the ranges of such axes are the
        # cell's.
        axes += tuple(axis for axis, _ in op.parts[0]) if op.parts else ()
        return overlap({a: r for a, r in slice_.items() if a in axes}, ranges_of(work.cut))

    def _operands(self, op: Einsum, work: Work, slice_: Ranges) -> list[Part] | None:
        """Return the operands of a work; ``None`` where the slice has nothing of the work."""
        assert work.impl
        ranges = self._within(op, work, slice_)
        if ranges is None:
            return None
        parts = []
        for need in work.impl.needs:
            axes = self.graph.tensors[need.tensor].axes
            mine = {a: r for a, r in ranges.items() if a in axes}
            wanted = self._ranges(need.tensor, need.lanes, slice_, work.cut)
            piece = self.existing(need.tensor, need.lanes, mine, need.entries)
            piece = piece or self.ensure(need.tensor, need.lanes, wanted, need.entries)
            parts.append(Part(piece, mine))
        return parts

    def _even(self, impl: Impl, x: Part, z: Part) -> Impl:
        """Return the implementation with fewer axes in a tile's rows if the chosen lie unevenly."""
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
        written = {a: r for a, r in ranges.items() if a in z_axes}
        whole, cell = Part(target, written), ()
        if op.parts:
            cell = tuple((axis, ranges[axis]) for axis, _ in op.parts[0])
        follows = op.parts and cell != op.parts[0]
        if follows:
            # The first part of a sum is written to its place; a later one to rows of its own, as an
            # array never adds to rows of the scratchpad.
            target = self.detached(op.out, impl.along, written)
        free = prod(sizes[a] for a in z_axes)
        summed = prod(sizes[a] for a in graph.summed(op))
        # Counted without padding and digits, as the network has them.
        self.macs += free * summed
        cycles = contraction_cycles(graph, op, impl, p, sizes)
        x, g = parts
        z = Part(target, written)
        if impl.array.along_lanes:
            impl = self._even(impl, x, z)
        self.calls.append(
            Contract(
                engine=impl.engine,
                cycles=cycles,
                reads=(x.piece, g.piece),
                writes=(target,),
                op=op,
                impl=impl,
                x=x,
                g=g,
                z=z,
                macs=free * summed,
                part=bool(op.parts),
            )
        )
        if op.parts and follows:
            self._add(z, whole, last=cell == op.parts[-1])

    def _add(self, x: Part, z: Part, *, last: bool) -> None:
        """Add a part of a sum to the sum of those before it."""
        rows = prod(z.counts[a] for a in z.piece.layout.rows) * z.blocks
        self.calls.append(
            Accumulate(
                engine=Engine.PE2, cycles=elementwise_cycles(rows, x.digits, z.digits),
                reads=(z.piece, x.piece), writes=(z.piece,), x=x, z=z, last=last,
            )
        )  # fmt: skip

    def _elementwise(self, choice: Choice, slice_: Ranges) -> None:
        op, lanes = choice.op, choice.lanes
        assert isinstance(op, Add | Mask)
        axes = self.graph.tensors[op.out].axes
        ranges = {a: r for a, r in slice_.items() if a in axes}
        x_name, g_name = op.operands
        of_x, of_g = element_digits(op, self.graph)
        x = Part(self.widened(x_name, lanes, ranges, of_x), ranges)
        target = self._target(op.out, lanes, slice_, None)
        z = Part(target, ranges)
        # Both operands have all axes, or the second one lacks the samples and is broadcast along
        # them.
        if self.graph.tensors[g_name].axes == axes:
            g = self.widened(g_name, lanes, ranges, of_g)
            self._one(op, x, Part(g, ranges), z, (0, z.blocks), broadcast=False)
            return
        mine = {a: r for a, r in ranges.items() if a in self.graph.tensors[g_name].axes}
        (samples,) = lanes
        # A broadcast operand is one row for all blocks of samples. The last block needs a row of
        # its own if it is not full: lanes beyond the samples have to stay zero, for the statistics
        # and for sums.
        whole, rest = divmod(z.counts[samples], self.p.lanes)
        if whole:
            g = self._broadcast(g_name, samples, self.p.lanes, mine, of_g)
            self._one(op, x, Part(g, mine), z, (0, whole), broadcast=True)
        if rest:
            g = self._broadcast(g_name, samples, rest, mine, of_g)
            self._one(op, x, Part(g, mine), z, (whole, 1), broadcast=True)

    def _broadcast(self, name: str, samples: str, count: int, ranges: Ranges, digits: int) -> Piece:
        """Return a tensor repeated along ``count`` lanes of the samples, in so many digits.

        The host writes it repeated, so it is loaded as it is.
        """
        key = f"{name}*{count}", (samples,)
        for piece in self.pieces.get(key, []):
            if piece.covers(ranges):
                return piece
        axes = self.graph.tensors[name].axes
        counts = counts_of(axes, self.graph.sizes, ranges) | {samples: count}
        layout = Layout(axes, (samples,))
        piece = Piece(
            name, layout, counts, dict(ranges), self.p.lanes, Storage(key[0], 0), digits=digits
        )
        piece.storage.rows = piece.rows
        self.pieces.setdefault(key, []).append(piece)
        outer = self.external(piece, layout, {samples: (0, count)})
        self.move(Engine.LOAD, piece, ranges, outer)
        return piece

    def _one(
        self, op: Add | Mask, x: Part, g: Part, z: Part, blocks: tuple[int, int], *, broadcast: bool
    ) -> None:
        rows = prod(z.counts[a] for a in z.piece.layout.rows) * blocks[1]
        self.calls.append(
            Elementwise(
                engine=Engine.PE2, cycles=elementwise_cycles(rows, x.digits, z.digits),
                reads=(x.piece, g.piece), writes=(z.piece,),
                op=op, x=x, g=g, z=z, blocks=blocks, broadcast=broadcast,
            )
        )  # fmt: skip

    def _pass(self, op: Kernel, lanes: Axes, slice_: Ranges) -> None:
        axes = self.graph.tensors[op.out].axes
        ranges = {a: r for a, r in slice_.items() if a in axes}
        operands = tuple(Part(self.ensure(name, lanes, ranges), ranges) for name in op.operands)
        z = Part(self._target(op.out, lanes, slice_, None), ranges)
        if op.function.group:
            self._group_pass(op, operands, z)
            return
        passes = lowered(op, self.graph.tensors)
        rows = prod(z.counts[a] for a in z.piece.layout.rows) * z.blocks
        cycles = sum(pass_cycles(rows, len(code.instructions), self.p) for code in passes)
        self.calls.append(
            PassCall(
                engine=Engine.PE2, cycles=cycles,
                reads=tuple(part.piece for part in operands), writes=(z.piece,),
                op=op, passes=passes, operands=operands, z=z,
            )
        )  # fmt: skip

    def _group_pass(self, op: Kernel, operands: tuple[Part, ...], z: Part) -> None:
        passes = GroupPlan(op, self.graph.tensors, (*operands, z), self.p)
        scratch = None
        if rows := passes.scratch_rows:
            name = f"{op.out} sums"
            counts = {"row": rows, "lane": self.p.lanes}
            scratch = Piece(name, ROW, counts, {}, self.p.lanes, Storage(name, rows))
        self.calls.append(
            GroupCall(
                engine=Engine.PE2, cycles=passes.cycles,
                reads=tuple(part.piece for part in operands),
                writes=(z.piece, *([scratch] if scratch else [])),
                op=op, passes=passes, operands=operands, z=z, scratch=scratch,
            )
        )  # fmt: skip

    def _store(self, choice: Choice, slice_: Ranges) -> None:
        name = choice.op.out
        axes = self.graph.tensors[name].axes
        ranges = {a: r for a, r in slice_.items() if a in axes}
        for lanes, outside in self._stored_as(choice):
            mine = overlap(ranges, outside)
            if mine is None:
                continue
            layout = self.stored_layouts.get(name)
            piece = (
                self.ensure(name, layout.lanes, mine)
                if layout
                else self.existing(name, lanes, mine)
            )
            if piece is None:
                raise CutError(f"{name} is not there in one piece of {mine}")
            outer = self.external(piece, layout or piece.layout, outside)
            self.move(Engine.STORE, piece, mine, outer)

    def _stored_as(self, choice: Choice) -> list[tuple[Axes, Ranges]]:
        """Return the lanes of a result, of each of its parts where they lie apart."""
        works = [(w.impl.along, ranges_of(w.cut)) for w in choice.works if w.impl]
        if works and not self._joined(choice.op.out):
            return works
        return [(works[0][0] if works else choice.lanes, {})]

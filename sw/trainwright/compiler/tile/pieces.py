"""Give pieces of tensors in the layouts asked for, and collect the commands that they take.

``Pieces.obtain`` is the centre: it returns a piece that exists, or loads it, transposes it (PE1) or
copies it (PE2), whichever works first. Pieces are never changed: another layout or range is another
piece, and the one that nobody reads any more gives its rows back when commands are placed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from trainwright.compiler.cut.slices import block_axis, overlap
from trainwright.compiler.forms.calls import Call, Clear, Elementwise, Move, Transpose
from trainwright.compiler.forms.choices import ranges_of
from trainwright.compiler.forms.external import External, Sources
from trainwright.compiler.forms.impls import up
from trainwright.compiler.forms.layout import (
    Axes,
    CutError,
    Layout,
    Part,
    Piece,
    Ranges,
    counts_of,
)
from trainwright.compiler.forms.windows import Halo, halos, spread, steps
from trainwright.compiler.tile.demands import Demands
from trainwright.graph.ir import Graph, Unfold
from trainwright.parameters import AcceleratorParameters
from trainwright.program.elementwise import SUM
from trainwright.program.engines import TRANSPOSER, transpose_cycles
from trainwright.program.fields import Engine
from trainwright.support.memo import CachedMethod


def together(order: Sequence[str], groups: Sequence[Axes]) -> Axes:
    """Return the axes with each group side by side, as far as groups before it allow."""
    now = list(order)
    kept: list[list[str]] = []
    for group in groups:
        wanted = [a for a in group if a in now]
        if len(wanted) < 2:
            continue
        place = min(now.index(a) for a in wanted)
        trial = [a for a in now if a not in wanted]
        # Move the group to where its first axis stands, and keep the move only if it tears no
        # earlier group apart: groups come in the order of their importance.
        trial[place:place] = wanted
        if all(_adjacent(trial, earlier) for earlier in kept):
            now = trial
            kept.append(wanted)
    return tuple(now)


def _adjacent(order: Sequence[str], group: Sequence[str]) -> bool:
    start = order.index(group[0])
    return list(order[start : start + len(group)]) == list(group)


class Pieces:
    """Pieces of one program, and the commands that make them."""

    def __init__(
        self,
        graph: Graph,
        given: Mapping[str, Sources],
        demands: Demands,
        p: AcceleratorParameters,
        *,
        spare: bool,
    ):
        self.graph, self.demands, self.p, self.spare = graph, demands, p, spare
        self.given = dict(given)
        """Tensors in external memory, to which spilled tensors and views are added."""
        self.calls: list[Call] = []
        self.by_layout: dict[tuple[str, Axes], list[Piece]] = {}
        self.outer: dict[str, External] = {}
        self.views: dict[str, str] = {}
        """Source of each view, for tensors in external memory."""

    def own_ranges(self, name: str, ranges: Ranges) -> dict[str, tuple[int, int]]:
        """Return the ranges along axes that a tensor has."""
        axes = self.graph.tensors[name].axes
        return {a: r for a, r in ranges.items() if a in axes}

    # -- pieces that are dropped -------------------------------------------------------------------

    def leave_block(self) -> None:
        """Forget the pieces of a block of samples, which no later block reads."""
        along = block_axis(self.graph)
        for key, pieces in self.by_layout.items():
            self.by_layout[key] = [piece for piece in pieces if along not in piece.ranges]

    def drop_outside(self, name: str, slices: Sequence[Ranges]) -> None:
        """Forget the pieces of a tensor that have no values of ``slices``."""
        for key in [key for key in self.by_layout if key[0] == name]:
            self.by_layout[key] = [
                piece
                for piece in self.by_layout[key]
                if any(overlap(piece.ranges, mine) is not None for mine in slices)
            ]

    def spill(self, name: str) -> None:
        """Move a tensor to external memory: from now on its readers load it from there."""
        (outer,) = (outer for outer in self.outer.values() if outer.tensor == name)
        self.given[name] = (outer,)
        for key in [key for key in self.by_layout if key[0] == name]:
            del self.by_layout[key]

    # -- pieces that are asked for -----------------------------------------------------------------

    def obtain(
        self, name: str, lanes: Axes, ranges: Ranges, group: Axes = (), *, pad: bool = True
    ) -> Piece:
        """Return a piece with these values and ``lanes`` along its lanes.

        The axes of ``group`` are one even index of its rows, with rows of zeros up to a multiple of
        the lanes where ``pad`` is set. Raises ``CutError`` where no command makes such a piece.
        """
        piece = self.existing(name, lanes, ranges, group, pad=pad)
        if piece:
            return piece
        # Cheapest first: rows of the source for an unfolding, a load, a transpose, then a copy.
        if name in self.graph.windows:
            return self._window(self.graph.windows[name], lanes, ranges, group, pad=pad)
        piece = self.existing(name, lanes, ranges)
        source = self._source(name, lanes, ranges)
        # A tensor that the host writes in any layout is loaded once more for every layout: that
        # takes the memory port instead of a transpose by PE1.
        if self._is_free(name) or (source and (piece is None or source.reloadable)):
            piece = self._loaded(name, source, lanes, ranges, group)
        piece = piece or self._by_transposes(name, lanes, ranges, group)
        if not self._suits(piece, ranges, group, pad=pad):
            piece = self._copied(piece, ranges, group, pad=pad)
        if not self._suits(piece, ranges, group, pad=pad):
            raise CutError(f"{name} has no even index {group} in {piece.layout.text}")
        return piece

    def _is_free(self, name: str) -> bool:
        """Return whether the host writes a tensor in any layout."""
        return name in self.given and not self.given[name]

    def _source(self, name: str, lanes: Axes | None, ranges: Ranges) -> External | None:
        """Return where these values lie in external memory, with given or any lanes."""
        sources = self.given.get(name, ())
        return next((source for source in sources if source.serves(lanes, ranges)), None)

    def existing(
        self, name: str, lanes: Axes, ranges: Ranges, group: Axes = (), *, pad: bool = True
    ) -> Piece | None:
        """Return a piece that exists already, the latest that suits; ``None`` if there is none."""
        for piece in reversed(self.by_layout.get((name, lanes), [])):
            if piece.covers(ranges) and self._suits(piece, ranges, group, pad=pad):
                return piece
        return None

    def _suits(self, piece: Piece, ranges: Ranges, group: Axes, *, pad: bool) -> bool:
        if not group:
            return True
        part = Part(piece, ranges)
        if part.joint(group) is None:
            return False
        size = prod(part.counts[a] for a in group)
        # Rows of zeros lie behind the whole group, so a cut of it would end in values instead of
        # zeros.
        is_whole = all(part.counts[a] == piece.counts[a] for a in group)
        return not pad or size % self.p.lanes == 0 or (is_whole and piece.layout.padded == group)

    def result_piece(
        self, name: str, lanes: Axes, ranges: Ranges, groups: Sequence[Axes] = ()
    ) -> Piece:
        """Return a new piece for a result, cleared where rows of it stay zero."""
        piece = self._new(name, lanes, ranges, groups)
        self._clear(piece)
        return piece

    def detached(self, name: str, lanes: Axes, ranges: Ranges) -> Piece:
        """Return a new piece for a part of a sum, which no reader of the tensor finds."""
        piece = self._new(name, lanes, ranges, [])
        self.by_layout[name, lanes].remove(piece)
        return piece

    def _new(
        self, name: str, lanes: Axes, ranges: Ranges, groups: Sequence[Axes], padded: Axes = ()
    ) -> Piece:
        axes = self.graph.tensors[name].axes
        key = name, lanes
        # In this order: what must lie side by side now, what an array can write in no other way,
        # and what later readers would like. Axes of slices and divisions come first where no group
        # claims them, so that parts of a tensor are runs of rows.
        hard = [*groups, *self.demands.hard.get(key, ())]
        every = [*([padded] if padded else []), *hard, *self.demands.groups.get(key, ())]
        fixed = {a for group in every if len(group) > 1 for a in group}
        first = [a for a in self.demands.lead.get(name, ()) if a not in lanes and a not in fixed]
        rest = [a for a in axes if a not in lanes and a not in first]
        rows = together((*first, *rest), every)
        # Rows of zeros between two axes of a required group would break its even index.
        if not padded:
            usual = self.demands.padding.get(key, ())
            clear = all(group == usual or not set(group) & set(usual) for group in hard)
            padded = usual if clear else ()
        if padded and not (set(padded) <= set(rows) and _adjacent(rows, padded)):
            padded = ()
        counts = counts_of(axes, self.graph.sizes, ranges)
        layout = Layout(rows, lanes, padded)
        piece = Piece.new(
            name, layout, counts, ranges, self.p.lanes, digits=self.graph.tensors[name].digits
        )
        self.by_layout.setdefault(key, []).append(piece)
        return piece

    # -- windows -----------------------------------------------------------------------------------

    def _window(self, op: Unfold, lanes: Axes, ranges: Ranges, group: Axes, *, pad: bool) -> Piece:
        """Return windows of a tensor: a piece in the tensor's rows, with strides of its own."""
        places, mine = halos(self.graph, op, ranges), self.own_ranges(op.x, ranges)
        mine |= {a: halo.values for a, halo in places.items() if halo.values != (0, halo.size)}
        # Without zeros around or between values, the tensor itself has the rows.
        if all(halo.plain for halo in places.values()):
            # The source has no index over positions; the windows are checked for it below.
            own = group if set(group) <= set(self.graph.tensors[op.x].axes) else ()
            base = self.obtain(op.x, lanes, mine, own, pad=pad)
        else:
            base = self._surrounded(op, places, lanes, mine, group, pad=pad)
        stepped, first = steps(
            places, base.strides, {a: base.ranges.get(a, (0, 0))[0] for a in places}
        )
        positions = {halo.slide.position for halo in places.values()}
        inner = {a: r for a, r in base.ranges.items() if a not in places}
        # The piece has the positions that were asked for, and all offsets: their places overlap.
        inner |= {a: r for a, r in ranges.items() if a in positions}
        axes = self.graph.tensors[op.out].axes
        layout = Layout(tuple(a for a in axes if a not in lanes), lanes, base.layout.padded)
        counts = counts_of(axes, self.graph.sizes, inner)
        piece = Piece(
            op.out, layout, counts, inner, self.p.lanes, base.storage, stepped, base.first + first,
            base.digits,
        )  # fmt: skip
        if not self._suits(piece, ranges, group, pad=pad):
            raise CutError(f"{op.out} has no even index {group} in {base.layout.text}")
        self.by_layout.setdefault((op.out, lanes), []).append(piece)
        return piece

    def _surrounded(
        self,
        op: Unfold,
        places: Mapping[str, Halo],
        lanes: Axes,
        ranges: Ranges,
        group: Axes,
        *,
        pad: bool,
    ) -> Piece:
        """Return the source of windows with its zeros, loaded or copied among them."""
        axes = self.graph.tensors[op.x].axes
        size = prod(counts_of(group, self.graph.sizes, {}).values())
        padded = group if group and pad and size % self.p.lanes else ()
        first = [
            a for a in self.demands.lead.get(op.out, ()) if a in axes and a not in (*lanes, *group)
        ]
        rest = [a for a in axes if a not in lanes and a not in first]
        groups = [group, *self.demands.groups.get((op.out, lanes), ())]
        rows = together((*first, *rest), [g for g in groups if set(g) <= set(rest)])
        layout = Layout(rows, lanes, padded)
        wide = {**ranges, **{a: (halo.low, halo.high) for a, halo in places.items()}}
        counts = counts_of(axes, self.graph.sizes, wide)
        digits = self.graph.tensors[op.x].digits
        piece = Piece.new(op.x, layout, counts, wide, self.p.lanes, label=op.out, digits=digits)
        # Clear all rows first and fill in the values after: zeros lie between values, too, where a
        # gradient has a stride.
        self._clear(piece, always=True)
        if any(halo.values[0] >= halo.values[1] for halo in places.values()):
            return piece  # zeros alone
        stepped, before = spread(places, piece.strides)
        counts = counts_of(axes, self.graph.sizes, ranges)
        inside = Piece(
            op.x, layout, counts, dict(ranges), self.p.lanes, piece.storage, stepped, before,
            digits,
        )  # fmt: skip
        outer = self._source(op.x, lanes, ranges)
        source = self.existing(op.x, lanes, ranges)
        if source is None and (outer or self._is_free(op.x)):
            self._load_into(inside, outer, ranges)
        else:
            self._copy_into(inside, source or self.obtain(op.x, lanes, ranges), ranges)
        return piece

    def _clear(self, piece: Piece, *, always: bool = False) -> None:
        if always or piece.is_padded:
            self.outer.setdefault("zeros", External.constant("zeros", self.p.lanes))
            # Only the gaps are cleared where that is known to be enough; elsewhere the whole piece.
            padding = self.spare and not always and piece.steps is None
            first, rows, step = piece.padding if padding else (0, piece.rows, piece.rows)
            times = piece.rows // step
            self.calls.append(
                Clear(
                    engine=Engine.LOAD, cycles=self.p.beat_cycles * rows * times,
                    writes=(Part(piece, {}),),
                    first=first, rows=rows, step=step, times=times,
                )
            )  # fmt: skip

    def _loaded(
        self, name: str, source: External | None, lanes: Axes, ranges: Ranges, group: Axes
    ) -> Piece:
        """Return a new piece, loaded from ``source``, or from where the host is to write it."""
        size = prod(self.graph.sizes[a] for a in group)
        padded = group if size % self.p.lanes else ()
        piece = self._new(name, lanes, ranges, [group] if group else [], padded)
        outside = self._outside(piece, source)
        own, layout = piece.layout, source.layout if source else piece.layout
        same = (layout.rows, layout.padded) == (own.rows, own.padded)
        # A load of the same rows brings the zeros of its padding along; any other load leaves
        # them out.
        if not same or dict(ranges) != dict(outside):
            self._clear(piece)
        self._load_into(piece, source, ranges)
        return piece

    def _outside(self, piece: Piece, source: External | None) -> Ranges:
        """Return the range of a tensor that external memory has to hold, where it is a part.

        The host writes no more than one array reads; the rest may lie in another layout.
        """
        if source:
            return source.ranges
        cuts = self.demands.cuts.get((piece.tensor, piece.layout.lanes), ())
        if len(cuts) == 1:
            (cut,) = cuts
            return ranges_of(cut)
        return {}

    def _load_into(self, piece: Piece, source: External | None, ranges: Ranges) -> None:
        """Load a tensor from where it lies, or from where the host is to write it."""
        layout = source.layout if source else piece.layout
        outer = self.external(piece, layout, self._outside(piece, source))
        view_of = self.views.get(piece.tensor, "")
        self.move(Engine.LOAD, piece, ranges, replace(outer, view_of=view_of))

    def external(self, piece: Piece, layout: Layout, ranges: Ranges) -> External:
        """Describe ``ranges`` of a piece's tensor in external memory, in a layout."""
        lanes, digits = self.p.lanes, piece.digits
        return External.of(self.graph, piece.tensor, layout, ranges, lanes, digits)

    def move(self, engine: Engine, piece: Piece, ranges: Ranges, outer: External) -> None:
        """Append a load of a piece, or a store."""
        outer = self.outer.setdefault(outer.name, outer)
        cycles, part = self.p.beat_cycles * piece.rows * outer.element_bytes, (Part(piece, ranges),)
        touched = {"writes" if engine is Engine.LOAD else "reads": part}
        self.calls.append(Move(engine=engine, cycles=cycles, outer=outer, **touched))

    @CachedMethod
    def constant(self, name: str) -> Part:
        """Return ``identity`` or ``zeros``, loaded when first needed."""
        outer = External.constant(name, self.p.lanes)
        self.move(Engine.LOAD, outer.piece, {}, outer)
        return Part(outer.piece, {})

    # -- other layouts -----------------------------------------------------------------------------

    def _by_transposes(self, name: str, lanes: Axes, ranges: Ranges, group: Axes) -> Piece:
        """Transpose a tensor from a layout with other axes along the lanes."""
        sources = [
            piece
            for (tensor, _), pieces in self.by_layout.items()
            if tensor == name
            for piece in pieces
            if piece.covers(ranges)
        ]
        if not sources:
            outer = self._source(name, None, ranges)
            if outer is None:
                raise CutError(f"{name} is not there in one piece of {ranges}")
            sources = [self.obtain(name, outer.layout.lanes, ranges)]
        uncut = [piece for piece in sources if not set(piece.layout.lanes) & set(ranges)]
        if not uncut:
            # A cut of the lanes has rows of its own only between whole rows. Otherwise all values
            # along the lanes are transposed: more than asked for, but correct.
            sources = [piece for piece in sources if Part(piece, ranges).is_even] or sources[-1:]
            if not Part(sources[-1], ranges).is_even:
                lying = sources[-1].layout.lanes
                ranges = {a: r for a, r in ranges.items() if a not in lying}
        sources = uncut or sources
        apart = [piece for piece in sources if not set(piece.layout.lanes) & set(lanes)]
        if apart:
            # A source whose rows already suit the new lanes as entries needs no copy before its
            # transpose.
            best = next((x for x in apart if self._suits(x, ranges, lanes, pad=True)), apart[-1])
            return self._transposed(best, lanes, ranges, group)
        # Lanes before and after share an axis: one transpose cannot turn it, so go through lanes
        # that share none, along the longest free axis, which fills rows best.
        source = sources[-1]
        busy = {*lanes, *source.layout.lanes}
        free = [a for a in self.graph.tensors[name].axes if a not in busy and a not in ranges]
        sizes = self.graph.sizes
        between = tuple(sorted(free, key=lambda a: -sizes[a])[:1])
        self._transposed(source, between, ranges, lanes)
        return self._transposed(self.obtain(name, between, ranges), lanes, ranges, group)

    def _transposed(self, source: Piece, lanes: Axes, ranges: Ranges, group: Axes) -> Piece:
        old = source.layout.lanes
        source = self.obtain(source.tensor, old, ranges, lanes)
        identity = self.constant("identity")
        piece = self.result_piece(source.tensor, lanes, ranges, [old, *([group] if group else [])])
        x, z = Part(source, ranges), Part(piece, ranges)
        if z.joint(old) is None:
            raise CutError(f"{piece.tensor} has no even index {old} in {piece.layout.text}")
        values = z.blocks * z.digits * self.p.lanes
        values *= prod(z.counts[a] for a in piece.layout.rows)
        size = prod(x.counts[a] for a in old)
        rows = values / size * up(size, self.p.lanes)
        self.calls.append(
            Transpose(
                engine=TRANSPOSER.engine, cycles=transpose_cycles(rows, self.p),
                reads=(identity, x), writes=(z,),
            )
        )  # fmt: skip
        return piece

    def _copied(self, source: Piece, ranges: Ranges, group: Axes, *, pad: bool) -> Piece:
        """Copy a piece to rows in another order or with padding."""
        lanes = source.layout.lanes
        size = prod(self.graph.sizes[a] for a in group)
        padded = group if pad and size % self.p.lanes else ()
        piece = self._new(source.tensor, lanes, ranges, [group], padded)
        self._clear(piece)
        self._copy_into(piece, source, ranges)
        return piece

    def widened(self, name: str, lanes: Axes, ranges: Ranges, digits: int) -> Piece:
        """Return a piece with these values in ``digits`` digits.

        A copy cuts the values anew where the tensor has fewer digits.
        """
        if self.graph.tensors[name].digits == digits:
            return self.obtain(name, lanes, ranges)
        label = f"{name} in {digits} digits"
        if piece := self.existing(label, lanes, ranges):
            return piece
        source = self.obtain(name, lanes, ranges)
        counts = counts_of(self.graph.tensors[name].axes, self.graph.sizes, ranges)
        layout = Layout(source.layout.rows, lanes)
        piece = Piece.new(name, layout, counts, ranges, self.p.lanes, label=label, digits=digits)
        self.by_layout.setdefault((label, lanes), []).append(piece)
        self._copy_into(piece, source, ranges)
        return piece

    def broadcast(self, name: str, samples: str, count: int, ranges: Ranges, digits: int) -> Piece:
        """Return a tensor of ``digits`` digits, repeated along ``count`` lanes of the samples.

        The host writes it repeated, so it is loaded without change.
        """
        label = f"{name}*{count}"
        if piece := self.existing(label, (samples,), ranges):
            return piece
        axes = self.graph.tensors[name].axes
        counts = counts_of(axes, self.graph.sizes, ranges) | {samples: count}
        layout = Layout(axes, (samples,))
        piece = Piece.new(name, layout, counts, ranges, self.p.lanes, label=label, digits=digits)
        self.by_layout.setdefault((label, (samples,)), []).append(piece)
        outer = self.external(piece, layout, {samples: (0, count)})
        self.move(Engine.LOAD, piece, ranges, outer)
        return piece

    # -- views -------------------------------------------------------------------------------------

    def view(self, name: str, origin: str, origin_lanes: Axes, slice_: Ranges) -> None:
        """Add a piece for a view: the rows of its origin, by other axes."""
        source_axes = self.graph.tensors[origin].axes
        axes = self.graph.tensors[name].axes
        # A view may name the axis along the lanes anew, as keys are the tokens of queries.
        lanes = origin_lanes if set(origin_lanes) <= set(axes) else axes[-1:]
        if lanes != origin_lanes and {*lanes, *origin_lanes} & set(slice_):
            raise CutError(f"{name} has other lanes than {origin} and is cut there")
        rows = tuple(a for a in source_axes if a not in origin_lanes)
        source = self.obtain(origin, origin_lanes, self.own_ranges(origin, slice_), rows, pad=False)
        layout = Layout(tuple(a for a in axes if a not in lanes), lanes)
        counts = counts_of(axes, self.graph.sizes, source.ranges)
        piece = Piece(
            name, layout, counts, source.ranges, self.p.lanes, source.storage, digits=source.digits
        )
        if piece.rows > source.rows:  # fewer rows are fine: the source may have zeros behind
            raise CutError(f"{name} does not lie in the rows of {origin}")
        self.by_layout.setdefault((name, lanes), []).append(piece)

    def view_outside(self, name: str, origin: str) -> None:
        """Note a view of a tensor in external memory: its readers load the rows of the origin."""
        (outer,), axes = self.given[origin], self.graph.tensors[name].axes
        lanes, digits = outer.layout.lanes, outer.piece.digits
        in_order = tuple(a for a in self.graph.tensors[origin].axes if a not in lanes)
        if outer.layout.padded or outer.layout.rows != in_order or not set(lanes) <= set(axes):
            raise CutError(f"{name} does not lie in the rows of {origin}")
        layout = Layout(tuple(a for a in axes if a not in lanes), lanes)
        self.given[name] = (External.of(self.graph, name, layout, {}, self.p.lanes, digits),)
        self.views[name] = origin

    def _copy_into(self, piece: Piece, source: Piece, ranges: Ranges) -> None:
        x, z = Part(source, ranges), Part(piece, ranges)
        # Cycles are those of all rows of the piece, also where only a part is copied.
        cycles = SUM.cycles(Part(piece, {}).rows, source.digits, piece.digits)
        reads = x, self.constant("zeros")
        self.calls.append(
            Elementwise(
                engine=SUM.spec.engine, cycles=cycles, reads=reads, writes=(z,),
                broadcast=True, exact=True, counted=False,
            )
        )  # fmt: skip

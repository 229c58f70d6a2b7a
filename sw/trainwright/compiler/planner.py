"""Chooses how each layer is computed: with the least predicted cycles of all that fits the
accelerator.

Candidates differ in the contraction order (rebuilding W or not), in the bond at which the layer is
split, in the sizes of strips and slices, and in how the arrays share the work. Each is compiled
into the whole program, the other layers as they are so far, and timed by the cycle model.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

from trainwright.compiler.block_backward import emit_block_backward
from trainwright.compiler.block_forward import emit_block_forward
from trainwright.compiler.block_layout import lay_out_blocks
from trainwright.compiler.errors import CompileError, NotPlannedError
from trainwright.compiler.limits import require_network, require_whole
from trainwright.compiler.merged import Split
from trainwright.compiler.plans import (
    BackwardBidirectional,
    BackwardFull,
    BackwardPlan,
    ForwardBidirectional,
    ForwardPlan,
    ForwardRebuild,
    LayerPlan,
)
from trainwright.compiler.refusals import Kind, Refusal, Refusals
from trainwright.network import Network
from trainwright.parameters import AcceleratorParameters
from trainwright.timing import predict

MOST_OF_A_KIND = 4
"""Candidates timed for each contraction order and bond, the most promising first."""
HOPEFUL = 1.6
"""Contraction orders and bonds that need this many times the best one's products are not tried."""


@dataclass(frozen=True)
class Alternative:
    """One candidate: what the program it is part of would take."""

    layer: int
    """From 1."""
    plan: ForwardPlan | BackwardPlan
    cycles: int
    macs: int
    bytes_moved: int
    scratchpad_rows: int
    """Most rows in use at once."""

    @property
    def forward(self) -> bool:
        """Whether it is of the forward program."""
        return isinstance(self.plan, ForwardRebuild | ForwardBidirectional)


@dataclass(frozen=True)
class Planned:
    """What was chosen, and what it was chosen from."""

    layers: tuple[LayerPlan, ...]
    alternatives: tuple[Alternative, ...]
    refusals: tuple[Refusal, ...]
    """For each layer, pass, kind of plan and bond of which nothing was measured: why."""


def _divisors(value: int) -> list[int]:
    return [n for n in range(1, value + 1) if value % n == 0]


def _filling(size: int, tile: int) -> float:
    """Part of the rows of tiles that is used."""
    return size / (-(-size // tile) * tile)


def _best(found: Iterator[tuple[float, ForwardPlan | BackwardPlan]]) -> list:
    """The most promising by the figure before them."""
    return [plan for _, plan in sorted(found, key=lambda pair: -pair[0])[:MOST_OF_A_KIND]]


def forward_products(split: Split, batch: int, *, rebuild: bool) -> int:
    """Multiply-accumulates of a layer's forward pass, without minor terms."""
    whole = split.layer.output_size * split.layer.input_size
    if rebuild:
        return whole * (batch + split.k)
    return batch * split.k * split.q * split.u * (split.v + split.p)


def backward_products(split: Split, batch: int, *, full: bool) -> int:
    """As ``forward_products``, of the backward pass."""
    whole, inner = split.layer.output_size * split.layer.input_size, split.number > 0
    if full:
        return whole * (batch + 2 * split.k) + inner * whole * (batch + split.k)
    return batch * split.k * split.q * split.u * (2 * split.p + split.v * (1 + inner))


def _forward_rebuilds(split: Split, p: AcceleratorParameters) -> Iterator:
    for strip_p in _divisors(split.p):
        for strip_q in _divisors(split.q):
            rows = strip_p * split.u * strip_q * split.v // p.lanes
            if strip_q % p.lanes or 6 * rows > p.scratchpad_rows:
                continue
            several = split.p // strip_p * (split.q // strip_q) > 1
            figure = _filling(strip_p * split.u, p.pe2_rows) + 1e-5 * rows
            for shared in {several, False}:
                yield figure + shared, ForwardRebuild(split.bond, strip_p, strip_q, shared)


def _forward_bidirectionals(split: Split, batch: int, p: AcceleratorParameters) -> Iterator:
    rows = -(-batch // p.lanes)
    share = min(1.0, (split.v + split.p) / (2 * split.v))
    for q_per_slice in _divisors(split.q):
        for sample_rows_per_slice in _divisors(rows):
            t_rows = sample_rows_per_slice * split.u * split.k * q_per_slice
            if (
                q_per_slice % p.pe2_rows
                or q_per_slice % p.pe1_rows
                or 6 * t_rows > p.scratchpad_rows
            ):
                continue
            slices = split.q // q_per_slice * (rows // sample_rows_per_slice)
            figure = -abs(slices - 12) - sample_rows_per_slice / 10
            pe1_u = round(split.u * share)
            yield (
                figure,
                ForwardBidirectional(split.bond, q_per_slice, sample_rows_per_slice, pe1_u),
            )


def _backward_fulls(split: Split, p: AcceleratorParameters) -> Iterator:
    inner = split.layer.outputs[split.bond :]
    for q_per_slice in _divisors(split.q):
        step = split.q
        for size in inner:  # some values of one sub-axis, and all inside it
            step //= size
            if q_per_slice % step == 0 and size % (q_per_slice // step) == 0:
                break
        else:
            continue
        rows = split.u * split.p * q_per_slice * split.v // p.lanes
        if 4 * rows > p.scratchpad_rows or (q_per_slice % p.pe2_rows and split.p % p.lanes):
            continue
        for pe1_u in {split.u, split.u // 2} - {0}:
            figure = 1e-4 * rows + (pe1_u < split.u)
            yield figure, BackwardFull(split.bond, q_per_slice, pe1_u)


def _backward_bidirectionals(split: Split, batch: int, p: AcceleratorParameters) -> Iterator:
    rows = -(-batch // p.lanes)
    for u_per_slice in _divisors(split.u):
        for sample_rows_per_slice in _divisors(rows):
            t_rows = sample_rows_per_slice * u_per_slice * split.k * split.q
            if 6 * t_rows > p.scratchpad_rows or split.p % p.lanes:
                continue
            figure = _filling(u_per_slice * split.k, p.pe1_rows) - abs(t_rows - 1500) / 3000
            yield figure, BackwardBidirectional(split.bond, u_per_slice, sample_rows_per_slice)


class _Search:
    """The planner at work on one network."""

    def __init__(self, network: Network, batch: int, p: AcceleratorParameters):
        self.network, self.batch, self.p = network, batch, p
        self.tried: list[Alternative] = []
        self._refused = Refusals()

    def _splits(self, number: int) -> list[Split]:
        order = self.network.layers[number].order
        return [Split(self.network, number, bond) for bond in range(1, order)]

    def _kinds(
        self, number: int, products: Callable[..., int], flag: str
    ) -> Iterator[tuple[Split, Kind]]:
        """Bonds and contraction orders worth a try: ``flag`` (rebuild, full) and bidirectional."""
        pairs = [(s, name) for s in self._splits(number) for name in (flag, "bidirectional")]
        needs = [products(s, self.batch, **{flag: name == flag}) for s, name in pairs]
        for (split, name), need in zip(pairs, needs, strict=True):
            kind = Kind(number, flag == "rebuild", name, split.bond)
            if need <= HOPEFUL * min(needs):
                yield split, kind
            else:
                more = f"{need / min(needs):.1f} times the multiply-accumulates of the best"
                self._refused.add(kind, f"not tried: it takes {more}")

    def _sized(self, kind: Kind, found: Iterator) -> list:
        """The most promising sizes of strips or slices of one kind."""
        best = _best(found)
        if not best:
            self._refused.add(kind, kind.no_size(self.p))
        return best

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """Why there is no alternative of a layer, pass, kind and bond."""
        return self._refused.beside(Kind.of(one.layer - 1, one.plan) for one in self.tried)

    def forwards(self, number: int) -> list[ForwardPlan]:
        """Candidates for a layer's forward pass."""
        found = []
        for split, kind in self._kinds(number, forward_products, "rebuild"):
            if kind.name == "rebuild":
                found += self._sized(kind, _forward_rebuilds(split, self.p))
            else:
                found += self._sized(kind, _forward_bidirectionals(split, self.batch, self.p))
        return found

    def backwards(self, number: int) -> list[BackwardPlan]:
        """Candidates for a layer's backward pass."""
        found = []
        for split, kind in self._kinds(number, backward_products, "full"):
            if kind.name == "full":
                found += self._sized(kind, _backward_fulls(split, self.p))
            else:
                found += self._sized(kind, _backward_bidirectionals(split, self.batch, self.p))
        return found

    def measure(
        self, plans: Sequence[LayerPlan], number: int, *, forward: bool
    ) -> Alternative | None:
        """One direction's program; ``None`` where it does not fit."""
        order = plans[number].forward if forward else plans[number].backward
        try:
            memory = lay_out_blocks(self.network, self.batch, self.p, plans)
            if forward:
                orders = [plan.forward for plan in plans]
                b = emit_block_forward(self.p, self.network, self.batch, memory, orders)
            else:
                orders = [plan.backward for plan in plans]
                b = emit_block_backward(self.p, self.network, self.batch, memory, orders)
        except CompileError as error:
            self._refused.add(Kind.of(number, order), error.reason)
            return None
        timeline = predict(b.descriptors, self.p)
        found = Alternative(
            number + 1, order, timeline.cycles, b.macs, timeline.bytes_moved, b.pad.peak
        )
        self.tried.append(found)
        return found

    def refuse(self, plans: Sequence[LayerPlan]) -> None:
        """Raise the error that keeps ``plans`` from fitting."""
        memory = lay_out_blocks(self.network, self.batch, self.p, plans)
        orders = [plan.forward for plan in plans]
        emit_block_forward(self.p, self.network, self.batch, memory, orders)
        back = [plan.backward for plan in plans]
        emit_block_backward(self.p, self.network, self.batch, memory, back)

    def simplest(self, number: int) -> LayerPlan:
        """A plan that needs few rows: the baseline the candidates are compared with."""
        layer = self.network.layers[number]
        split = self._splits(number)[-1]
        q_per_slice = self.p.lanes if layer.outputs[-1] % self.p.lanes == 0 else split.q
        return LayerPlan(
            ForwardRebuild(split.bond, 1, self.p.lanes, False),
            BackwardFull(split.bond, q_per_slice, split.u),
        )

    def improve(self, plans: list[LayerPlan], number: int) -> None:
        """Choose for one layer, the others as they are."""

        def at(plan: LayerPlan) -> list[LayerPlan]:
            return [*plans[:number], plan, *plans[number + 1 :]]

        now = plans[number]
        ahead: dict[ForwardPlan, int] = {}
        for order in self.forwards(number):
            if found := self.measure(at(replace(now, forward=order)), number, forward=True):
                ahead[order] = found.cycles
        pairs: dict[LayerPlan, int] = {}
        for back in self.backwards(number):
            fitting = [order for order in ahead or {now.forward: 0} if _goes_with(order, back)]
            if not fitting:
                reason = "the forward pass is not bidirectional at this bond"
                self._refused.add(Kind.of(number, back), reason)
                continue
            order = min(fitting, key=lambda order: ahead.get(order, 0))
            plan = LayerPlan(order, back)
            if found := self.measure(at(plan), number, forward=False):
                pairs[plan] = ahead.get(order, 0) + found.cycles
        if pairs:
            plans[number] = min(pairs, key=lambda plan: pairs[plan])
        elif ahead:
            plans[number] = replace(now, forward=min(ahead, key=lambda order: ahead[order]))


def _goes_with(order: ForwardPlan, back: BackwardPlan) -> bool:
    """Whether the backward order finds the tensors it needs from the forward order."""
    if isinstance(back, BackwardFull):
        return True
    return isinstance(order, ForwardBidirectional) and order.bond == back.bond


@cache
def plan_layers(network: Network, batch: int, p: AcceleratorParameters) -> Planned:
    """Choose for every layer, the largest first.

    Raises ``NotPlannedError`` where nothing fits, ``CompileError`` for what no schedule can
    compute.
    """
    require_network(network, batch, p)
    require_whole(network, p)
    search = _Search(network, batch, p)
    plans = [search.simplest(n) for n in range(len(network.layers))]
    sizes = [layer.output_size * layer.input_size for layer in network.layers]
    for number in sorted(range(len(plans)), key=lambda n: -sizes[n]):
        search.improve(plans, number)
    for forward in (True, False):  # both ends of what was chosen, for the record
        if search.measure(plans, 0, forward=forward) is None:
            try:
                search.refuse(plans)
            except CompileError as error:
                raise NotPlannedError(error, search.tried, search.refusals) from error
    return Planned(tuple(plans), tuple(search.tried), search.refusals)

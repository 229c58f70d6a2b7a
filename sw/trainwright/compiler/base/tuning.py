"""Numbers that the search for programs weighs, with their units and how they were chosen.

A change of any of them trades compile time for cycles, or the cycles of one network for those of
another; a program computes the same values with all of them. Bounds of the hardware belong to
``base.limits``, its latencies to ``timing``, and what the search assumes of these to
``base.estimates``. "Best" means the fewest estimated cycles, "effort" the alternatives that
``base.progress`` counts. ``docs/decisions/0018-choices-of-the-search.md`` has further measurements.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainwright.graph.network import SAMPLES, SEQUENCES


@dataclass(frozen=True)
class EffortTuning:
    """Effort after which parts of a compilation end, in alternatives."""

    hopeless: int = 200_000
    """Effort of a pass after which its search ends without a program.

    Effort bounds how long programs are improved; a search that found none yet may take longer than
    a small effort, but not for ever: `tagger-64` in 512 samples, of which none fits, evaluated
    290,000. With 160,000 `digits` on 256 rows of scratchpad is refused, which has a program.
    """
    attempt: int = 25_000
    """Effort of an attempt after which the next one begins, if it has found no program.

    The backward pass of `digits` on `lfe5u-25f` only fits by the sixth attempt. The first ones
    issued orders of 100 programs, for 17 s, none of which had the rows.
    """
    forward_share: float = 0.5
    """Share of the effort after which the forward pass takes the best program so far.

    `fashion` in 512 samples left a fifth to the backward pass, which has more operations, and took
    36 % more cycles there.
    """
    small_share: float = 0.3
    """Effort of a search by plan ``small`` after one by ``auto``, relative to the whole effort."""
    trial: int = 40_000
    """Effort of each pass after which the trial of a remedy ends.

    A remedy without a program by then counts as one that does not fit.
    """
    all_trials: int = 100_000
    """Effort after which no further remedy is tried.

    Each of seven remedies could take 120,000, so that `tagger-64` in 512 samples took 12 s of
    trials; with 150,000 in all, `tagger-64` in 777 samples took 24 s.
    """
    trial_batches: int = 3
    """Smaller batches tried, each four times the one before: 1 up to 16 in place of 64."""
    trial_presets: int = 2
    """Presets tried for an accelerator with a smaller scratchpad than theirs."""


@dataclass(frozen=True)
class OrderTuning:
    """Contraction orders that a step is compiled with."""

    tried: int = 3
    """Orders of the largest layer tried where better ones do not fit."""
    worst_cost: float = 2.0
    """Cost of an order, relative to the best one's, up to which the order is tried."""
    idle_below: float = 0.8
    """Share of the multipliers' cycles in use below which ``auto`` tries plan ``small``, too."""
    small_gain: float = 0.95
    """Cycles of plan ``small``, relative to those of ``auto``, below which ``auto`` takes it."""


@dataclass(frozen=True)
class ChooseTuning:
    """Beam search for arrays and layouts (``choose``)."""

    beam: int = 24
    """Partial programs kept after each operation."""
    least_beam: int = 6
    """Partial programs kept after each operation of a graph of any length."""
    all_states: int = 1536
    """Partial programs kept in total above which fewer are kept after each operation.

    A graph of 64 operations has ``beam``. The programs of an encoder take between 233,000 and
    253,000 cycles with 6, 12 and 24 partial programs, in no order: beyond a few, what is kept is
    chance.
    """
    beam_in_rows: int = 4
    """Factor on the beam where given tensors lie in rows of a state on the chip.

    States then also differ in what they transpose first.
    """
    slack: float = 0.25
    """Share of a program's least cycles by which a kept state may be worse than the best state."""
    recent: int = 16
    """Operations after a stored tensor's last reader in which its layout still tells states apart.

    At 0 a search of few operations has fewer different states, and worse results: 0.5 % more cycles
    of `fashion-conv`. Layouts of all tensors, however old, are a third of the time of an encoder's
    search and lead to the same program.
    """
    slices: int = 16
    """Slices that a tensor is assumed to have while one array computes a slice and the other array
    reads the slice before."""
    axes_of_a_pair: int = 2
    """Axes kept for two implementations whose results have the same layout."""
    groups: int = 3
    """Groups of axes tried for each purpose: to fill rows, and alone along the lanes."""
    slowest: float = 2.5
    """Cycles of an implementation, relative to the fastest one's, up to which it is tried.

    Slower ones would only fill the beam: transposing operands for a faster one mostly costs less.
    """
    apart: int = 4
    """Implementations of an array tried where the results of the arrays have different layouts."""
    apart_in_blocks: int = 12
    """Limit in place of ``apart`` for programs of blocks, where no array waits for another."""
    divided_axes: int = 4
    """Axes tried to divide an operation between the arrays."""
    moved_share: float = 0.1
    """Share of an operation that may move to the other array so that the division falls between
    slices."""
    balance_rounds: int = 3
    """Times that every division of a program of blocks is moved to its best place.

    Each move changes what is best for the rest.
    """
    huge: float = 2.0
    """Size of a tensor, in scratchpads, above which its small axes are left to slices."""
    large: float = 0.5
    """Size of a tensor, in scratchpads, above which small axes may be left, as a last resort."""


@dataclass(frozen=True)
class CutTuning:
    """Cuts of stages to slices (``cut``). Shares are of the rows of the scratchpad."""

    budgets: tuple[float, ...] = (0.12, 0.065, 0.035, 0.15, 0.25, 0.45, 0.01)
    """Shares that the slices of a stage may take, the likely best first.

    Small slices come first: tensors that are read together then find room in different banks, and
    two reads of one bank take twice the cycles.
    """
    slices_held: int = 3
    """Slices of a tensor that are held at once: one is written, one read, one on its way."""
    slice_cycles: int = 200
    """Approximate cycles that the arrays lose between two slices."""
    loaded_share: float = 0.25
    """Share that tensors may take which stay loaded because other slices read them."""
    transposed_row: int = 4
    """Cost of loading a row that is then transposed. Any other row costs the bytes of a word."""
    full_share: float = 0.92
    """Share of a short scratchpad that a stage may take by the estimate; the rest absorbs the
    errors of the estimate."""
    heaviest_cuts: int = 5
    """Cuts of the heaviest stage that are tried where the scratchpad is short."""
    budget_cuts: int = 6
    """Cuts by ``budgets`` that are tried there, too."""
    axes: int = 3
    """Axes that a stage is cut along, at most: permutations of more take too long to rank."""
    whole_share: float = 1 / 32
    """Share up to which a tensor is loaded whole, and not in slices."""

    @property
    def largest(self) -> float:
        """Share above which no slice of a group is tried."""
        return max(self.budgets)


@dataclass(frozen=True)
class IssueTuning:
    """Order of issue (``schedule.schedule``; ``tight`` where rows are short)."""

    load_margin: int = 200
    """Cycles by which a load is issued before its latest time."""
    overtaking: int = 50
    """Cycles by which a command must start earlier, for every command that it overtakes.

    The penalty keeps commands roughly in the order of the slices, in which few pieces are alive at
    once.
    """
    store_distance: int = 8
    """Commands by which a store moves back where rows are short, at most."""
    spare_slices: int = 1
    """Slices of a tensor that may be alive beyond the count in the order of the operations.

    An array that runs ahead by one slice hides the work of the other array; a second slice only
    takes rows.
    """
    row_shares: tuple[float, ...] = (1.0, 0.85, 0.6)
    """Shares of the rows that the list scheduler may use where rows are short, tried in this order.

    The scheduler exceeds its limit where no command can start within it. Under a lower limit, what
    exceeds it may still fit into the rows.
    """


@dataclass(frozen=True)
class PlaceTuning:
    """Addresses of pieces (``schedule.place``)."""

    waits_within: int = 12
    """Commands between the last reader of rows and their next writer within which the writer may
    have to wait."""
    tight_wait: float = 0.1
    """Weight of a cycle of waiting for rows where rows are short.

    There the times of commands have most waits in them already. Counted in full, waits hid what
    shared banks cost: `fashion-conv` in 64 samples took 2.6 % more cycles, `fashion` in 8,192 rows
    5 %.
    """
    sweeps: int = 2
    """Times that every piece is moved to where it costs least."""
    random_orders: int = 8
    """Orders at random in which the pieces of the chosen program are placed, too."""


@dataclass(frozen=True)
class DraftTuning:
    """Programs drafted for each choice of arrays and layouts (``step.drafts``)."""

    rooms: tuple[float, float] = (1.0, 0.8)
    """Shares of the scratchpad in use up to which an array may run ahead of the other array.

    The second is for programs that have no rows for their pieces with the first.
    """
    large_divisors: tuple[int, ...] = (4, 2, 1)
    """Divisors of the scratchpad, tried in turn: larger tensors are consumed in slices."""
    lookaheads: tuple[int, ...] = (1, 16)
    """Next commands of an array among which the scheduler chooses."""
    cuts: int = 4
    """Cuts that are estimated for each choice of arrays and layouts, the likely best first."""
    combined_cuts: int = 10
    """Limit in place of ``cuts`` for programs with several stages that are cut."""
    chained_cuts: int = 2
    """Limit in place of ``cuts`` for programs with all operations on samples in one stage."""
    tight_cuts: int = 16
    """Limit in place of ``cuts`` where rows are short: the fewest slices come first."""
    tight_share: float = 0.95
    """Share of a short scratchpad that may be in use; the rest is lost in gaps between pieces."""
    tight_load_margins: tuple[int, ...] = (200, 1000)
    """Cycles by which loads begin before they must, if rows are short; all are tried."""
    placed_up_to: float = 1.0
    """Cycles of a schedule, relative to the best estimate, up to which the schedule is placed, too.

    1.0 misses no better program: shared banks only add to the cycles of a schedule.
    """


@dataclass(frozen=True)
class BlockTuning:
    """Programs of blocks of samples (``step.blocks``)."""

    least_batch: Mapping[str, int] = field(default_factory=lambda: {SAMPLES: 64, SEQUENCES: 8})
    """Largest batch, in samples or sequences, for which no blocks are tried."""
    sizes: Mapping[str, tuple[int, ...]] = field(
        default_factory=lambda: {SAMPLES: (32, 16, 64), SEQUENCES: (2, 1, 4)}
    )
    """Samples, or sequences, of a block, in the order in which they are tried."""
    many: int = 16
    """Blocks of a batch above which the whole program is made in one order of issue, not in three.

    `tagger-64` has 600 commands a block: three orders of issue of 32 blocks took half of 34 s.
    """
    commands: int = 30_000
    """Greatest number of commands of a program of blocks: longer ones take over 20 s."""
    few: int = 3
    """Blocks of the shorter of two programs that differ by the cycles of ``more - few`` blocks."""
    more: int = 5
    """Blocks of the longer program; smaller batches have no blocks."""
    cuts: int = 12
    """Cuts of the stages that are compared for each choice of arrays and layouts."""
    large_divisors: tuple[int, ...] = (4, 8)
    """Divisors of the scratchpad's rows: a tensor of more rows than the quotient is cut."""
    rooms: tuple[float, ...] = (1.0, 0.75, 0.5)
    """Shares of the scratchpad in use above which no array runs ahead of the other."""
    lookahead: int = 16
    """Next commands of an array among which the scheduler chooses."""
    timed: int = 8
    """Bodies that are placed and timed by the cycle model: the best by the estimate."""
    whole: int = 3
    """Bodies for which programs of the whole batch are placed and timed.

    The rate of a few blocks does not tell which body is the fastest for all.
    """
    enough: float = 1.5
    """Cycles of a program of blocks, relative to the multipliers' least, up to which the search
    ends with it.

    This only holds where the scratchpad is short: other searches take longest there.
    """


@dataclass(frozen=True)
class LowerTuning:
    """Searches for one program, and how many of their drafts are timed (``step.lower``)."""

    long: int = 48
    """Operations of a program above which two ``LONG_MODES`` are tried first, in both orders."""
    loads: float = 0.1
    """Ratio of memory-port cycles to multiplier cycles above which every mode is tried.

    Counted are the tensors that are given and stored, each once. With 0.2 the paper's order of
    `digits` lost 5 %.
    """
    urgent: float = 1 / 1000
    """Share of all multiply-accumulates below which operations are moved before all larger ones.

    A gradient of a bias needs all of a tensor that others take slices of.
    """
    timed: int = 3
    """Programs that are placed and timed by the cycle model: the best by the estimate."""
    timed_up_to: float = 1.1
    """Estimate of a program, relative to the fewest cycles timed so far, up to which it is timed.
    """
    timed_tight: int = 9
    """Limit in place of ``timed`` where rows are short, as estimates tell little there."""
    patience: int = 3
    """Programs timed in a row without a better one, after which a search in few rows ends.

    Searches for `fashion-conv`, and for `fashion` in 4,096 rows, find the same programs as with all
    nine, in half the time.
    """


@dataclass(frozen=True)
class WeaveTuning:
    """Order of the commands of a resident step (``schedule.weave``)."""

    transfers: int = 4
    """Next transfers of a phase of which any may be issued; an array's commands keep their order.
    """
    predicted: int = 5
    """Next commands of the arrays whose delay is predicted before another command is issued."""
    delay: int = 50
    """Cycles by which a command may delay these, up to its own cycles.

    A limit of 0 would issue few commands early, because both arrays are busy nearly all of the
    time. With ``predicted`` of 3 to 8 and limits of 0 to 800 a step takes, in predicted cycles,
    378,152 to 383,436 for `fashion` at rank 16, 178,493 to 190,856 at ranks 12, 5, 13, 16, and
    24,860 to 26,793 for `digits`; the values chosen here give 378,841, 178,929 and 25,117.
    """


@dataclass(frozen=True)
class CompilerTuning:
    """Numbers of the search, by the pass that weighs them."""

    effort: EffortTuning = EffortTuning()
    order: OrderTuning = OrderTuning()
    choose: ChooseTuning = ChooseTuning()
    cut: CutTuning = CutTuning()
    issue: IssueTuning = IssueTuning()
    place: PlaceTuning = PlaceTuning()
    draft: DraftTuning = DraftTuning()
    block: BlockTuning = BlockTuning()
    lower: LowerTuning = LowerTuning()
    weave: WeaveTuning = WeaveTuning()


TUNING = CompilerTuning()
"""Values that programs are searched with."""

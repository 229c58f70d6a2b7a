"""The training state on the chip: weights, moments, exponents of the moments, the prior's sums."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trainwright.formats.rounding import clamp, half_up, wrapped
from trainwright.kernels.trace import WORD_WIDTH
from trainwright.onchip import prior
from trainwright.onchip import update as by
from trainwright.onchip.layout import LANES, MOMENT_WIDTH, WeightLayout, Words
from trainwright.onchip.schedule import Entry


@dataclass(frozen=True)
class UpdateStep:
    """Operands of an update, except the gradients."""

    number: int
    """Number of the step, from 0."""
    seed: int
    """Seed of the run."""
    entry: Entry
    optimiser: str = "esgd"
    distance: int | None = None
    """Distance d of cuts in this step: columns 2^d weaker than the strongest of their bond are cut.
    None: no cuts."""


class ChipState:
    """Training state of a layout, updated in place; equal states have equal ``to_arrays``."""

    def __init__(self, layout: WeightLayout, weights: Words) -> None:
        """Begin with ``weights``, int64 (rows, LANES), moments of 0 and all columns."""
        self.layout = layout
        self.weights = weights
        self.moments = np.zeros_like(weights)
        self.exponents = np.zeros(len(layout.parts), np.int64)
        """Exponent of each part's moments: that of its gradient in the last step."""
        self.pulls = prior.no_pulls(layout)
        self.kept: list[Words] = [np.arange(bond.left.columns) for bond in layout.bonds]
        """Columns of each bond that are left."""
        self.compiled: list[Words] = list(self.kept)
        """Columns of each bond in the compiled programs; columns cut since then are 0 there."""
        rows = layout.part_of_row
        self._hidden = np.array([part.hidden for part in layout.parts])[rows][:, None]

    def step(self, gradients: Sequence[Words], exponents: Sequence[int], step: UpdateStep) -> None:
        """Update the weights by the ``gradients`` of every part, at the columns ``compiled``.

        ``exponents`` are those of the gradients. Columns that this step cuts do not count in
        the update, and are 0 after it.
        """
        if step.distance is not None:
            self._drop_weak(step.distance)
        words = np.zeros(self.weights.shape, np.int64)
        positions = self._positions(self.compiled)
        for part, live, gradient in zip(self.layout.parts, positions, gradients, strict=True):
            # Sums over parts of a batch may need more bits; a moment is at its limit long before.
            words.ravel()[part.places[live]] = clamp(gradient, WORD_WIDTH)
        now = np.array(exponents, np.int64)
        if step.number % prior.INTERVAL == 0:
            self.renew_pulls(step)
        self._update(words, now, step)
        self.exponents = now
        if step.distance is not None:
            self._clear()

    def renew_pulls(self, step: UpdateStep) -> None:
        """Compute the prior's coefficients from the weights, for the next INTERVAL steps."""
        sums = prior.sums_of_squares(self.layout, self.weights)
        costs = prior.column_costs(self.layout, self.kept)
        self.pulls = prior.make_pulls(self.layout, sums, costs, step.entry)

    def _update(self, gradients: Words, exponents: Words, step: UpdateStep) -> None:
        """Evaluate the kernel of the update on the rows of each part."""
        layout, is_pulled = self.layout, bool(self.pulls.coefficients.any())
        streams = prior.pull_rows(layout, self.pulls, exponents) if is_pulled else {}
        streams |= {by.WEIGHT: self.weights, by.MOMENT: self.moments, by.GRADIENT: gradients}
        bits = by.random_rows(step.seed, step.number, range(layout.rows))
        moved, momentum = (exponents - self.exponents).tolist(), step.optimiser == "momentum"
        # Evaluate parts of one kind together: most parts are of one kind, as exponents seldom move.
        kinds: dict[tuple[by.PartUpdate, int, int], list[int]] = {}
        for number, part in enumerate(layout.parts):
            kind = by.PartUpdate(part.hidden, by.BIAS_RATE_SHIFT * (part.index < 0),
                                 left=is_pulled, right=is_pulled, momentum=momentum)  # fmt: skip
            offset = momentum * (by.momentum_offset(part) - int(exponents[number]))
            kinds.setdefault((kind, moved[number], offset), []).append(number)
        weights, moments = np.empty_like(self.weights), np.empty_like(self.moments)
        for (kind, by_exponent, offset), numbers in kinds.items():
            rows = np.isin(np.arange(len(layout.parts)), numbers)[layout.part_of_row]
            read = {name: words[rows] for name, words in streams.items()}
            random = [words[rows] for words in bits]
            weights[rows], moments[rows] = by.updated_rows(
                kind, read, random, step.entry, by_exponent, offset
            )
        self.weights, self.moments = weights, moments

    def quantised(self, columns: Sequence[Words] | None = None) -> list[Words]:
        """Return factors and biases of every part as programs read them.

        They have the ``columns`` of each bond, or those that are left.
        """
        columns = self.kept if columns is None else columns
        factors = half_up(self.weights, self._hidden).ravel()
        return [
            part.code.words(factors[part.places[live]]) if part.code else factors[part.places[live]]
            for part, live in zip(self.layout.parts, self._positions(columns), strict=True)
        ]

    def cut(self, distance: int) -> bool:
        """Zero the columns that are 2^``distance`` weaker than their bond's strongest.

        Returns whether there were any; programs must then be compiled for the remaining columns.
        """
        if not self._drop_weak(distance):
            return False
        self.compiled = self.kept
        self._clear()
        return True

    def _drop_weak(self, distance: int) -> bool:
        """Take columns 2^``distance`` weaker than the strongest of their bond out of ``kept``.

        Their weights stay until ``_clear``. Returns whether any column was dropped.
        """
        sums, before = prior.sums_of_squares(self.layout, self.weights), self.kept
        self.kept = prior.kept_columns(self.layout, sums, before, distance)
        return any(len(new) < len(old) for new, old in zip(self.kept, before, strict=True))

    def _clear(self) -> None:
        """Zero weights and moments of the columns that are not in ``kept``."""
        marks = self.layout.marks(self.kept)
        marks[0] = True
        left = marks[self.layout.column_of].all(0).reshape(self.weights.shape)
        self.weights, self.moments = self.weights * left, self.moments * left

    @property
    def ranks(self) -> list[list[int]]:
        """R_1 .. R_{d-1} of each layer."""
        return self.layout.ranks(self.kept)

    def _positions(self, columns: Sequence[Words]) -> list[Words]:
        """Return the numbers of the elements in ``columns``, for each part, in C order."""
        chosen = {
            (side.part, side.axis): kept
            for bond, kept in zip(self.layout.bonds, columns, strict=True)
            for side in (bond.left, bond.right)
        }
        places = []
        for number, part in enumerate(self.layout.parts):
            axes = [chosen.get((number, n), np.arange(size)) for n, size in enumerate(part.shape)]
            places.append(np.arange(part.size).reshape(part.shape)[np.ix_(*axes)])
        return places

    def to_arrays(self) -> dict[str, npt.NDArray]:
        """Return the state by name, as it is in memory and in checkpoints.

        ``factors`` int16 (rows, LANES). ``state`` uint16 (rows, LANES): weight * 2^8 + moment, less
        the factor; the lowest bits of a word, sign-extended.
        """
        factors = half_up(self.weights, self._hidden)
        below = (self.weights - (factors << self._hidden) << MOMENT_WIDTH) + self.moments
        words = wrapped(below, self._hidden + MOMENT_WIDTH)
        return {
            "factors": factors.astype(np.int16),
            "state": words.astype(np.uint16),
            "exponents": self.exponents.astype(np.int16),
            "coefficients": self.pulls.coefficients.astype(np.uint8),
            "coefficient_exponents": self.pulls.exponents.astype(np.int16),
            "kept": self.layout.marks(self.kept).astype(np.uint8),
        }

    def take(self, words: Words, factors: Words, exponents: Words) -> None:
        """Set weights and moments from ``words`` of the state, in any shape, and ``factors``.

        ``exponents`` are those of the moments.
        """
        half = 1 << (MOMENT_WIDTH - 1)  # added to a moment, -128 to 127, it gives 0 to 255
        below = wrapped(words.reshape(factors.shape) + half, self._hidden + MOMENT_WIDTH)
        self.weights = (factors << self._hidden) + (below >> MOMENT_WIDTH)
        self.moments = (below & 2 * half - 1) - half
        self.exponents = exponents.copy()

    @classmethod
    def from_arrays(cls, layout: WeightLayout, arrays: Mapping[str, npt.NDArray]) -> "ChipState":
        """Return the state that ``to_arrays`` wrote. Raises ``ValueError`` for another layout."""
        integers = {name: array.astype(np.int64) for name, array in arrays.items()}
        factors, words = integers["factors"], integers["state"]
        if factors.shape != (layout.rows, LANES) or words.shape != factors.shape:
            raise ValueError(f"a state of {list(factors.shape)} words, not {[layout.rows, LANES]}")
        state = cls(layout, np.zeros_like(factors))
        state.take(words, factors, integers["exponents"])
        state.pulls = prior.Pulls(integers["coefficients"], integers["coefficient_exponents"])
        state.kept = layout.columns_marked(integers["kept"] > 0)
        state.compiled = state.kept
        return state

"""Operations that PE2 computes a row a cycle: one record each.

Graph, differentiation, compiler, golden model and cycle model share the records.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from trainwright.formats.exponents import ExponentRule
from trainwright.program.engines import SPEC_OF, EngineSpec
from trainwright.program.fields import Operation

Values = npt.NDArray[Any]


@dataclass(frozen=True)
class ArrayBody:
    """Body of a kernel that an array computes in place of the vector engine."""

    operation: Operation
    exponents: ExponentRule
    relu: bool = False
    """Whether negative results are 0."""

    @property
    def spec(self) -> EngineSpec:
        """Engine that executes the operation."""
        return SPEC_OF[self.operation]

    def exact(self, x: Values, g: Values) -> Values:
        """Return the exact results, not rounded, of integers that a sum has at one exponent."""
        if not self.exponents.adds:
            return np.where(g > 0, x, 0)
        return np.maximum(x + g, 0) if self.relu else x + g

    @staticmethod
    def cycles(rows: float, operand_digits: int, digits: int) -> float:
        """Return the cycles for rows of values: the array takes a row, and gives one, a cycle."""
        return rows * max(operand_digits, digits)


SUM = ArrayBody(Operation.BIAS, ExponentRule(adds=True))
"""Sum of two values; the second operand may lack axes."""
RELU_SUM = replace(SUM, relu=True)
"""ReLU of a sum, rounded once."""
MASK = ArrayBody(Operation.MASK, ExponentRule(exact=True))
"""First value where the second one is positive, else 0: the gradient of a ReLU."""
BODIES = {body.operation: body for body in (SUM, MASK)}
"""Records by operation, without a ReLU."""

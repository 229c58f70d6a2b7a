"""Number format of an accelerator's lanes."""

from trainwright.formats import Posit
from trainwright.parameters import AcceleratorParameters
from trainwright_hw.arith.fixed import FixedArithmetic
from trainwright_hw.arith.format import LaneFormat
from trainwright_hw.arith.posit import PositArithmetic


def lane_format(parameters: AcceleratorParameters) -> LaneFormat:
    """Return fixed point of the accelerator's words and results, with its posits, if any.

    Posits are decoded by block RAMs where these can hold them, else by shifts.
    """
    width = parameters.operand_width
    posits = tuple(fmt for fmt in parameters.number_formats if isinstance(fmt, Posit))
    if not posits:
        return FixedArithmetic(
            left_width=width,
            right_width=width,
            accumulator_width=parameters.accumulator_width,
            word_width=parameters.result_width,
            with_random=bool(parameters.stochastic_rounding),
        )
    return PositArithmetic(
        left_width=width,
        right_width=width,
        accumulator_width=parameters.accumulator_width,
        word_width=parameters.word_width,
        formats=posits,
        tables=bool(parameters.decoder_tables),
    )

"""Number format of an accelerator's lanes."""

from trainwright.parameters import AcceleratorParameters
from trainwright_hw.arith.coded import CodedArithmetic
from trainwright_hw.arith.fixed import FixedArithmetic
from trainwright_hw.arith.format import LaneFormat


def lane_format(parameters: AcceleratorParameters) -> LaneFormat:
    """Return fixed point of the accelerator's words and results, with its coded formats, if any.

    Words are decoded by block RAMs where these can hold them, else by shifts.
    """
    width = parameters.operand_width
    coded = parameters.coded_formats
    if not coded:
        return FixedArithmetic(
            left_width=width,
            right_width=width,
            accumulator_width=parameters.accumulator_width,
            word_width=parameters.result_width,
            with_random=bool(parameters.stochastic_rounding),
        )
    return CodedArithmetic(
        left_width=width,
        right_width=width,
        accumulator_width=parameters.accumulator_width,
        word_width=parameters.word_width,
        formats=coded,
        tables=bool(parameters.decoder_tables),
    )

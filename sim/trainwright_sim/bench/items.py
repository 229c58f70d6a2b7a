"""Items of the statistics streams."""

from trainwright_hw.control.engine_ports import SATURATIONS_WIDTH, SUM_WIDTH

SLOT_WIDTH = 8


def statistics_fields(bits: int) -> tuple[int, int, int]:
    """Slot, sum and saturations of a statistics item."""
    return (
        bits & ((1 << SLOT_WIDTH) - 1),
        bits >> SLOT_WIDTH & ((1 << SUM_WIDTH) - 1),
        bits >> SLOT_WIDTH + SUM_WIDTH & ((1 << SATURATIONS_WIDTH) - 1),
    )

"""Items of the statistics streams."""

from trainwright_hw.control.engine_ports import SATURATIONS_WIDTH, SUM_WIDTH

SLOT_WIDTH = 8


def statistics_fields(bits: int) -> tuple[int, int, int, int]:
    """Split an item into slot, sum, saturations and underflows (0 without posits)."""
    fields = []
    for width in (SLOT_WIDTH, SUM_WIDTH, SATURATIONS_WIDTH, SATURATIONS_WIDTH):
        fields.append(bits & ((1 << width) - 1))
        bits >>= width
    slot, total, saturations, underflows = fields
    return slot, total, saturations, underflows


def statistics_bits(slot: int, total: int, saturations: int, underflows: int) -> int:
    """Pack an item of these fields."""
    counts = saturations | underflows << SATURATIONS_WIDTH
    return slot | (total | counts << SUM_WIDTH) << SLOT_WIDTH

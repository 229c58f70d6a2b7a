"""Number formats of tensors: fixed point, and posits as fixed point on a coarser grid.

``Fixed`` and ``Posit`` decode words to integers and encode exact sums; ``parse_format``,
``parse_formats`` and ``parse_list`` read their names. See ``docs/posit-datapath.md``.
"""

from trainwright.formats.base import UNDERFLOWS, Format, FormatError, sum_width
from trainwright.formats.fixed import Fixed
from trainwright.formats.parse import CLASSES, format_pairs, parse_format, parse_formats, parse_list
from trainwright.formats.posit import Posit

__all__ = [
    "CLASSES",
    "UNDERFLOWS",
    "Fixed",
    "Format",
    "FormatError",
    "Posit",
    "format_pairs",
    "parse_format",
    "parse_formats",
    "parse_list",
    "sum_width",
]

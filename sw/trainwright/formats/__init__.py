"""Number formats of tensors: fixed point, and coded ones as fixed point on a coarser grid.

Formats decode words to integers and encode exact sums; ``parse_format``, ``parse_formats`` and
``parse_list`` read their names. See ``docs/reference/formats.md`` and
``docs/reference/posit-datapath.md``.
"""

from importlib import import_module
from pkgutil import iter_modules

from trainwright.formats.base import UNDERFLOWS, Format, FormatError, sum_width
from trainwright.formats.coded import OPERAND_WIDTH, Binade, Coded, slope
from trainwright.formats.fixed import Fixed
from trainwright.formats.minifloat import Minifloat
from trainwright.formats.parse import (
    CLASSES,
    format_pairs,
    parse_coded,
    parse_format,
    parse_formats,
    parse_list,
)
from trainwright.formats.posit import Posit

for _module in iter_modules(__path__):  # a format is known once its module is imported
    import_module(f"{__name__}.{_module.name}")

__all__ = [
    "CLASSES",
    "OPERAND_WIDTH",
    "UNDERFLOWS",
    "Binade",
    "Coded",
    "Fixed",
    "Format",
    "FormatError",
    "Minifloat",
    "Posit",
    "format_pairs",
    "parse_coded",
    "parse_format",
    "parse_formats",
    "parse_list",
    "slope",
    "sum_width",
]

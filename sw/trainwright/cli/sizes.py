"""Sizes of an accelerator for ``--help``: ranges, defaults, meanings, and the presets."""

import textwrap

from trainwright.cli.options import AcceleratorOptions
from trainwright.parameters import PRESETS, AcceleratorParameters, preset
from trainwright.support.settings import settings_of

WIDTH = 98
"""Columns of a line; argparse indents by two more."""


def describe_sizes() -> str:
    """Describe the sizes and presets, a line each."""
    rows = [("NAME", "range", "default", "")]
    for setting in settings_of(AcceleratorParameters):
        meaning, _, _ = setting.help.replace("``", "").partition(". ")
        values = "names" if setting.name == "formats" else setting.range.removeprefix("from ")
        if (limits := setting.limits) and limits.extra:
            values = f"{limits.ge}, {2 * (limits.ge or 0)} .. {limits.le}"
        default = "none" if setting.default == () else str(int(setting.default))
        rows.append((setting.name, values, default, meaning.removesuffix(".")))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines: list[str] = []
    for *columns, meaning in rows:
        start = "  ".join(text.ljust(width) for text, width in zip(columns, widths, strict=True))
        indent = " " * (len(start) + 2)
        lines += textwrap.wrap(f"{start}  {meaning}", WIDTH, subsequent_indent=indent)
    lines += [
        "",
        "A preset is a set of these for a device; NAME=N given besides it goes before it:",
    ]
    width = max(map(len, PRESETS))
    for name in PRESETS:
        sizes = ", ".join(f"{key}={value}" for key, value in PRESETS[name].sizes.items())
        multipliers = preset(name).multipliers
        text = f"{name.ljust(width)}  {multipliers} multipliers; {sizes or 'the defaults'}"
        lines += textwrap.wrap(text, WIDTH, subsequent_indent=" " * (width + 2))
    return "\n".join(line.rstrip() for line in lines)


class ExplainedAccelerator(AcceleratorOptions):
    """Options of the accelerator below the list of all sizes and presets."""

    EXPLAINED = staticmethod(describe_sizes)

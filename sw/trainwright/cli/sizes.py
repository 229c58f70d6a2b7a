"""Sizes of an accelerator for ``--help``: ranges, defaults, meanings, and the presets."""

from typing import ClassVar

from trainwright.cli.options import AcceleratorOptions
from trainwright.cli.screen import fitted
from trainwright.parameters import PRESETS, AcceleratorParameters, preset
from trainwright.support.settings import settings_of

WIDTH = 98
"""Columns of a line; argparse indents by two more."""


def describe_sizes() -> str:
    """Return a table of the sizes, and a table of the presets."""
    rows = []
    for setting in settings_of(AcceleratorParameters):
        meaning, _, _ = setting.help.replace("``", "").partition(". ")
        values = "names" if setting.name == "formats" else setting.range.removeprefix("from ")
        if (limits := setting.limits) and limits.extra:
            values = f"{limits.ge}, {2 * (limits.ge or 0)} .. {limits.le}"
        default = "none" if setting.default == () else str(int(setting.default))
        rows.append((setting.name, values, default, meaning.removesuffix(".")))
    presets = []
    for name, of_device in PRESETS.items():
        sizes = ", ".join(f"{key}={value}" for key, value in of_device.sizes.items())
        presets.append((name, preset(name).multipliers, sizes or "the defaults"))
    return (
        f"{fitted(('NAME', 'range', 'default', ''), rows, WIDTH)}\n"
        "A preset is a set of these for a device; NAME=N given besides it goes before it:\n"
        f"{fitted(('preset', 'multipliers', 'sizes'), presets, WIDTH)}"
    )


class ExplainedAccelerator(AcceleratorOptions):
    """Options of the accelerator below the list of all sizes and presets."""

    TITLE: ClassVar = "the accelerator"
    EXPLAINED = staticmethod(describe_sizes)

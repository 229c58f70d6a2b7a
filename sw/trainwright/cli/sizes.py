"""Sizes of an accelerator for ``--help``: ranges, defaults, meanings, and the presets."""

from typing import ClassVar

from trainwright.cli.options import AcceleratorOptions
from trainwright.cli.screen import MOST_HELP, fitted, screen_width
from trainwright.parameters import PRESETS, AcceleratorParameters, preset
from trainwright.support.settings import settings_of


def describe_sizes() -> str:
    """Return a table of the sizes, and a table of the presets."""
    rows, width = [], min(screen_width() - 4, MOST_HELP)
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
        f"{fitted(('NAME', 'range', 'default', ''), rows, width)}\n"
        "Presets for devices; --accelerator NAME=N overrides one size:\n"
        f"{fitted(('preset', 'multipliers', 'sizes'), presets, width)}"
    )


class ExplainedAccelerator(AcceleratorOptions):
    """Options of the accelerator below the list of all sizes and presets."""

    TITLE: ClassVar = "the accelerator"
    EXPLAINED = staticmethod(describe_sizes)

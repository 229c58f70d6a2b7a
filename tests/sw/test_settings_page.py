"""The reference page of settings against the settings classes.

``python tests/sw/test_settings_page.py`` writes the page anew.
"""

from pathlib import Path

from trainwright.parameters import AcceleratorParameters
from trainwright.support.settings import SettingField, settings_of
from trainwright.train.settings import ChipSettings, PriorSettings, TrainSettings

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"
PARTS = {
    "Training": (TrainSettings, "Options of `trainwright train`; they decide the bits."),
    "Rank prior": (PriorSettings, "Options of `trainwright train`, unless `--no-prior` is given."),
    "Update on the chip": (ChipSettings, "Options of `trainwright train --update chip`."),
    "The accelerator": (AcceleratorParameters, "Names of `--accelerator NAME=N`."),
}


def row(setting: SettingField, option: str) -> str:
    """Return the line of a setting in its table."""
    default = setting.default if setting.default not in (None, ()) else "none"
    default = int(default) if isinstance(default, bool) else default
    meaning = setting.help.replace("|", "\\|")
    values = setting.range.removeprefix("from ")
    values = "names of formats" if values == "str" else values
    return f"| `{option}` | {values} | {default} | {meaning} |"


def page() -> str:
    """Return the reference page."""
    lines = [
        "# Settings",
        "",
        "Made of the settings classes by `python tests/sw/test_settings_page.py`. Defaults of",
        "epochs, learning rate and prior weight depend on the data set:",
        "see `trainwright train --help`.",
    ]
    for title, (kind, text) in PARTS.items():
        lines += ["", f"## {title}", "", text, "", "| name | values | default | meaning |"]
        lines += ["|---|---|---|---|"]
        for setting in settings_of(kind):
            if setting.name not in ("prior", "chip"):
                option = setting.name if kind is AcceleratorParameters else f"--{setting.flag}"
                lines.append(row(setting, option))
    return "\n".join(lines) + "\n"


def test_settings_page_lists_every_field_with_its_limits():
    assert PAGE.read_text(encoding="utf-8") == page()


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

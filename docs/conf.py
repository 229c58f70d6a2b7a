"""The site: these pages, the README as its first one, and the public names (``scripts/docs``)."""

import re
from pathlib import Path

import trainwright

project = "trainwright"
release = trainwright.__version__
extensions = [
    "myst_parser",  # the pages are Markdown
    "sphinx.ext.autodoc",
]
html_theme = "furo"  # light, dark, narrow and wide
html_title = project
myst_heading_anchors = 3  # as GitHub makes them
exclude_patterns = ["_build"]
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_preserve_defaults = True

ROOT = Path(__file__).parents[1]
_AWAY = re.compile(r"\[([^\]]*)\]\((?:\.\./)?((?:sw|hw|sim|boards|scripts)/[^)]*|LICENSE)\)")


def _read(app: object, page: str, source: list[str]) -> None:
    """The README where the first page says so; links to files that are no pages become text."""
    if page == "index":
        readme = (ROOT / "README.md").read_text()
        source[0] = source[0].replace("README", readme.replace("](docs/", "]("))
    source[0] = _AWAY.sub(r"\1", source[0])


def setup(app) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _read)

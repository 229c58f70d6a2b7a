"""The site: these pages, notebooks among them, the README as its first one, and the public names.

``scripts/docs`` builds it. Notebooks are kept without outputs and executed here; one that fails is
an error.
"""

import re
from hashlib import sha256
from pathlib import Path

import trainwright

ROOT = Path(__file__).parents[1]


def _sources() -> str:
    """Return a digest of the sources: notebooks are executed again where it differs."""
    found = sha256()
    for folder in ("sw", "hw", "sim"):
        for path in sorted((ROOT / folder).rglob("*.*")):
            if path.is_file() and path.suffix != ".pyc":
                found.update(path.read_bytes())
    return found.hexdigest()[:16]


project = "trainwright"
release = trainwright.__version__
extensions = [
    "myst_nb",  # the pages are Markdown and notebooks, which it executes
    "sphinx.ext.autodoc",
]
html_theme = "furo"  # light, dark, narrow and wide
html_title = project
html_show_copyright = False
html_static_path = ["static"]
html_css_files = ["site.css"]
myst_heading_anchors = 3  # as GitHub makes them
nb_execution_mode = "cache"
nb_execution_cache_path = str(ROOT / "build" / "notebooks" / _sources())
nb_execution_timeout = 900  # the first one may compile the simulation
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True
nb_code_prompt_show = "Show the code"
nb_code_prompt_hide = "Hide the code"
suppress_warnings = ["mystnb.unknown_mime_type"]
exclude_patterns = ["_build"]
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_preserve_defaults = True

_FOLDERS, _FILES = "sw|hw|sim|boards|scripts", r"LICENSE|CONTRIBUTING\.md"
_AWAY = re.compile(rf"\[([^\]]*)\]\((?:\.\./)*((?:{_FOLDERS})/[^)]*|{_FILES})\)")


def _read(app: object, page: str, source: list[str]) -> None:
    """Insert the README into the first page; turn links to files that are no pages into text."""
    if page == "index":
        readme = (ROOT / "README.md").read_text()
        readme = re.sub(r"\[docs/[\w/-]+\.md\]\(", "[](", readme)  # by the pages' titles
        source[0] = source[0].replace("README", readme.replace("](docs/", "]("))
    source[0] = _AWAY.sub(r"\1", source[0])


def setup(app) -> None:
    """Let Sphinx call ``_read``."""
    app.connect("source-read", _read)

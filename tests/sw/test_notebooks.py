"""The notebooks: without outputs, opening with a picture, executed from the first cell on.

They are executed in this process, which needs no Jupyter, and so are the commands that they give;
`scripts/docs` executes them in a kernel.
"""

import json
import re
import subprocess
import sys
from contextlib import redirect_stdout
from importlib.util import find_spec
from io import StringIO

import matplotlib
import pytest
from tour_output import ROOT

from trainwright.accelerator import backend_names
from trainwright.cli import main

pytestmark = pytest.mark.usefixtures("first_programs")

FOLDER = ROOT / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
LONG = "gallery"
"""Minutes, all of it commands that have tests; the site executes it."""
NEEDS_RTL = ("cycles", "first_epoch")
NEEDS_IPYTHON = ("gallery",)


COMMAND = [sys.executable, "-m", "trainwright.cli"]


def in_this_process(command, *, run=subprocess.run, **options):
    """Replace ``subprocess.run``: run `trainwright` commands without importing again."""
    if command[:3] != COMMAND:
        return run(command, **options)
    with redirect_stdout(StringIO()) as output:
        status = main(command[3:])
    assert status == 0, command
    return subprocess.CompletedProcess(command, status, output.getvalue())


def cells(path, kind):
    """Return sources of a notebook's cells of a kind."""
    entries = json.loads(path.read_text())["cells"]
    return ["".join(cell["source"]) for cell in entries if cell["cell_type"] == kind]


def test_there_are_notebooks_and_the_site_has_them():
    index = (ROOT / "docs" / "index.md").read_text()
    assert len(NOTEBOOKS) >= 5
    for path in NOTEBOOKS:
        assert f"notebooks/{path.stem}\n" in index


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_has_no_outputs_and_links_lead_somewhere(path):
    notebook = json.loads(path.read_text())
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None
    for text in cells(path, "markdown"):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
            assert (FOLDER / target).exists(), target


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_opens_with_a_picture(path):
    first, second, *_ = json.loads(path.read_text())["cells"]
    assert first["cell_type"] == "markdown" and len(first["source"]) <= 3
    assert second["cell_type"] == "code"
    shown = "".join(second["source"])
    assert "plt.show()" in shown or "display(Image" in shown


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=pytest.mark.slow if path.stem == LONG else [], id=path.stem)
        for path in NOTEBOOKS
    ],
)
def test_notebook_runs_without_error(path, monkeypatch, tmp_path):
    if path.stem in NEEDS_RTL and "rtl" not in backend_names():
        pytest.skip("trainwright is not installed: no back ends are registered")
    if path.stem in NEEDS_IPYTHON and find_spec("IPython") is None:
        pytest.skip("shows pictures by IPython, which is not installed")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    monkeypatch.chdir(tmp_path)
    if path.stem != LONG:
        monkeypatch.setattr(subprocess, "run", in_this_process)
    shown = []
    monkeypatch.setattr(pyplot, "show", lambda: shown.append(len(pyplot.gcf().axes)))
    names = {"__name__": "__main__"}
    try:
        for source in cells(path, "code"):
            exec(compile(source, f"{path.name}", "exec"), names)
    finally:
        pyplot.close("all")
    assert path.stem in NEEDS_IPYTHON or (shown and min(shown) >= 1)

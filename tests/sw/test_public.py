"""The names that `import trainwright` gives: where they come from, their examples, their cost."""

import doctest
import inspect
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch

import trainwright
import trainwright.nn


@pytest.mark.parametrize("name", trainwright.__all__)
def test_public_name_has_docstring_with_example(name):
    value = getattr(trainwright, name)
    text = inspect.getdoc(value) or ""
    assert len(text) > 40 and ">>>" in text


@pytest.mark.parametrize("name", trainwright.nn.__all__)
def test_public_name_of_nn_has_docstring(name):
    text = inspect.getdoc(getattr(trainwright.nn, name)) or ""
    assert len(text) > 40 and ">>>" in text


@pytest.mark.parametrize("module", [trainwright, trainwright.nn])
def test_public_methods_have_docstrings(module):
    for name in module.__all__:
        value = getattr(module, name)
        for own, method in vars(value).items() if inspect.isclass(value) else ():
            function = getattr(method, "fget", None) or getattr(method, "__func__", method)
            if not own.startswith("_") and inspect.isfunction(function):
                assert len(function.__doc__ or "") > 15, f"{name}.{own}"


LIBRARIES = ("mcf", "mcf.nn", "qr", "ape", "tt")
SPARE = {"MCModule", "MCReLU", "MCGELU"}
"""Layers without arguments of their own, and the class that all layers have in common."""


def of_libraries() -> list[str]:
    """List what users of the number libraries call: no results, errors and constants."""
    names = []
    for library in LIBRARIES:
        module = import_module(f"trainwright.{library}")
        for name in set(module.__all__) - SPARE:
            value = getattr(module, name)
            result = library == "qr" and inspect.isclass(value)
            error = inspect.isclass(value) and issubclass(value, Exception)
            if callable(value) and not result and not error:
                names.append(f"trainwright.{library}.{name}")
    return names


NAMES = [
    *(f"trainwright.{name}" for name in trainwright.__all__ if name != "nn"),
    *(f"trainwright.nn.{name}" for name in trainwright.nn.__all__),
    *of_libraries(),
]


@pytest.mark.parametrize("name", sorted(NAMES))
def test_public_docstring_examples_run(name):
    """Examples of each public name, whatever module it comes from."""
    torch.manual_seed(0)
    module, _, own = name.rpartition(".")
    value = getattr(import_module(module), own)
    names = vars(import_module(value.__module__)) | {"__name__": "examples"}
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for example in doctest.DocTestFinder(recurse=False).find(value, own, globs=dict(names)):
        runner.run(example)
    assert runner.summarize(verbose=False) == (0, runner.tries) and runner.tries


def test_public_package_examples_run():
    failed, tried = doctest.testmod(trainwright)
    assert tried and not failed


def test_import_is_cheap_and_there_is_nothing_else():
    code = (
        "import sys, trainwright\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules\n"
        "assert set(dir(trainwright)) == {*trainwright.__all__, '__version__'}\n"
        "from trainwright import *\n"
        "assert compile is trainwright.compile and nn.TTLinear\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'kompile'"):
        _ = trainwright.kompile


def test_public_readmes_lines_run_as_printed(capsys):
    page = Path(__file__).parents[2] / "README.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    exec(code, {"x": torch.rand(64, 784), "y": torch.arange(64) % 10})
    assert "back end golden, batch 64" in capsys.readouterr().out


@pytest.mark.parametrize("page", ["ape", "mcf", "posit", "qr"])
def test_page_of_a_library_opens_with_a_question_and_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parents[2] / "docs" / "reference" / f"{page}.md").read_text()
    assert re.match(r"# .*\n\n\*\*[^*]*\?\*\*", text)
    examples = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert examples
    names: dict[str, object] = {}
    for example in examples:
        exec(example, names)


def test_public_names_of_libraries_are_in_the_reference():
    page = (Path(__file__).parents[2] / "docs" / "reference" / "library-names.md").read_text()
    shown = set(re.findall(r"auto(?:function|class):: (\S+)", page))
    assert set(of_libraries()) <= shown

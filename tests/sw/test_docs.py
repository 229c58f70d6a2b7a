"""The documents: links and names lead somewhere, the tour's commands print what it says."""

import ast
import inspect
import pkgutil
import re
import tomllib
from pathlib import Path

import pytest
from folded import each
from tour_output import DOCUMENT as TOUR
from tour_output import ROOT, examples, run

from trainwright.accelerator import backend_names
from trainwright.compiler import compile_step
from trainwright.network import load_network
from trainwright.parameters import PRESETS, AcceleratorParameters, preset

PAGES = (
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs/guide").glob("*.md")),
    *sorted((ROOT / "docs/reference").glob("*.md")),
    *sorted((ROOT / "docs/results").glob("*.md")),
    *sorted((ROOT / "docs/decisions").glob("*.md")),
    *sorted(ROOT.glob("*/README.md")),
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
)
RESULTS = sorted((ROOT / "docs/results").glob("*.md"))
TIMELESS = [page for page in PAGES if page.parent.name in ("guide", "reference")]
HISTORY = re.compile(
    r"\bnow\b(?! and then)|\bno longer\b|\btried and dropped\b|\bearlier (?:state|version|run)"
    r"|\b(?:was|were|took|had) [\d,.]+ before\b|\btoday\b|\buntil here\b",
    re.IGNORECASE,
)
"""Phrases that tell what was true once."""
PACKAGES = {
    "trainwright": "sw",
    "trainwright_hw": "hw",
    "trainwright_sim": "sim",
    "trainwright_boards": "boards",
}
FOLDERS = ("boards", "docs", "hw", "scripts", "sim", "sw", "tests")


def prose(page: Path) -> str:
    """Return a page without its code blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def spans(page: Path) -> list[str]:
    """Return code spans of a page's text, with line breaks as spaces."""
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose(page))]


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def defined(body: list[ast.stmt]) -> dict[str, ast.stmt]:
    """Return what statements define, by name; imported names too."""
    names: dict[str, ast.stmt] = {}
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names[node.name] = node
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name: node for alias in node.names}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            children = (n for target in targets for n in ast.walk(target))
            names |= {name.id: node for name in children if isinstance(name, ast.Name)}
        elif isinstance(node, ast.If):  # TYPE_CHECKING
            names |= defined(node.body)
    return names


def missing(reference: str) -> str | None:
    """Find the first part of ``package.module.name`` that the sources lack, or ``None``."""
    package, *rest = reference.split(".")
    place = ROOT / PACKAGES[package] / package
    while rest and (place / rest[0]).is_dir():
        place /= rest.pop(0)
    if rest and (place / f"{rest[0]}.py").is_file():
        module = place / f"{rest.pop(0)}.py"
    else:
        module = place / "__init__.py"
    body = ast.parse(module.read_text()).body
    for name in rest:
        node = defined(body).get(name)
        if node is None:
            return name
        body = node.body if isinstance(node, ast.ClassDef) else []
    return None


REFERENCE = re.compile(rf"({'|'.join(PACKAGES)})(\.\w+)+")


def references(page: Path) -> list[str]:
    """Find the modules, classes and functions that a page names in code type."""
    return [span for span in spans(page) if REFERENCE.fullmatch(span)]


def paths(page: Path) -> list[str]:
    """Find the files and folders of the checkout that a page names in code type."""
    pattern = rf"({'|'.join(FOLDERS)})/[\w./-]*"
    return [span for span in spans(page) if re.fullmatch(pattern, span)]


@each("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_docs_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"\w+:", target):  # of the world outside: whether it is an address at all
            assert re.fullmatch(
                r"https?://[\w-]+(\.[\w-]+)+(:\d+)?(/[^\s<>\"{}|\\^`]*)?", target
            ), target
            continue
        path, _, anchor = target.partition("#")
        destination = page.parent / path if path else page
        assert destination.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(destination), f"{page.name} links to {target}"


@each("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_and_names_exist(page):
    gone = [path for path in paths(page) if not (ROOT / path).exists()]
    gone += [reference for reference in references(page) if missing(reference)]
    assert not gone


def documented() -> dict[str, str]:
    """Return the docstrings that the site shows, by their names: of classes and their members."""
    texts = {}
    for page in PAGES:
        for name in re.findall(r"^\.\. auto\w+:: ([\w.]+)$", page.read_text(), re.MULTILINE):
            value = pkgutil.resolve_name(name)
            texts[name] = inspect.getdoc(value) or ""
            if inspect.isclass(value):
                members = {n: v for n, v in vars(value).items() if not n.startswith("_")}
                texts |= {f"{name}.{n}": inspect.getdoc(v) or "" for n, v in members.items()}
    return texts


def test_docstrings_of_the_site_have_no_broken_markup():
    """Find what Sphinx warns of: ``*name``, ``|name|``, and letters behind a literal."""
    texts = documented()
    assert len(texts) > 100
    broken = []
    for name, text in texts.items():
        plain = re.sub(r"^>>> .*?(?:\n\n|\Z)", "", text, flags=re.DOTALL | re.MULTILINE)
        plain = re.sub(r"``[^`]+``(?![\w`])", "", plain)
        plain = re.sub(r"(?<!\w)\*\S[^*]*\*(?!\w)", "", plain)
        if fault := re.search(r"``|(?<!\w)\*[\w,/].*|(?<!\|)\|\w+\|(?!\|)", plain):
            broken.append((name, fault[0]))
    assert not broken


def tables_of_files(page: Path) -> list[tuple[Path, str]]:
    """Read (folder, file name or pattern) from tables headed ``file of `FOLDER/` ``."""
    entries, folder = [], None
    for line in page.read_text().splitlines():
        if head := re.match(r"\| file of `([\w/]+)/` \|", line):
            folder = ROOT / head[1]
        elif not line.startswith("|"):
            folder = None
        elif folder:
            entries += [(folder, name) for name in re.findall(r"`([^`]+)`", line.split(" | ")[0])]
    return entries


@each("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_tables_of_files(page):
    gone = [name for folder, name in tables_of_files(page) if not list(folder.glob(name))]
    assert not gone


def test_install_page_lists_every_extra_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    page = (ROOT / "docs" / "guide" / "install.md").read_text()
    listed = {*re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)}
    assert listed == {*project["optional-dependencies"]}


def test_docs_tour_names_every_part():
    """The checks above have something to check."""
    parts = {reference.split(".")[1] for reference in references(TOUR)}
    assert {"network", "compiler", "program", "driver", "control", "compute", "arith"} <= parts
    assert {"storage", "dma", "golden", "check", "train"} <= parts
    files = [
        row
        for row in prose(ROOT / "docs" / "reference" / "glossary.md").splitlines()
        if row.endswith("` |")
    ]
    assert len(files) > 30


@pytest.mark.parametrize(("command", "output"), examples(TOUR.read_text()), ids=lambda v: v[:40])
def test_docs_tour_prints_its_output(command, output):
    if "rtl" in command and "rtl" not in backend_names():
        pytest.skip("trainwright is not installed: no back ends are registered")
    assert run(command) == output, "python tests/sw/tour_output.py writes it anew"


def test_readme_pytorch_example_runs_as_printed(capsys):
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    exec(example, {"__name__": "example"})
    assert "1 training step;" in capsys.readouterr().out


@pytest.mark.parametrize("page", RESULTS, ids=lambda page: page.name)
def test_results_page_names_its_command_and_its_date(page):
    text = page.read_text()
    assert re.search(r"`(trainwright|scripts/|python -m) ?[a-z]", text)
    assert re.search(r"\b20\d\d-\d\d-\d\d\b", text)


@each("page", TIMELESS, ids=lambda page: page.name)
def test_guide_and_reference_tell_no_history(page):
    """Figures of earlier states and dropped variants belong to results and decisions."""
    assert not HISTORY.findall(prose(page))


def test_decision_numbers_are_unique():
    numbers = [page.name[:4] for page in sorted((ROOT / "docs/decisions").glob("*.md"))]
    assert all(number.isdigit() for number in numbers)
    assert len({*numbers}) == len(numbers)


def text_of(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def test_accelerator_page_has_multipliers_and_memory_of_presets():
    rows = re.findall(
        r"^\| `([\w-]+)`.*? \| (\d+) \| ([\d,]+) \|",
        text_of("reference/accelerator.md").split("## Presets")[1].split("## ")[0],
        re.MULTILINE,
    )
    assert {name for name, *_ in rows} == set(PRESETS)
    for name, multipliers, bits in rows:
        parameters = preset(name)
        assert multipliers == str(parameters.multipliers), name
        assert bits == f"{parameters.on_chip_bits:,}", name


def test_networks_page_counts_the_parameters_of_its_example(tmp_path):
    example = text_of("guide/networks.md").split("```toml\n")[1].split("```")[0]
    (tmp_path / "mine.toml").write_text(example)
    layers = load_network(str(tmp_path / "mine.toml")).layers
    count = sum(layer.factor_parameters + layer.bias_parameters for layer in layers)
    assert f"This network has {count:,} parameters." in text_of("guide/networks.md")


def test_boards_page_has_bytes_of_memory_of_digits():
    step = compile_step(load_network("digits"), 64, preset("ecp5-85f"))
    assert f"`digits`: {step.memory_bytes:,} bytes at a batch of 64" in text_of("guide/boards.md")


def test_paper_page_counts_the_multiplications_of_the_order_of_the_paper():
    step = compile_step(load_network("fashion"), 64, AcceleratorParameters(), plan="paper")
    assert f"{step.macs:,} multiply-accumulates a step" in text_of("reference/paper.md")

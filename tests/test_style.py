"""Prose and names keep to the style guide, or to what the file of pending places still allows."""

import ast
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from style_rules import (
    COMMENT_FLOOR,
    COMMENTED,
    ROOT,
    c_comment_violations,
    class_violations,
    comment_density,
    counts,
    documented,
    opener_fault,
    pending,
    repeats_name,
    violations,
)

SHOWN = 20
"""Places that a failure lists."""
RULES = ("docstring", "summary", "name", "test name", "class name", "C comment")


@pytest.mark.parametrize("rule", RULES)
def test_style_rule_has_no_new_violation(rule: str) -> None:
    allowed, present = pending().get(rule, {}), counts().get(rule, {})
    grown = {p for p, count in present.items() if count > allowed.get(p, 0)}
    places = [v for v in violations() if v.rule == rule and v.package in grown]
    places.sort(key=lambda v: -v.path.stat().st_mtime)  # files edited last come first
    excess = ", ".join(f"{p}: {present[p]}, {allowed.get(p, 0)} allowed" for p in sorted(grown))
    assert not grown, "\n".join([excess, *map(str, places[:SHOWN]), "all: scripts/style --list"])


def test_style_pending_list_names_only_packages_with_violations() -> None:
    present = counts()
    done = [
        f"{rule}: {package}"
        for rule in RULES
        for package in pending().get(rule, {})
        if package not in present.get(rule, {})
    ]
    assert not done, f"take these from the list (scripts/style --lower): {done}"


def test_c_comment_of_several_lines_is_checked_at_its_first(tmp_path: Path) -> None:
    source = tmp_path / "a.h"
    source.write_text("// Rows of a tile.\n// Those stay.\nint a;\n/* What is left. */\nint b;\n")
    assert [v.line for v in c_comment_violations(source)] == [4]


@pytest.mark.parametrize("part", COMMENTED)
def test_comment_density_keeps_its_floor(part: str) -> None:
    floor = pending()["comments"].get(part, COMMENT_FLOOR)
    assert comment_density(COMMENTED[part]) >= floor


@pytest.mark.parametrize(
    ("kind", "text", "accepted"),
    [
        ("function", "Return the depth of the queue.", True),
        ("function", "Returns the depth of the queue.", False),
        ("function", "The depth of the queue.", False),
        ("function", "return the depth.", False),
        ("function", "Count of rows.", False),
        ("function", "Count rows of a tile.", True),
        ("function", "Check that the run ends.", True),
        ("value", "The depth of the queue.", True),
        ("value", "Of a queue, its depth.", False),
        ("class", "The same for queues.", False),
        ("class", "A bit each.", False),
        ("module", "What queues share.", False),
        ("module", "Queues between engines.", True),
    ],
)
def test_docstring_opener_is_judged_by_kind(kind: str, text: str, accepted: bool) -> None:
    assert (opener_fault(kind, text) is None) is accepted


def test_docstring_repeating_name_is_found() -> None:
    assert repeats_name("reset_counters", "Reset the counters.")
    assert not repeats_name("reset_counters", "Reset the counters of every engine.")


def test_documented_values_include_attributes_and_properties() -> None:
    source = "\n".join(
        [
            'X = 1\n"""Cycles a row."""',
            "class A:",
            "    y: int = 0",
            '    """Rows of a tile."""',
            "    @property",
            "    def z(self):",
            '        """Bits of a word."""',
            "    def __init__(self):",
            "        self.w: int = 0",
            '        """Rows of a bank."""',
        ]
    )
    found_kinds = {(kind, name) for kind, name, _, _ in documented(ast.walk(ast.parse(source)))}
    assert found_kinds == {("value", "X"), ("value", "y"), ("value", "z"), ("value", "self.w")}


def test_class_rule_finds_second_class_of_a_name(monkeypatch, tmp_path: Path) -> None:
    import style_rules

    for folder in ("sw/a", "sw/b", "hw/a"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "x.py").write_text("class Row: ...\n", encoding="utf-8")
    monkeypatch.setattr(style_rules, "ROOT", tmp_path)
    monkeypatch.setattr(style_rules, "python_files", lambda: sorted(tmp_path.rglob("*.py")))
    assert [v.path for v in class_violations()] == [tmp_path / "sw/b/x.py"]


def test_changelog_entries_have_two_lines_at_most_and_stand_once() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text().splitlines()
    assert max(map(len, lines)) <= 128
    assert not [line for line, after in pairwise(lines) if line[:2] == after[:2] == "  "]
    entries = Counter(line for line in lines if line.startswith("- "))
    assert {entry for entry, count in entries.items() if count > 1} == set()

"""Rules of prose and names, checked on the syntax tree of every Python file.

`scripts/style --report` prints the counts, `scripts/style --list RULE PACKAGE` the places, and
`scripts/style --lower` writes counts that have fallen to the file of pending places.
"""

import ast
import io
import json
import re
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("sw", "hw", "sim", "boards", "tests")
PENDING = Path(__file__).with_name("style_pending.json")
"""Violations that each package still has, by rule; a count may fall and never rise."""

BANNED_OPENERS = (
    "of", "what", "those", "that", "as", "where", "the same", "all", "one", "a bit",
    "it", "its", "they", "their", "these", "there",
)  # fmt: skip
"""First words that turn a docstring into a fragment or point at a noun of another sentence."""

BANNED_NAMES = frozenset("one its some there of others found turn made looks sparing late".split())
"""Names of parameters and variables that do not say what they hold."""

BANNED_TEST_WORDS = frozenset("what those that whatever all one a an as where of the".split())
"""Words that a test's name may not begin with: a noun, the unit under test, comes first."""

VERBS = frozenset(
    """
    abort absorb accept access accumulate acknowledge acquire activate adapt add adjust admit
    advance aggregate align allocate allow alternate analyse annotate answer append apply
    approximate arbitrate arrange ask assemble assert assign assume attach attribute average avoid
    back balance begin bind bisect block bound branch break broadcast buffer build bypass cache
    calculate calibrate call cancel canonicalise cap capture carry cast catch centre chain change
    charge check choose claim clamp classify clean clear clip clock close cluster coalesce code
    bring collapse
    collect combine command compare compile complete compose compress compute concatenate configure
    confirm connect consider construct consume contain continue contract control convert convolve
    copy correct correlate count cover create cross cut cycle deal debug decide declare decode
    decompose decompress decrease decrement dedicate define delay delegate delete deliver demand
    depend dequantise derive describe deserialise detach detect determine diagnose differentiate
    disable discard dispatch display distribute divide do download drain draw drive drop dump
    duplicate elaborate elect eliminate embed emit enable encode end enforce enqueue ensure enter
    enumerate equalise erase estimate evaluate evict examine exchange exclude execute exit expand
    expect explain export expose express extend extract factor factorise fail feed fetch fill filter
    find finish fit fix flag flatten flip float flush fold follow force forget fork form format
    forward freeze fuse gate gather generate get give go grant group grow guard guess halve handle
    hash hide
    hold host identify ignore implement import include increase increment index infer inherit
    initialise inject insert inspect install instantiate interleave interpolate interpret invert
    invoke issue iterate jit join judge jump keep key kill label latch lay leave let lift limit line
    link list load locate lock log look lower make manage map mark mask match materialise matricise
    measure merge minimise mirror model modify monitor mount move multiply mutate name narrow negate
    normalise note notify number observe obtain offer omit open optimise order orthogonalise output
    override overwrite own pack pad pair parametrise parse partition pass pause peek perform permute
    pick pin pipeline place plan plot point poll pop populate postpone pow predict prefetch prepare
    prepend present preserve press print process produce profile program project promote propagate
    propose protect prove provide provoke prune publish pull push put quantise query queue quote
    raise randomise rank read rearrange rebind rebuild recall receive recognise recompute
    reconstruct record recover redirect reduce refer refill reflect refuse register reject relax
    release reload relocate remap remember remove rename render renew renormalise reorder repack
    repeat replace replay report represent reproduce requantise request require rerun rescale
    reserve reset reshape resize resolve respond restart restore restrict resume retry return reuse
    reverse revert rewind rewrite roll rotate round route run sample satisfy saturate save scale
    scan scatter schedule score search see seed seek select send separate sequence serialise serve
    set settle shard share shift show shrink shuffle sign signal simplify simulate skip slice solve
    sort space spawn specialise specify split spread square stack stage stall stamp standardise
    start starve state stay steer step stitch stop store stream stress strip submit subtract suggest
    sum summarise supply support suppress swap switch symmetrise synchronise synthesise tabulate tag
    take tell terminate test throttle tie tile time toggle tokenise total trace track train transfer
    transform translate transmit transpose traverse treat trim truncate try tune turn undo unfold
    unify unlink unpack unroll unscale unwrap unzip update upload use validate verify view visit
    wait walk warm warn watch weaken weigh widen wire withhold work wrap write yield zero
    """.split()
)
"""Imperatives that a function's docstring may begin with; add a verb where one is missing."""

NOUN_FOLLOWERS = frozenset("of that which".split())
"""Second words after which the first is a noun: "Count of rows", "State that is saved"."""

CLAUSE_VERBS = frozenset(
    "assert assume check claim confirm ensure note prove require show verify".split()
)
"""Verbs whose object may be a clause: "Check that the run ends"."""

ARTICLES = frozenset("a an the of for in to and its".split())


@dataclass(frozen=True)
class Violation:
    """Place that breaks a rule."""

    rule: str
    path: Path
    line: int
    text: str

    @property
    def package(self) -> str:
        """Folder that the count belongs to: at most three levels below the checkout."""
        return package_of(self.path)

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.rule}: {self.text}"


def package_of(path: Path) -> str:
    """Return the first three folders of a file's path, or fewer where it lies higher."""
    return "/".join(path.relative_to(ROOT).parent.parts[:3])


@cache
def python_files() -> tuple[Path, ...]:
    """List every Python file of the five source folders."""
    return tuple(sorted(p for folder in FOLDERS for p in (ROOT / folder).rglob("*.py")))


@cache
def native_files() -> tuple[Path, ...]:
    """List every C and C++ file of the five source folders."""
    return tuple(
        sorted(
            p
            for folder in FOLDERS
            for p in (ROOT / folder).rglob("*")
            if p.suffix in (".c", ".cc", ".cu", ".h")
        )
    )


@cache
def parse(path: Path) -> ast.Module:
    """Parse a file, once for all rules."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """List the nodes of a file's syntax tree, once for all rules."""
    return tuple(ast.walk(parse(path)))


def is_test(path: Path) -> bool:
    """Return whether a file belongs to the tests."""
    return path.is_relative_to(ROOT / "tests")


# -- docstrings ------------------------------------------------------------------------------------
def documented(tree: Iterable[ast.AST]) -> Iterator[tuple[str, str, str, int]]:
    """Yield (kind, name, docstring, line); kind is module, class, function or value."""
    for node in tree:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            decorators = " ".join(ast.unparse(d) for d in node.decorator_list)
            kind = "value" if "property" in decorators else "function"
            if text := ast.get_docstring(node):
                yield kind, node.name, text, node.body[0].lineno
            yield from documented_values(node)
        if isinstance(node, ast.ClassDef | ast.Module):
            if text := ast.get_docstring(node):
                kind = "class" if isinstance(node, ast.ClassDef) else "module"
                yield kind, getattr(node, "name", ""), text, node.body[0].lineno
            yield from documented_values(node)


def documented_values(
    node: ast.ClassDef | ast.Module | ast.FunctionDef | ast.AsyncFunctionDef,
) -> Iterator[tuple[str, str, str, int]]:
    """Yield the strings that stand below an assignment, which describe what is assigned."""
    for before, after in zip(node.body, node.body[1:], strict=False):
        if (
            isinstance(before, ast.Assign | ast.AnnAssign)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
            and isinstance(after.value.value, str)
        ):
            target = before.targets[0] if isinstance(before, ast.Assign) else before.target
            yield "value", ast.unparse(target), after.value.value, after.lineno


def opener_fault(kind: str, text: str) -> str | None:
    """Return the fault in the first words of a docstring, or `None`."""
    words = [w.strip(".,:;()").lower() for w in text.split()[:2]] + ["", ""]
    for opener in BANNED_OPENERS:
        if words[: len(opener.split())] == opener.split():
            return f"begins with {opener!r}: {first_line(text)}"
    followers = NOUN_FOLLOWERS - ({"that"} if words[0] in CLAUSE_VERBS else set())
    imperative = words[0].split("-")[0] in VERBS and words[1] not in followers
    if kind == "function" and (not imperative or text[:1].islower()):
        return f"begins with no imperative: {first_line(text)}"
    return None


def repeats_name(name: str, text: str) -> bool:
    """Return whether a docstring of one sentence says no more than the name does."""
    words = {w for w in re.findall(r"[a-z0-9]+", text.lower()) if w not in ARTICLES}
    parts = re.findall(r"[a-z0-9]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())
    stems = {p[:4] for p in parts}
    return bool(words) and {w[:4] for w in words} <= stems


def first_line(text: str) -> str:
    """Return the first line, short enough for a list."""
    line = text.strip().split("\n")[0]
    return line if len(line) <= 70 else line[:67] + "..."


def summary_fault(text: str) -> bool:
    """Return whether the summary runs over its line (ruff's D205, counted by package)."""
    lines = text.strip().split("\n")
    return len(lines) > 1 and bool(lines[1].strip())


def docstring_violations(path: Path) -> Iterator[Violation]:
    """Check every docstring of a file, and of tests the first words only."""
    for kind, name, text, line in documented(nodes(path)):
        checked = "value" if is_test(path) and name.startswith("test_") else kind
        if fault := opener_fault(checked, text):
            yield Violation("docstring", path, line, fault)
        elif repeats_name(name, text):
            yield Violation("docstring", path, line, f"repeats the name: {first_line(text)}")
        if kind != "value" and summary_fault(text):
            yield Violation("summary", path, line, f"is not one line: {first_line(text)}")


C_COMMENT = re.compile(r"\s*(?://|/\*)\s*(.*)")


def c_comment_violations(path: Path) -> Iterator[Violation]:
    """Check the first words of comments that have lines of their own in a file of C or C++."""
    before = ""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        opens = C_COMMENT.match(line)
        if opens and not before.lstrip().startswith("//"):
            fault = opener_fault("value", opens[1])
            if fault:
                yield Violation("C comment", path, number, fault)
        before = line


# -- names -----------------------------------------------------------------------------------------
def name_violations(path: Path) -> Iterator[Violation]:
    """Check names of parameters, variables and attributes that are assigned."""
    for node in nodes(path):
        if isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            name = node.attr
        else:
            continue
        if name in BANNED_NAMES:
            yield Violation("name", path, node.lineno, f"{name!r} does not say what it holds")


def misnamed_tests(path: Path) -> Iterator[Violation]:
    """Check that tests are called `test_<unit>_<condition>_<result>`."""
    for node in nodes(path):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            words = node.name.split("_")[1:]
            if len(words) < 3 or words[0] in BANNED_TEST_WORDS or "what" in words:
                yield Violation("test name", path, node.lineno, node.name)


def class_violations() -> Iterator[Violation]:
    """Find public classes of one name within a distribution."""
    places: dict[tuple[str, str], list[tuple[Path, int]]] = defaultdict(list)
    for path in python_files():
        if is_test(path):
            continue
        for node in parse(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                distribution = path.relative_to(ROOT).parts[0]
                places[distribution, node.name].append((path, node.lineno))
    for (_, name), where in sorted(places.items()):
        for path, line in where[1:]:
            first = where[0][0].relative_to(ROOT)
            yield Violation("class name", path, line, f"{name} is a class of {first}, too")


# -- comments --------------------------------------------------------------------------------------
COMMENT_FLOOR = 5.0
"""Comment lines per 100 code lines that packages of `COMMENTED` must have at the end."""

COMMENTED = {
    "compiler": ("sw/trainwright/compiler",),
    "golden": ("sw/trainwright/golden",),
    "hw": ("hw/trainwright_hw",),
    "graph": ("sw/trainwright/graph",),
    "train": ("sw/trainwright/train",),
}
PRAGMA = re.compile(r"#\s*(noqa|type:|pyright:|fmt:|pragma|ruff:|!)")


def comment_lines(path: Path) -> int:
    """Count the lines with a comment that a person reads."""
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline)
    return sum(t.type == tokenize.COMMENT and not PRAGMA.match(t.string) for t in tokens)


def code_lines(path: Path) -> int:
    """Count the lines that are not blank, comment or docstring."""
    text = path.read_text(encoding="utf-8")
    strings = {
        line
        for node in nodes(path)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    return sum(
        bool(stripped := line.strip()) and not stripped.startswith("#") and number not in strings
        for number, line in enumerate(text.splitlines(), 1)
    )


def comment_density(folders: tuple[str, ...]) -> float:
    """Return comment lines per 100 code lines of some folders."""
    files = [p for p in python_files() if any(p.is_relative_to(ROOT / f) for f in folders)]
    return 100 * sum(map(comment_lines, files)) / max(1, sum(map(code_lines, files)))


# -- counts ----------------------------------------------------------------------------------------
@cache
def violations() -> tuple[Violation, ...]:
    """Collect the violations of every rule."""
    checks = (docstring_violations, name_violations)
    per_file = [v for path in python_files() for check in checks for v in check(path)]
    tests = [v for path in python_files() if is_test(path) for v in misnamed_tests(path)]
    native = [v for path in native_files() for v in c_comment_violations(path)]
    return (*per_file, *tests, *native, *class_violations())


def counts() -> dict[str, dict[str, int]]:
    """Count violations by rule and package."""
    result: dict[str, dict[str, int]] = {}
    counted = Counter((v.rule, v.package) for v in violations())
    for (rule, package), count in sorted(counted.items()):
        result.setdefault(rule, {})[package] = count
    return result


def pending() -> dict[str, dict[str, float]]:
    """Read the counts that each package may still have; of comments, the density it must keep."""
    return json.loads(PENDING.read_text(encoding="utf-8"))

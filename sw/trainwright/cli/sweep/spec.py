"""The TOML file of a sweep, its axes, and the trials that it asks for.

Axes are options of ``trainwright train``, formats, sizes of the machine and boards.
"""

import argparse
import hashlib
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import entry_points
from itertools import pairwise, product
from math import prod
from pathlib import Path
from typing import Any, NoReturn

from trainwright.accelerator import is_backend
from trainwright.cli.errors import OptionError
from trainwright.cli.sweep.processes import Trial
from trainwright.cli.train.job import Load, RequestedRun, asked, load_data
from trainwright.cli.train.options import add_arguments
from trainwright.formats import CLASSES
from trainwright.network import BUILT_IN, Network, NetworkError
from trainwright.network.tables import format_digests, kernel_digests
from trainwright.parameters import AcceleratorParameters
from trainwright.support.errors import errors_as
from trainwright.support.settings import settings_of
from trainwright.support.text import shown, suggestion

# -- axes ------------------------------------------------------------------------------------------
SEED = "seed"
PRIOR_WEIGHT = "prior-weight"
_OURS = (
    "h help out resume force json download accelerator checkpoint-seconds tensorboard tt-round "
    "tt-round-epochs tt-round-beside verify prepared"
).split()
"""Options of ``trainwright train`` that a sweep sets itself, or that do not belong to a trial."""
REPEATED = ("ignore", "category", "log")
"""Options that [train] may give a list of texts."""
FORMATS = (*CLASSES, "underflow")
SIZES = tuple(s.flag for s in settings_of(AcceleratorParameters) if s.name != "formats")


Axis = Callable[[Any], Sequence[str]]
"""Maps a value to options of ``trainwright train``; raises ``OptionError`` for a wrong one."""


@cache
def other_axes() -> dict[str, Axis]:
    """Return the axes of packages above this one (``board``), from ``trainwright.axes``."""
    return {entry.name: entry.load() for entry in entry_points(group="trainwright.axes")}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise OptionError(message)


@cache
def _parser() -> _Parser:
    parser = _Parser(allow_abbrev=False)
    add_arguments(parser)
    return parser


@cache
def train_options() -> dict[str, argparse.Action]:
    """Return the options of ``trainwright train`` that can be varied or set, by name."""
    named = {a.option_strings[0].lstrip("-"): a for a in _parser()._actions}
    return {name: action for name, action in named.items() if name not in _OURS}


def known(name: str) -> str:
    """Return the name of an axis in one spelling. Raises ``OptionError`` for an unknown name."""
    plain = name.replace("_", "-")
    axes = (*train_options(), *FORMATS, *SIZES, *other_axes())
    if plain not in axes:
        raise OptionError(
            f"no axis {shown(name)}; there are options of trainwright train "
            f"({', '.join(train_options())}), formats of tensors ({', '.join(FORMATS)}), sizes "
            f"of the accelerator ({', '.join(SIZES)}) and {', '.join(other_axes()) or 'no others'}"
            f"{suggestion(plain, axes)}"
        )
    return plain


def check_value(name: str, value: Any) -> None:
    """Reject values that TOML has and no option takes."""
    if not isinstance(value, str | int | float):
        kinds = "a text, a number, true or false"
        raise OptionError(f"{name} = {shown(value)}: a value is {kinds}, as on the command line")


def command_options(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return options of ``trainwright train`` for values by axis, in the order given.

    An integer as a tensor's format is a width in bits; ``prior-weight`` 0 is ``--no-prior``.
    Raises ``OptionError``.
    """
    if values.get("prior") is True and values.get(PRIOR_WEIGHT) == 0:
        raise OptionError("prior-weight 0 is no prior: omit prior = true")
    formats = [
        f"{name}={f'fixed({value})' if isinstance(value, int) else value}"
        for name, value in values.items()
        if name in FORMATS
    ]
    if "formats" in values:
        formats.insert(0, values["formats"])
    options: list[str] = []
    for name, value in values.items():
        if name in other_axes():
            options += other_axes()[name](value)
        elif name in SIZES:
            options += ["--accelerator", f"{name.replace('-', '_')}={value}"]
        elif name not in FORMATS and name != "formats":
            options += _option(name, value)
    if options.count("--preset") > 1:
        raise OptionError("a board has a preset of its own: omit preset or board")
    return (*options, *(["--formats", ",".join(formats)] if formats else []))


def _option(name: str, value: Any) -> list[str]:
    action = train_options()[name]
    if isinstance(value, list):
        return [text for item in value for text in _option(name, item)]
    if action.nargs == 0:  # a switch
        if not isinstance(value, bool):
            raise OptionError(f"{name} is true or false, not {shown(value)}")
        return [action.option_strings[0 if value else 1]]
    if name == PRIOR_WEIGHT and value == 0 and not isinstance(value, bool):
        return ["--no-prior"]
    text = str(value)
    if text in ("", "--"):  # argparse would drop --, and an empty name may mean the default
        raise OptionError(f"{name} must have a value, not {text!r}")
    return [f"--{name}={text}"] if text.startswith("-") else [f"--{name}", text]


def checked(options: tuple[str, ...], load: Load = load_data) -> RequestedRun:
    """Check options as far as possible. Raises ``OptionError``, ``NetworkError``."""
    new = asked(_parser().parse_args(list(options)), load)
    if new.accelerator is not None and not is_backend(new.options.backend):
        raise OptionError(f"--backend: there is no {new.options.backend!r}")
    return new


# -- the file --------------------------------------------------------------------------------------
MOST_TRIALS = 10_000
MOST_TEXT = 1 << 20
"""Bytes of the longest file."""
_TABLES = ("train", "axes")
_MOST_NAME = 80
"""Most characters of a folder's name before its digest."""


@dataclass(frozen=True)
class Spec:
    """Content of a sweep's file, with names of axes in the spelling of ``known``.

    ``train`` has the options of all trials, ``axes`` the values of each axis.
    """

    path: Path
    train: Mapping[str, Any]
    axes: Mapping[str, tuple[Any, ...]]


@dataclass(frozen=True)
class Point(Trial):
    """A trial with its place on the axes."""

    values: tuple[tuple[str, Any], ...]
    asked: RequestedRun = field(compare=False)

    @property
    def run(self) -> tuple[Any, ...]:
        """Network, options, settings and accelerator: equal ones are one run."""
        new = self.asked  # options spell the same accelerator in several ways: compare the result
        return new.network, replace(new.options, accelerator=()), new.settings, new.accelerator


def read_spec(path: Path) -> Spec:
    """Read the file. Raises ``OptionError`` that names the file and what is wrong in it."""
    try:
        if path.stat().st_size > MOST_TEXT:
            raise OptionError(f"{path} is longer than {MOST_TEXT:,} bytes: no sweep is")
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise OptionError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # TOML's and UTF-8's errors are ValueErrors
        raise OptionError(f"{path} is no TOML: {error}") from None
    with errors_as(str(path), OptionError, OptionError):
        return _spec(path, content)


def _spec(path: Path, content: Mapping[str, Any]) -> Spec:
    for name, table in content.items():
        if name not in _TABLES:
            raise OptionError(
                f"no table {shown(name)}; there are [train] and [axes]{suggestion(name, _TABLES)}"
            )
        if not isinstance(table, dict):
            raise OptionError(f"{name} is a table: write [{name}] and its lines below")
    train = {known(name): value for name, value in content.get("train", {}).items()}
    axes: dict[str, tuple[Any, ...]] = {}
    for name, value in train.items():
        for item in value if isinstance(value, list) and name in REPEATED else [value]:
            check_value(f"train.{name}", item)
    for given, values in content.get("axes", {}).items():
        name = known(given)
        if name in train or name in axes:
            raise OptionError(f"{given} is given twice: omit one")
        if not isinstance(values, list) or not values:
            raise OptionError(f"axes.{given} = {shown(values)}: write the list of its values")
        before: set[str] = set()
        for value in values:
            check_value(f"axes.{given}", value)
            if _spelled(value) in before:
                raise OptionError(f"axes.{given} has {shown(value)} twice: omit one")
            before.add(_spelled(value))
        axes[name] = tuple(values)
    if not axes:
        raise OptionError("nothing is varied: name an axis, as in\n[axes]\nseed = [0, 1, 2]")
    if (count := prod(map(len, axes.values()))) > MOST_TRIALS:
        raise OptionError(f"{count:,} trials, at most {MOST_TRIALS:,} can be: shorten an axis")
    return Spec(path, train, axes)


def points(spec: Spec, out: Path, load: Load = load_data) -> list[Point]:
    """Return every combination, the last axis fastest, each in a folder of ``out``/trials.

    Raises ``OptionError`` that names the values of the first that cannot be.
    """
    trials = [
        _point(spec, dict(zip(spec.axes, values, strict=True)), out, load)
        for values in product(*spec.axes.values())
    ]
    for axis in spec.axes:
        if axis not in other_axes() and axis not in _UNSEEN:
            _check_distinct(spec, axis, trials)
    return trials


_UNSEEN = ("threads", "initial")
"""Axes that `Point.run` does not tell apart."""


def _check_distinct(spec: Spec, axis: str, trials: Sequence[Point]) -> None:
    """Raise ``OptionError`` where two values of an axis mean one trial, which would count twice."""
    before: list[tuple[Any, Any]] = []
    for trial in trials:
        values = dict(trial.values)
        value, run = values.pop(axis), trial.run
        # One value of every other axis is enough to compare: skip trials with further values.
        if any(values[other] is not spec.axes[other][0] for other in values):
            continue
        for known_value, known_run in before:
            if run == known_run:
                raise OptionError(
                    f"{spec.path}: axes.{axis}: {shown(known_value)} and {shown(value)} mean the "
                    "same trial: omit one"
                )
        before.append((value, run))


def _point(spec: Spec, values: Mapping[str, Any], out: Path, load: Load) -> Point:
    name = ", ".join(f"{axis} {_spelled(value)}" for axis, value in values.items())
    with errors_as(f"{spec.path}: {name}", OptionError, (OptionError, NetworkError)):
        options = command_options({**spec.train, **values})
        accepted = checked(options, load)
    folder = out / "trials" / _folder_name(name, options, accepted.network)
    return Point(name, options, folder, tuple(values.items()), accepted)


def _spelled(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _folder_name(name: str, options: tuple[str, ...], network: Network) -> str:
    """Return a readable name, different for other options, and other content of their files."""
    digest = hashlib.sha256("\0".join(options).encode())
    for option, value in pairwise(options):
        if option == "--initial" or (option == "--network" and value not in BUILT_IN):
            digest.update(Path(value).read_bytes())
    if own := kernel_digests(network) | format_digests(network):
        digest.update(repr(own).encode())
    readable = re.sub(r"[^\w.+-]+", "-", name.replace(", ", "_"))[:_MOST_NAME].strip("-")
    return f"{readable}-{digest.hexdigest()[:8]}"

"""The TOML file of a sweep, and the trials that it asks for."""

import hashlib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise, product
from math import prod
from pathlib import Path
from typing import Any

from trainwright.cli.errors import OptionError
from trainwright.cli.sweep.axes import (
    Checked,
    check_value,
    checked,
    command_options,
    known,
)
from trainwright.cli.sweep.trials import Trial
from trainwright.cli.train.job import Load, load_data
from trainwright.network import BUILT_IN, NetworkError
from trainwright.support.text import shown, suggestion

MOST_TRIALS = 10_000
MOST_TEXT = 1 << 20
"""Bytes of the longest file."""
_TABLES = ("train", "axes")
_MOST_NAME = 80
"""Most characters of a folder's name before its digest."""


@dataclass(frozen=True)
class Spec:
    """``train``: what all trials have; ``axes``: what they differ in. By the names of ``axes``."""

    path: Path
    train: Mapping[str, Any]
    axes: Mapping[str, tuple[Any, ...]]


@dataclass(frozen=True)
class Point(Trial):
    """A trial with its place on the axes."""

    values: tuple[tuple[str, Any], ...]
    checked: Checked = field(compare=False)


def read_spec(path: Path) -> Spec:
    """Read the file. Raises ``OptionError`` that names the file and what is wrong in it."""
    try:
        if path.stat().st_size > MOST_TEXT:
            raise OptionError(f"{path} is longer than {MOST_TEXT:,} bytes: no sweep is")
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise OptionError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # TOML's and UTF-8's errors are ValueErrors
        raise OptionError(f"{path} is no TOML: {error}") from None
    try:
        return _spec(path, content)
    except OptionError as error:
        raise OptionError(f"{path}: {error}") from None


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
        check_value(f"train.{name}", value)
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
    return [
        _point(spec, dict(zip(spec.axes, values, strict=True)), out, load)
        for values in product(*spec.axes.values())
    ]


def _point(spec: Spec, values: Mapping[str, Any], out: Path, load: Load) -> Point:
    name = ", ".join(f"{axis} {_spelled(value)}" for axis, value in values.items())
    try:
        options = command_options({**spec.train, **values})
        accepted = checked(options, load)
    except (OptionError, NetworkError) as error:
        raise OptionError(f"{spec.path}: {name}: {error}") from None
    folder = out / "trials" / _folder_name(name, options)
    return Point(name, options, folder, tuple(values.items()), accepted)


def _spelled(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _folder_name(name: str, options: tuple[str, ...]) -> str:
    """Return a readable name, different for other options or another description of the network."""
    digest = hashlib.sha256("\0".join(options).encode())
    for option, value in pairwise(options):
        if option == "--network" and value not in BUILT_IN:
            digest.update(Path(value).read_bytes())
    readable = re.sub(r"[^\w.+-]+", "-", name.replace(", ", "_"))[:_MOST_NAME].strip("-")
    return f"{readable}-{digest.hexdigest()[:8]}"

"""Tables of costly cases, most of which only the slow runs take."""

from collections.abc import Callable, Container, Iterable
from typing import Any

import pytest


def mostly_slow(
    names: str, values: Iterable[Any], quick: Container[Any] | Callable[..., bool], **options: Any
) -> pytest.MarkDecorator:
    """Run a test for each value, like ``pytest.mark.parametrize``, most of them as slow tests.

    ``quick`` contains the cases of the default suite, or takes the arguments of a case and returns
    whether the default suite has it.
    """
    several = "," in names
    cases = []
    for value in values:
        arguments = tuple(value) if several else (value,)
        default = quick(*arguments) if callable(quick) else value in quick
        cases.append(pytest.param(*arguments, marks=[] if default else [pytest.mark.slow]))
    assert not all(case.marks for case in cases), f"the default suite has no case of {names}"
    return pytest.mark.parametrize(names, cases, **options)

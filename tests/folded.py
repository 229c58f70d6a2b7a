"""Tables of cheap cases in one test: reporting a test takes longer than most of them."""

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import pytest


def each(names: str, values: Iterable[Any], ids: Callable[[Any], object] = repr) -> Callable:
    """Run a test for each value in turn, like ``parametrize``; a note names the first wrong case.

    ``names`` are one or several arguments of the test, separated by commas. Fixtures are those of
    one test: cases must not see what others leave behind. The test of one case is the
    ``__wrapped__`` of the result.
    """
    arguments = [name.strip() for name in names.split(",")]
    cases = list(values)
    assert cases, f"no {names} to test"

    def decorate(test: Callable) -> Callable:
        @wraps(test)
        def every(**given: Any) -> None:
            for case in cases:
                value = case if len(arguments) > 1 else (case,)
                try:
                    test(**given, **dict(zip(arguments, value, strict=True)))
                except pytest.skip.Exception:
                    raise TypeError(f"{names} {ids(case)} skips the cases after it") from None
                except BaseException as error:
                    error.add_note(f"{names}: {ids(case)}")
                    raise

        signature = inspect.signature(test)
        left = [p for name, p in signature.parameters.items() if name not in arguments]
        every.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return every

    return decorate

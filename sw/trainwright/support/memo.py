"""Methods whose results an object keeps."""

from collections.abc import Callable
from functools import cache
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar
from weakref import proxy

Given = ParamSpec("Given")
Result = TypeVar("Result")


class CachedMethod(Generic[Given, Result]):
    """Decorator of a method that is called once an object for each set of arguments.

    ``functools.cache`` on a method would keep every object alive. A copy of an object would share
    its results: do not copy objects of such a class.
    """

    def __init__(self, method: Callable[Concatenate[Any, Given], Result]) -> None:
        self.method = method

    def __get__(self, owner: Any, kind: type) -> Callable[Given, Result]:
        """Return the cache of an object, which later look-ups find without a call."""
        # By a proxy, as a reference would close a cycle, and compilers put off collecting cycles.
        kept: Any = cache(MethodType(self.method, proxy(owner)))
        return owner.__dict__.setdefault(self.method.__name__, kept)

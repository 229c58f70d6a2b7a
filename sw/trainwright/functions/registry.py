"""Registry of kernels: ``trainwright.kernel``, functions by their texts, and files of users."""

import hashlib
import re
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import fields
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from inspect import Parameter, signature
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from trainwright.formats.base import KERNELS_MODULE
from trainwright.functions.record import (
    AXES,
    LIBRARY,
    MOST_SHIFT,
    STRAIGHT_THROUGH,
    Definition,
    Function,
    FunctionError,
    Scale,
    arguments_of,
    place_of,
)
from trainwright.support.text import read_number, shown, suggestion

if TYPE_CHECKING:
    import torch


def _are_texts(value: object) -> bool:
    return isinstance(value, Sequence) and all(isinstance(part, str) for part in value)


def _is_name_table(value: object) -> bool:
    return isinstance(value, Mapping) and _are_texts([*value.keys(), *value.values()])


_CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "reduces": (lambda value: isinstance(value, int) and value in (0, 1), "True or False"),
    "scale": (lambda value: isinstance(value, Scale), "a rule (Scale)"),
    "gradient_scale": (lambda value: isinstance(value, Scale), "a rule (Scale)"),
    "real": (callable, "a function"),
    "real_gradient": (callable, "a function"),
    "torch_class": (lambda value: isinstance(value, str), "the name of a class"),
    "calls": (_are_texts, "names of functions"),
    "attributes": (_is_name_table, "a mapping of names to names"),
}
"""Check of an option's value, and what the value must be; None is the default of each."""

_TEXT = re.compile(r"\s*(\w+)\s*(?:\(([^()]*)\))?\s*")

_OPTIONS = tuple(f.name for f in fields(Definition) if f.name not in ("body", "source"))
_DEFINITIONS: dict[str, Definition] = {}
_FILES: dict[str, str] = {}
"""Digest of each file that was read, by its path."""
_reading: ContextVar[str] = ContextVar("_reading", default="")
"""File whose definitions are registered."""


@overload
def kernel(body: Callable[..., Any], /) -> Definition: ...
@overload
def kernel(
    *,
    name: str | None = None,
    gradient: Callable[..., Any] | str | None = None,
    over: str | Sequence[str] = (),
    reduces: bool = False,
    whole_bits: int | None = None,
    scale: Scale | None = None,
    gradient_scale: Scale | None = None,
    real: "Callable[..., torch.Tensor] | None" = None,
    real_gradient: "Callable[..., torch.Tensor] | None" = None,
    gain: float | Callable[..., float] = 1.0,
    torch_class: str | None = None,
    calls: str | Sequence[str] = (),
    attributes: Mapping[str, str] | None = None,
) -> Callable[[Callable[..., Any]], Definition]: ...
def kernel(body: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Register an integer function of a value under the function's name.

    Parameters
    ----------
    name
        Name in the registry; the function may then have another one, as for ``abs``, a builtin of
        Python.
    gradient
        Function of the gradient to the result and, as a second operand, of the operand or the
        ``result``; or ``"straight-through"``. None: a network with the kernel cannot be trained.
    over
        Axes of a group that a value depends on, of ``features``, ``rows``, ``columns``,
        ``channels``, ``tokens`` and ``window``; none: the function is element-wise.
    reduces
        Whether the result has one value for each group; always so of a ``window``.
    whole_bits
        Bits above the point of the result. By default the result has the operand's exponent.
    scale, gradient_scale
        Rules for the exponents of the result and of the gradient.
    real, real_gradient
        The same mathematics of torch tensors, in place of the integers.
    gain
        Factor of the variance of initial weights before the function.
    torch_class, calls, attributes
        Class in ``torch.nn`` and functions of torch that compute the same, by name, so that
        ``trainwright.compile`` recognises them; torch's names of parameters.

    Raises ``FunctionError`` for a name that is taken, axes that do not exist, options of other
    types, or another function than of one operand; the error names its line.

    >>> import trainwright
    >>> trainwright.kernel(over="colums", name="same")(lambda k, x: x)
    Traceback (most recent call last):
    trainwright.functions.record.FunctionError: ... is over the axis 'colums'; there are ...
    """
    if body is not None:
        return _registered(body, {})
    return lambda body: _registered(body, options)


def _registered(body: Callable[..., Any], options: dict[str, Any]) -> Definition:
    place, given = place_of(body), options.get("name")
    name = getattr(body, "__name__", "") if given is None else given
    if not isinstance(name, str) or not name.isidentifier():
        raise FunctionError(
            f"{place}: a kernel needs a name, not {shown(name)}: define it by def, or give name="
        )
    for option in options.keys() - _OPTIONS:
        raise FunctionError(
            f"{place}: kernel has no option {option}; there are {', '.join(_OPTIONS)}"
            f"{suggestion(option, _OPTIONS)}"
        )
    over, own = options.get("over", ()), body.__module__.startswith(LIBRARY)
    over = (over,) if isinstance(over, str) else tuple(over)
    _check_options(place, name, over, options)
    gradient, reduces = options.get("gradient"), bool(options.get("reduces")) or "window" in over
    if reduces and (not over or gradient == STRAIGHT_THROUGH or over == ("tokens",)):
        raise FunctionError(
            f"{place}: {name} has one value for each group: give it axes over which it reduces, "
            "and a function as its gradient"
        )
    _check_parameters(body, name, gradient, own=own)
    _check_unread(place, name, arguments_of(body)[1], options)
    before = _DEFINITIONS.get(name)
    if before is not None and not own and before.is_library:
        raise FunctionError(f"{place}: trainwright has a function {name}: choose another name")
    source = _reading.get()
    if before is not None and source and before.source and source != before.source:
        raise FunctionError(f"{place}: {before.place} has a kernel {name}, too: rename one of them")
    new = {
        "name": name, "over": over, "source": source, "reduces": reduces,
        "attributes": options.get("attributes") or {},
        "calls": (calls,) if isinstance(calls := options.get("calls") or (), str) else tuple(calls),
    }  # fmt: skip
    definition = Definition(body=body, **{"gradient": None, **options, **new})
    _DEFINITIONS[name] = definition
    function_of.cache_clear()
    return definition


def _check_options(
    place: str, name: str, over: tuple[Any, ...], options: Mapping[str, Any]
) -> None:
    """Raise ``FunctionError`` for an option with another value than it takes."""
    for axis in over:
        if axis not in AXES:
            raise FunctionError(
                f"{place}: {name} is over the axis {shown(axis)}; there are {', '.join(AXES)}"
                f"{suggestion(str(axis), AXES)}"
            )
    gradient = options.get("gradient")
    is_function = hasattr(gradient, "__code__")  # functools.partial, or a builtin, has no lines
    if not (gradient is None or is_function or gradient == STRAIGHT_THROUGH):
        raise FunctionError(
            f"{place}: the gradient of {name} must be a function or {STRAIGHT_THROUGH!r}, not "
            f"{shown(gradient)}"
        )
    reach = MOST_SHIFT + 1  # no shift goes further
    for option, kinds, least, most in (
        ("whole_bits", int, -reach, reach), ("gain", int | float, 0, inf),
    ):  # fmt: skip
        value = options.get(option)
        if value is None or (option == "gain" and callable(value)):
            continue
        if isinstance(value, bool) or not (isinstance(value, kinds) and least < value < most):
            what = f"a whole number from {-MOST_SHIFT} to {MOST_SHIFT}"
            what = "a number above 0" if option == "gain" else what
            raise FunctionError(f"{place}: {option} of {name} must be {what}, not {shown(value)}")
    for option, (check, what) in _CHECKS.items():
        value = options.get(option)
        if value is not None and not check(value):
            raise FunctionError(f"{place}: {option} of {name} must be {what}, not {shown(value)}")


def _check_parameters(body: Callable[..., Any], name: str, gradient: object, *, own: bool) -> None:
    """Raise ``FunctionError`` for a kernel or a gradient with other parameters than it may have.

    Only the library's ``own`` kernels take two operands.
    """
    _require_operands(body, name, (1, 2) if own else (1,))
    if callable(gradient):
        _require_operands(gradient, f"the gradient of {name}", (1, 2))
        read, operand = arguments_of(gradient)[0][1:], arguments_of(body)[0][0]
        if not own and read and read[0] not in ("result", operand):
            # A gradient that means the result, and calls it y, would be given the operand.
            raise FunctionError(
                f"{place_of(gradient)}: the gradient of {name} reads {read[0]}: call it {operand}, "
                "the operand, or result"
            )
        known, named = arguments_of(body)[1], arguments_of(gradient)[1]
        if strange := ", ".join(name for name in named if name not in known):
            raise FunctionError(
                f"{place_of(gradient)}: the gradient of {name} takes the parameter {strange}, "
                f"which {name} does not have"
            )


def _check_unread(
    place: str, name: str, parameters: Mapping[str, Any], options: Mapping[str, Any]
) -> None:
    """Raise ``FunctionError`` for options that nothing would read next to the others.

    A parameter without a name in torch would silently have its default there.
    """
    named, of_torch = (
        options.get("attributes") or {},
        options.get("torch_class") or options.get("calls"),
    )
    if of_torch and named.keys() != parameters.keys():
        raise FunctionError(
            f"{place}: attributes of {name} must have torch's name of each parameter "
            f"({', '.join(parameters) or 'there is none'}), not {shown(dict(named))}"
        )
    unread = {
        "attributes": (named and not of_torch, "torch_class or calls"),
        "real_gradient": (options.get("real") is None, "real"),
        "gradient_scale": (not callable(options.get("gradient")), "a function as its gradient"),
    }
    for option, (is_unread, missing) in unread.items():
        if options.get(option) is not None and is_unread:
            raise FunctionError(f"{place}: {option} of {name} needs {missing}: add it, or omit it")


def _require_operands(body: Callable[..., Any], name: str, counts: tuple[int, ...]) -> None:
    """Check that a function takes a `Body`, operands, and parameters with numbers as defaults."""
    every = signature(body).parameters.values()
    operands, parameters = arguments_of(body)
    plain = all(p.kind is Parameter.POSITIONAL_OR_KEYWORD for p in every)
    if not plain or len(operands) not in counts:
        wanted = "x" if counts == (1,) else "upper, x"
        raise FunctionError(f"{place_of(body)}: {name} takes (k, {wanted}) and parameters")
    for value in parameters.values():
        if not isinstance(value, int | float):
            raise FunctionError(
                f"{place_of(body)}: parameters of {name} are numbers, not {shown(value)}"
            )


def _known() -> dict[str, Definition]:
    """Return the registry, with the library's functions in it."""
    # Kernels and torch take seconds to import, which help texts do not need: on the first request.
    from trainwright.functions import groups, library

    assert library and groups
    return _DEFINITIONS


def definition_of(name: str) -> Definition:
    """Return the definition of a kernel of the library by its name, of two operands too."""
    return _known()[name]


def entries() -> tuple[Definition, ...]:
    """Return all definitions that calls and modules of torch may stand for."""
    return tuple(d for d in _known().values() if d.calls or d.torch_class)


def function_names() -> tuple[str, ...]:
    """Return the names of all functions that a network file may apply to a value.

    Names with an underscore are of kernels that graphs apply.
    """
    own = _known().items()
    return tuple(
        name for name, d in own if len(arguments_of(d.body)[0]) == 1 and not name.startswith("_")
    )


@cache
def function_of(text: str) -> Function:
    """Return the function that ``text`` names: ``tanh``, ``leaky_relu(0.1)``.

    Raises ``FunctionError`` for an unknown name, and for parameters that are wrong.
    """
    match = _TEXT.fullmatch(text)
    name, known = match[1] if match else text, function_names()
    if match is None or name not in known:
        raise FunctionError(
            f"{shown(text)} is no function; there are {', '.join(known)}{suggestion(name, known)}"
        )
    parts = [part for part in (match[2] or "").split(",") if part.strip()]
    try:
        return _DEFINITIONS[name].make(*map(read_number, parts))
    except ValueError as error:
        raise FunctionError(f"{shown(text)}: {error}") from error


def restored(source: str, name: str, given: tuple[float, ...], group: int) -> Function:
    """Return a pickled function; reads its file where this process has not."""
    return Function(restored_definition(source, name), given, group)


def restored_definition(source: str, name: str) -> Definition:
    """Return a pickled definition; reads its file where this process has not."""
    if source:
        read_kernels(source)
    if name not in _known():
        raise FunctionError(
            f"no kernel {name} is registered: import the module that has it before the function"
        )
    return _DEFINITIONS[name]


def read_kernels(path: str) -> None:
    """Execute a file that registers kernels, once. Raises ``FunctionError`` for a bad one."""
    file = Path(path).resolve()
    try:
        content = file.read_bytes()
    except OSError as error:
        near = [str(p.name) for p in file.parent.glob("*.py")]
        raise FunctionError(
            f"cannot read {shown(path)}: {error.strerror}{suggestion(file.name, near)}"
        ) from None
    digest = hashlib.sha256(content).hexdigest()
    if _FILES.get(str(file)) == digest:
        return
    _known()
    spec = spec_from_file_location(f"{KERNELS_MODULE}{file.stem}", file)
    if spec is None:
        raise FunctionError(f"{shown(path)} is no file of Python: its name ends in .py")
    for name in [n for n, d in _DEFINITIONS.items() if d.source == str(file)]:
        del _DEFINITIONS[name]
    token, module = _reading.set(str(file)), module_from_spec(spec)
    # Dataclasses and pickle look the module of a class up by its name.
    sys.modules[module.__name__] = module
    try:
        # Not by the loader: its bytecode is that of a file of this size changed in the same second.
        exec(compile(content, str(file), "exec"), module.__dict__)
    except FunctionError:
        raise
    except (Exception, SystemExit) as error:  # a file that exits would end the command, done or not
        lines = [
            f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(file)
        ]
        if isinstance(error, SyntaxError):
            lines = [error.lineno]
        place = f"{file.name}:{lines[-1]}" if lines else file.name
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise FunctionError(f"{place}: {type(error).__name__}: {reason}") from error
    finally:
        _reading.reset(token)
    _FILES[str(file)] = digest

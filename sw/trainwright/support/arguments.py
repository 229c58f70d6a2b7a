"""Arguments of public functions, checked before anything is computed with them."""

import sys
from collections.abc import Callable, Mapping
from functools import cache, partial, wraps
from typing import Any, ParamSpec, TypeVar

from trainwright.support.text import shown

Given = ParamSpec("Given")
Result = TypeVar("Result")


def is_size(value: object, least: int = 1) -> bool:
    """Tell whether ``value`` is an integer of at least ``least``; True is no size.

    >>> is_size(3), is_size(True), is_size(2.0), is_size(0, 0)
    (True, False, False, True)
    """
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def plain(value: Any) -> Any:
    """Return the Python number of a numpy scalar, and anything else as it is.

    ``np.int64(8)`` equals 8, but is no JSON and another text in fingerprints and reports.
    """
    numpy: Any = sys.modules.get("numpy")  # without it, no value is of numpy
    return value.item() if numpy is not None and isinstance(value, numpy.generic) else value


def plain_array(data: Any) -> Any:
    """Return an array of real numbers as torch reads it, and anything else as it is.

    torch has neither negative strides nor other byte orders; it would read through the mask of an
    array and leave imaginary parts out. Objects, texts and long doubles become nested lists.
    Raises ``ValueError`` for masked elements and for arrays of anything but numbers.
    """
    numpy: Any = sys.modules.get("numpy")
    if numpy is None or not isinstance(data, numpy.ndarray):
        return data
    if numpy.ma.is_masked(data):
        raise ValueError("the array has masked elements: give them numbers, as x.filled(0) does")
    if data.dtype.kind in "OU" or (data.dtype.kind == "f" and data.dtype.itemsize > 8):
        return data.tolist()
    if data.dtype.kind not in "biuf":
        raise ValueError(f"real numbers are needed, not an array of {data.dtype}")
    return numpy.array(data, dtype=data.dtype.newbyteorder("="), order="C")


def plain_sizes(value: Any) -> Any:
    """Return Python's numbers for numpy's, also those of a list, a tuple or an array.

    Sizes often come from data: the ten classes of ``labels.max() + 1`` are ``np.int64(10)``.
    """
    if type(value) in (list, tuple):
        return type(value)(map(plain, value))
    numpy: Any = sys.modules.get("numpy")
    is_array = numpy is not None and isinstance(value, numpy.ndarray)
    return value.tolist() if is_array else plain(value)


def plain_data(value: Any) -> Any:
    """Return nested tables with lists for tuples and arrays, and Python's numbers for numpy's.

    >>> plain_data({"ranks": ((True, "text"), 3)})
    {'ranks': [[True, 'text'], 3]}
    """
    if isinstance(value, Mapping):
        return {key: plain_data(part) for key, part in value.items()}
    return list(map(plain_data, value)) if type(value) in (list, tuple) else plain_sizes(value)


def takes_numpy_sizes(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Let a function take numpy's numbers and arrays as Python's (``plain_sizes``)."""

    @wraps(function)
    def taking(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        call: Any = function
        return call(*map(plain_sizes, args), **{k: plain_sizes(v) for k, v in kwargs.items()})

    return taking


def take_numpy_sizes(instance: object, *names: str) -> None:
    """Make fields of a frozen dataclass Python's numbers where they are numpy's."""
    for name in names:
        object.__setattr__(instance, name, plain_sizes(getattr(instance, name)))


def flag(name: str, value: object) -> bool:
    """Return a flag: True, False, 0 or 1. ``TypeError`` for others, as "False" would be true.

    >>> flag("bias", "False")
    Traceback (most recent call last):
    TypeError: bias must be True or False, not 'False'
    """
    given = plain(value)
    if isinstance(given, int) and given in (0, 1):
        return bool(given)
    raise TypeError(f"{name} must be True or False, not {shown(value)}")


def is_real_type(value: Any) -> bool:
    """Tell whether ``value`` is a floating-point type of torch's; "float32" is none."""
    return getattr(value, "is_floating_point", False) is True


def check_flags(options: Mapping[str, object]) -> None:
    """Raise ``TypeError`` unless each option is a flag."""
    for name, value in options.items():
        flag(name, value)


@cache
def _recorders() -> tuple[Callable[[], bool], Callable[[], object]]:
    """Return whether jit.trace records, and the mode of make_fx: looked up once, asked often."""
    torch_c: Any = sys.modules["torch"]._C
    return torch_c._is_tracing, partial(
        torch_c._get_dispatch_mode, torch_c._TorchDispatchModeKey.PROXY
    )


def require_unrecorded() -> None:
    """Raise ``RuntimeError`` while torch records operations (jit.trace, ONNX, make_fx).

    A record would keep results as constants, and sizes, which jit.trace makes tensors, would reach
    C as pointers.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None or torch.compiler.is_compiling():  # dynamo leaves such calls to Python
        return
    is_tracing, proxies = _recorders()
    if is_tracing() or proxies() is not None:
        raise RuntimeError(
            "torch records operations (jit.trace, ONNX or make_fx) and cannot record those of "
            "trainwright's number libraries: call them outside of it"
        )


def require_dense(name: str, tensor: Any) -> None:
    """Raise ``TypeError`` unless a tensor of torch's has all of its elements in memory.

    Raises ``RuntimeError`` while torch records operations.
    """
    require_unrecorded()
    if str(tensor.layout) != "torch.strided":
        raise TypeError(f"{name} must be dense, not {tensor.layout}: give {name}.to_dense()")


def require_plain(name: str, tensor: Any, *, meta: bool = False) -> None:
    """Raise ``RuntimeError`` for a tensor in a transform of torch that a number library would lose.

    Libraries compute with the numbers of a tensor: they see those of no transform of torch.func,
    and would drop the tangents of forward-mode derivatives, which torch then takes for zeros.
    Unless ``meta``, raises ``TypeError`` for a tensor without numbers.
    """
    torch: Any = sys.modules["torch"]
    functorch, forward = torch._C._functorch, torch.autograd.forward_ad
    # Below autograd, as in a dispatch mode, torch itself differentiates what is called.
    key = torch._C.DispatchKey.AutogradFunctionality
    differentiates = not torch._C._dispatch_tls_is_dispatch_key_excluded(key)
    inner, is_dual = tensor, differentiates and forward._current_level >= 0
    while True:
        if is_dual and forward.unpack_dual(inner).tangent is not None:
            raise RuntimeError(
                f"{name} has a tangent, and trainwright's number libraries have no forward-mode "
                "derivatives: take gradients by backward(), where the function has them"
            )
        wrapped = functorch.is_functorch_wrapped_tensor(inner)
        # Constants of a function that torch.func differentiates are wrapped, and do no harm.
        if functorch.is_legacy_batchedtensor(inner) or (
            wrapped and (inner.requires_grad or not functorch.is_gradtrackingtensor(inner))
        ):
            raise RuntimeError(
                f"torch.func (vmap, grad, jvp) hides the numbers of {name}, which trainwright's "
                "number libraries need: call them outside of it, and take gradients by backward(), "
                "where the function has them"
            )
        if not wrapped:
            break
        inner = functorch.get_unwrapped(inner)
    if tensor.is_meta and not meta:
        raise TypeError(f"{name} has no numbers on the device meta: make it on another device")


def require_kind(name: str, value: object, kind: type) -> None:
    """Raise ``TypeError`` unless an argument is a ``kind``."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be a {kind.__name__}, not {shown(value)}")


def require_seed(seed: object, most: int = (1 << 64) - 1) -> int:
    """Return a seed as an integer; ``TypeError`` for another type, ``ValueError`` out of range."""
    given = plain(seed)
    if not isinstance(given, int) or isinstance(given, bool):
        raise TypeError(f"seed must be an integer, not {shown(seed)}")
    if not 0 <= given <= most:
        raise ValueError(f"seed must be from 0 to {most}, not {shown(seed)}")
    return given

"""Dense weights that are computed from factors: they read like tensors and refuse to be written."""

import warnings
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from inspect import currentframe
from typing import Any

import torch
from torch.nn.utils import parametrize

_torch: Any = torch  # names below are not in its stubs
_LOOKING_UP = {parametrize.register_parametrization.__code__}
_GRADIENT = _torch.Tensor.grad.__get__


class ComputedWeight(torch.Tensor):
    """Dense weight of a tensor-train layer, computed from its factors at each access.

    Writing into the tensor, or into a view of it (``weight.data``, ``weight[0]``), could not reach
    the factors: each attempt raises ``RuntimeError`` instead of being lost. ``clone()`` and all
    arithmetic give ordinary tensors.
    """

    owner: str

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.Tensor:
        return deepcopy(self.as_subclass(torch.Tensor), memo)

    def __reduce_ex__(self, proto: Any) -> Any:
        plain: Any = self.as_subclass(torch.Tensor)
        return plain.__reduce_ex__(proto)

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = dict(kwargs or {})
        if func == _GRADIENT:  # a new object at each access
            # Loops over layers read weight.grad: None, and no warning that says so.
            with warnings.catch_warnings(), _torch._C.DisableTorchFunctionSubclass():
                warnings.simplefilter("ignore", UserWarning)
                return func(*args)
        if torch.compiler.is_compiling():  # a graph is traced, where writes are not looked for
            with _torch._C.DisableTorchFunctionSubclass():
                return func(*args, **given)
        written = _written(func, args, given)
        if isinstance(written, ComputedWeight):
            raise RuntimeError(unwritable(written.owner, f"{_name(func)} on"))
        with _torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **given)
        source = _guarded((*args, *given.values()))
        # Results of lists, as of torch.cat, share no memory.
        return result if source is None else _guarded_views(result, source)


def computed(values: torch.Tensor, owner: str) -> torch.Tensor:
    """Return ``values`` as a tensor whose writes are errors; ``owner`` is the layer's class."""
    result = values.as_subclass(ComputedWeight)
    result.owner = owner
    return result


class LayerParameters(dict[str, Any]):
    """Parameters of a layer that computes its weight; asking for ``weight`` raises the reason.

    torch's old ``weight_norm`` and ``spectral_norm`` look here before they register anything, and
    ``parametrize`` looks whether the name is here.
    """

    def __init__(self, owner: str) -> None:
        super().__init__()
        self.owner = owner

    def __missing__(self, name: str) -> Any:
        """Raise ``AttributeError`` for the weight, ``KeyError`` for another name."""
        raise AttributeError(self._reason) if name == "weight" else KeyError(name)

    def __contains__(self, name: object) -> bool:
        """Raise ``ValueError`` if ``parametrize`` looks for the weight: the layer has none."""
        # The name first: torch.compile cannot trace frames.
        asking = currentframe() if name == "weight" else None
        if asking and asking.f_back and asking.f_back.f_code in _LOOKING_UP:
            raise ValueError(self._reason)
        return super().__contains__(name)

    @property
    def _reason(self) -> str:
        return (
            f"{self.owner} has no parameter to normalise or replace: its weight is computed from "
            "the layer's factors. Normalise the layer's outputs (torch.nn.LayerNorm, BatchNorm1d, "
            "BatchNorm2d), or train a dense layer with weight_norm or spectral_norm, remove the "
            "norm (remove_weight_norm, remove_spectral_norm), and convert it by "
            "trainwright.from_torch"
        )

    def __delitem__(self, name: str) -> None:
        if name not in self:
            self.__missing__(name)
        super().__delitem__(name)


def unwritable(owner: str, attempt: str) -> str:
    """Explain why ``attempt`` would be lost, and how to give a layer values."""
    return (
        f"{attempt} {owner}.weight would be lost: the weight is computed from the layer's factors. "
        "Initialise the layer by reset_parameters(), give it a dense weight by "
        "load_dense(weight, bias), freeze it by layer.factors.requires_grad_(False), change its "
        "gradients by factor.register_hook, or change a copy, weight.clone()"
    )


def _name(func: Callable[..., Any]) -> str:
    """Return a function's name, or "setting NAME" for the setter of an attribute."""
    name = getattr(func, "__name__", str(func))
    owner = getattr(func, "__self__", None)
    return f"setting {getattr(owner, '__name__', 'an attribute')}" if name == "__set__" else name


def _written(func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return the argument that a torch function writes or hooks into; None if there is none."""
    written = kwargs.get("out")
    name = getattr(func, "__name__", "")
    in_place = name.endswith("_") and not name.endswith("__")
    if in_place or name in _WRITING_OPERATORS or kwargs.get("inplace"):
        written = args[0] if args else next(iter(kwargs.values()), None)  # nn.init names its tensor
    several: Any = written
    return _guarded(several) if isinstance(written, tuple | list) else written


def _guarded(values: Iterable[Any]) -> ComputedWeight | None:
    """Return the first computed weight of several values; None without any."""
    return next((value for value in values if isinstance(value, ComputedWeight)), None)


# Setters of attributes (data, requires_grad, grad) are all called __set__. Outputs of a layer come
# from its factors: hooks of a weight would not see their gradient.
_WRITING_OPERATORS = frozenset(
    ["__setitem__", "__set__", "register_hook"]
    + [f"__i{name}__" for name in "add sub mul truediv floordiv mod pow and or xor".split()]
    + ["__ilshift__", "__irshift__"]
)


def _guarded_views(result: Any, source: ComputedWeight) -> Any:
    """Guard those results that share the memory of ``source``, as writes to them are lost too."""
    if isinstance(result, torch.Tensor):
        shared: bool = result.layout is source.layout and _torch._C._is_alias_of(result, source)
        return computed(result, source.owner) if shared else result
    if type(result) in (list, tuple):
        return type(result)(_guarded_views(value, source) for value in result)
    return result

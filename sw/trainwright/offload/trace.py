"""What of a module the accelerator has, node by node of its torch.fx graph."""

import inspect
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree

from trainwright.compiler import CompileError
from trainwright.functions import Function, entries
from trainwright.network import NetworkError, Window
from trainwright.nn import TensorTrain, TTConv2d, TTLinear
from trainwright.offload.stretch import window_of

_RELUS = (torch.relu, torch.nn.functional.relu)
_SUMS = (operator.add, torch.add)


_pytree_of: Any = _pytree  # its functions have no types
_CONSTANTS: tuple[Any, ...] = (
    bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size, slice,
)  # fmt: skip
_GIVEN = object()
"""Stands for an argument that differs from call to call: a tensor, or an unknown object."""


@dataclass(frozen=True)
class Pattern:
    """Arguments of a call without its tensors: control flow may depend on the rest."""

    spec: Any = field(compare=False)
    """Nesting of positional and keyword arguments, as torch's pytree describes it."""
    constants: tuple[Any, ...] = field(compare=False)
    """Each leaf of the nesting, tensors as ``_GIVEN``."""
    key: tuple[Any, ...]

    @classmethod
    def of(cls, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple["Pattern", list[Any]]:
        """Return the pattern of arguments, and the leaves that are not part of it."""
        leaves, spec = _pytree_of.tree_flatten((args, kwargs))
        constants: list[Any] = [leaf if isinstance(leaf, _CONSTANTS) else _GIVEN for leaf in leaves]
        # Python takes True, 1 and 1.0 for equal, and -0.0 for 0.0.
        key: list[Any] = [None if c is _GIVEN else (type(c), repr(c)) for c in constants]
        given = [leaf for leaf in leaves if not isinstance(leaf, _CONSTANTS)]
        return cls(spec, tuple(constants), (repr(spec), *key)), given

    def filled(self, given: Iterator[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return positional and keyword arguments with ``given`` in the places of tensors."""
        leaves = [next(given) if leaf is _GIVEN else leaf for leaf in self.constants]
        return _pytree_of.tree_unflatten(leaves, self.spec)


@lru_cache(maxsize=64)
def _signature(forward: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(forward)


def pattern_of(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Pattern, list[Any]]:
    """Return the pattern of a call of a module and its tensors; defaults belong to the pattern.

    Raises ``TypeError`` for arguments that ``forward`` does not take.
    """
    bound = _signature(type(module).forward).bind(module, *args, **kwargs)
    bound.apply_defaults()
    return Pattern.of(bound.args[1:], bound.kwargs)


def assumed_patterns(module: torch.nn.Module) -> Iterator[Pattern]:
    """Yield the patterns a module may be called with, before any call: the likeliest first.

    Only what has no default is given in the first, every argument in the second.
    """
    _, *parameters = _signature(type(module).forward).parameters.values()
    for every in (False, True):
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for parameter in parameters:
            optional = parameter.default is not parameter.empty
            value = parameter.default if optional and not every else _GIVEN
            if parameter.kind is parameter.KEYWORD_ONLY:
                kwargs[parameter.name] = value
            elif parameter.kind is not parameter.VAR_KEYWORD:
                args.append(value)
        yield Pattern.of(tuple(args), kwargs)[0]


@dataclass(frozen=True)
class Traced:
    """Graph of a call: its inputs are the call's tensors, its output a list of leaves."""

    graph: fx.Graph
    outputs: Any
    """Nesting of the outputs, as torch's pytree describes it."""

    def nested(self, leaves: list[Any]) -> Any:
        """Return the outputs as the module nests them."""
        return _pytree_of.tree_unflatten(leaves, self.outputs)


def is_whole(module: torch.nn.Module) -> bool:
    """Return whether torch.fx takes a module for one operation: tensor trains, torch's own."""
    return isinstance(module, TensorTrain) or fx.Tracer().is_leaf_module(module, "")


class _Tracer(fx.Tracer):
    """Tracer of one call; ``outputs`` is the nesting of what the module returned."""

    outputs: Any = None
    failed: torch.nn.Module | None = None
    """Innermost module in whose forward the latest error was raised, root excepted."""

    def __init__(self, pattern: Pattern, whole: set[torch.nn.Module]) -> None:
        super().__init__()
        self._pattern, self._whole = pattern, whole
        self._error: Exception | None = None

    def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
        return m in self._whole or is_whole(m)

    def call_module(
        self,
        m: torch.nn.Module,
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        if isinstance(m, TensorTrain) and kwargs:  # layer(x=x) is layer(x)
            bound = _signature(type(m).forward).bind(m, *args, **kwargs)
            args, kwargs = bound.args[1:], bound.kwargs
        try:
            return super().call_module(m, forward, args, kwargs)
        except Exception as error:
            if error is not self._error:
                self.failed, self._error = m, error
            raise

    def create_arg(self, a: Any) -> Any:
        # torch.fx would keep the value of this moment in the graph, and parameters move.
        if isinstance(a, torch.Tensor) and a.grad_fn is not None:
            raise ValueError(
                "a tensor computed from parameters alone, such as layer.weight, would be a constant"
            )
        return super().create_arg(a)

    def create_args_for_root(
        self, root_fn: Callable[..., Any], is_module: bool, concrete_args: Any = None
    ) -> tuple[Any, list[Any]]:
        places = range(sum(leaf is _GIVEN for leaf in self._pattern.constants))
        proxies = [self.create_proxy("placeholder", f"input_{place}", (), {}) for place in places]
        args, kwargs = self._pattern.filled(iter(proxies))

        def flat() -> list[Any]:
            leaves, self.outputs = _pytree_of.tree_flatten(root_fn(self.root, *args, **kwargs))
            return leaves

        return flat, []


def trace_call(module: torch.nn.Module, pattern: Pattern) -> Traced:
    """Trace a call of a module; its tensor-train layers are nodes.

    Modules inside of it whose control flow depends on the data are nodes, too. Raises
    ``CompileError`` where the module's own does.
    """
    whole: set[torch.nn.Module] = set()
    while True:
        tracer = _Tracer(pattern, whole)
        try:
            with torch.enable_grad():  # create_arg tells computed tensors by their gradients
                return Traced(tracer.trace(module), tracer.outputs)
        except Exception as error:  # whatever the user's forward meets with in place of tensors
            if tracer.failed is None or tracer.failed in whole or is_whole(tracer.failed):
                raise CompileError(
                    f"torch.fx cannot trace {type(module).__name__}: {error}; compile the part of "
                    "it whose control flow does not depend on data, as a module of its own"
                ) from error
            # Another attempt costs milliseconds; nodes of a failed part cannot be told from others.
            whole.add(tracer.failed)


def trace(module: torch.nn.Module) -> fx.Graph:
    """Return the graph of the call that gives only what has no default."""
    return trace_call(module, next(assumed_patterns(module))).graph


def why_not(module: torch.nn.Module) -> str:
    """Why a layer runs in torch; empty where the accelerator has it."""
    if not isinstance(module, TTLinear | TTConv2d):
        return f"the accelerator has no {type(module).__name__}"
    if module.is_float:
        return "its numbers are float32"
    if isinstance(module, TTLinear):
        return ""
    if module.dilation != (1, 1):
        return f"the accelerator has no dilation {module.dilation}"
    try:
        window_of(module)
    except NetworkError as error:
        return str(error)
    return ""


def sole_user(node: fx.Node) -> fx.Node | None:
    """The node that uses a value, where it is the only one."""
    return next(iter(node.users)) if len(node.users) == 1 else None


def layer_of(node: fx.Node, module: torch.nn.Module) -> TTLinear | TTConv2d | None:
    """The layer that the accelerator applies at a node."""
    if node.op != "call_module" or node.kwargs or len(node.args) != 1:
        return None
    found = module.get_submodule(str(node.target))
    if not isinstance(found, TTLinear | TTConv2d) or why_not(found):
        return None
    return found if isinstance(node.args[0], fx.Node) else None


def is_relu(node: fx.Node, module: torch.nn.Module) -> bool:
    """Whether a node is max(0, .) of one value."""
    if node.op == "call_module":
        return isinstance(module.get_submodule(str(node.target)), torch.nn.ReLU)
    if node.op == "call_method":
        return node.target == "relu"
    return node.op == "call_function" and node.target in _RELUS


def function_at(node: fx.Node, module: torch.nn.Module) -> Function | None:
    """Return the element-wise function of one value that a node computes, if it is known."""
    given: dict[str, Any] = dict(node.kwargs)
    if node.op == "call_module":
        part = module.get_submodule(str(node.target))
        entry = next((e for e in entries() if type(part) is getattr(torch.nn, e.module)), None)
        given = dict(vars(part)) if entry else {}
    else:
        entry = next((e for e in entries() if _computes(node, e.name)), None)
        if entry:
            given |= dict(zip(entry.attributes.values(), node.args[1:], strict=False))
    if entry is None or len(node.all_input_nodes) != 1 or given.get("inplace"):
        return None
    names = entry.attributes
    try:
        return entry.make(**{ours: given[name] for ours, name in names.items() if name in given})
    except (TypeError, ValueError):  # a parameter that the accelerator's function does not take
        return None


def _computes(node: fx.Node, name: str) -> bool:
    """Return whether a node calls the function or the method of torch of this name."""
    if node.op == "call_method":
        return node.target == name
    owners = (owner for owner in (torch, torch.nn.functional) if hasattr(owner, name))
    return node.op == "call_function" and node.target in [getattr(o, name) for o in owners]


def is_sum(node: fx.Node) -> bool:
    """Whether a node adds two values."""
    named = node.op == "call_method" and node.target == "add"
    if not named and not (node.op == "call_function" and node.target in _SUMS):
        return False
    two = [one for one in node.args if isinstance(one, fx.Node)]
    return not node.kwargs and len(node.args) == len(two) == 2 and two[0] is not two[1]


def is_flattening(node: fx.Node, module: torch.nn.Module) -> bool:
    """Whether a node flattens all axes but the first."""
    if node.op == "call_module":
        found = module.get_submodule(str(node.target))
        return isinstance(found, torch.nn.Flatten) and (found.start_dim, found.end_dim) == (1, -1)
    named = node.op == "call_method" and node.target == "flatten"
    if not named and not (node.op == "call_function" and node.target is torch.flatten):
        return False
    given = dict(zip(("input", "start_dim", "end_dim"), node.args, strict=False)) | node.kwargs
    return (given.get("start_dim", 0), given.get("end_dim", -1)) == (1, -1)


def pool_of(node: fx.Node, module: torch.nn.Module) -> Window | None:
    """The windows over which a node averages; None where the accelerator has no such average."""
    given: dict[str, Any] = {}
    if node.op == "call_module":
        found = module.get_submodule(str(node.target))
        if not isinstance(found, torch.nn.AvgPool2d):
            return None
        given = {name: getattr(found, name) for name in _POOL[1:]}
    elif node.op == "call_function" and node.target is torch.nn.functional.avg_pool2d:
        given = dict(zip(_POOL, node.args, strict=False)) | node.kwargs
    else:
        return None
    padding = _pair(given.get("padding", 0))
    counted = given.get("count_include_pad", True) or padding == (0, 0)
    if given.get("ceil_mode") or given.get("divisor_override") is not None or not counted:
        return None
    kernel = given["kernel_size"]
    try:
        return Window(_pair(kernel), _pair(given.get("stride") or kernel), padding)
    except (NetworkError, TypeError):
        return None


_POOL = (
    "input", "kernel_size", "stride", "padding", "ceil_mode", "count_include_pad",
    "divisor_override",
)  # fmt: skip


def _pair(value: Any) -> tuple[int, int]:
    found = (value, value) if isinstance(value, int) else tuple(value)
    return (found[0], found[0]) if len(found) == 1 else found

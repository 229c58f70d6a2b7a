"""Traces of modules by torch.fx, and the operations of the accelerator in their graphs."""

import inspect
import operator
import random
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from inspect import isfunction, ismethod
from typing import Any

import numpy as np
import torch
from torch import fx
from torch.utils import _pytree

from trainwright.compiler import CompileError
from trainwright.functions import Definition, Function, definition_of, entries
from trainwright.network import NetworkError, Window
from trainwright.network.network import MOST_DROPPED
from trainwright.nn import TensorTrain, TTConv2d, TTLayerNorm
from trainwright.nn.attention import attend
from trainwright.nn.layers import MOST_EPSILON
from trainwright.offload.stretch import ProgramLayer, pair_of, window_of

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
    method: str = "forward"
    """Name of what is called."""

    @classmethod
    def of(
        cls, args: tuple[Any, ...], kwargs: dict[str, Any], method: str = "forward"
    ) -> tuple["Pattern", list[Any]]:
        """Return the pattern of arguments, and the leaves that are not part of it."""
        leaves, spec = _pytree_of.tree_flatten((args, kwargs))
        constants: list[Any] = [leaf if isinstance(leaf, _CONSTANTS) else _GIVEN for leaf in leaves]
        # Python takes True, 1 and 1.0 for equal, and -0.0 for 0.0.
        key: list[Any] = [None if c is _GIVEN else (type(c), repr(c)) for c in constants]
        given = [leaf for leaf in leaves if not isinstance(leaf, _CONSTANTS)]
        return cls(spec, tuple(constants), (method, repr(spec), *key), method), given

    def filled(self, given: Iterator[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return positional and keyword arguments with ``given`` in the places of tensors."""
        leaves = [next(given) if leaf is _GIVEN else leaf for leaf in self.constants]
        return _pytree_of.tree_unflatten(leaves, self.spec)


@lru_cache(maxsize=64)
def _signature(forward: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(forward)


def pattern_of(
    module: torch.nn.Module, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Pattern, list[Any]]:
    """Return the pattern of a call of a module and its tensors; defaults belong to the pattern.

    Raises ``TypeError`` for arguments that the method does not take.
    """
    if method in vars(module):  # set on the module: its arguments are as they come
        return Pattern.of(args, kwargs, method)
    bound = _signature(getattr(type(module), method)).bind(module, *args, **kwargs)
    bound.apply_defaults()
    return Pattern.of(bound.args[1:], bound.kwargs, method)


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
            elif parameter.kind is parameter.VAR_POSITIONAL:
                args += [_GIVEN] * every  # forward(*args) that passes its arguments on
            elif parameter.kind is not parameter.VAR_KEYWORD:
                args.append(value)
        yield Pattern.of(tuple(args), kwargs)[0]


_BLOCKS = (
    torch.nn.TransformerEncoder, torch.nn.TransformerEncoderLayer, torch.nn.TransformerDecoder,
    torch.nn.TransformerDecoderLayer, torch.nn.Transformer,
)  # fmt: skip
"""Modules of torch that a trace looks into."""


def is_whole(module: torch.nn.Module) -> bool:
    """Return whether torch.fx takes a module for one operation: tensor trains, torch's own.

    Transformers of torch are no such operation if tensor trains are in them.
    """
    if isinstance(module, _BLOCKS):
        return not any(isinstance(part, TensorTrain) for part in module.modules())
    return isinstance(module, TensorTrain) or fx.Tracer().is_leaf_module(module, "")


def is_changed(module: torch.nn.Module) -> bool:
    """Return whether a call of a module does more than its class says: hooks, a forward set on it.

    What such a module returns is to be a tensor, which its hooks can read and replace.
    """
    own: dict[str, Any] = vars(module)
    hooked = any(own.get(name) for name in _HOOKS) or "forward" in own
    return hooked or any(getattr(_every_module, name) for name in _HOOKS_OF_ALL)


_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_every_module: Any = torch.nn.modules.module
_HOOKS_OF_ALL = tuple(f"_global{name}" for name in _HOOKS)


class _Proxy(fx.Proxy):
    """Stands for a tensor while a module is traced, and says so where its class is asked for."""

    _is_param = _is_buffer = False  # which torch asks of tensors that are set on a module

    @property
    def __class__(self) -> type:  # pyright: ignore[reportIncompatibleMethodOverride]
        return torch.Tensor


_SIZES = frozenset(["size", "dim", "ndimension", "numel", "nelement", "element_size", "__len__"])
_FACTS = frozenset(["shape", "ndim", "dtype", "device", "layout", "names", "itemsize", "nbytes"])
"""Methods and attributes of a tensor whose values are no tensors."""


def is_size_node(node: fx.Node) -> bool:
    """Return whether a node's value is a size or another fact about tensors, and no tensor."""
    if node.op == "call_method":
        return node.target in _SIZES
    if node.op != "call_function":
        return False
    if node.target is getattr:
        return node.args[1] in _FACTS
    given = node.all_input_nodes
    arithmetic = getattr(node.target, "__module__", "") == "_operator"
    return arithmetic and bool(given) and all(map(is_size_node, given))


_AXES = 3
"""Axes of a shape in a trace, where a forward does not say how many: samples, tokens, features."""


class _Sizes(fx.Proxy):
    """Stands for sizes of a tensor, which a forward may spread: ``x.view(*x.shape[:2], 4, 8)``."""

    def __len__(self) -> int:
        count = _size_count(self.node)
        return super().__len__() if count is None else count


def _size_count(node: fx.Node) -> int | None:
    """Return the number of sizes in a shape or in a slice of one; None if a node is neither."""
    if node.target is operator.getitem and isinstance(node.args[1], slice):
        given = _size_count(node.all_input_nodes[0])
        return None if given is None else len(range(given)[node.args[1]])
    is_shape = node.target is getattr and node.args[1] == "shape"
    return _AXES if is_shape or (node.target == "size" and len(node.args) == 1) else None


class _Tracer(fx.Tracer):
    """Tracer of one call of a copy of a module."""

    failed: str | None = None
    """Innermost module in whose forward the latest error was raised, root excepted."""

    def __init__(self, pattern: Pattern, whole: set[str]) -> None:
        super().__init__()
        self.traced_func_name = pattern.method
        self._pattern, self._whole = pattern, whole
        self._error: Exception | None = None
        self._thread = threading.get_ident()

    def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
        if type(m) is torch.nn.Identity and not is_changed(m):
            return False  # returns its argument: a call of its own would end a program
        return module_qualified_name in self._whole or is_whole(m) or is_changed(m)

    def proxy(self, node: fx.Node) -> fx.Proxy:
        # torch reads a size that calls itself a tensor as one, and the process ends.
        return _Sizes(node, self) if is_size_node(node) else _Proxy(node, self)

    def to_bool(self, obj: fx.Proxy) -> bool:
        """Assume that sizes that a forward compares are equal: else most forwards raise an error.

        A call whose sizes differ does not match the trace, and is computed layer by layer.
        """
        node: Any = obj.node
        if node.target in (operator.eq, operator.ne) and is_size_node(node):
            return node.target is operator.eq
        return super().to_bool(obj)

    def iter(self, obj: Any) -> Iterator[Any]:
        untyped: Any = super()
        known = _size_count(obj.node) is not None
        return map(obj.__getitem__, range(len(obj))) if known else untyped.iter(obj)

    def create_arg(self, a: Any) -> Any:
        return a.node if isinstance(a, fx.Proxy) else super().create_arg(a)

    def call_module(
        self,
        m: torch.nn.Module,
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        if threading.get_ident() != self._thread:  # torch.fx intercepts modules of all threads
            return forward(*args, **kwargs)
        if isinstance(m, TensorTrain) and kwargs:  # layer(input=x) is layer(x)
            bound = _signature(type(m).forward).bind(m, *args, **kwargs)
            args, kwargs = bound.args[1:], bound.kwargs
        try:
            return super().call_module(m, forward, args, kwargs)
        except Exception as error:
            if error is not self._error:
                self.failed, self._error = self.path_of_module(m), error
            raise

    def create_args_for_root(
        self, root_fn: Callable[..., Any], is_module: bool, concrete_args: Any = None
    ) -> tuple[Any, list[Any]]:
        places = range(sum(leaf is _GIVEN for leaf in self._pattern.constants))
        proxies = [self.create_proxy("placeholder", f"input_{place}", (), {}) for place in places]
        args, kwargs = self._pattern.filled(iter(proxies))

        def kept() -> list[Any]:
            """Run the module; return each value that outlives the call."""
            outputs = root_fn(self.root, *args, **kwargs)
            attributes = [
                [v for name, v in vars(part).items() if name not in _OF_TORCH]
                for part in self.root.modules()
            ]
            return list(_proxies_in([outputs, attributes]))

        return kept, []


_OF_TORCH = frozenset(vars(torch.nn.Module()))


_DEPTH = 6
"""Levels of containers and objects that are searched for tensors: objects may refer to all there
is, and whatever is missed costs another program, not another result."""


def _proxies_in(value: Any, depth: int = _DEPTH) -> Iterator[fx.Proxy]:
    """Yield the proxies in nested containers and in the attributes of other objects."""
    if isinstance(value, fx.Proxy):
        yield value
        return
    if not depth or isinstance(value, torch.Tensor | torch.nn.Module | type | str | int | float):
        return
    container: Any = value
    parts: Any = getattr(value, "__dict__", {}).values()
    if isinstance(value, Mapping):
        parts = container.values()
    elif isinstance(value, list | tuple | set):
        parts = container
    for part in list(parts):
        yield from _proxies_in(part, depth - 1)


def _copied(module: torch.nn.Module) -> torch.nn.Module:
    """Return a copy of a module for a trace: a forward may change attributes and parameters."""
    shared: dict[int, Any] = {}
    for part in module.modules():
        for name, value in vars(part).items():
            computed = isinstance(value, torch.Tensor) and value.grad_fn is not None
            if name in _HOOKS or computed:  # are not run, cannot be copied
                shared[id(value)] = value
    return deepcopy(module, shared)


@contextmanager
def _generators_kept() -> Generator[None]:
    """Leave the state of all random generators as it was before the body."""
    numbers, legacy = random.getstate(), np.random.get_state()
    generators: Any = torch.random
    try:
        with generators.fork_rng(range(torch.cuda.device_count())):
            yield
    finally:
        random.setstate(numbers)
        np.random.set_state(legacy)


_MAKERS = (
    "arange", "zeros", "ones", "full", "empty", "eye", "linspace", "logspace", "rand", "randn",
    "randint", "randperm", "tril_indices", "triu_indices", "tensor", "scalar_tensor",
)  # fmt: skip
"""Functions that make tensors of sizes, which torch.fx does not record."""


@contextmanager
def _functions_recorded(tracer: fx.Tracer) -> Generator[None]:
    """Record a call of an ``autograd.Function`` as one node: its gradient is its own.

    Functions that make a tensor of sizes that are known in a call alone are nodes, too.
    """
    function: Any = torch.autograd.Function
    apply: Any = function.__dict__["apply"]
    library: Any = torch
    makers: dict[str, Any] = {name: getattr(library, name) for name in _MAKERS}

    def making(make: Any) -> Callable[..., Any]:
        def made(*args: Any, **kwargs: Any) -> Any:
            if not any(True for _ in _proxies_in([args, kwargs])):
                return make(*args, **kwargs)
            return tracer.create_proxy("call_function", make, args, kwargs)

        return made

    def recorded(cls: Any, *args: Any, **kwargs: Any) -> Any:
        proxies = list(_proxies_in([args, kwargs]))
        if not proxies:
            return apply.__get__(None, cls)(*args, **kwargs)
        if any(isfunction(value) or ismethod(value) for value in args):
            raise ValueError(f"operations inside {cls.__name__} cannot be recorded")
        return tracer.create_proxy("call_function", cls.apply, tuple(proxies), {}, name="apply")

    function.apply = classmethod(recorded)
    for name, make in makers.items():
        setattr(library, name, making(make))
    try:
        yield
    finally:
        function.apply = apply
        for name, make in makers.items():
            setattr(library, name, make)


@contextmanager
def _transformers_opened(*, causal: bool) -> Generator[None]:
    """Replace what stops a trace of torch's transformers: control flow on sizes and on masks.

    Switches off their fused kernels, which call no layer. A mask that may be causal counts as
    ``causal``; a call with another mask does not match the trace.
    """
    functional: Any = torch.nn.functional
    blocks: Any = torch.nn.modules.transformer
    kernels: Any = torch.backends.mha
    enabled = kernels.get_fastpath_enabled()
    before = functional._canonical_mask, blocks._get_seq_len, blocks._detect_is_causal_mask
    mask_of, tokens_of, causal_of = before

    def same_mask(mask: Any, *args: Any, **kwargs: Any) -> Any:
        return mask if isinstance(mask, fx.Proxy) else mask_of(mask, *args, **kwargs)

    def no_tokens(src: Any, batch_first: bool) -> Any:
        return None if isinstance(src, fx.Proxy) else tokens_of(src, batch_first)

    def is_causal(mask: Any, is_causal: bool | None = None, size: Any = None) -> bool:
        is_traced = isinstance(mask, fx.Proxy)
        if not is_traced:
            return causal_of(mask, is_causal, size)
        return causal if is_causal is None else is_causal

    def put(mask: Any, tokens: Any, causal: Any) -> None:
        functional._canonical_mask = mask
        blocks._get_seq_len, blocks._detect_is_causal_mask = tokens, causal

    put(same_mask, no_tokens, is_causal)
    kernels.set_fastpath_enabled(False)
    try:
        yield
    finally:
        put(*before)
        kernels.set_fastpath_enabled(enabled)


_TRACING = threading.RLock()
"""Traces of two threads would restore what the other one has replaced in torch."""


def trace_call(module: torch.nn.Module, pattern: Pattern, *, causal: bool = True) -> fx.Graph:
    """Trace a call of a module; its tensor-train layers are nodes. The module is not changed.

    ``causal``: masks that may be causal are so. Modules inside of it whose control flow depends on
    the data are nodes, too. Raises ``CompileError`` where the module's own does.
    """
    if pattern.method in vars(module):
        raise CompileError(f"{pattern.method} of {type(module).__name__} was set on the module")
    whole: set[str] = set()
    while True:
        tracer = _Tracer(pattern, whole)
        try:
            with (
                _TRACING, _generators_kept(), torch.enable_grad(), _functions_recorded(tracer),
                _transformers_opened(causal=causal),
            ):  # fmt: skip
                return tracer.trace(_copied(module))
        except Exception as error:  # whatever the user's forward meets with in place of tensors
            if tracer.failed is None or tracer.failed in whole:
                reason = str(error).strip().split("\n")[0]
                raise CompileError(
                    f"torch.fx cannot trace {type(module).__name__}: {reason}"
                ) from error
            # Another attempt costs milliseconds; nodes of a failed part cannot be told from others.
            whole.add(tracer.failed)


def trace(module: torch.nn.Module) -> fx.Graph:
    """Return the graph of the call that gives only what has no default."""
    return trace_call(module, next(assumed_patterns(module)))


def why_not(module: torch.nn.Module) -> str:
    """Explain why a layer runs in torch; empty where the accelerator has it."""
    if isinstance(module, torch.nn.LayerNorm) and module.elementwise_affine:
        return "its scale is in float32: from_torch(..., norms=True) makes a TTLayerNorm of it"
    if not isinstance(module, ProgramLayer):
        return f"the accelerator has no {type(module).__name__}"
    if module.is_float:
        return "its numbers are float32"
    if isinstance(module, TTLayerNorm) and module.numbers.coded:
        return f"it is in {module.numbers.coded[0][1]}, and LayerNorm takes fixed point alone"
    if not isinstance(module, TTConv2d):
        return ""
    if module.dilation != (1, 1):
        return f"the accelerator has no dilation {module.dilation}"
    try:
        window_of(module)
    except NetworkError as error:
        return str(error)
    return ""


def sole_user(node: fx.Node) -> fx.Node | None:
    """Return the node that uses a value, where no other node does."""
    return next(iter(node.users)) if len(node.users) == 1 else None


def layer_of(node: fx.Node, module: torch.nn.Module) -> ProgramLayer | None:
    """Return the layer that a program applies at a node."""
    if node.op != "call_module" or node.kwargs or len(node.args) != 1:
        return None
    part = module.get_submodule(str(node.target))
    if not isinstance(part, ProgramLayer) or why_not(part) or why_alone(part):
        return None
    return part if isinstance(node.args[0], fx.Node) else None


def why_alone(layer: TensorTrain) -> str:
    """Explain why a layer is a program of its own; empty where it need not be."""
    if is_changed(layer):
        return "it has hooks"
    own = type(layer).forward is not TensorTrain.forward
    return f"{type(layer).__name__} has a forward of its own" if own else ""


Operation = tuple[Any, ...]
"""Kind of what a program computes, and its options."""
_ARGUMENTS = {
    "relu": ("input", "inplace"),
    "sum": ("input", "other", "alpha"),
    "flatten": ("input", "start_dim", "end_dim"),
    "dropout": ("input", "p", "training", "inplace"),
    "softmax": ("input", "dim", "_stacklevel", "dtype"),
    "layer_norm": ("input", "normalized_shape", "weight", "bias", "eps"),
    "attention": ("input", "other", "third", "heads", "causal", "mask"),
    "max_pool": (
        "input", "kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices",
    ),
    "pool": (
        "input", "kernel_size", "stride", "padding", "ceil_mode", "count_include_pad",
        "divisor_override",
    ),
}  # fmt: skip
_OPERANDS = {"sum": 2, "attention": 3}
"""Number of operands, where it is not one."""
_tensor: Any = torch.Tensor
_FUNCTIONS: dict[Any, str] = {
    torch.relu: "relu", torch.nn.functional.relu: "relu", _tensor.relu: "relu", "relu": "relu",
    operator.add: "sum", torch.add: "sum", _tensor.add: "sum", "add": "sum",
    torch.flatten: "flatten", _tensor.flatten: "flatten", "flatten": "flatten",
    torch.nn.functional.avg_pool2d: "pool", torch.nn.functional.dropout: "dropout",
    torch.nn.functional.max_pool2d: "max_pool",
    torch.softmax: "softmax", torch.nn.functional.softmax: "softmax", _tensor.softmax: "softmax",
    "softmax": "softmax", torch.nn.functional.layer_norm: "layer_norm",
    attend: "attention",
}  # fmt: skip
"""Kinds of operation by function, and by the name of a tensor's method."""
_MODULES: dict[type[torch.nn.Module], str] = {
    torch.nn.ReLU: "relu", torch.nn.Flatten: "flatten", torch.nn.AvgPool2d: "pool",
    torch.nn.Dropout: "dropout", torch.nn.MaxPool2d: "max_pool",
    torch.nn.Softmax: "softmax", torch.nn.LayerNorm: "layer_norm",
}  # fmt: skip


def operation_of(
    function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Operation, tuple[Any, ...]] | None:
    """Return the operation that a program has for a call, and its operands; None without one."""
    if isinstance(function, Definition):
        return _kernel_called(function.make(*args[1:]), **kwargs), args[:1]
    kind = _FUNCTIONS.get(function)
    if kind is None:
        element = _function_called(function, args, kwargs)
        return None if element is None else (("function", element), args[:1])
    given: dict[str, Any] = {**dict(zip(_ARGUMENTS[kind], args, strict=False)), **kwargs}
    operation = _operation(kind, given)
    operands = given.get("input"), given.get("other"), given.get("third"), given.get("mask")
    if operation is not None and operation[0] == "attention" and operation[-1]:
        return operation, operands
    return None if operation is None else (operation, operands[: _OPERANDS.get(kind, 1)])


def _kernel_called(function: Function, window: int | tuple[int, int] | None = None) -> Operation:
    """Return the operation of a kernel, of a whole value or of windows next to each other."""
    if window is None:
        return "function", function
    return "pool", Window(pair_of(window), pair_of(window), (0, 0)), function


def _operation(kind: str, given: Mapping[str, Any]) -> Operation | None:
    if not given.keys() <= set(_ARGUMENTS[kind]):
        return None
    if kind in ("softmax", "layer_norm"):
        return _over_features(kind, given)
    if kind == "flatten":
        whole = (given.get("start_dim", 0), given.get("end_dim", -1)) == (1, -1)
        return (kind,) if whole else None
    if kind == "attention":
        return kind, given["heads"], given["causal"], given.get("mask") is not None
    if kind == "dropout":
        p, training = given.get("p", 0.5), bool(given.get("training", True))
        return (kind, float(p), training) if 0 <= p <= MOST_DROPPED else None
    if kind == "sum":
        return (kind,) if set(given) == {"input", "other"} else None
    if kind == "max_pool":
        window = _window_of(given)
        other = given.get("ceil_mode") or given.get("return_indices")
        if window is None or other or pair_of(given.get("dilation", 1)) != (1, 1):
            return None
        return "pool", window, definition_of("max_pool").make(), "torch"
    if kind == "pool":
        window = _averaged(given)
        return None if window is None else (kind, window)
    return (kind,)


def _over_features(kind: str, given: Mapping[str, Any]) -> Operation | None:
    """Return torch's softmax or LayerNorm over the last axis.

    None for another axis, a scale, or an epsilon that programs cannot leave out.
    """
    x = given.get("input")
    options: tuple[Any, ...] = ()
    if kind == "layer_norm":
        scaled = given.get("weight") is not None or given.get("bias") is not None
        shape, eps = given["normalized_shape"], given.get("eps", MOST_EPSILON)
        over_last = type(shape) in (list, tuple, torch.Size) and len(shape) == 1
        fits, options = over_last and not scaled and eps <= MOST_EPSILON, (eps,)
    else:
        # A trace does not know how many axes a value has: two in most models.
        last = x.dim() - 1 if isinstance(x, torch.Tensor) else 1
        fits = given.get("dim") in (-1, last) and given.get("dtype") is None
    function = definition_of(kind).make()
    return ("function", function, "torch", *options) if fits else None


def _averaged(given: Mapping[str, Any]) -> Window | None:
    """Return the windows of an average; None where the accelerator has no such average."""
    padding = pair_of(given.get("padding", 0))
    counted = given.get("count_include_pad", True) or padding == (0, 0)
    if given.get("ceil_mode") or given.get("divisor_override") is not None or not counted:
        return None
    return _window_of(given)


def _window_of(given: Mapping[str, Any]) -> Window | None:
    """Return the windows of a pooling; None where the accelerator has no such windows."""
    kernel, padding = given["kernel_size"], pair_of(given.get("padding", 0))
    try:
        return Window(pair_of(kernel), pair_of(given.get("stride") or kernel), padding)
    except (NetworkError, TypeError):
        return None


def _function_called(
    function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Function | None:
    """Return the element-wise function that a function or a method of torch computes."""
    entry = next(
        (entry for entry in entries() if any(_computes(function, name) for name in entry.calls)),
        None,
    )
    if entry is None or not args:
        return None
    usual = _defaults_of(function)
    names = list(usual)[1:] or list(entry.attributes.values())
    if len(args) > 1 + len(names):
        return None
    return _made(entry, {**kwargs, **dict(zip(names, args[1:], strict=False))}, usual)


def _computes(function: Any, name: str) -> bool:
    """Tell whether a function of torch, or the name of a method, is that of ``name``.

    torch.fx records a builtin of Python, such as ``abs(x)``, as the function of ``operator``.
    """
    if isinstance(function, str):
        return function == name
    owners = torch, torch.nn.functional, torch.Tensor, operator
    return any(function == getattr(owner, name, None) for owner in owners)


def _defaults_of(function: Any) -> dict[str, Any]:
    """Return the parameters of a function or class with their defaults; none of builtins."""
    try:
        return {n: p.default for n, p in inspect.signature(function).parameters.items()}
    except (TypeError, ValueError):
        return {}


_WITHOUT_EFFECT = "inplace", "approximate"
"""Options of torch's functions that change no result, or as little as tables of GELU do."""


def _made(entry: Any, given: Mapping[str, Any], usual: Mapping[str, Any]) -> Function | None:
    """Return the function of an entry with the parameters that torch gives it.

    None where torch is given another option that is not as ``usual``: the entry has none.
    """
    names, known = entry.attributes.items(), {*entry.attributes.values(), *_WITHOUT_EFFECT}
    if any(given[name] != usual.get(name) for name in given.keys() - known):
        return None
    try:
        return entry.make(**{ours: given[name] for ours, name in names if name in given})
    except (TypeError, ValueError):  # a parameter that the accelerator's function does not take
        return None


def _module_class(entry: Any) -> type | None:
    """Return the class in ``torch.nn`` of a function; None where its record names none."""
    if entry.torch_class is None:
        return None
    kind = getattr(torch.nn, entry.torch_class, None)
    if kind is None:
        raise CompileError(
            f"the function {entry.name} is registered as torch.nn.{entry.torch_class}, which torch "
            "does not have; omit torch_class where torch has no such module"
        )
    return kind


def function_at(node: fx.Node, module: torch.nn.Module) -> Function | None:
    """Return the element-wise function of one value that a node computes, if it is known."""
    operation = operation_at(node, module)
    return operation[1] if operation is not None and operation[0] == "function" else None


def operation_at(node: fx.Node, module: torch.nn.Module) -> Operation | None:
    """Return the operation of a program that a node is, a layer excepted."""
    if node.op == "call_module":
        part = module.get_submodule(str(node.target))
        entry = next((e for e in entries() if type(part) is _module_class(e)), None)
        if entry is not None and not is_changed(part):
            usual = _defaults_of(type(part))
            options = {name: value for name, value in vars(part).items() if name in usual}
            element = _made(entry, options, usual)
            return None if element is None else ("function", element)
        kind = _MODULES.get(type(part))
        if kind is None or is_changed(part):
            return None
        options = {n: getattr(part, n) for n in _ARGUMENTS[kind][1:] if hasattr(part, n)}
        return _operation(kind, options)
    if node.op not in ("call_function", "call_method"):
        return None
    called = operation_of(node.target, node.args, node.kwargs)
    if called is None:
        return None
    operation, operands = called
    tensors = all(isinstance(operand, fx.Node) for operand in operands)
    return operation if tensors and len(set(operands)) == len(operands) else None


def is_relu(node: fx.Node, module: torch.nn.Module) -> bool:
    """Tell whether a node is max(0, .) of one value."""
    return operation_at(node, module) == ("relu",)


def is_sum(node: fx.Node, module: torch.nn.Module) -> bool:
    """Tell whether a node adds two values."""
    return operation_at(node, module) == ("sum",)


def is_flattening(node: fx.Node, module: torch.nn.Module) -> bool:
    """Tell whether a node flattens all axes but the first."""
    return operation_at(node, module) == ("flatten",)


def operands_of(node: fx.Node) -> list[fx.Node]:
    """Return the values that a node computes with: all it reads but the mask of an attention."""
    read = node.all_input_nodes
    return read[: _OPERANDS["attention"]] if node.target is attend else read


def mask_of(node: fx.Node) -> fx.Node | None:
    """Return the mask of an attention, if it has one."""
    read = node.all_input_nodes
    return read[-1] if node.target is attend and len(read) > _OPERANDS["attention"] else None


def attention_of(node: fx.Node, module: torch.nn.Module) -> tuple[int, bool, bool] | None:
    """Return the heads of an attention, and whether it is causal and masked; None for others."""
    operation = operation_at(node, module)
    return operation[1:] if operation is not None and operation[0] == "attention" else None


def dropout_of(node: fx.Node, module: torch.nn.Module) -> tuple[float, bool] | None:
    """Return the probability of a dropout and whether the dropout is active; None for others."""
    operation = operation_at(node, module)
    return operation[1:] if operation is not None and operation[0] == "dropout" else None


def pool_of(node: fx.Node, module: torch.nn.Module) -> tuple[Window, Function | None] | None:
    """Return the windows that a node pools, and their function where it is not the average.

    None where the accelerator has no such windows.
    """
    operation = operation_at(node, module)
    if operation is None or operation[0] != "pool":
        return None
    return operation[1], operation[2] if len(operation) > 2 else None

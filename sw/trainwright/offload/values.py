"""Values inside of a running program: tensors that the accelerator has and torch does not."""

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from inspect import signature
from math import prod
from typing import Any
from weakref import ref

import torch
from torch import fx
from torch.utils import _pytree

from trainwright.functions import Function
from trainwright.functions.in_torch import pooled
from trainwright.nn import TensorTrain, TTConv2d
from trainwright.nn.attention import as_bool, attend, check_mask
from trainwright.nn.output_loss import LOST_DEVIATION, LOST_IN_PROGRAM, drawn_every
from trainwright.nn.untyped import autocast_type, unguarded
from trainwright.offload.chain import Chain
from trainwright.offload.heads import (
    MOVES,
    attention_called,
    common_heads,
    is_whole_value,
    moved,
    split,
)
from trainwright.offload.regions import Found
from trainwright.offload.stretch import window_of
from trainwright.offload.trace import (
    Operation,
    layer_of,
    mask_of,
    operands_of,
    operation_at,
    operation_of,
)
from trainwright.support.caution import warn_user

_tensor: Any = torch.Tensor
_pytree_of: Any = _pytree  # its functions have no types

_KNOWN = frozenset(
    [
        getattr(_tensor, name).__get__
        for name in (
            "shape", "dtype", "device", "layout", "ndim", "requires_grad", "is_cuda", "is_cpu",
            "is_meta", "is_sparse", "is_mkldnn", "is_quantized", "is_nested",
        )
    ]
    + [
        getattr(_tensor, name)
        for name in (
            "size", "dim", "ndimension", "numel", "nelement", "is_floating_point", "is_complex",
            "element_size", "__len__",
        )
    ]
    + [torch.is_floating_point, torch.is_complex, torch.numel]
)  # fmt: skip
"""Questions about a tensor that its shape and type answer."""


class InnerValue(torch.Tensor):
    """A value inside of a running program; it has a shape, and its numbers once they are needed.

    The operations that the program has next give further such values, or its outputs. Any other
    use computes the numbers, layer by layer.
    """

    run: "ProgramRun"
    node: fx.Node
    value: torch.Tensor | None
    viewed: "InnerValue | None"
    """The whole value that this one is a view of; None for a whole one."""
    place: torch.Tensor | None
    """View of ``base`` that the value is, without numbers; None where it is the whole."""

    @property
    def base(self) -> "InnerValue":
        """The whole value: this one, or the one that it is a view of."""
        # A reference to itself would keep each value until garbage is collected, and with it a call
        # would wait for a collection.
        return self if self.viewed is None else self.viewed

    @staticmethod
    def of(
        run: "ProgramRun", node: fx.Node, shape: Sequence[int], dtype: torch.dtype
    ) -> "InnerValue":
        """Return the value that a node of a running program makes."""
        make = _tensor._make_wrapper_subclass
        result: InnerValue = make(
            InnerValue,
            shape,
            dtype=dtype,
            device=run.source.device,
            requires_grad=run.requires_grad,
        )
        result.run, result.node, result.value = run, node, None
        result.viewed, result.place = None, None
        if run.requires_grad:
            untyped: Any = result
            with unguarded():
                untyped.register_hook(_lost)
        return result

    def numbers(self) -> torch.Tensor:
        """Return the value as an ordinary tensor."""
        if self.place is not None:
            place, own = self.place, self.base.numbers().contiguous()
            return own.as_strided(place.shape, place.stride(), place.storage_offset())
        if self.value is None:
            self.run.leave(self)
        assert self.value is not None
        return self.value

    @classmethod
    def __torch_function__(
        cls,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = dict(kwargs or {})
        if func in _KNOWN:
            with unguarded():
                return func(*args, **given)
        if func in MOVES and isinstance(args[0], InnerValue):
            result = _moved(args[0], func, *args[1:], **given)
            if result is not None:
                return result
        attended = _attended(func, args, given)
        if attended is not None:
            return attended
        called = operation_of(func, args, given)
        if called is not None:
            operation, operands = called
            result = following(operation, operands)
            if result is not None:
                return _written(operands[0], result) if _is_in_place(func, args, given) else result
        args, given = _pytree_of.tree_map(ordinary, (args, given))
        return func(*args, **given)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = _pytree_of.tree_map(ordinary, (args, kwargs or {}))
        return func(*args, **kwargs)


def _viewed(base: InnerValue, place: torch.Tensor) -> InnerValue:
    """Return a view of a value inside of a program."""
    result = InnerValue.of(base.run, base.node, place.shape, base.dtype)
    result.viewed, result.place = base, place
    return result


def _placed(value: InnerValue) -> torch.Tensor:
    """Return the view that a value is, without numbers."""
    return torch.empty(value.shape, device="meta") if value.place is None else value.place


def _moved(value: InnerValue, function: Any, *args: Any, **kwargs: Any) -> InnerValue | None:
    """Return a view of a value by other axes; None where a program has no such view."""
    if value.base.dim() != 3:  # images have no heads: their flattening is an operation of a program
        return None
    place = moved(_placed(value), function, *args, **kwargs)
    if place is None:
        return None
    return value.base if is_whole_value(place) else _viewed(value.base, place)


def _attended(
    function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> torch.Tensor | None:
    """Return torch's attention between heads as a program has it; None where none has."""
    called = attention_called(function, args, kwargs)
    if called is None or not all(isinstance(operand, InnerValue) for operand in called[0]):
        return None
    operands, mask, causal, scale = called
    heads = common_heads([_placed(operand) for operand in operands], scale)
    if heads is None:
        return None
    masks = () if mask is None else (as_bool(mask),)  # None is no mask of a program
    operation = "attention", heads, causal, mask is not None
    result = following(operation, (*(operand.base for operand in operands), *masks))
    if isinstance(result, InnerValue):
        return _viewed(result, split(_placed(result), heads))
    return None if result is None else split(result, heads)


def _lost(gradient: torch.Tensor) -> None:
    """Refuse a gradient that cannot be passed on."""
    raise RuntimeError(
        "a value inside of a program of a compiled model was given to code that torch cannot see "
        "into, and its gradient would be lost: give that code value.clone()"
    )


def ordinary(value: Any) -> Any:
    """Return a tensor with its numbers, and anything else as it is."""
    return value.numbers() if isinstance(value, InnerValue) else value


def following(operation: Operation, operands: Sequence[Any]) -> torch.Tensor | None:
    """Return the result of the next operation of a running program; None where it has another."""
    inner = next((value for value in operands if isinstance(value, InnerValue)), None)
    return None if inner is None else inner.run.following(operation, operands)


def _is_in_place(func: Any, args: tuple[Any, ...], given: Mapping[str, Any]) -> bool:
    """Return whether a call of torch writes into its operand, by keyword or by position."""
    try:
        return bool(signature(func).bind(*args, **given).arguments.get("inplace"))
    except (TypeError, ValueError):  # builtins of torch have no signature, and no such option
        return False


def _written(operand: Any, result: torch.Tensor) -> torch.Tensor:
    """Return the operand of an operation in place, which is its result from now on."""
    if not isinstance(result, InnerValue):
        return result
    operand.node = result.node
    return operand


Mode = tuple[bool, bool, torch.dtype | None]


def mode_of(x: torch.Tensor) -> Mode:
    """Return what decides how torch computes, and is no argument."""
    return torch.is_grad_enabled(), torch.is_inference_mode_enabled(), autocast_type(x.device)


@contextmanager
def _mode(mode: Mode, device: torch.device) -> Generator[None]:
    grad, inference, cast = mode
    with torch.inference_mode(inference), torch.set_grad_enabled(grad):
        with torch.autocast(device.type, cast, enabled=cast is not None):
            yield


def measure_loss(
    layers: Sequence[TensorTrain],
    names: Sequence[str],
    place: int,
    x: torch.Tensor,
    y: torch.Tensor,
    exact: Callable[[torch.Tensor], torch.Tensor] | None,
    dims: tuple[int, int],
) -> None:
    """Measure what rounding takes of outputs ``y``, made by the layer at ``place`` of a program.

    ``exact`` is None if outputs without rounding cannot be computed: dropout would draw other
    masks. Other options are those of ``OutputLoss.measure``.
    """
    layer = layers[place]
    total = 0.0 if layer.training else sum(each.require_finite() for each in layers)
    if layer.output_loss.is_due(training=layer.training, parameters=total):
        for each, name in zip(layers, names, strict=True):
            each.warn_of_zeros(name)
        most = LOST_DEVIATION if len(layers) == 1 else LOST_IN_PROGRAM
        if exact is not None:
            layer.output_loss.measure(names[place], x, y, exact, dims, most=most)


@dataclass(frozen=True, eq=False)
class Route:
    """Program that a call is expected to run, with the operations that it computes."""

    region: Found
    chain: Chain
    nodes: Mapping[tuple[Operation, Collection[fx.Node]], Sequence[fx.Node]]
    operations: Mapping[fx.Node, Operation]
    ends: Mapping[fx.Node, int]

    @classmethod
    def of(
        cls, region: Found, chain: Chain, root: torch.nn.Module, layers: Mapping[str, TensorTrain]
    ) -> "Route":
        """Return the way through ``region``, whose layers are ``layers`` by their names."""
        operations: dict[fx.Node, Operation] = {}
        nodes: dict[tuple[Operation, Collection[fx.Node]], list[fx.Node]] = {}
        for node in region.nodes:
            operation = operation_at(node, root)
            if layer_of(node, root) is not None:
                operation = "layer", layers[str(node.target)]
            assert operation is not None
            operations[node] = operation
            nodes.setdefault(_key(operation, operands_of(node)), []).append(node)
        return cls(region, chain, nodes, operations, {n: k for k, n in enumerate(region.ends)})

    @cached_property
    def masked(self) -> list[fx.Node]:
        """Attentions that each call gives a mask, in order."""
        return [node for node in self.region.nodes if mask_of(node) is not None]

    def measure_loss(
        self,
        x: torch.Tensor,
        masks: Mapping[fx.Node, torch.Tensor],
        outputs: Sequence[torch.Tensor],
    ) -> None:
        """Measure what rounding takes of the program's ``outputs`` of ``x`` and ``masks``."""
        layers, stretch = self.chain.layers, self.region.stretch
        draws = any(layer.training for layer in layers) and any(
            operation[0] == "dropout" for operation in self.operations.values()
        )
        drawn = {node: _drawn(mask, self.operations[node][1], x) for node, mask in masks.items()}
        for number, (end, y) in enumerate(zip(stretch.ends, outputs, strict=True)):
            place = max(stretch.reaching([number]))
            features = 2 if stretch.attends else 1
            dims = 3 if stretch.channels else features, 3 if end.channels else features
            exact = None if draws else partial(self._exact, self.region.ends[number], drawn)
            measure_loss(layers, stretch.names, place, x, y, exact, dims)

    def _exact(
        self, end: fx.Node, masks: Mapping[fx.Node, torch.Tensor], x: torch.Tensor
    ) -> torch.Tensor:
        """Return the value of a node for ``x`` with nothing rounded but the factors."""
        values = {self.region.source: x}
        for node in self.region.nodes:
            given = [values[operand] for operand in operands_of(node)]
            if node in masks:
                given.append(masks[node])
            operation = self.operations[node]
            if len(operation) > 3 and operation[0] == "function":
                self._warn_of_epsilon(given[0], operation[3])
            values[node] = _applied(operation, given, TensorTrain.exact)
        return values[end]

    def _warn_of_epsilon(self, x: torch.Tensor, epsilon: float) -> None:
        """Warn if the epsilon of torch's LayerNorm of ``x`` counts: programs add none."""
        variance = float(x.var(-1, correction=0).median())
        if 0 < variance < 10 * epsilon:  # torch's results would be 5 % smaller, or more
            warn_user(
                f"{', '.join(self.region.stretch.names)}: a LayerNorm of a program adds no "
                f"epsilon, and its values have variances near {variance:.1g}, next to which the "
                f"epsilon of {epsilon:g} counts: scale the values, give eps=0 for the same results "
                "in torch, or give the norm a scale, so that torch computes it"
            )

    def begins_with(self, layer: TensorTrain) -> bool:
        """Return whether a call of a layer begins the program."""
        return _key(("layer", layer), [self.region.source]) in self.nodes


def _key(
    operation: Operation, operands: Sequence[fx.Node]
) -> tuple[Operation, Collection[fx.Node]]:
    """Return what tells an operation's nodes apart; a sum has its operands in any order."""
    return operation, frozenset(operands) if operation[0] == "sum" else tuple(operands)


class ProgramRun:
    """Results of one run of a program, handed out as the module comes to them.

    ``alone`` applies a layer by a program of its own. ``left`` is called with a value that the
    module needs although the program does not output it.
    """

    def __init__(
        self,
        route: Route,
        source: torch.Tensor,
        alone: Callable[[TensorTrain, torch.Tensor], torch.Tensor],
        left: Callable[[fx.Node], None],
    ) -> None:
        self.route, self.source = route, source
        # Tensors made in inference mode count no changes: a copy tells whether there was one.
        self._before = source.clone() if source.is_inference() else source._version
        self.mode, self._alone, self._left = mode_of(source), alone, left
        self._layer_type = route.chain.layer_type(source)
        parameters = (p for layer in route.chain.layers for p in layer.parameters())
        self.requires_grad = torch.is_grad_enabled() and any(
            value.requires_grad for value in (source, *parameters)
        )
        self._masks: dict[fx.Node, torch.Tensor] = {}
        if not route.masked:  # else the program runs once all masks are given
            _ = self.outputs
        self._taken: set[fx.Node] = set()
        self._inner: list[ref[InnerValue]] = []
        self._values: dict[fx.Node, torch.Tensor] = {}
        self.is_left = False
        """Whether the module went another way, in which torch computes."""
        self.is_masked = False
        """Whether an attention has a mask where the program has a causal one."""

    @cached_property
    def outputs(self) -> tuple[torch.Tensor, ...]:
        """Outputs of the program, which runs when one of them is asked for."""
        outputs = self.route.chain(self.source, tuple(self._masks[n] for n in self.route.masked))
        self.route.measure_loss(self.source, self._masks, outputs)
        return outputs

    @property
    def _can_run(self) -> bool:
        return self._masks.keys() >= set(self.route.masked) and (
            "outputs" in vars(self) or self._is_kept()
        )

    def following(self, operation: Operation, operands: Sequence[Any]) -> torch.Tensor | None:
        """Return the result of an operation, or None if the program has no such operation."""
        mask = None
        if operation[0] == "attention" and operation[-1]:
            *operands, mask = operands
            if not _is_mask(mask, operands, operation[1]):
                return None
        read = list(map(self._node, operands))
        if self.is_left or None in read or mode_of(self.source) != self.mode:
            return None
        given = [node for node in read if node is not None]
        if len(set(given)) != len(read):
            return None
        # The program may have a masked attention where this call is causal: give it a causal mask.
        # It may also have a causal attention where this call is not: torch then computes.
        if operation[0] == "attention" and _key(operation, given) not in self.route.nodes:
            kind, heads, causal, _ = operation
            other = kind, heads, not causal, causal
            if _key(other, given) in self.route.nodes:
                if not causal:
                    self.is_masked = self.is_masked or mask is not None
                    return None
                tokens = operands[0].shape[-2]
                operation, mask = other, torch.ones(tokens, tokens, dtype=torch.bool).tril()
        for node in self.route.nodes.get(_key(operation, given), ()):
            if node not in self._taken and (node not in self.route.ends or self._can_run):
                self._taken.add(node)
                if mask is not None:  # a copy, as the program reads it later
                    self._masks[node] = mask.detach().clone()
                return self._result(node, operation, operands)
        return None

    def _node(self, value: Any) -> fx.Node | None:
        if isinstance(value, InnerValue):
            return value.node if value.run is self and value.place is None else None
        return self.route.region.source if value is self.source and self._is_kept() else None

    def _is_kept(self) -> bool:
        """Return whether the source has the numbers that the program was given."""
        before, source = self._before, self.source
        if isinstance(before, torch.Tensor):
            return torch.equal(before, source)
        return source._version == before

    def _result(
        self, node: fx.Node, operation: Operation, operands: Sequence[torch.Tensor]
    ) -> torch.Tensor:
        # As in torch, autocast gives layers its type, and a sum with a value of float32 that one.
        if operation[0] == "layer":
            dtype = self.route.chain.layer_type(operands[0], operation[1])
        elif operation[0] == "attention":
            dtype = self._layer_type
        else:
            dtype = reduce(torch.promote_types, [operand.dtype for operand in operands])
        shape = tuple(operands[0].shape)
        if node in self.route.ends:
            return self.outputs[self.route.ends[node]].to(dtype)
        result = InnerValue.of(self, node, _shape(operation, shape), dtype)
        self._inner.append(ref(result))
        return result

    @property
    def alive(self) -> list[InnerValue]:
        """Values that the module still has."""
        return [value for inner in self._inner if (value := inner()) is not None]

    def leave(self, needed: InnerValue | None = None) -> None:
        """Compute all values that the module still has, each layer by itself.

        The module left the program's way at ``needed``, or the call ended.
        """
        alive = self.alive
        self.is_left = self.is_left or bool(alive)
        for value in alive:
            if value.value is None:
                value.value = self._computed(value.node)
        for value in alive if needed is None else [needed]:
            self._left(value.node)
        self._inner.clear()

    def _computed(self, node: fx.Node) -> torch.Tensor:
        """Compute a value from the source, in the mode of the program."""
        if node is self.route.region.source:
            if not self._is_kept():
                raise RuntimeError(
                    f"the input of {', '.join(self.route.region.stretch.names)} was modified in "
                    "place before all that is made of it was computed: modify a clone of it"
                )
            return self.source
        if node not in self._values:
            given = [self._computed(operand) for operand in operands_of(node)]
            if node in self._masks:
                given.append(self._masks[node])
            with _mode(self.mode, self.source.device):
                self._values[node] = _applied(self.route.operations[node], given, self._alone)
        return self._values[node]


def _drawn(mask: torch.Tensor, heads: int, x: torch.Tensor) -> torch.Tensor:
    """Return the masks of the samples of ``x`` that ``OutputLoss.measure`` draws."""
    *samples, tokens, _ = x.shape
    every = mask.expand(*samples, heads, tokens, tokens).flatten(0, -4)
    return every[:: drawn_every(len(every), 2)]


def _is_mask(mask: Any, operands: Sequence[torch.Tensor], heads: int) -> bool:
    """Return whether a program takes a mask; torch computes with others, or says what is wrong."""
    if isinstance(mask, InnerValue) or not isinstance(mask, torch.Tensor):
        return False
    *samples, tokens, _ = operands[0].shape
    try:
        check_mask("mask", mask, (*samples, heads, tokens, tokens))
    except (TypeError, ValueError):
        return False
    return True


def _shape(operation: Operation, given: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of an operation's result, from that of its operand."""
    kind = operation[0]
    if kind == "flatten":
        return given[0], prod(given[1:])
    if kind == "pool":
        return *given[:2], *operation[1].over(*given[2:])
    if kind != "layer":
        return given
    layer: TensorTrain = operation[1]
    if isinstance(layer, TTConv2d):
        return given[0], layer.out_channels, *window_of(layer).over(*given[2:])
    return *given[:-1], layer.rows


def _applied(
    operation: Operation,
    given: Sequence[torch.Tensor],
    alone: Callable[[TensorTrain, torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    """Apply an operation of a program to ordinary tensors."""
    kind = operation[0]
    if kind == "layer":
        return alone(operation[1], given[0])
    if kind == "relu":
        return torch.relu(given[0])
    if kind == "function":
        return _function(given[0], *operation[1:])
    if kind == "sum":
        return given[0] + given[1]
    if kind == "attention":
        query, key, value, *mask = given
        return attend(query, key, value, *operation[1:3], *mask)
    if kind == "flatten":
        return given[0].flatten(1)
    if kind == "dropout":
        return torch.nn.functional.dropout(given[0], *operation[1:])
    window = operation[1]
    if operation[-1] == "torch":
        own = torch.nn.functional.max_pool2d
        return own(given[0], window.kernel, window.stride, window.padding)
    if len(operation) > 2:
        return pooled(operation[2], given[0], window.kernel)
    return torch.nn.functional.avg_pool2d(given[0], window.kernel, window.stride, window.padding)


def _function(x: torch.Tensor, function: Function, *of_torch: Any) -> torch.Tensor:
    """Apply a function, or the one of torch's that ``of_torch`` marks, with its epsilon if any."""
    if not of_torch:
        return function(x)
    if len(of_torch) == 1:
        return x.softmax(-1)
    return torch.nn.functional.layer_norm(x, x.shape[-1:], eps=of_torch[1])

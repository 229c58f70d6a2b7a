"""``trainwright.compile``: a module whose tensor-train layers run on the accelerator."""

import functools
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from inspect import isfunction, ismethod, signature
from typing import Any, cast

import torch
from torch.utils import _pytree

from trainwright.compiler import CompileError
from trainwright.compiler.base.progress import MOST_EFFORT
from trainwright.driver import Settling
from trainwright.functions import entries
from trainwright.functions.in_torch import KernelModule
from trainwright.network import NetworkError
from trainwright.nn import TensorTrain, cut_ranks, rank_prior, to_torch
from trainwright.nn.attention import attend
from trainwright.nn.conversion import STATE_HOOKS, add_hooks
from trainwright.nn.model import trains
from trainwright.nn.untyped import (
    computed_by,
    named_modules,
    outside_graphs,
    recording,
    transforming,
)
from trainwright.offload.chain import Chain
from trainwright.offload.heads import join_heads
from trainwright.offload.machine import AcceleratorHandle, Settings
from trainwright.offload.plan import Layers, Plan, Session
from trainwright.offload.report import Report, make_report
from trainwright.offload.segment import Segment
from trainwright.offload.stretch import Stretch
from trainwright.offload.trace import (
    Pattern,
    assumed_patterns,
    is_changed,
    pattern_of,
    trace,
    why_not,
)
from trainwright.offload.values import ordinary
from trainwright.parameters import AcceleratorParameters
from trainwright.support.arguments import plain, require_kind
from trainwright.support.caution import warn_user
from trainwright.support.text import shown

_pytree_of: Any = _pytree  # its functions have no types


def _root_of_fx(module: Any, x: object) -> None:
    """Show torch.fx a root without ``*args``, in place of ``CompiledModule.forward``.

    For these torch.fx gives a value that cannot be unpacked, and ends with an error of its own.
    """


class CompiledModule(torch.nn.Module):
    """Result of ``trainwright.compile``: the same parameters, computed on the accelerator.

    Parameters, buffers and ``state_dict`` are those of the module that was compiled, under the
    same names, and so are attributes and methods; a method's layers run on the accelerator, too.
    It can be copied and pickled; the copy opens an accelerator of its own.

    >>> import trainwright.nn as tnn
    >>> model = compile(torch.nn.Sequential(tnn.TTLinear(64, 10, rank=4)), batch=16)
    >>> model(torch.rand(40, 64)).shape
    torch.Size([40, 10])
    >>> model.cut_ranks(0.5), model.report().batch
    (False, 16)
    """

    is_compiled_model = True
    """Mark for ``trainwright.to_torch``, which cannot import this class."""

    def __init__(self, module: torch.nn.Module, machine: AcceleratorHandle) -> None:
        super().__init__()
        # One set of parameters: the very dictionaries of the module.
        self._modules, self._parameters = module._modules, module._parameters
        self._buffers = module._buffers
        self._non_persistent_buffers_set = module._non_persistent_buffers_set
        for name in STATE_HOOKS:
            setattr(self, name, getattr(module, name))
        for name in _methods_replaced(module):
            self.__dict__[name] = functools.partial(self._call_own, name)
        hidden: dict[str, Any] = {"module": module, "machine": machine, "chains": {}}
        self.__dict__["_hidden"] = hidden | _no_plans()

    def _call_own(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        """Call a method of torch's modules of which the module has its own."""
        result = getattr(self.module, name)(*args, **kwargs)
        return self if result is self.module else result

    @property
    def training(self) -> bool:
        """Whether the module is in training mode; exponents move in this mode alone."""
        return self.module.training

    @training.setter
    def training(self, mode: bool) -> None:  # pyright: ignore
        if "_hidden" in self.__dict__:  # torch's constructor sets the mode before
            self.module.training = mode

    @property
    def module(self) -> torch.nn.Module:
        """The module that was compiled; it computes in torch alone."""
        return self.__dict__["_hidden"]["module"]

    @property
    def machine(self) -> AcceleratorHandle:
        """The accelerator."""
        return self.__dict__["_hidden"]["machine"]

    @property
    def chains(self) -> dict[Stretch, Chain]:
        """The stretches of the module that it has programs for."""
        return self.__dict__["_hidden"]["chains"]

    def _save_to_state_dict(self, *args: Any, **kwargs: Any) -> None:
        """Save as the module does: exponents of a layer, and any state of its own."""
        module: Any = self.module
        module._save_to_state_dict(*args, **kwargs)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        module: Any = self.module
        module._load_from_state_dict(*args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        state["_hidden"] = state["_hidden"] | _no_plans()
        return state

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the module; what its methods call runs on the accelerator."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if "_hidden" not in self.__dict__:  # while it is unpickled
                raise
        value = getattr(self.module, name)
        if not ismethod(value) or value.__self__ is not self.module:
            return value
        return functools.wraps(value)(functools.partial(self._run, name))

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute of the module, which reads it."""
        if "_hidden" not in self.__dict__ or name in self.__dict__ or hasattr(type(self), name):
            super().__setattr__(name, value)
        else:
            setattr(self.module, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self.module, name)

    def named_modules(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        memo: set[torch.nn.Module] | None = None,
        prefix: str = "",
        remove_duplicate: bool = True,
    ) -> Iterator[tuple[str, torch.nn.Module]]:
        """Yield all parts by name; a layer that was compiled by itself is a part, too."""
        memo = set() if memo is None else memo
        yield from super().named_modules(memo, prefix, remove_duplicate)
        if isinstance(self.module, TensorTrain) and self.module not in memo:
            memo.add(self.module)
            yield f"{prefix}.module" if prefix else "module", self.module

    def __getitem__(self, place: Any) -> Any:
        """Return a part of the module, such as one of ``nn.Sequential``; it computes in torch."""
        module: Any = self.module
        return module[place]

    def __setitem__(self, place: Any, part: torch.nn.Module) -> None:
        """Replace a part of the module, such as the head of a model that is tuned."""
        module: Any = self.module
        module[place] = part

    def __iter__(self) -> Iterator[Any]:
        module: Any = self.module
        return iter(module)

    def __len__(self) -> int:
        module: Any = self.module
        return len(module)

    def __bool__(self) -> bool:
        return bool(self.module)  # a module without a length is true

    def train(self, mode: bool = True) -> "CompiledModule":
        """Set training or evaluation mode; exponents move in training mode alone."""
        self.module.train(mode)
        return self

    def apply(self, fn: Callable[[torch.nn.Module], None]) -> "CompiledModule":
        """Call ``fn`` with each part and with the module itself, which may be a single layer."""
        self.module.apply(fn)
        return self

    @outside_graphs
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the module, its tensor-train layers in the accelerator's integers.

        Gradients of parameters are the accelerator's, at the rounded factors, and pass straight
        through to the parameters. Any number of samples: a batch at a time, the last batch filled
        up.
        """
        if any(isinstance(value, torch.fx.Proxy) for value in args):
            raise _of_fx()  # whatever arguments the module asks for
        return self._run("forward", *args, **kwargs)

    _untyped: Any = forward
    _untyped.__signature__, _untyped.__wrapped__ = signature(forward), _root_of_fx
    del _untyped

    def _run(self, method: str, /, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the module, whose layers run as planned for such calls."""
        hidden = self.__dict__["_hidden"]
        function = self.module if method == "forward" else getattr(self.module, method)
        pattern, given = pattern_of(self.module, method, args, kwargs)
        self._require_numbers(given)
        key = self._key(pattern)
        fresh = key not in hidden["plans"]
        session = Session(self._plan(pattern, key))
        hidden["latest"] = pattern
        with computed_by(session.apply):
            result = function(*args, **kwargs)
        needed: set[str] = session.finish()
        if session.is_masked and hidden["causal"]:
            # What this call needed is no part of plans with masks. Their programs go on with the
            # exponents, which have the names of the layers.
            hidden["causal"] = False
            hidden["plans"].clear()
            for stretch in [stretch for stretch in self.chains if stretch.attends]:
                hidden["retired"].append(self.chains.pop(stretch))
        elif needed:
            hidden["needed"] |= needed
            for plan in hidden["plans"].values():
                plan.keep(needed)
            self._retire()
        if fresh and key in hidden["plans"]:
            self._forget(pattern, key)
        return _pytree_of.tree_map(ordinary, result) if session.is_left else result

    def _require_numbers(self, given: list[Any]) -> None:
        """Raise ``RuntimeError`` where the accelerator would be given no numbers."""
        if any(isinstance(value, torch.fx.Proxy) for value in given):
            raise _of_fx()
        if recording():
            raise RuntimeError(_advice("what torch records (jit.trace, export, ONNX) has none"))
        if transforming():
            raise RuntimeError(_advice("torch.func (vmap, grad, jacrev) hides them"))
        if any(isinstance(value, torch.Tensor) and value.is_meta for value in given):
            raise RuntimeError(_advice("inputs on the meta device have none"))
        if any(value.is_meta for value in self.parameters()):
            raise RuntimeError(
                _advice("parameters on the meta device have none: load them after to_empty")
            )

    def __prepare_scriptable__(self) -> "CompiledModule":
        """Refuse ``torch.jit.script``, which cannot read an accelerator."""
        raise RuntimeError(
            "torch.jit.script does not take a compiled model: script the dense model with the same "
            "rounded weights, model.to_torch()"
        )

    def _key(self, pattern: Pattern) -> tuple[Any, ...]:
        """Identify the calls of one plan: arguments, parts, and their plain attributes."""
        changing = self.__dict__["_hidden"]["changing"]
        attributes = _attributes(self.module).items()
        return pattern.key, *(item for item in attributes if item[0] not in changing)

    def _plan(self, pattern: Pattern, key: tuple[Any, ...]) -> Plan:
        """Return the plan for a call."""
        hidden = self.__dict__["_hidden"]
        plans: dict[Any, Plan] = hidden["plans"]
        if key not in plans:
            with self.machine.lock:
                plan = Plan(
                    self.module,
                    pattern,
                    self._chain,
                    hidden["needed"],
                    functions=bool(self.machine.settings.parameters.vector_engine),
                    causal=hidden["causal"],
                )
            if len(plans) >= _PLANS:
                del plans[next(iter(plans))]
            plans[key] = plan
        return plans[key]

    def _chain(self, stretch: Stretch, layers: Layers) -> Chain:
        """Return the programs of a stretch of layers."""
        chain = self.chains.get(stretch)
        if chain is None or list(map(id, chain.layers)) != list(map(id, layers)):
            every = [*self.chains.values(), *self.__dict__["_hidden"]["retired"]]
            steps = max((chain.steps for chain in every), default=0)
            chain = self.chains[stretch] = Chain(stretch, layers, self.machine, steps)
        return chain

    def _retire(self) -> None:
        """Drop the programs that no plan has any more."""
        hidden = self.__dict__["_hidden"]
        used = {chain for plan in hidden["plans"].values() for chain in plan.chains}
        for stretch in [s for s, chain in self.chains.items() if chain not in used]:
            chain = self.chains.pop(stretch)
            hidden["retired"].append(chain)
            chain.forget()

    def _forget(self, pattern: Pattern, key: tuple[Any, ...]) -> None:
        """Let attributes that a call changed, such as counters, identify no plan."""
        hidden = self.__dict__["_hidden"]
        changed = set(self._key(pattern)) ^ set(key)
        if changed:
            hidden["changing"] |= {place for place, _ in changed}
            plan = hidden["plans"].pop(key)
            hidden["plans"].setdefault(self._key(pattern), plan)

    def _present(self) -> Plan:
        """Return the plan of the latest call, or of the likeliest one before any.

        The likeliest call is one that has layers on the accelerator, if there is any.
        """
        hidden = self.__dict__["_hidden"]
        if hidden["latest"] is not None:
            return self._plan(hidden["latest"], self._key(hidden["latest"]))
        plans: dict[tuple[Any, ...], Plan] = {}
        for pattern in assumed_patterns(self.module):
            key = self._key(pattern)
            plans[key] = self._plan(pattern, key)
            if plans[key].routes:
                break
        likeliest = max(plans, key=lambda key: (bool(plans[key].routes), not plans[key].why))
        hidden["plans"] = {likeliest: plans[likeliest]}
        self._retire()
        return plans[likeliest]

    def calibrate(self, x: torch.Tensor, loss_of: Callable[[Any], torch.Tensor]) -> int:
        """Choose all exponents by one batch before training, as ``trainwright train`` does.

        ``loss_of`` makes a loss of the model's outputs. Steps are repeated on the golden model
        until no exponent moves; returns the repetitions. Without it exponents are chosen in the
        first step, those of gradients once those of activations stand still. Raises ``TypeError``
        for a ``loss_of`` that is no function, or makes no tensor.
        """
        if not callable(loss_of):
            raise TypeError(
                f"loss_of must be a function that makes a loss of outputs, not {shown(loss_of)}"
            )
        parameters = [p for p in self.parameters() if p.requires_grad]

        def loss() -> torch.Tensor:
            result = loss_of(self(x))
            require_kind("the result of loss_of", result, torch.Tensor)
            return result

        with ExitStack() as stack:
            settling = stack.enter_context(Settling())
            for segment in self.segments:  # what no repetition leaves is forgotten, too
                stack.enter_context(segment.unchanged_if_refused())
                segment.scales.exponents.clear()
            self.machine.settling = settling
            try:
                return settling.repeat(
                    lambda: torch.autograd.grad(loss(), parameters, allow_unused=True)
                )
            finally:
                self.machine.settling = None

    @property
    def segments(self) -> list[Segment]:
        """The programs of all chains, those of images once these have come."""
        return [segment for chain in self.chains.values() for segment in chain.segments]

    def report(self) -> Report:
        """Report where each layer runs, ranks, bits, and the accelerator's work so far.

        Print it for a table. Raises ``CompileError`` where a layer does not fit the accelerator.
        """
        plan = self._present()
        retired = self.__dict__["_hidden"]["retired"]
        return make_report(self.module, self.machine.settings, plan, self.chains.values(), retired)

    def rank_prior(self, *, form: str = "storage") -> torch.Tensor:
        """Return ``trainwright.nn.rank_prior`` of the module."""
        return rank_prior(self.module, form=form)

    def cut_ranks(
        self,
        threshold: float = 0.02,
        *,
        form: str = "storage",
        optimizer: torch.optim.Optimizer | None = None,
        averaged: torch.nn.Module | None = None,
    ) -> bool:
        """Run ``trainwright.nn.cut_ranks``; the next step runs a program of the remaining ranks.

        ``averaged`` is an ``AveragedModel`` of this model or of the module it was compiled from.
        """
        if averaged is not None:  # a compiled layer is no TensorTrain: cut the one in it
            parts: list[torch.nn.Module] = list(averaged.modules())
            averaged = next((m.module for m in parts if isinstance(m, CompiledModule)), averaged)
        return cut_ranks(self.module, threshold, form=form, optimizer=optimizer, averaged=averaged)

    def to_torch(self) -> torch.nn.Module:
        """Return a copy with ordinary dense layers, in float32: ``trainwright.nn.to_torch``.

        Hooks of this model's passes are hooks of the copy, too.
        """
        dense = to_torch(self.module)
        add_hooks(self, dense)
        return dense

    def close(self) -> None:
        """Release the accelerator (a port, a simulation); the next step opens it again."""
        self.machine.close()


def _of_fx() -> RuntimeError:
    return RuntimeError(_advice("what torch.fx traces has none"))


def _advice(why: str) -> str:
    return (
        f"the accelerator of a compiled model needs numbers, and {why}; use the dense model with "
        "the same rounded weights, model.to_torch()"
    )


_PLANS = 64
"""Plans kept per model; a float argument that changes in every step would add one each time."""


def _methods_replaced(module: torch.nn.Module) -> list[str]:
    """Return the methods of torch's modules that a module or its class has others for.

    Those that ``CompiledModule`` defines are left out: they call the module's already.
    """
    kind, ours = type(module), vars(CompiledModule)
    return [
        name
        for name, method in vars(torch.nn.Module).items()
        if isfunction(method) and not name.startswith("__") and name not in ours
        if name in vars(module) or getattr(kind, name) is not method
    ]


def _no_plans() -> dict[str, Any]:
    return {
        "plans": {},
        "latest": None,
        "changing": set(),
        "retired": [],
        "needed": set(),
        "causal": True,
    }


def _attributes(module: torch.nn.Module) -> dict[Any, Any]:
    """Return the plain attributes of all parts of a module, by part and name.

    Control flow may depend on them, and programs on tuples such as a stride. A part is there, too,
    and whether it has hooks.
    """
    result: dict[Any, Any] = {}
    for part in module.modules():
        result[id(part)] = is_changed(part)
        for name, value in vars(part).items():
            if _is_plain(value):
                result[id(part), name] = type(value), value  # True is not 1
    return result


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain, cast("tuple[Any, ...]", value)))
    return isinstance(value, bool | int | float | str | None)


def compile(
    module: torch.nn.Module,
    backend: str = "golden",
    batch: int = 64,
    formats: str | None = None,
    *,
    accelerator: AcceleratorParameters | None = None,
    effort: int = MOST_EFFORT,
) -> CompiledModule:
    """Return the module with its ``TTLinear`` and ``TTConv2d`` layers on the accelerator.

    What is between them is there too where the accelerator has it: ReLUs, averages over windows,
    flattening, and sums.

    ``backend`` is ``"golden"`` (exact integers, fast), ``"rtl"`` (the simulated hardware),
    ``"serial:PORT"`` (a board) or another one installed: the bits are the same. ``batch`` is what
    programs are compiled for, 1 to 4096; any number of samples can be given. ``formats`` are number
    formats of classes of tensors, as ``trainwright train --formats`` takes them
    (``"activation=posit(8,0),gradient=posit(8,1)c"``); every layer that the accelerator computes is
    set to them (``TensorTrain.set_numbers``), for torch as well. ``accelerator`` has
    other sizes than the default ones, which have the posits of the layers. After ``effort``
    alternatives a program is the best so far: fewer compile sooner, to programs of more cycles.
    Layers in float32, and all other modules, run in torch.

    Any loss, any optimiser. Gradients are the accelerator's, those of inputs too where they need
    one. Exponents are the accelerator's own. The first training step calibrates them, every one
    moves them, and ``state_dict`` has them: a model that is loaded goes on with the same bits.

    A call runs the module's own Python. ``compile`` runs it once, on a copy that torch.fx traces,
    to plan programs of several layers; where that fails, each layer is a program of its own, and
    a warning says so.

    Raises ``CompileError`` for a back end, a batch, an effort or formats that cannot be, for a
    module without such a layer or with a compiled part, and for a layer that does not fit the
    accelerator or has formats that it lacks; ``TypeError`` for anything but a module. The module
    then is as it was.

    >>> import trainwright.nn as tnn
    >>> model = torch.nn.Sequential(
    ...     tnn.TTLinear(64, 32, rank=4), torch.nn.ReLU(), tnn.TTLinear(32, 10, rank=4))
    >>> model = compile(model, backend="golden", batch=16)
    >>> loss = torch.nn.functional.cross_entropy(model(torch.rand(10, 64)), torch.arange(10))
    >>> loss.backward()
    >>> model.report().steps
    1
    """
    if isinstance(module, CompiledModule):  # for another back end or batch
        module = module.module
    _require_uncompiled(module)
    require_kind("backend", backend, str)
    batch, effort = plain(batch), plain(effort)
    if accelerator is None:
        settings = Settings(backend, batch, AcceleratorParameters(), effort)
    else:
        require_kind("accelerator", accelerator, AcceleratorParameters)
        settings = Settings(backend, batch, accelerator, effort)
    machine = AcceleratorHandle(settings)
    layers = [layer for layer in trains(module) if not why_not(layer)]
    if not layers:
        raise CompileError(_why_nothing(module))
    with _unless_it_fails(layers):
        if formats is not None:
            _set_formats(layers, formats)
        compiled = CompiledModule(module, machine.with_sizes(**_sizes(module, layers, accelerator)))
        report = compiled.report()  # compiles every program: what does not fit is said here
    _warn(module, layers, compiled, report)
    return compiled


def _require_uncompiled(module: Any) -> None:
    """Raise ``CompileError`` for a module with a part that is compiled."""
    if not isinstance(module, torch.nn.Module):
        return
    for name, part in named_modules(module):
        if isinstance(part, CompiledModule):
            raise CompileError(
                f"{name} of {type(module).__name__} is compiled already: compile the whole with "
                f"{name}.module in its place, or leave the whole as it is, which computes {name} "
                "on the accelerator"
            )


def _warn(
    module: torch.nn.Module, layers: list[TensorTrain], compiled: CompiledModule, report: Report
) -> None:
    """Warn where no layer runs on the accelerator, or where each is a program of its own."""
    name = type(module).__name__
    if not compiled.chains:
        names = {n for n, part in named_modules(module) if part in layers}
        reasons = [f"{row.name} in {row.where}" for row in report.layers if row.name in names]
        message = f"no layer of {name} runs on the accelerator: {'; '.join(reasons)}"
    elif report.why_alone:
        message = f"each layer of {name} is a program of its own: {report.why_alone}"
    else:
        return
    warn_user(message)


def _set_formats(layers: list[TensorTrain], formats: object) -> None:
    if not isinstance(formats, str):
        raise CompileError(f"formats must be text such as 'activation=posit(8,0)', not {formats!r}")
    try:
        for layer in layers:
            layer.set_numbers(layer.numbers.with_formats(formats))
    except NetworkError as error:
        raise CompileError(str(error)) from error


def _sizes(
    module: torch.nn.Module, layers: list[TensorTrain], given: AcceleratorParameters | None
) -> dict[str, Any]:
    """Return the parameters of the accelerator that follow from the module.

    Where none is ``given``, formats are those of the layers, and a module with an element-wise
    function that the vector engine computes gets one.
    """
    p = given or AcceleratorParameters()
    sizes: dict[str, Any] = {}
    names = {entry.torch_class for entry in entries()} | {
        KernelModule.__name__,
        "Dropout",
        "MaxPool2d",
        "Softmax",
        "TTLayerNorm",
        "TTMultiheadAttention",
        "TokenAttention",
    }
    sizes["factor_width"] = max(p.factor_width, *(layer.widths.factor for layer in layers))
    coded = [str(fmt) for layer in layers for _, fmt in layer.numbers.coded]
    if coded and given is None:
        sizes["formats"] = tuple(dict.fromkeys(coded))
    elif given is None and (
        any(type(part).__name__ in names for part in module.modules()) or _attends(module)
    ):
        sizes["vector_engine"] = 1
    return sizes


def _attends(module: torch.nn.Module) -> bool:
    """Return whether a call of a module has an attention that programs may have."""
    try:
        graph = trace(module)
    except CompileError:
        return False
    join_heads(graph, module)
    return any(node.target is attend for node in graph.nodes)


def _why_nothing(module: torch.nn.Module) -> str:
    """Explain why no layer of a module runs on the accelerator, and what to change."""
    reasons: dict[str, list[str]] = {}
    for name, part in named_modules(module):
        if isinstance(part, TensorTrain):
            kind = type(part).__name__
            reasons.setdefault(why_not(part), []).append(f"{name} ({kind})" if name else kind)
    start = "the module has no TTLinear or TTConv2d in fixed point for the accelerator"
    if not reasons:
        return (
            f"{start}: make it with trainwright.nn, or of a dense one with trainwright.from_torch"
        )
    text = "; ".join(
        f"{names[0]}{f' and {len(names) - 1} more' if names[1:] else ''}: {reason}"
        for reason, names in reasons.items()
    )
    return (
        f"{start} ({text}): change these layers (set_numbers('fixed') leaves float32), add a "
        "layer that the accelerator has, or call the module without compile"
    )


@contextmanager
def _unless_it_fails(layers: list[TensorTrain]) -> Generator[None]:
    """Restore numbers and exponents of the layers where the body raises."""
    before = [(layer.numbers, layer.state_dict()) for layer in layers]
    kept = [(numbers, {k: v.clone() for k, v in state.items()}) for numbers, state in before]
    try:
        yield
    except BaseException:
        for layer, (numbers, state) in zip(layers, kept, strict=True):
            layer.set_numbers(numbers)
            layer.load_state_dict(state)
        raise

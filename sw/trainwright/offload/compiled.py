"""``trainwright.compile``: a module whose tensor-train layers run on the accelerator."""

import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from operator import getitem
from typing import Any

import torch
from torch import fx

from trainwright.compiler import CompileError
from trainwright.driver import Driver, Settling
from trainwright.functions import entries
from trainwright.network import NetworkError
from trainwright.nn import TensorTrain, cut_ranks, rank_prior, to_torch
from trainwright.nn.model import trains
from trainwright.nn.untyped import named_modules, outside_graphs, recording, transforming
from trainwright.offload.chain import Chain
from trainwright.offload.machine import Machine, Settings
from trainwright.offload.regions import regions
from trainwright.offload.report import Report, make_report
from trainwright.offload.segment import Segment
from trainwright.offload.stretch import Stretch
from trainwright.offload.trace import (
    Pattern,
    Traced,
    assumed_patterns,
    is_whole,
    pattern_of,
    trace_call,
    why_not,
)
from trainwright.parameters import AcceleratorParameters


class CompiledModule(torch.nn.Module):
    """What ``trainwright.compile`` returns: the same parameters, computed on the accelerator.

    Parameters, buffers and ``state_dict`` are those of the module that was compiled, under the
    same names. It can be copied and pickled; the copy opens an accelerator of its own.

    >>> import trainwright.nn as tnn
    >>> model = compile(torch.nn.Sequential(tnn.TTLinear(64, 10, rank=4)), batch=16)
    >>> model(torch.rand(40, 64)).shape
    torch.Size([40, 10])
    >>> model.cut_ranks(0.5), model.report().batch
    (False, 16)
    """

    def __init__(self, module: torch.nn.Module, machine: Machine) -> None:
        super().__init__()
        # One set of parameters: the very dictionaries of the module.
        self._modules, self._parameters = module._modules, module._parameters
        self._buffers = module._buffers
        self._non_persistent_buffers_set = module._non_persistent_buffers_set
        self.training = module.training
        hidden: dict[str, Any] = {"module": module, "machine": machine, "chains": {}}
        self.__dict__["_hidden"] = hidden | _no_graphs()

    @property
    def module(self) -> torch.nn.Module:
        """The module that was compiled; it computes in torch alone."""
        return self.__dict__["_hidden"]["module"]

    @property
    def machine(self) -> Machine:
        """The accelerator."""
        return self.__dict__["_hidden"]["machine"]

    @property
    def chains(self) -> dict[Stretch, Chain]:
        """The stretches of the module that it has programs for."""
        return self.__dict__["_hidden"]["chains"]

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        state["_hidden"] = state["_hidden"] | _no_graphs()
        return state

    def train(self, mode: bool = True) -> "CompiledModule":
        """Training or evaluation mode, as of any module; exponents move in training alone."""
        self.module.train(mode)
        self.training = mode
        return self

    @outside_graphs
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes, its tensor-train layers in the accelerator's integers.

        Gradients of parameters are the accelerator's, at the rounded factors, and pass straight
        through to the parameters. Any number of samples: a batch at a time, the last filled up.
        """
        hidden = self.__dict__["_hidden"]
        pattern, given = pattern_of(self.module, args, kwargs)
        self._require_numbers(given)
        graph, traced = self._graph(pattern)
        hidden["latest"] = pattern
        return traced.nested(graph.forward(*given))

    def _require_numbers(self, given: list[Any]) -> None:
        """Raise ``RuntimeError`` where the accelerator would be given no numbers."""
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

    def _graph(self, pattern: Pattern) -> tuple[fx.GraphModule, Traced]:
        """Return the graph for a pattern of arguments and the state of each module.

        A trace fixes control flow that depends on either.
        """
        graphs: dict[Any, Any] = self.__dict__["_hidden"]["graphs"]
        key = pattern.key, tuple(map(_state_of, self.module.modules()))
        if key not in graphs:
            graph = self._traced(pattern)
            if len(graphs) >= _GRAPHS:
                del graphs[next(iter(graphs))]
            graphs[key] = graph
        return graphs[key]

    def _present(self) -> fx.GraphModule:
        """Return the graph of the latest call, or of the likeliest one before any.

        The likeliest call is one that has layers on the accelerator, if there is any.
        """
        hidden = self.__dict__["_hidden"]
        if hidden["latest"] is not None:
            return self._graph(hidden["latest"])[0]
        graphs: list[fx.GraphModule] = []
        errors: list[CompileError] = []
        for pattern in assumed_patterns(self.module):
            try:
                graphs.append(self._graph(pattern)[0])
            except CompileError as error:
                errors.append(error)
            else:
                if any(isinstance(part, Chain) for part in graphs[-1].children()):
                    return graphs[-1]
        if not graphs:
            raise errors[0]
        return graphs[0]

    def _traced(self, pattern: Pattern) -> tuple[fx.GraphModule, Traced]:
        inner = self.module
        root = _Whole(inner) if is_whole(inner) else inner
        traced = trace_call(root, pattern)
        graph = traced.graph
        made: dict[str, Any] = {}
        engine = bool(self.machine.settings.parameters.vector_engine)
        for number, found in enumerate(list(regions(graph, root, functions=engine))):
            layers: list[Any] = [root.get_submodule(name) for name in found.stretch.names]
            chain = self.chains.get(found.stretch)
            if chain is None or list(map(id, chain.layers)) != list(map(id, layers)):
                self.chains[found.stretch] = Chain(found.stretch, layers, self.machine)
            made[name := f"_on_the_accelerator_{number}"] = self.chains[found.stretch]
            with graph.inserting_before(found.nodes[0]):
                new = graph.call_module(name, (found.source,))
                made_of = [new]
                if len(found.ends) > 1:
                    places = range(len(found.ends))
                    made_of = [graph.call_function(getitem, (new, place)) for place in places]
            for end, value in zip(found.ends, made_of, strict=True):
                end.replace_all_uses_with(value)
            for node in reversed(found.nodes):
                graph.erase_node(node)
        for node in graph.nodes:
            if node.op in ("call_module", "get_attr") and node.target not in made:
                made[node.target] = _attribute(root, node.target)
        return fx.GraphModule(made, graph), traced

    def calibrate(self, x: torch.Tensor, loss_of: Callable[[Any], torch.Tensor]) -> int:
        """Choose all exponents by one batch before training, as ``trainwright train`` does.

        ``loss_of`` makes a loss of the model's outputs. Steps are repeated on the golden model
        until no exponent moves; returns the repetitions. Without it exponents are chosen in the
        first step, those of gradients once those of activations stand still.
        """
        parameters = [p for p in self.parameters() if p.requires_grad]
        for segment in self.segments:  # what no repetition leaves is forgotten, too
            segment.scales.exponents.clear()
        with Settling[Driver]() as settling:
            self.machine.settling = settling
            try:
                return settling.repeat(
                    lambda: torch.autograd.grad(loss_of(self(x)), parameters, allow_unused=True)
                )
            finally:
                self.machine.settling = None

    @property
    def segments(self) -> list[Segment]:
        """The programs of all chains, those of images once these have come."""
        return [segment for chain in self.chains.values() for segment in chain.segments]

    def report(self) -> Report:
        """What runs where, ranks, bits, and what the accelerator has done so far.

        Print it for a table. Raises ``CompileError`` where a layer does not fit the accelerator.
        """
        graph = self._present()
        chains = list(self.chains.values())
        return make_report(self.module, self.machine.settings, chains, graph)

    def rank_prior(self, *, form: str = "storage") -> torch.Tensor:
        """``trainwright.nn.rank_prior`` of the module."""
        return rank_prior(self.module, form=form)

    def cut_ranks(
        self,
        threshold: float = 0.02,
        *,
        form: str = "storage",
        optimizer: torch.optim.Optimizer | None = None,
        averaged: torch.nn.Module | None = None,
    ) -> bool:
        """``trainwright.nn.cut_ranks``; the next step runs a program of the ranks that are left.

        ``averaged`` is an ``AveragedModel`` of this model or of the module it was compiled from.
        """
        if averaged is not None:  # a compiled layer is no TensorTrain: cut the one in it
            parts: list[torch.nn.Module] = list(averaged.modules())
            averaged = next((m.module for m in parts if isinstance(m, CompiledModule)), averaged)
        return cut_ranks(self.module, threshold, form=form, optimizer=optimizer, averaged=averaged)

    def to_torch(self) -> torch.nn.Module:
        """A copy with ordinary dense layers, in float32: ``trainwright.nn.to_torch``."""
        return to_torch(self.module)

    def close(self) -> None:
        """Release the accelerator (a port, a simulation); the next step opens it again."""
        self.machine.close()


class _Whole(torch.nn.Sequential):
    """Module that calls another one, so that a graph has a node for it."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self[0](*args, **kwargs)


def _advice(why: str) -> str:
    return (
        f"the accelerator of a compiled model needs numbers, and {why}; use the dense model with "
        "the same rounded weights, model.to_torch()"
    )


_GRAPHS = 64
"""Graphs kept per model; a float argument that changes in every step would add one each time."""


def _no_graphs() -> dict[str, Any]:
    return {"graphs": {}, "latest": None}


def _state_of(part: torch.nn.Module) -> tuple[Any, ...]:
    """Identify a module, its tensors and plain attributes: a trace holds on to all of them."""
    tensors = (*part.parameters(recurse=False), *part.buffers(recurse=False))
    plain = {n: v for n, v in vars(part).items() if isinstance(v, bool | int | float | str | None)}
    return id(part), *map(id, tensors), *plain.items()


def _attribute(root: torch.nn.Module, target: str) -> Any:
    found: Any = root
    for part in target.split("."):
        found = getattr(found, part)
    return found


def compile(
    module: torch.nn.Module,
    backend: str = "golden",
    batch: int = 64,
    formats: str | None = None,
    *,
    accelerator: AcceleratorParameters | None = None,
) -> CompiledModule:
    """The module with its ``TTLinear`` and ``TTConv2d`` layers on the accelerator.

    What is between them is there too where the accelerator has it: ReLUs, averages over windows,
    flattening, and sums.

    ``backend`` is ``"golden"`` (exact integers, fast), ``"rtl"`` (the simulated hardware),
    ``"serial:PORT"`` (a board) or another one installed: the bits are the same. ``batch`` is what
    programs are compiled for, 1 to 4096; any number of samples can be given. ``formats`` are number
    formats of classes of tensors, as ``trainwright train --formats`` takes them
    (``"activation=posit(8,0),gradient=posit(8,1)c"``); every layer that the accelerator computes is
    set to them (``TensorTrain.set_numbers``), for torch as well. ``accelerator`` has
    other sizes than the default ones, which have the posits of the layers. Layers in float32, and
    all other modules, run in torch.

    Any loss, any optimiser. Gradients are the accelerator's, those of inputs too where they need
    one. Exponents are the accelerator's own. The first training step calibrates them, every one
    moves them, and ``state_dict`` has them: a model that is loaded goes on with the same bits.

    Raises ``CompileError`` for a back end, a batch or formats that cannot be, for a module without
    such a layer or that torch.fx cannot trace, and for a layer that does not fit the accelerator or
    has formats that it lacks; ``TypeError`` for what is no module. The module then is as it was.

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
    machine = Machine(Settings(backend, batch, accelerator or AcceleratorParameters()))
    layers = [layer for layer in trains(module) if not why_not(layer)]
    if not layers:
        raise CompileError(
            "the module has no TTLinear or TTConv2d in fixed point for the accelerator: make it "
            "with trainwright.nn, or of a dense one with trainwright.from_torch"
        )
    with _unless_it_fails(layers):
        if formats is not None:
            _set_formats(layers, formats)
        found = CompiledModule(module, machine.with_sizes(**_sizes(module, layers, accelerator)))
        report = found.report()  # compiles every program: what does not fit is said here
    if not found.chains:
        names = {name for name, part in named_modules(module) if part in layers}
        reasons = [f"{row.name} in {row.where}" for row in report.layers if row.name in names]
        warnings.warn(
            f"no layer of {type(module).__name__} runs on the accelerator: {'; '.join(reasons)}",
            stacklevel=2,
        )
    return found


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
    """Parameters of the accelerator that follow from the module.

    Where none is ``given``, formats are those of the layers, and a module with an element-wise
    function that the vector engine computes gets one.
    """
    p = given or AcceleratorParameters()
    sizes: dict[str, Any] = {}
    names = {entry.module for entry in entries()}
    sizes["factor_width"] = max(p.factor_width, *(layer.widths.factor for layer in layers))
    coded = [str(fmt) for layer in layers for _, fmt in layer.numbers.coded]
    if coded and given is None:
        sizes["formats"] = tuple(dict.fromkeys(coded))
    elif given is None and any(type(part).__name__ in names for part in module.modules()):
        sizes["vector_engine"] = 1
    return sizes


@contextmanager
def _unless_it_fails(layers: list[TensorTrain]) -> Generator[None]:
    """Numbers and exponents of the layers are what they were where the body raises."""
    before = [(layer.numbers, layer.state_dict()) for layer in layers]
    kept = [(numbers, {k: v.clone() for k, v in state.items()}) for numbers, state in before]
    try:
        yield
    except BaseException:
        for layer, (numbers, state) in zip(layers, kept, strict=True):
            layer.set_numbers(numbers)
            layer.load_state_dict(state)
        raise

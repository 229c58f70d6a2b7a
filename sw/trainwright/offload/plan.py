"""Plans: which programs a call is expected to run, and calls that follow them as far as they go.

A call runs the module's own Python, each time. Only its tensor-train layers are computed elsewhere:
the first layer of a planned program runs all of the program, and what the module then does with the
result is compared with the plan. Where the module does something else, its layers are programs of
their own. So a plan decides how many programs there are, never a result.
"""

import gc
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any
from weakref import ref

import torch
from torch import fx

from trainwright.compiler import CompileError
from trainwright.network.nodes import IMAGE, layer_name
from trainwright.nn import TensorTrain, TTConv2d
from trainwright.nn.untyped import last_computed_by, named_modules, saving_hooks
from trainwright.offload.chain import Chain
from trainwright.offload.heads import join_heads
from trainwright.offload.regions import regions
from trainwright.offload.stretch import ProgramLayer, Stretch, StretchEnd, Use, applied
from trainwright.offload.trace import (
    Operation,
    Pattern,
    is_whole,
    layer_of,
    trace_call,
    why_alone,
    why_not,
)
from trainwright.offload.values import (
    InnerValue,
    ProgramRun,
    Route,
    following,
    measure_loss,
    ordinary,
)

Layers = tuple[ProgramLayer, ...]
ChainOf = Callable[[Stretch, Layers], Chain]


class _Whole(torch.nn.Sequential):
    """Module that calls another one, so that a graph has a node for it."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self[0](*args, **kwargs)


class Plan:
    """Programs that a call of one pattern is expected to run.

    ``chain_of`` makes the programs of a stretch of layers. ``needed`` are names of values that
    calls were seen to need, although the trace does not show it. ``functions``: the accelerator has
    a vector engine, which computes element-wise functions. ``causal``: masks of torch's
    transformers that may be causal are so.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        pattern: Pattern,
        chain_of: ChainOf,
        needed: Collection[str] = (),
        *,
        functions: bool = False,
        causal: bool = True,
    ) -> None:
        whole = is_whole(module) and pattern.method == "forward"
        self.root = _Whole(module) if whole else module
        self._chain_of, self._functions = chain_of, functions
        self.layers: Mapping[str, ProgramLayer] = {
            name: part
            for name, part in named_modules(self.root)
            if isinstance(part, ProgramLayer) and not why_not(part)
        }
        self.names = {part: name for name, part in named_modules(module) if not why_not(part)}
        self.graph: fx.Graph | None = None
        self.why = ""
        """Why there is no graph, and each layer is a program of its own."""
        try:
            self.graph = trace_call(self.root, pattern, causal=causal)
            join_heads(self.graph, self.root)
        except CompileError as error:
            self.why = str(error)
        self.keep(needed)

    @property
    def _graph_nodes(self) -> list[fx.Node]:
        return [] if self.graph is None else list(self.graph.nodes)

    def _arrange(self) -> None:
        self.routes: list[Route] = []
        graph = self.graph or fx.Graph()
        for region in list(regions(graph, self.root, functions=self._functions)):
            layers = tuple(self.layers[name] for name in region.stretch.names)
            chain = self._chain_of(region.stretch, layers)
            self.routes.append(Route.of(region, chain, self.root, self.layers))
        self.alone = dict(self._reasons())
        """Layers that are programs of their own, and why."""
        for layer in self.alone:
            self.chain_alone(layer)

    def _reasons(self) -> Iterator[tuple[torch.nn.Module, str]]:
        """Yield the layers that the graph does not show, or not as layers, and why."""
        if self.graph is None:
            yield from ((layer, self.why) for layer in self.names)
            return
        for node in self._graph_nodes:
            if node.op != "call_module" or layer_of(node, self.root) is not None:
                continue
            whole = self.root.get_submodule(str(node.target))
            own = type(whole).__module__.startswith("torch.")
            verb = "does not look into" if own else "cannot trace"
            inside = f"inside {type(whole).__name__}, which torch.fx {verb}"
            for _, part in named_modules(whole):
                if part in self.names and isinstance(part, TensorTrain):
                    yield part, why_alone(part) if part is whole else inside

    @property
    def chains(self) -> list[Chain]:
        """Programs of the plan, each once."""
        planned = [route.chain for route in self.routes]
        return list(dict.fromkeys([*planned, *filter(None, map(self.chain_alone, self.alone))]))

    def chain_alone(self, layer: torch.nn.Module) -> Chain | None:
        """Return the program of a layer by itself; None where torch computes the layer."""
        if layer not in self.names or not isinstance(layer, ProgramLayer):
            return None
        return self._chain_of(_single(self.names[layer], layer), (layer,))

    def compute_alone(self, layer: TensorTrain, x: torch.Tensor) -> torch.Tensor:
        """Apply a layer by itself, in a program or in torch."""
        chain = self.chain_alone(layer)
        if chain is None:
            return layer.compute(x)
        (result,) = chain(x)
        result = result.to(chain.layer_type(x, layer))
        names = (self.names[layer],)
        measure_loss((layer,), names, 0, x, result, layer.exact, layer.sample_dims)
        return result

    def operators(self) -> Iterator[str]:
        """Name what torch computes without parameters, in the order of the graph."""
        planned = {node for route in self.routes for node in route.region.nodes}
        for node in self._graph_nodes:
            if node in planned or node.target is _needed:
                continue
            if node.op == "call_module":
                part = self.root.get_submodule(str(node.target))
                if not any(True for _ in part.parameters()):
                    yield type(part).__name__
            elif node.op == "call_function":
                yield getattr(node.target, "__name__", str(node.target))
            elif node.op == "call_method":
                yield str(node.target)

    def keep(self, names: Collection[str]) -> None:
        """Let values that calls need leave their programs."""
        nodes = [node for node in self._graph_nodes if node.name in names]
        for node in nodes:
            with node.graph.inserting_after(node):
                node.graph.call_function(_needed, (node,))
        self._arrange()


def _needed(value: Any) -> Any:
    """Return ``value``: a node in a graph for a use that the trace did not show."""
    return value


def _single(name: str, layer: ProgramLayer) -> Stretch:
    """Return the stretch of a layer by itself."""
    value = layer_name(0)
    channels, end = 0, StretchEnd(value, 0, layer.rows)
    if isinstance(layer, TTConv2d):
        channels, end = layer.in_channels, StretchEnd(value, layer.out_channels, 0)
    return Stretch((Use(name),), applied(value, (IMAGE,), layer, 0), channels, (end,))


class Session:
    """Call of a module whose layers are computed as a plan says."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self._runs, self._left = plan, list[ProgramRun](), set[str]()
        self._begun = set[Route]()
        self._hooks = saving_hooks()

    def apply(self, layer: TensorTrain, x: Any) -> torch.Tensor:
        """Return the outputs of a layer that the module calls."""
        last_computed_by[layer] = ref(self._plan)
        operation = "layer", layer
        result = self._going_on(operation, x)
        if result is not None:
            return result
        x = ordinary(x)
        route = self._route(layer)
        if route is None or not isinstance(x, torch.Tensor) or not route.chain.takes(x):
            return self._plan.compute_alone(layer, x)
        self._begun.add(route)
        run = ProgramRun(route, x, self._plan.compute_alone, lambda n: self._left.add(n.name))
        self._runs.append(run)
        result = run.following(operation, (x,))
        assert result is not None
        return result

    def _going_on(self, operation: Operation, x: Any) -> torch.Tensor | None:
        """Return a layer's outputs where it is part of a program that runs."""
        if isinstance(x, InnerValue):
            return following(operation, (x,))
        for run in self._runs:  # layers side by side
            result = run.following(operation, (x,))
            if result is not None:
                return result
        return None

    def _route(self, layer: TensorTrain) -> Route | None:
        # A checkpoint within the call would have to run all of a program again; a checkpoint of the
        # whole call does.
        if saving_hooks() != self._hooks:
            return None
        routes = (route for route in self._plan.routes if route not in self._begun)
        return next((route for route in routes if route.begins_with(layer)), None)

    @property
    def is_left(self) -> bool:
        """Whether the module needed values that a program keeps."""
        return any(run.is_left for run in self._runs)

    @property
    def is_masked(self) -> bool:
        """Whether an attention had a mask where the plan has a causal one."""
        return any(run.is_masked for run in self._runs)

    def finish(self) -> set[str]:
        """Compute all values of programs that outlive the call.

        Returns the names of values that the call needed although the plan keeps them.
        """
        if any(run.alive for run in self._runs):
            # Frames of errors that were caught and forgotten, as the compiler's, hold values, too.
            gc.collect()
        for run in self._runs:
            run.leave()
        return self._left

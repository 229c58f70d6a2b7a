"""What of a module the accelerator has: chains of layers in its torch.fx graph."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import fx

from trainwright.compiler import CompileError
from trainwright.nn import TensorTrain, TTLinear

_RELUS = (torch.relu, torch.nn.functional.relu)


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, TensorTrain) or super().is_leaf_module(m, module_qualified_name)


@dataclass
class Found:
    """Layers that follow each other, with the nodes they are in the graph."""

    names: list[str]
    nodes: list[fx.Node]
    relus: list[bool] = field(default_factory=list)

    @property
    def key(self) -> tuple[str, ...]:
        """What tells it from others: the names of its layers, and which have a ReLU between."""
        return tuple(
            f"{name}:{relu}" for name, relu in zip(self.names, (*self.relus, ""), strict=True)
        )


def trace(module: torch.nn.Module) -> fx.Graph:
    """The graph of a module; its tensor-train layers are nodes.

    Raises ``CompileError`` where its control flow depends on the data.
    """
    try:
        return _Tracer().trace(module)
    except Exception as error:  # whatever the user's forward meets with in place of tensors
        raise CompileError(
            f"torch.fx cannot trace {type(module).__name__}: {error}; compile the part of it "
            "whose control flow does not depend on data, as a module of its own"
        ) from error


def why_not(module: torch.nn.Module) -> str:
    """Why a layer runs in torch; empty where the accelerator has it."""
    if not isinstance(module, TTLinear):
        return f"the accelerator has no {type(module).__name__}"
    if module.is_float:
        return "its numbers are float32"
    return ""


def _sole_user(node: fx.Node) -> fx.Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


def _is_relu(node: fx.Node, module: torch.nn.Module) -> bool:
    if node.op == "call_module":
        return isinstance(module.get_submodule(str(node.target)), torch.nn.ReLU)
    if node.op == "call_method":
        return node.target == "relu"
    return node.op == "call_function" and node.target in _RELUS


def joinable(first: TTLinear, second: TTLinear) -> bool:
    """Whether one program can have both: same numbers, and no padding between them.

    What lies in the padding of the first layer's outputs is not 0.
    """
    sizes = {first.layer.output_size, first.rows, second.columns, second.layer.input_size}
    return len(sizes) == 1 and first.numbers == second.numbers


def chains(graph: fx.Graph, module: torch.nn.Module) -> Iterator[Found]:
    """The chains of a graph, as long as can be; each layer's node is in one."""
    taken: set[fx.Node] = set()
    for node in graph.nodes:
        if node in taken or not _is_layer(node, module):
            continue
        found = Found([str(node.target)], [node])
        while (following := _next(found.nodes[-1], module)) is not None:
            between, after = following
            found.relus.append(bool(between))
            found.names.append(str(after.target))
            found.nodes += [*between, after]
        taken |= set(found.nodes)
        yield found


def _is_layer(node: fx.Node, module: torch.nn.Module) -> bool:
    if node.op != "call_module" or node.kwargs or len(node.args) != 1:
        return False
    return not why_not(module.get_submodule(str(node.target)))


def _next(node: fx.Node, module: torch.nn.Module) -> tuple[list[fx.Node], fx.Node] | None:
    """The layer after a layer's node and the ReLU between them, if one program can have both."""
    after, between = _sole_user(node), []
    if after is not None and _is_relu(after, module):
        between, after = [after], _sole_user(after)
    if after is None or not _is_layer(after, module):
        return None
    first, second = (module.get_submodule(str(one.target)) for one in (node, after))
    assert isinstance(first, TTLinear) and isinstance(second, TTLinear)
    return (between, after) if joinable(first, second) else None

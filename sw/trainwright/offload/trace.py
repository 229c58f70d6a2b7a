"""What of a module the accelerator has, node by node of its torch.fx graph."""

import operator
from typing import Any

import torch
from torch import fx

from trainwright.compiler import CompileError
from trainwright.network import NetworkError, Window
from trainwright.nn import TensorTrain, TTConv2d, TTLinear
from trainwright.offload.stretch import window_of

_RELUS = (torch.relu, torch.nn.functional.relu)
_SUMS = (operator.add, torch.add)


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, TensorTrain) or super().is_leaf_module(m, module_qualified_name)


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

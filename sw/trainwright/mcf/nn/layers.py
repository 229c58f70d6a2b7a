"""Layers whose parameters are ``MCTensor``s, and activations of them.

A ``state_dict`` holds every such parameter as its components (*shape, nc), a plain contiguous
tensor that safetensors stores. Loading takes components of any nc and type, rounded to the
parameter's, and plain tensors of the parameter's shape, as those of torch's own layers are.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainwright.mcf.exact import converted
from trainwright.mcf.tensor import MCTensor, check_count, shape_of, tensor, wrap


class MCModule(nn.Module):
    """A module that stores its ``MCTensor`` parameters as components."""

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for name, parameter in self._parameters.items():
            if isinstance(parameter, MCTensor) and not keep_vars:
                destination[prefix + name] = parameter.components.contiguous()

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, *args: Any, **kwargs: Any
    ) -> None:  # fmt: skip
        taken = dict(state_dict)
        for name, parameter in self._parameters.items():
            key = prefix + name
            if isinstance(parameter, MCTensor) and isinstance(taken.get(key), Tensor):
                taken[key] = _numbers(taken[key], parameter)
        super()._load_from_state_dict(taken, prefix, *args, **kwargs)


def _numbers(found: Tensor, like: MCTensor) -> MCTensor:
    """A stored tensor as an ``MCTensor`` of the parameter's nc and type, of any shape."""
    if not isinstance(found, MCTensor) and found.dim() == len(shape_of(like)):
        return tensor(found, nc=like.nc, dtype=like.components.dtype)
    components = found.components if isinstance(found, MCTensor) else found
    return wrap(converted(components, like.components.dtype, like.nc))


def _parameter(values: Tensor, nc: int) -> Any:
    """A parameter of ``values`` with zeros below them."""
    made: Any = tensor(values, nc=nc, dtype=values.dtype)
    return nn.Parameter(made)


class MCLinear(MCModule):
    """``nn.Linear`` with weight (out_features, in_features) and bias of nc components.

    Initial values are those of ``nn.Linear`` from the same generator. Input: plain or ``MCTensor``
    (..., in_features) of the parameters' type; result: ``MCTensor``.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True, device: Any = None,
                 dtype: torch.dtype | None = None, *, nc: int = 2):  # fmt: skip
        check_count(nc)
        super().__init__()
        self.in_features, self.out_features, self.nc = in_features, out_features, nc
        plain = nn.Linear(in_features, out_features, bias, device, dtype)
        self.weight = _parameter(plain.weight.detach(), nc)
        self.bias = _parameter(plain.bias.detach(), nc) if bias else None

    def forward(self, input: Any) -> Any:
        """input weight^T + bias."""
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        """The constructor's arguments."""
        sizes = f"in_features={self.in_features}, out_features={self.out_features}"
        return f"{sizes}, bias={self.bias is not None}, nc={self.nc}"


class MCEmbedding(MCModule):
    """``nn.Embedding`` with a table (num_embeddings, embedding_dim) of nc components."""

    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None,
                 scale_grad_by_freq: bool = False, sparse: bool = False, device: Any = None,
                 dtype: torch.dtype | None = None, *, nc: int = 2):  # fmt: skip
        check_count(nc)
        super().__init__()
        self.num_embeddings, self.embedding_dim, self.nc = num_embeddings, embedding_dim, nc
        self.scale_grad_by_freq, self.sparse = scale_grad_by_freq, sparse
        plain = nn.Embedding(
            num_embeddings, embedding_dim, padding_idx, device=device, dtype=dtype
        )  # fmt: skip
        self.padding_idx = plain.padding_idx
        self.weight = _parameter(plain.weight.detach(), nc)

    def forward(self, input: Tensor) -> Any:
        """Rows of the table."""
        return F.embedding(
            input, self.weight, self.padding_idx, None, 2.0, self.scale_grad_by_freq, self.sparse
        )

    def extra_repr(self) -> str:
        """The constructor's arguments."""
        return f"{self.num_embeddings}, {self.embedding_dim}, nc={self.nc}"


class MCSequential(nn.Sequential):
    """``nn.Sequential``, of multi-component layers and torch's own that take their results."""


class MCSoftmax(nn.Softmax):
    """``nn.Softmax`` of an ``MCTensor``."""


class MCReLU(nn.ReLU):
    """``nn.ReLU`` of an ``MCTensor``."""


class MCGELU(nn.GELU):
    """``nn.GELU`` of an ``MCTensor``."""

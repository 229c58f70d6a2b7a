"""Layers whose parameters are ``MCTensor``s, and activations on ``MCTensor``s.

A ``state_dict`` holds every such parameter as its components (*shape, nc), a plain contiguous
tensor that safetensors can store. Loading accepts components of any nc and type, rounded to the
parameter's, and plain tensors of the parameter's shape, such as those of torch's own layers.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainwright.mcf.exact import converted
from trainwright.mcf.tensor import MCTensor, check_count, shape_of, tensor, wrap
from trainwright.support.arguments import flag


class MCModule(nn.Module):
    """Module that stores its ``MCTensor`` parameters as components."""

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


def _numbers(stored: Tensor, like: MCTensor) -> MCTensor:
    """Convert a stored tensor of any shape to the parameter's nc and type."""
    if not isinstance(stored, MCTensor) and stored.dim() == len(shape_of(like)):
        return tensor(stored.detach(), nc=like.nc, dtype=like.components.dtype)
    components = stored.components if isinstance(stored, MCTensor) else stored
    return wrap(converted(components, like.components.dtype, like.nc))


def _parameter(values: Tensor, nc: int) -> Any:
    """Make a parameter of plain values; lower components are 0."""
    number: Any = tensor(values.detach(), nc=nc, dtype=values.dtype)
    return nn.Parameter(number)


class MCLinear(MCModule):
    """``nn.Linear`` with weight (out_features, in_features) and bias of nc components.

    Initial values are those of ``nn.Linear`` from the same generator. The input (..., in_features)
    is plain or an ``MCTensor`` of the parameters' type; the result is an ``MCTensor``.

    >>> layer = MCLinear(3, 2, nc=2, dtype=torch.float64)
    >>> layer.weight.components.shape, layer(torch.ones(5, 3, dtype=torch.float64)).shape
    (torch.Size([2, 3, 2]), torch.Size([5, 2]))
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True, device: Any = None,
                 dtype: torch.dtype | None = None, *, nc: int = 2):  # fmt: skip
        nc = check_count(nc)
        super().__init__()
        self.in_features, self.out_features, self.nc = in_features, out_features, nc
        bias = flag("bias", bias)
        plain = nn.Linear(in_features, out_features, bias, device, dtype)
        self.weight = _parameter(plain.weight.detach(), nc)
        self.bias = _parameter(plain.bias.detach(), nc) if bias else None

    def forward(self, input: Any) -> Any:
        """Compute input weight^T + bias."""
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Return the constructor's arguments."""
        sizes = f"in_features={self.in_features}, out_features={self.out_features}"
        return f"{sizes}, bias={self.bias is not None}, nc={self.nc}"


class MCEmbedding(MCModule):
    """``nn.Embedding`` with a table (num_embeddings, embedding_dim) of nc components.

    >>> MCEmbedding(10, 4, nc=3)(torch.tensor([1, 9])).components.shape
    torch.Size([2, 4, 3])
    """

    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None,
                 scale_grad_by_freq: bool = False, sparse: bool = False, device: Any = None,
                 dtype: torch.dtype | None = None, *, nc: int = 2):  # fmt: skip
        nc = check_count(nc)
        super().__init__()
        self.num_embeddings, self.embedding_dim, self.nc = num_embeddings, embedding_dim, nc
        self.scale_grad_by_freq = flag("scale_grad_by_freq", scale_grad_by_freq)
        self.sparse = flag("sparse", sparse)
        plain = nn.Embedding(
            num_embeddings, embedding_dim, padding_idx, device=device, dtype=dtype
        )  # fmt: skip
        self.padding_idx = plain.padding_idx
        self.weight = _parameter(plain.weight.detach(), nc)

    def forward(self, input: Tensor) -> Any:
        """Look up rows of the table."""
        return F.embedding(
            input, self.weight, self.padding_idx, None, 2.0, self.scale_grad_by_freq, self.sparse
        )

    def extra_repr(self) -> str:
        """Return the constructor's arguments."""
        return f"{self.num_embeddings}, {self.embedding_dim}, nc={self.nc}"


class MCSequential(nn.Sequential):
    """``nn.Sequential`` of multi-component layers and torch's layers that accept their results.

    >>> model = MCSequential(MCLinear(3, 8), MCReLU(), MCLinear(8, 1))
    >>> model(torch.ones(2, 3)).nc
    2
    """


class MCSoftmax(nn.Softmax):
    """``nn.Softmax`` on an ``MCTensor``.

    >>> from trainwright import mcf
    >>> total = MCSoftmax(0)(mcf.tensor(["0.1", "0.2"])).sum().to_float64()
    >>> bool(abs(total - 1) < 1e-13)
    True
    """


class MCReLU(nn.ReLU):
    """``nn.ReLU`` on an ``MCTensor``."""


class MCGELU(nn.GELU):
    """``nn.GELU`` on an ``MCTensor``."""

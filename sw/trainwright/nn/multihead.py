"""torch's attention of several heads with tensor trains in place of its four matrices."""

from collections.abc import Sequence
from math import prod
from numbers import Real
from typing import Any

import torch
from torch.overrides import handle_torch_function, has_torch_function

from trainwright.network import NetworkError
from trainwright.nn.attention import as_bool, attend, check_operands
from trainwright.nn.layers import Lacking, TTLinear
from trainwright.nn.shapes import require_kept, require_sizes
from trainwright.nn.tensor_train import Device, Numbers, Rank
from trainwright.nn.untyped import require_tensor, traced
from trainwright.support.arguments import flag, plain, takes_numpy_sizes

PROJECTIONS = "query", "key", "value", "out"
"""Names of the four layers; the first three are the parts of torch's ``in_proj_weight``."""


class TTMultiheadAttention(torch.nn.Module):
    """``torch.nn.MultiheadAttention`` of four layers ``query``, ``key``, ``value`` and ``out``.

    These are ``TTLinear``. Arguments, masks and results of a call are those of torch's.
    ``from_torch`` makes it, and ``torch.nn.TransformerEncoderLayer`` and the like call it.
    ``trainwright.compile`` puts it into a program if queries and keys are made of one value,
    ``need_weights=False``, no dropout is active, and masks are bool or of 0 and -inf; else torch
    attends, between programs of the layers. Other options are those of ``TTLinear``.

    >>> attention = TTMultiheadAttention(64, 4, rank=8, batch_first=True)
    >>> x = torch.randn(2, 5, 64)
    >>> y, weights = attention(x, x, x)
    >>> y.shape, weights.shape
    (torch.Size([2, 5, 64]), torch.Size([2, 5, 5]))
    """

    add_zero_attn = Lacking(False, "TTMultiheadAttention adds no token")
    in_proj_weight = in_proj_bias = None
    _qkv_same_embed_dim = False
    # torch's transformers read these three, and then call the module, not their own kernel.

    @takes_numpy_sizes
    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        *,
        bias: bool = True,
        batch_first: bool = False,
        rank: Rank = 16,
        numbers: Numbers = "fixed",
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        require_sizes(embed_dim=embed_dim)
        # Checked where they are set.
        self.embed_dim, self.num_heads, self.dropout = embed_dim, num_heads, dropout
        self.batch_first = batch_first
        for name in PROJECTIONS:
            layer = TTLinear(
                embed_dim, embed_dim, rank=rank, bias=bias, relu=False, numbers=numbers,
                device=device, dtype=dtype,
            )  # fmt: skip
            self.add_module(name, layer)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; options are checked as in the constructor."""
        super().__setattr__(name, self._checked(name, value))

    def _checked(self, name: str, value: Any) -> Any:
        given: Any = plain(value)
        if name == "embed_dim":
            require_kept(self, name, given)
        elif name == "num_heads":
            require_sizes(num_heads=given)
            if self.embed_dim % given:
                raise NetworkError(f"{given} heads do not divide {self.embed_dim} features")
        elif name == "dropout":
            if isinstance(given, bool) or not (isinstance(value, Real) and 0 <= given <= 1):
                raise NetworkError(f"dropout must be a probability, not {given!r}")
        elif name == "batch_first":
            return flag(name, given)
        else:
            return value
        return given

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        key_padding_mask: torch.Tensor | None = None,
        need_weights: bool = True,
        attn_mask: torch.Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return what each query finds, and the weights or None, as torch's module does.

        Raises ``ValueError`` for shapes that do not go together, ``RuntimeError`` for
        ``is_causal`` without ``attn_mask``.
        """
        if is_causal and attn_mask is None:
            raise RuntimeError("is_causal says that attn_mask is causal: give attn_mask, too")
        own = query is key
        query, key, value = self._batches_first(query, key, value)
        layers: Any = self._modules
        q, k, v = layers["query"](query), layers["key"](key), layers["value"](value)
        # As in torch, a mask that is said to be causal is not read where nothing else is asked.
        causal = is_causal and key_padding_mask is None and not need_weights
        mask, weights = None if causal else attn_mask, None
        dropout = self.dropout if self.training else 0.0
        masked, keys = key_padding_mask is not None or mask is not None, None
        in_torch = bool(dropout) or need_weights or (causal and not own)
        if masked and not in_torch:
            keys = self._keys(key_padding_mask, mask, q, k)
            in_torch = keys is None
        if in_torch:
            options = key_padding_mask, mask, causal, dropout, bool(need_weights)
            result: Any = attend_in_torch(q, k, v, self.num_heads, *options)
            y = result[0]
            if need_weights:
                weights = result[1].mean(-3) if average_attn_weights else result[1]
        else:
            y = attend(q, k, v, self.num_heads, causal, keys)
        y = layers["out"](y)
        return y if self.batch_first else y.transpose(0, -2), weights

    def _batches_first(self, *given: torch.Tensor) -> list[torch.Tensor]:
        """Return inputs (..., tokens, features); what is given twice stays one value."""
        if not has_torch_function(given) and not traced():
            for x in given:
                require_tensor(x)
            sizes = {x.dim() for x in given}
            if sizes not in ({2}, {3}):
                raise ValueError(
                    "query, key and value must all be (tokens, features) or all be batches of "
                    f"such, not {', '.join(str(tuple(x.shape)) for x in given)}"
                )
        if self.batch_first:
            return list(given)
        # Without a batch, the axis of tokens is the first one: nothing moves.
        turned = {id(x): x.transpose(0, -2) for x in given}
        return [turned[id(x)] for x in given]

    def _keys(self, padding: Any, mask: Any, q: Any, k: Any) -> torch.Tensor | None:
        """Return the mask of keys that a program takes; None where torch is to attend."""
        if not has_torch_function((q, k)) or traced():
            return None
        queries, keys = q.shape, k.shape
        batched = True
        if type(queries) is torch.Size:  # no size of a trace
            _check_masks(padding, mask, queries, keys, self.num_heads)
            batched = len(queries) > 2
        return present_keys(padding, mask, self.num_heads if batched else 0)

    def extra_repr(self) -> str:
        """Return the options that ``print`` shows behind the class."""
        return (
            f"{self.embed_dim}, {self.num_heads}, dropout={self.dropout}, "
            f"batch_first={self.batch_first}"
        )


def attend_in_torch(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    heads: int,
    padding: torch.Tensor | None,
    mask: torch.Tensor | None,
    causal: bool,
    dropout: float,
    need_weights: bool,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return softmax(q k / sqrt(size of a head) + masks) v, and the weights of each head.

    Queries are (..., tokens, features); masks are those of ``torch.nn.MultiheadAttention``.
    """
    given = query, key, value
    if has_torch_function(given):  # a compiled model, or a trace of one
        options = padding, mask, causal, dropout, need_weights
        return handle_torch_function(attend_in_torch, given, *given, heads, *options)
    if not traced():
        check_operands(*given, heads, causal=False)
    size = query.shape[-1] // heads
    q, k, v = (x.reshape(*x.shape[:-1], heads, size).transpose(-2, -3) for x in given)
    added = _added(padding, mask, q, k)
    weights = None
    if need_weights:
        scores = (q * size**-0.5) @ k.transpose(-1, -2)
        weights = torch.softmax(scores if added is None else scores + added, -1)
        weights = torch.nn.functional.dropout(weights, dropout)
        each = weights @ v
    else:
        each = torch.nn.functional.scaled_dot_product_attention(q, k, v, added, dropout, causal)
    return each.transpose(-2, -3).flatten(-2), weights


def present_keys(
    padding: torch.Tensor | None, mask: torch.Tensor | None, heads: int
) -> torch.Tensor | None:
    """Return both masks as one that is true at keys to attend to, for ``attend``.

    None where one has numbers other than 0 and -inf. A mask of several samples has each of their
    ``heads``, 0 without samples.
    """
    given = tuple(each for each in (padding, mask) if each is not None)
    if has_torch_function(given):  # a trace, or values inside of a program
        return handle_torch_function(present_keys, given, padding, mask, heads)
    own, shared = (None if each is None else _present(each) for each in (mask, padding))
    if sum(each is not None for each in (own, shared)) < len(given):
        return None
    if own is not None and own.dim() == 3 and heads:
        own = own.reshape(-1, heads, *own.shape[1:])
    if shared is not None:
        shared = shared[..., None, None, :]
    return shared if own is None else own if shared is None else own & shared


def _added(
    padding: torch.Tensor | None, mask: torch.Tensor | None, q: torch.Tensor, k: torch.Tensor
) -> torch.Tensor | None:
    """Return the sum of both masks, to be added to scores (..., heads, queries, keys)."""
    scores = *q.shape[:-1], k.shape[-2]
    _check_masks(padding, mask, (*q.shape[:-3], scores[-2], 0), k.shape, q.shape[-3])
    parts: list[torch.Tensor] = []
    if padding is not None:
        parts.append(_numbers(padding, q.dtype)[..., None, None, :])
    if mask is not None:
        own = mask if mask.dim() == 2 else mask.reshape(scores)
        parts.append(_numbers(own, q.dtype))
    return sum(parts[1:], parts[0]) if parts else None


def _check_masks(
    padding: Any, mask: Any, queries: Sequence[int], keys: Sequence[int], heads: int
) -> None:
    """Raise ``TypeError`` or ``ValueError`` for masks that do not suit (..., tokens, features)."""
    batch, scores = tuple(queries[:-2]), (queries[-2], keys[-2])
    if padding is not None:
        _check_mask("key_padding_mask", padding, (*batch, keys[-2]))
    if mask is not None:
        _check_mask("attn_mask", mask, scores, (prod(batch) * heads, *scores))


def _check_mask(name: str, mask: Any, *shapes: tuple[int, ...]) -> None:
    if not isinstance(mask, torch.Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, not {type(mask).__name__}")
    if not (mask.dtype is torch.bool or mask.is_floating_point()):
        raise TypeError(f"{name} must be of torch.bool or a floating-point type, not {mask.dtype}")
    if tuple(mask.shape) not in shapes and not traced():
        wanted = " or ".join(map(str, shapes))
        raise ValueError(f"{name} must have shape {wanted}, not {tuple(mask.shape)}")


def _present(mask: torch.Tensor) -> torch.Tensor | None:
    """Return a mask of this module as one that is true at keys to attend to, if it is such."""
    return ~mask if mask.dtype is torch.bool else as_bool(mask)


def _numbers(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return a mask as numbers to add: -inf where a boolean one is true."""
    if mask.dtype is not torch.bool:
        return mask.to(dtype)
    return torch.zeros_like(mask, dtype=dtype).masked_fill(mask, float("-inf"))

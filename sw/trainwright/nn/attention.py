"""Attention of queries to keys, as one operation that a compiled model can recognise."""

from typing import Any

import numpy as np
import torch
from torch.overrides import handle_torch_function, has_torch_function

from trainwright.nn.shapes import require_sizes
from trainwright.nn.untyped import require_tensor, traced
from trainwright.support.arguments import flag, plain, takes_numpy_sizes


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    heads: int,
    causal: bool,
    mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return softmax(q k / sqrt(size of a head)) v of each head, in the shape of the queries.

    ``mask`` is true where a query attends to a key, bool, and broadcasts to (..., heads, queries,
    keys). A query without any key finds zeros.
    """
    given = query, key, value
    if has_torch_function(given):  # a compiled model, or a trace of one
        return handle_torch_function(attend, given, *given, heads, causal, mask)
    if not traced():  # sizes in a record of torch.jit are tensors
        check_operands(query, key, value, heads, causal)
        if mask is not None:
            check_mask("mask", mask, (*query.shape[:-2], heads, query.shape[-2], key.shape[-2]))
    # Sizes are written out: without samples, -1 could stand for any.
    size = query.shape[-1] // heads
    q, k, v = (x.reshape(*x.shape[:-1], heads, size).transpose(-2, -3) for x in given)
    attention = torch.nn.functional.scaled_dot_product_attention
    if mask is None:
        each = attention(q, k, v, is_causal=causal)
    else:
        if causal:
            mask = mask & mask.new_ones(q.shape[-2], k.shape[-2]).tril()
        # torch before 2.5 makes NaN of queries without a key, and of all their gradients.
        alone = ~mask.any(-1, keepdim=True)
        each = attention(q, k, v, mask | alone).masked_fill(alone, 0)
    return each.transpose(-2, -3).flatten(-2)


def check_mask(name: str, mask: Any, shape: tuple[int, ...], form: str = "") -> None:
    """Raise ``TypeError`` or ``ValueError`` for no bool tensor that broadcasts to ``shape``."""
    require_tensor(mask)
    if mask.dtype is not torch.bool:
        raise TypeError(
            f"{name} must be of torch.bool, not {mask.dtype}: of a mask of 0 and -inf that is "
            "added to scores, give mask == 0"
        )
    try:
        fits = np.broadcast_shapes(tuple(mask.shape), shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"{name} has shape {tuple(mask.shape)}, which does not broadcast to {shape}, "
            + (form or "(..., heads, queries, keys)")
        )


def as_bool(mask: Any) -> torch.Tensor | None:
    """Return a mask as bool, true at keys to attend to: of 0 and -inf, added to scores, too.

    None for other numbers, and for numbers that are trained, whose gradient would be lost.
    """
    if not isinstance(mask, torch.Tensor) or mask.dtype is torch.bool:
        return mask
    if mask.requires_grad or not mask.is_floating_point():
        return None
    present = mask == 0
    return present if bool((present | (mask == -torch.inf)).all()) else None


def check_operands(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, heads: int, causal: bool
) -> None:
    """Raise ``TypeError`` or ``ValueError`` for operands that do not go together."""
    for x in (query, key, value):
        require_tensor(x)
    q, k, v = (list(x.shape) for x in (query, key, value))
    together = len(q) > 1 and k == v and [*q[:-2], *q[-1:]] == [*k[:-2], *k[-1:]]
    if not together or (causal and q != k):
        raise ValueError(
            "queries, keys and values must have one shape (..., tokens, features), or, where the "
            "attention is not causal, queries may have tokens of their own, not "
            f"{tuple(q)}, {tuple(k)}, {tuple(v)}"
        )
    if q[-1] % heads:
        raise ValueError(f"{heads} heads do not divide {q[-1]} features")


class TokenAttention(torch.nn.Module):
    """Attention over the tokens of queries, keys and values (..., tokens, features).

    Each of ``heads`` has its share of the features; with ``causal`` a token attends to itself and
    to the tokens before. Layers of your own make queries, keys and values, and read the result.
    ``trainwright.compile`` puts it into a program with these layers, on an accelerator with a
    vector engine; in torch it is ``scaled_dot_product_attention``.

    ``mask`` is bool, true where a query attends to a key, and broadcasts to (..., heads, queries,
    keys), as that function takes it. ``padding`` is bool (..., keys), true at tokens that no query
    attends to, as ``key_padding_mask`` of ``torch.nn.MultiheadAttention``. A query that is left
    without any key finds zeros.

    >>> attention = TokenAttention(heads=2)
    >>> attention(*torch.randn(3, 5, 7, 16)).shape
    torch.Size([5, 7, 16])
    """

    @takes_numpy_sizes
    def __init__(self, heads: int, *, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal  # checked where they are set

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; options are checked as in the constructor."""
        given: Any = flag(name, value) if name == "causal" else value
        if name == "heads":
            given = plain(value)
            require_sizes(heads=given)
        super().__setattr__(name, given)

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: torch.Tensor | None = None,
        padding: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return what each token finds; ``ValueError`` for shapes that do not go together.

        Raises ``TypeError`` for masks that are not bool.
        """
        if padding is not None:
            known = isinstance(getattr(key, "shape", ()), tuple)  # no size of a trace
            if known and not has_torch_function((padding,)) and not traced():
                require_tensor(key)
                check_mask("padding", padding, tuple(key.shape[:-1]), "(..., keys)")
            present = ~padding[..., None, None, :]
            mask = present if mask is None else mask & present
        return attend(query, key, value, self.heads, self.causal, mask)

    def extra_repr(self) -> str:
        """Return the options that ``print`` shows behind the class."""
        options: dict[str, Any] = {"heads": self.heads, "causal": self.causal}
        return ", ".join(f"{name}={value}" for name, value in options.items())

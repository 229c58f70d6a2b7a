"""Padding of sequences: present tokens, and the masks and weights made of them for programs."""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

import torch

from trainwright.compiler import CompiledStep
from trainwright.compiler.base.compiled import FOLLOWED
from trainwright.compiler.base.rules import Written
from trainwright.fixed.quantise import quantise
from trainwright.fixed.scale import TensorClass
from trainwright.graph.network import (
    CONSTANT_WIDTH,
    SAMPLES,
    SEQUENCES,
    SHARE_EXPONENT,
    digit_layers,
    host_name,
    input_exponent,
    is_masked,
    position_exponent,
)
from trainwright.network import Attention, Network, Node, Pool, Positions, TokenPool

NO_MASKS: Mapping[str, torch.Tensor] = MappingProxyType({})
"""Masks of a network without masked attention."""


def present_tokens(network: Network, inputs: torch.Tensor) -> torch.Tensor:
    """Mark the tokens of ``inputs`` (batch, I) that are not padding, bool (batch, tokens)."""
    present = inputs.reshape(len(inputs), network.tokens, -1).any(2)
    return present if network.padding else torch.ones_like(present)


def token_shares(node: TokenPool, present: torch.Tensor) -> torch.Tensor:
    """Return the weights of the tokens in a pool, float64 (batch, tokens)."""
    counted = present.double()
    if node.over == "first":
        counted[:, 1:] = 0
    return counted / counted.sum(1, keepdim=True).clamp(min=1)


def key_masks(network: Network, node: Attention, present: torch.Tensor) -> torch.Tensor:
    """Mark the keys that each query attends to, bool (sequences, queries, keys)."""
    masks = present[:, None].expand(-1, network.tokens, -1)
    return masks.tril() if node.causal else masks


def position_values(node: Positions, tokens: int) -> torch.Tensor:
    """Return the values of a sequence's positions, float64 (tokens, size)."""
    places = torch.arange(tokens)
    if node.kind == "one-hot":
        digits = places // node.every % node.size
        return torch.nn.functional.one_hot(digits, node.size).double()
    numbers = torch.arange(node.size)
    angles = places[:, None] * 10000.0 ** (-(numbers // 2 * 2).double() / node.size)
    return torch.where(numbers % 2 == 0, angles.sin(), angles.cos())


def token_words(
    network: Network, inputs: torch.Tensor, attended: Mapping[str, torch.Tensor] = NO_MASKS
) -> dict[str, torch.Tensor]:
    """Return words of constants, and of masks and shares of the tokens of ``inputs`` (batch, I).

    In a network with padding, tokens of zeros are padding. Masks have queries as the first axis.
    ``attended`` are those of masked attentions, as in ``ForwardOperands``.
    """
    present = present_tokens(network, inputs)
    words = {}
    for node in network.nodes:
        if isinstance(node, TokenPool):
            shares = token_shares(node, present)
            words[host_name(network, node)] = quantise(shares, SHARE_EXPONENT, CONSTANT_WIDTH)
        elif isinstance(node, Pool) and network.writes_out(node):
            words[host_name(network, node)] = torch.eye(node.window.size, dtype=torch.int64)
        elif isinstance(node, Positions):
            values = position_values(node, network.tokens).repeat(len(inputs), 1)
            fmt, exponent = network.format("activation"), position_exponent(network, node)
            words[node.name] = quantise(values, exponent, fmt, underflow=network.host_underflow)
        elif isinstance(node, Attention) and is_masked(network, node):
            keys = key_masks(network, node, present)[:, None].expand(-1, node.heads, -1, -1)
            if node.masked:
                keys = keys & attended[node.name]
            words[host_name(network, node)] = keys.permute(2, 1, 0, 3).long()
    return words


def multiplies_digits(step: CompiledStep) -> bool:
    """Return whether a step rounds products of one-hot digits of tokens, of which most are 0.

    With automatic exponents the few large products would saturate, because the mean is nearly 0.
    """
    # Axes ``l1.i1``, ``l1.i2``, .. are the inputs of layer 1: here the digits of tokens.
    digits = tuple(f"l{number + 1}.i" for number in digit_layers(step.network))
    # Exact products are not counted, as no exponent follows from their statistics.
    return bool(digits) and any(
        tensor.counted
        and tensor.kind is TensorClass.INTERMEDIATE
        and all(axis.startswith(digits) or axis in (SAMPLES, SEQUENCES) for axis in tensor.axes)
        for tensor in step.tensors
    )


def exponent_of_inputs(step: CompiledStep) -> int:
    """Return the exponent of a step's inputs."""
    # On the chip means alone move exponents: products with large one-hot words would saturate.
    coded = step.network.format("activation").coded and step.plan in FOLLOWED
    if coded and digit_layers(step.network, coded=True):
        return 0
    return 0 if multiplies_digits(step) else input_exponent(step.network)


class TokenCounts:
    """Counts of a gradient's values that padding does not force to 0.

    Exponents follow the mean of these values only.
    """

    def __init__(self, network: Network, present: torch.Tensor) -> None:
        self._network = network
        self._lengths = present.sum(1).double()
        self._firsts = _of_first_tokens(network)
        attentions = (node for node in network.nodes if isinstance(node, Attention))
        self._causal = {network.prefixes[node.name] for node in attentions if node.causal}

    def of(self, tensor: Written) -> int:
        """Return the number of values of a tensor that are not 0 because of missing tokens."""
        network, axes = self._network, tensor.axes
        prefix = tensor.name.split(".")[0]
        queries, keys = SAMPLES in axes, f"{prefix}.t" in axes
        if tensor.kind is not TensorClass.GRADIENT or not (queries or keys):
            return tensor.count
        # Of each sequence count the queries and keys that a gradient reaches: all present tokens,
        # or only the first one where the loss depends on nothing else. A causal mask leaves half of
        # n^2 + n pairs of query and key.
        first, causal = prefix in self._firsts, prefix in self._causal
        reached, values = self._lengths.clamp(max=1), torch.ones_like(self._lengths)
        if queries:
            values = reached if first else self._lengths
        if keys:
            values = values * (reached if first and causal else self._lengths)
        if queries and keys and causal and not first:
            values = (values + self._lengths) / 2
        places = len(values) * network.tokens ** (queries + keys)
        return max(1, round(tensor.count * float(values.sum()) / places))


class ReachedTokens:
    """Share of a gradient's values at tokens that the gradient of a pass reaches.

    Gradients are 0 at padding that no output and no query reads, and exponents follow the mean of
    the other values. Only sequences with a gradient count here: the driver's own count leaves out
    samples that fill up a batch. ``gradient`` is that of all heads, (batch, outputs); ``attended``
    are masks as in ``ForwardOperands``.
    """

    def __init__(
        self, network: Network, attended: Mapping[str, torch.Tensor], gradient: torch.Tensor
    ) -> None:
        rows = gradient.reshape(len(gradient), -1).any(1)
        parts = gradient[rows].split(network.head_sizes, 1)
        tokens = [part.unflatten(1, (network.tokens, -1)).any(2) for part in parts]
        nothing = torch.zeros_like(tokens[0])
        reached = dict.fromkeys((node.name for node in network.nodes), nothing)
        reached |= dict(zip(network.heads, tokens, strict=True))
        self._shares: dict[tuple[str, bool, bool], float] = {}
        for node in reversed(network.nodes):
            marks = reached[node.name]
            # The gradient to an input has a name of its own, as in ``dx``.
            prefix = network.prefixes[node.name] if node.sources else f"d{node.name}"
            read = [marks] * len(node.sources)
            self._shares[prefix, True, False] = _share(marks)
            if isinstance(node, Attention):
                pairs = key_masks(network, node, torch.ones_like(marks))[:, None]
                if node.masked:
                    pairs = pairs & attended[node.name][rows]
                pairs = pairs & marks[:, None, :, None]
                read[1:] = [pairs.any(1).any(1)] * 2
                # The driver's own count takes tensors of keys as whole, filled-up samples included.
                filled = float(rows.double().mean()) or 1.0
                self._shares[prefix, False, True] = filled * _share(read[1])
                self._shares[prefix, True, True] = _share(pairs)
            for name, value in zip(node.sources, read, strict=True):
                reached[name] = reached[name] | value

    def of(self, tensor: Written) -> float:
        """Return the share of a tensor's values that the gradient reaches."""
        prefix = tensor.name.split(".")[0]
        place = prefix, SAMPLES in tensor.axes, f"{prefix}.t" in tensor.axes
        return self._shares.get(place, 1.0) if tensor.kind is TensorClass.GRADIENT else 1.0


def _share(reached: torch.Tensor) -> float:
    return float(reached.double().mean()) if reached.any() else 1.0


@cache
def _of_first_tokens(network: Network) -> frozenset[str]:
    """Return the prefixes of values of which the loss depends on the first token only."""
    firsts: set[str] = set()
    for node in reversed(network.nodes):
        readers = [other for other in network.nodes if node.name in other.sources]
        if readers and all(_reads_first(node.name, reader, firsts) for reader in readers):
            firsts.add(node.name)
    return frozenset(network.prefixes[name] for name in firsts)


def _reads_first(name: str, reader: Node, firsts: set[str]) -> bool:
    if isinstance(reader, TokenPool):
        return reader.over == "first"
    # A query reads the keys and values of all tokens, unless the attention is causal.
    asks = not isinstance(reader, Attention) or reader.causal or name not in reader.sources[1:]
    return asks and reader.name in firsts

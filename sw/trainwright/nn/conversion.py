"""The way from torch's dense layers to tensor trains and back, with nothing dropped silently."""

import logging
from collections.abc import Collection, Iterator, Mapping
from copy import copy as shallow_copy
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, Protocol

import torch
from torch.nn.parameter import is_lazy

from trainwright.nn.layers import MOST_EPSILON, TTConv2d, TTEmbedding, TTLayerNorm, TTLinear
from trainwright.nn.multihead import PROJECTIONS, TTMultiheadAttention
from trainwright.nn.tensor_train import Numbers, Rank, TensorTrain
from trainwright.nn.untyped import named_modules, require_module
from trainwright.support.arguments import flag, plain_sizes, require_kind
from trainwright.support.caution import warn_user
from trainwright.support.text import amount
from trainwright.tt import TensorTrainError

_LOG = logging.getLogger(__name__)


# -- The summary ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class LayerConversion:
    """A layer of a model and its conversion, or the reason why the layer stayed as it was.

    ``error`` is ||W - TT||_F / ||W||_F with the rounded weight that a forward pass computes with;
    ``bits`` and ``dense_bits`` are those of the weight, 0 where an earlier layer shares the weight.

    >>> print(LayerConversion("fc", "Linear", 131072, 8704, ranks=(8,), error=0.64).ranks)
    (8,)
    """

    name: str
    kind: str
    dense_bits: int
    bits: int
    ranks: tuple[int, ...] = ()
    error: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class ConversionSummary:
    """Conversion of each layer that has a matrix, in the order of the model; ``str`` is a table.

    >>> summary = from_torch(torch.nn.Linear(64, 64), rank=8).trainwright_summary
    >>> [(layer.kind, layer.ranks, layer.bits) for layer in summary.converted], summary.dense
    ([('Linear', (8,), 8704)], ())
    """

    layers: tuple[LayerConversion, ...]

    @property
    def converted(self) -> tuple[LayerConversion, ...]:
        """Layers that became tensor trains."""
        return tuple(layer for layer in self.layers if not layer.reason)

    @property
    def dense(self) -> tuple[LayerConversion, ...]:
        """Layers that stayed as they were, each with its ``reason``."""
        return tuple(layer for layer in self.layers if layer.reason)

    @property
    def bits(self) -> int:
        """Bits of all weights after the conversion."""
        return sum(layer.bits for layer in self.layers)

    @property
    def dense_bits(self) -> int:
        """Bits of all weights before the conversion."""
        return sum(layer.dense_bits for layer in self.layers)

    def __str__(self) -> str:
        rows = [("layer", "kind", "ranks", "error", "bits", "of dense", "why not converted")]
        for candidate in self.layers:
            share = f"{candidate.bits / candidate.dense_bits:.1%}" if candidate.dense_bits else "-"
            error = "-" if candidate.error is None else f"{candidate.error:.1%}"
            ranks = " ".join(map(str, candidate.ranks)) or "-"
            name = candidate.name or "(model)"
            rows.append(
                (name, candidate.kind, ranks, error, f"{candidate.bits:,}", share, candidate.reason)
            )
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        total = f"{len(self.converted)} of {amount(len(self.layers), 'layer')} are tensor trains"
        return "\n".join(
            [*lines, f"{total}; {amount(self.bits, 'bit')}, {self.dense_bits:,} dense"]
        )


# -- Reasons to stay dense -----------------------------------------------------------------------

_CONVOLUTION = "no tensor-train layer of {kind}: of convolutions there is TTConv2d only"
_RECURRENT = "no tensor-train layer of {kind}: its matrices are parameters of the module itself"

_OUT_PROJ = torch.nn.modules.linear.NonDynamicallyQuantizableLinear
"""Class of the ``out_proj`` of an attention."""

_NO_LAYER: dict[type[torch.nn.Module], str] = {
    torch.nn.Conv1d: _CONVOLUTION,
    torch.nn.Conv3d: _CONVOLUTION,
    torch.nn.ConvTranspose1d: _CONVOLUTION,
    torch.nn.ConvTranspose2d: _CONVOLUTION,
    torch.nn.ConvTranspose3d: _CONVOLUTION,
    torch.nn.RNNBase: _RECURRENT,
    torch.nn.RNNCellBase: _RECURRENT,
    _OUT_PROJ: "MultiheadAttention reads the weight of its out_proj without calling the layer",
    torch.nn.EmbeddingBag: "no tensor-train layer of EmbeddingBag: use Embedding and a sum or mean",
    torch.nn.Bilinear: "no tensor-train layer of Bilinear: its weight has three dimensions",
    TensorTrain: "a tensor train already",
}
"""Reason by class (subclasses included) for modules that have matrices and no counterpart."""

_HOOKS = (
    "_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called",
    "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_backward_hooks",
    "_backward_pre_hooks", "_is_full_backward_hook",
)  # fmt: skip
"""Attributes of a module that hold the hooks of its passes, which go along."""
STATE_HOOKS = (
    "_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)  # fmt: skip
"""Hooks of a module's state, which know the names of its parameters."""


@cache
def _fresh(kind: type[torch.nn.Module]) -> torch.nn.Module:
    """Return a layer of a class, or of that which it is derived from, as its constructor does."""
    base = next(base for base in kind.__mro__ if base in _CLASSES)
    counts: dict[type, int] = {
        torch.nn.Conv2d: 3, TTConv2d: 3, torch.nn.LayerNorm: 1, TTLayerNorm: 1,
    }  # fmt: skip
    make: Any = base
    return make(*(1,) * counts.get(base, 2), device="meta")


def _own_names(kind: type[torch.nn.Module]) -> frozenset[str]:
    """Return the attributes that every layer of a class has; others are the user's."""
    return frozenset(vars(_fresh(kind)))


def _matrices(module: torch.nn.Module) -> list[torch.nn.Parameter]:
    """Return a module's own parameters of at least two dimensions."""
    own = module.parameters(recurse=False)
    return [p for p in own if isinstance(p, torch.nn.UninitializedParameter) or p.dim() > 1]


def _computed_by(module: Any) -> str:
    """Name what computes a layer's weight, empty where it is a parameter as torch makes it."""
    if hasattr(module, "parametrizations"):
        kinds = [type(p).__name__ for each in module.parametrizations.values() for p in each]
        return (
            f"parametrized by {', '.join(kinds)}: call "
            "torch.nn.utils.parametrize.remove_parametrizations first"
        )
    if "weight" not in module._parameters:
        names = (name for name, _ in module.named_parameters(recurse=False))
        own = ", ".join(name for name in names if name != "bias")
        if not own:
            return "its weight is no parameter: make it one, torch.nn.Parameter(weight)"
        return (
            f"its weight is computed from {own} by a hook (weight_norm, spectral_norm, prune): "
            "remove the hook first"
        )
    return ""


def _changed(module: torch.nn.Module, train: type[torch.nn.Module]) -> str:
    """Name what a layer has that its class does not, and its counterpart ``train`` would lose."""
    kind = type(module)
    usual = {"weight", "bias"}.union(*_parts(_fresh(kind)))
    added = [name for each in _parts(module) for name in each if name not in usual]
    if added:
        return f"it has further parts: {', '.join(added)}"
    own: set[str] = vars(module).keys() - _own_names(kind)
    taken = _own_names(train).union(*_parts(_fresh(train)))
    clashes = sorted(name for name in own if name in taken or hasattr(train, name))
    if clashes:
        return f"attributes of its own mean something else in {train.__name__}: {clashes[0]}"
    if any(getattr(module, name) for name in STATE_HOOKS):
        return "it has hooks of its state_dict, which know its parameters"
    for name, parameter in module.named_parameters(recurse=False):
        if any(True for _ in _gradient_hooks(parameter)):
            return f"it has a hook on the gradient of its {name}"
    return ""


def _parts(module: torch.nn.Module) -> list[dict[str, Any]]:
    """Return a module's own parameters, buffers and modules, each by its name."""
    return [vars(module)[place] for place in ("_parameters", "_buffers", "_modules")]


def _gradient_hooks(parameter: Any) -> Iterator[tuple[str, Any]]:
    """Yield the name of the method that registers a hook, and the hook, for each of a parameter."""
    kinds = {
        "register_hook": "_backward_hooks",
        "register_post_accumulate_grad_hook": "_post_accumulate_grad_hooks",
    }
    for method, place in kinds.items():
        hooks: dict[int, Any] = getattr(parameter, place, None) or {}
        yield from ((method, hook) for hook in hooks.values())


def _unsupported(module: torch.nn.Module) -> str:
    """Name the option of a layer that changes results in a way no train has."""
    if isinstance(module, torch.nn.Conv2d) and module.groups != 1:
        return f"groups={module.groups}: a tensor-train kernel joins all channels"
    if isinstance(module, torch.nn.LayerNorm) and len(module.normalized_shape) > 1:
        return f"it is over {len(module.normalized_shape)} axes: TTLayerNorm is over the last one"
    if isinstance(module, torch.nn.LayerNorm) and module.eps > MOST_EPSILON:
        return f"eps={module.eps:g} changes results: TTLayerNorm has no epsilon"
    if not isinstance(module, torch.nn.Embedding):
        return ""
    if module.max_norm is not None:
        return f"max_norm={module.max_norm:g} (norm_type={module.norm_type:g}) rewrites rows"
    if module.scale_grad_by_freq:
        return "scale_grad_by_freq=True: factors have no gradient for each row"
    if module.sparse:
        return "sparse=True: factors have dense gradients"
    if module.padding_idx is not None and bool(module.weight[module.padding_idx].any()):
        return f"row padding_idx={module.padding_idx} is not 0, as that of TTEmbedding is"
    return ""


def _why_dense(module: torch.nn.Module) -> str:
    """Explain why a module with matrices has to stay dense, empty where it can become a train."""
    kind = type(module)
    if any(isinstance(p, torch.nn.UninitializedParameter) for p in _matrices(module)):
        return f"{kind.__name__} has no weight yet: run a batch through the model first"
    computed = _computed_by(module) if _is_convertible(module) else ""
    if computed:
        return computed
    if kind not in _COUNTERPARTS:
        for known, reason in _NO_LAYER.items():
            if isinstance(module, known):
                return reason.format(kind=kind.__name__)
        origin = next((base.__name__ for base in kind.__mro__ if base in _COUNTERPARTS), "")
        if origin:
            return f"{kind.__name__} is a class derived from {origin}: its forward may differ"
        own = ", ".join(name for name, p in module.named_parameters(recurse=False) if p.dim() > 1)
        return f"no tensor-train layer of {kind.__name__}: it holds {own} itself"
    weight = module.weight
    assert isinstance(weight, torch.Tensor)
    if weight.is_meta:
        raise ValueError("the model is on the meta device: it has no weights to convert")
    if weight.dtype not in _REAL_TYPES or not weight.numel():
        return f"its weight {tuple(weight.shape)} is of {weight.dtype}"
    return _changed(module, _COUNTERPARTS[kind].train) or _unsupported(module)


_REAL_TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def _is_convertible(module: torch.nn.Module) -> bool:
    return isinstance(module, tuple(_COUNTERPARTS))


# -- Layers and their counterparts ---------------------------------------------------------------


class _Make(Protocol):
    def __call__(self, module: Any, /, **options: Any) -> TensorTrain: ...


class _Counterpart(NamedTuple):
    """Tensor-train class of a torch class, and its constructor from a dense layer."""

    train: type[TensorTrain]
    make: _Make


def _linear(module: Any, /, **options: Any) -> TensorTrain:
    has_bias = module.bias is not None
    return TTLinear(module.in_features, module.out_features, bias=has_bias, **options)


def _convolution(module: Any, /, **options: Any) -> TensorTrain:
    return TTConv2d(
        module.in_channels, module.out_channels, module.kernel_size, module.stride, module.padding,
        module.dilation, padding_mode=module.padding_mode, bias=module.bias is not None, **options,
    )  # fmt: skip


def _embedding(module: Any, /, **options: Any) -> TensorTrain:
    sizes = module.num_embeddings, module.embedding_dim, module.padding_idx
    return TTEmbedding(*sizes, **options)


def _norm(module: Any, /, **options: Any) -> TensorTrain:
    options.pop("rank")
    return TTLayerNorm(module.normalized_shape[0], bias=module.bias is not None, **options)


_COUNTERPARTS: dict[type[torch.nn.Module], _Counterpart] = {
    torch.nn.Linear: _Counterpart(TTLinear, _linear),
    torch.nn.Conv2d: _Counterpart(TTConv2d, _convolution),
    torch.nn.Embedding: _Counterpart(TTEmbedding, _embedding),
    torch.nn.LayerNorm: _Counterpart(TTLayerNorm, _norm),
}
"""Counterpart by torch class; subclasses stay dense, as their forward may differ."""


_CLASSES = (
    *_COUNTERPARTS, *(own.train for own in _COUNTERPARTS.values()),
    torch.nn.MultiheadAttention, TTMultiheadAttention,
)  # fmt: skip


def _take_along(old: torch.nn.Module, new: torch.nn.Module) -> torch.nn.Module:
    """Give ``new`` the mode, hooks and the user's attributes of the layer that it replaces."""
    for name in _HOOKS:
        setattr(new, name, getattr(old, name))
    given = vars(old)
    for name in given.keys() - _own_names(type(old)) - vars(new).keys():
        setattr(new, name, given[name])
    return new.train(old.training)


def add_hooks(outer: torch.nn.Module, inner: torch.nn.Module) -> None:
    """Register the hooks of a module's passes on ``inner``, to run around those that it has.

    Warns of backward hooks that are left out, because torch refuses both its kinds on one module.
    """
    held: Any = vars(outer)
    for key, hook in held["_forward_hooks"].items():
        inner.register_forward_hook(
            hook,
            with_kwargs=key in held["_forward_hooks_with_kwargs"],
            always_call=key in held["_forward_hooks_always_called"],
        )
    for key, hook in reversed(held["_forward_pre_hooks"].items()):
        with_kwargs = key in held["_forward_pre_hooks_with_kwargs"]
        inner.register_forward_pre_hook(hook, prepend=True, with_kwargs=with_kwargs)
    for hook in reversed(held["_backward_pre_hooks"].values()):
        inner.register_full_backward_pre_hook(hook, prepend=True)
    backward, is_full = list(held["_backward_hooks"].values()), held["_is_full_backward_hook"]
    if backward and vars(inner)["_is_full_backward_hook"] not in (None, is_full):
        names = ", ".join(getattr(hook, "__name__", type(hook).__name__) for hook in backward)
        warn_user(
            f"to_torch leaves out backward hooks of {type(outer).__name__}: {names}, as the module "
            "inside has others: register all by register_full_backward_hook"
        )
        return
    for hook in backward:
        register = inner.register_full_backward_hook if is_full else inner.register_backward_hook
        register(hook)


def become(old: torch.nn.Module, new: torch.nn.Module) -> None:
    """Make ``old`` the module ``new``, so that lists and methods that refer to ``old`` follow."""
    # CompiledModule passes attributes on.
    object.__setattr__(old, "__class__", type(new))
    object.__setattr__(old, "__dict__", vars(new))


def _set_modules(model: torch.nn.Module, new: dict[int, torch.nn.Module]) -> torch.nn.Module:
    """Let the parts of a model that are in ``new`` by ``id`` become those modules."""
    for module in list(model.modules()):
        if id(module) in new:
            become(module, new[id(module)])
    return model


def _copied(model: torch.nn.Module) -> torch.nn.Module:
    """Return a deep copy that keeps what torch's would lose or refuse."""
    # weight_norm and pruning of old keep a computed weight as an attribute, which torch refuses
    # to copy; it is computed again at the next pass.
    values = (value for module in model.modules() for value in vars(module).values())
    memo: dict[int, Any] = {
        id(value): value.detach().clone()
        for value in values
        if isinstance(value, torch.Tensor) and not value.is_leaf
    }
    copy = deepcopy(model, memo)
    for old, new in zip(model.parameters(), copy.parameters(), strict=True):
        for method, hook in _gradient_hooks(old):
            getattr(new, method)(hook)
    return copy


# -- From torch ----------------------------------------------------------------------------------


@dataclass
class _Candidate:
    """A module with matrices, and the reason why it stays dense or the train made of it."""

    name: str
    module: torch.nn.Module
    reason: str
    train: TensorTrain | None = None
    error: float | None = None

    def row(self, counted: set[int]) -> LayerConversion:
        """Return the candidate's line of the summary, and add its matrices to those ``counted``."""
        kind, own = type(self.module).__name__, {id(p) for p in _matrices(self.module)}
        is_shared = bool(own & counted)
        counted |= own
        bits = 0 if is_shared else _bits(self.module)
        if self.train is None:
            return LayerConversion(self.name, kind, bits, bits, reason=self.reason)
        train, made_bits = self.train, 0 if is_shared else _bits(self.train)
        return LayerConversion(self.name, kind, bits, made_bits, train.ranks, self.error)


def _bits(module: torch.nn.Module) -> int:
    """Return the bits of a module's matrices, or of a tensor train's factors."""
    if isinstance(module, TensorTrain):
        width = module.all_factors[0].itemsize * 8 if module.is_float else module.widths.factor
        return module.layer.factor_parameters * width
    computed = [module.weight] if _is_convertible(module) else _matrices(module)
    held = [p for p in computed if isinstance(p, torch.Tensor) and not is_lazy(p)]
    return sum(p.numel() * p.itemsize * 8 for p in held)


def _candidates(
    model: torch.nn.Module, skip: Collection[str], closed: Mapping[int, str], *, norms: bool
) -> list[_Candidate]:
    """Return the modules with matrices, each once, with the reason to leave it dense.

    ``closed`` are the reasons of attentions, by ``id``; with ``norms`` LayerNorms are among them.
    """
    candidates: list[_Candidate] = []
    whole: list[str] = []  # modules whose parts are not looked at
    for name, module in named_modules(model):
        if any(not outer or name.startswith(f"{outer}.") for outer in whole):
            continue
        if isinstance(module, TensorTrain) or hasattr(module, "parametrizations"):
            whole.append(name)
        elif isinstance(module, torch.nn.LayerNorm):
            if not norms or not module.elementwise_affine:
                continue
        elif not _matrices(module) and not _is_convertible(module):
            continue
        skipped = "named in skip" if _is_in(name, skip) else ""
        reason = skipped or closed.get(id(module)) or _why_dense(module)
        candidates.append(_Candidate(name, module, reason))
    _keep_ties(model, candidates)
    return candidates


def _keep_ties(model: torch.nn.Module, candidates: list[_Candidate]) -> None:
    """Leave a layer dense whose weight is also that of a module which stays dense."""
    users: dict[int, list[tuple[str, str, torch.nn.Module]]] = {}
    for name, module in named_modules(model):
        slots: dict[str, Any] = vars(module)["_parameters"]
        for slot, parameter in slots.items():
            users.setdefault(id(parameter), []).append((name, slot, module))
    free = {id(candidate.module) for candidate in candidates if not candidate.reason}
    for candidate in candidates:
        for name, slot, module in [] if candidate.reason else users[id(candidate.module.weight)]:
            if slot != "weight" or id(module) not in free:
                shared = f"{name}.{slot}" if name else slot
                candidate.reason = f"its weight is {shared} too, which stays dense"


def from_torch(
    model: torch.nn.Module,
    rank: Rank = 16,
    *,
    tolerance: float | None = None,
    numbers: Numbers = "fixed",
    skip: Collection[str] = (),
    norms: bool = False,
) -> torch.nn.Module:
    """Return a copy of a model whose dense layers are tensor trains (TT-SVD).

    ``torch.nn.Linear``, ``Conv2d`` and ``Embedding`` become ``TTLinear``, ``TTConv2d`` and
    ``TTEmbedding`` of at most ``rank``, which means the same as in these, and
    ``MultiheadAttention`` a ``TTMultiheadAttention``, of four ``TTLinear``. ``tolerance`` reduces
    the ranks of each matrix to those that keep its relative error below. With ``norms`` each
    ``LayerNorm`` with a scale becomes a ``TTLayerNorm``, without epsilon: on the accelerator a
    block of a transformer is then one program. Left dense are layers named in
    ``skip`` with all inside them, those whose train would not have fewer bits, and those with an
    option, hook or shared weight that a train cannot keep. The copy's ``trainwright_summary``, a
    ``ConversionSummary`` to print, has a line for each layer: ranks, relative error and bits, or
    why it stayed dense. Train on for a few epochs: 4 bits and a low rank cost accuracy.

    Types, devices, ``requires_grad``, training mode, hooks and shared layers and weights are kept.
    Warns where no layer was converted, or where values of a bias round to 0 that matter next to
    the weights of their outputs. Raises ``ValueError`` for weights that are not finite and
    ranks that cannot be, ``TypeError`` for anything but a module.

    >>> mlp = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.Tanh())
    >>> tt = from_torch(mlp, rank=4)
    >>> [type(module).__name__ for module in tt], tt.trainwright_summary.converted[0].ranks
    (['TTLinear', 'Tanh'], (4,))
    """
    require_module(model)
    if isinstance(skip, str):
        raise TypeError(f"skip must be a collection of names, such as [{skip!r}], not a string")
    for name in skip:
        require_kind("a name in skip", name, str)
        if not name:
            raise ValueError("a name in skip is empty, which is the model: nothing would be left")
        model.get_submodule(name)
    rank, tolerance, norms = plain_sizes(rank), plain_sizes(tolerance), flag("norms", norms)
    copy = _copied(model)
    opened, closed = _open_attention(copy, skip)
    originals = {id(part): shallow_copy(part) for part in copy.modules() if id(part) in opened}
    _set_modules(copy, opened)
    candidates = _candidates(copy, skip, closed, norms=norms)
    trains: dict[int, TensorTrain] = {}  # by weight: those of one weight share their factors
    replaced: dict[int, torch.nn.Module] = {}
    for candidate in candidates:
        if not candidate.reason:
            _convert(candidate, trains, rank=rank, tolerance=tolerance, numbers=numbers)
        if candidate.train is not None:
            dense: Any = candidate.module
            candidate.train.bias = getattr(dense, "bias", None)
            rows = dense.weight.reshape(len(dense.weight), -1)
            candidate.train.warn_of_lost_bias(candidate.name or "(model)", rows)
            replaced[id(dense)] = _take_along(dense, candidate.train)
    replaced |= _closed_again(opened, originals, candidates)
    counted: set[int] = set()
    summary = ConversionSummary(tuple(candidate.row(counted) for candidate in candidates))
    result = _set_modules(copy, replaced)
    for module in result.modules():
        if isinstance(module, torch.nn.TransformerEncoder):
            # Only torch's own kernel takes ragged batches, and no tensor train runs in it.
            has_train = any(isinstance(part, TensorTrain) for part in module.modules())
            module.use_nested_tensor = module.use_nested_tensor and not has_train
    attached: Any = result
    attached.trainwright_summary = summary
    _LOG.info("%s", summary)
    if not summary.converted:
        warn_user(f"from_torch converted no layer:\n{summary}")
    return result


def _convert(
    candidate: _Candidate,
    trains: dict[int, TensorTrain],
    *,
    rank: Rank,
    tolerance: float | None,
    numbers: Numbers,
) -> None:
    """Make the train of a candidate, or note why the layer stays dense."""
    dense: Any = candidate.module
    weight = dense.weight.detach()
    options = {"rank": rank, "numbers": numbers, "device": weight.device, "dtype": weight.dtype}
    train = _COUNTERPARTS[type(dense)].make(dense, **options)
    known = trains.get(id(dense.weight))
    if known is None:
        try:
            train.load_dense(weight, rank=rank, tolerance=tolerance)
        except TensorTrainError as error:
            raise type(error)(f"layer {candidate.name or '(model)'!r}: {error}") from error
        train.factors.requires_grad_(dense.weight.requires_grad)
        trains[id(dense.weight)] = train
    else:
        train.factors, train.factor_exponents = known.factors, known.factor_exponents
    bits, dense_bits = _bits(train), _bits(dense)
    if bits >= dense_bits:
        ranks = f" of ranks {' '.join(map(str, train.ranks))}" if train.ranks else ""
        candidate.reason = f"a train{ranks} has {amount(bits, 'bit')}, not fewer"
        return
    exact, rounded = weight.double(), train.weight.detach().double()
    candidate.train, candidate.error = train, float((rounded - exact).norm() / (exact.norm() or 1))


# -- Attention -----------------------------------------------------------------------------------


def _open_attention(
    model: torch.nn.Module, skip: Collection[str]
) -> tuple[dict[int, torch.nn.Module], dict[int, str]]:
    """Return modules with four linear layers for torch's attentions, or reasons, by ``id``."""
    users: dict[int, int] = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            users[id(parameter)] = users.get(id(parameter), 0) + 1
    opened: dict[int, torch.nn.Module] = {}
    closed: dict[int, str] = {}
    for name, module in named_modules(model):
        if not isinstance(module, torch.nn.MultiheadAttention) or _is_in(name, skip):
            continue
        inside = f"{name}." if name else ""
        skipped = any(each.startswith(inside) for each in skip)
        reason = "a part of it is named in skip" if skipped else _why_closed(module, users)
        if reason:
            closed[id(module)] = reason
        else:
            opened[id(module)] = _take_along(module, _opened(module))
    return opened, closed


def _is_in(name: str, outer: Collection[str]) -> bool:
    """Tell whether a module is one of those named in ``outer``, or inside of one."""
    return any(name == each or name.startswith(f"{each}.") for each in outer)


def _why_closed(attention: Any, users: Mapping[int, int]) -> str:
    """Explain why an attention cannot become four layers; empty where it can.

    ``users`` are the numbers of modules that have each parameter, by ``id``.
    """
    if hasattr(attention, "parametrizations"):
        return _computed_by(attention)
    if attention.__class__ is not torch.nn.MultiheadAttention:
        name = attention.__class__.__name__
        return f"{name} is a class derived from MultiheadAttention: its forward may differ"
    if not attention._qkv_same_embed_dim:
        return f"kdim={attention.kdim} and vdim={attention.vdim} have matrices of other sizes"
    if attention.bias_k is not None:
        return "add_bias_kv=True: TTMultiheadAttention adds no token"
    if attention.add_zero_attn:
        return "add_zero_attn=True: TTMultiheadAttention adds no token"
    out: torch.nn.Module = attention.out_proj
    if changed := _changed(attention, TTMultiheadAttention) or _changed(out, TTLinear):
        return changed
    if type(out) is not _OUT_PROJ or any(getattr(out, name) for name in _HOOKS):
        return "its out_proj has hooks or another class, and MultiheadAttention does not call it"
    for name, parameter in attention.named_parameters():
        if parameter.dtype not in _REAL_TYPES:
            return f"its {name} is of {parameter.dtype}"
        if users[id(parameter)] > 1:
            return f"its {name} is also that of another module"
    return ""


def _opened(attention: Any) -> TTMultiheadAttention:
    """Return the module of an attention with ordinary layers for its four matrices."""
    size, out = attention.embed_dim, attention.out_proj
    opened = TTMultiheadAttention(
        size, attention.num_heads, attention.dropout,
        batch_first=attention.batch_first, rank=1, device="meta",
    )  # fmt: skip
    biases = [None] * 3 if attention.in_proj_bias is None else _thirds(attention.in_proj_bias)
    weights = _thirds(attention.in_proj_weight)
    parts = zip(PROJECTIONS, [*weights, out.weight], [*biases, out.bias], strict=True)
    for name, weight, bias in parts:
        linear: Any = torch.nn.Linear(size, size, device="meta")
        linear.weight, linear.bias = weight, bias
        setattr(opened, name, linear)
    return opened


def _thirds(parameter: torch.nn.Parameter) -> list[torch.nn.Parameter]:
    """Return the parts of a parameter that belong to queries, keys and values."""
    parts = parameter.detach().chunk(3)
    return [torch.nn.Parameter(part.clone(), parameter.requires_grad) for part in parts]


def _closed_again(
    opened: Mapping[int, torch.nn.Module],
    originals: Mapping[int, torch.nn.Module],
    candidates: list[_Candidate],
) -> dict[int, torch.nn.Module]:
    """Return the attentions of torch by the ``id`` of their counterparts that got no train.

    Their layers are no ``candidates`` any more: the attention and its ``out_proj`` are.
    """
    closed: dict[int, torch.nn.Module] = {}
    for key, module in opened.items():
        parts = set(map(id, module.children()))
        own = [candidate for candidate in candidates if id(candidate.module) in parts]
        if any(candidate.train for candidate in own):
            continue
        dense: Any = originals[key]
        closed[key] = dense
        name, place = own[0].name.removesuffix(PROJECTIONS[0]), candidates.index(own[0])
        candidates[place : place + len(own)] = [
            _Candidate(name.removesuffix("."), dense, own[0].reason),
            _Candidate(f"{name}out_proj", dense.out_proj, _why_dense(dense.out_proj)),
        ]
    return closed


def _joined(attention: TTMultiheadAttention) -> torch.nn.Module | None:
    """Return the attention of torch for one whose layers are dense; None where these differ.

    They do by hooks, attributes and parts of their own, types, or ``requires_grad``.
    """
    layers: list[Any] = [getattr(attention, name) for name in PROJECTIONS]
    plain = type(attention) is TTMultiheadAttention and "forward" not in vars(attention)
    plain = plain and all(_is_plain(layer) for layer in layers)
    if not plain or len({_kinds_of(layer) for layer in layers[:3]}) > 1:
        return None
    out, size = layers[3], attention.embed_dim
    dense: Any = torch.nn.MultiheadAttention(
        size, attention.num_heads, attention.dropout, bias=layers[0].bias is not None,
        batch_first=attention.batch_first, device="meta",
    )  # fmt: skip
    for name in ("weight", "bias"):
        given = [getattr(layer, name) for layer in layers[:3]]
        if given[0] is not None:
            whole = torch.cat([part.detach() for part in given])
            joined = torch.nn.Parameter(whole, given[0].requires_grad)
            setattr(dense, f"in_proj_{name}", joined)
        setattr(dense.out_proj, name, getattr(out, name))
    return _take_along(attention, dense)


def _is_plain(layer: Any) -> bool:
    """Tell whether a layer is torch's with nothing of its own but weight and bias."""
    if type(layer) is not torch.nn.Linear or _changed(layer, TTLinear):
        return False
    hooked = any(getattr(layer, name) for name in _HOOKS)
    return not hooked and vars(layer).keys() <= _own_names(torch.nn.Linear)


def _kinds_of(layer: torch.nn.Module) -> tuple[Any, ...]:
    return tuple((n, p.dtype, p.device, p.requires_grad) for n, p in layer.named_parameters())


# -- To torch ------------------------------------------------------------------------------------


def to_torch(model: torch.nn.Module) -> torch.nn.Module:
    """Return a copy of a model with ordinary dense layers in place of tensor trains.

    Weights and biases are those that a forward pass computes with, rounded to their bits; outputs
    differ by the rounding of activations alone. Kept is all that ``from_torch`` keeps. Compiled
    models, whole or parts, become their own dense copies.

    >>> to_torch(TTLinear(64, 10, rank=4))
    Linear(in_features=64, out_features=10, bias=True)
    """
    require_module(model)
    compiled = _compiled_parts(model)
    copy = _copied(model)
    inner = dict(zip(map(id, model.modules()), copy.modules(), strict=True))
    copy = _set_modules(copy, {id(inner[key]): dense for key, dense in compiled.items()})
    weights: dict[int, torch.nn.Parameter] = {}
    replaced: dict[int, torch.nn.Module] = {}
    for name, layer in named_modules(copy):
        if isinstance(layer, TensorTrain):
            dense: Any = _take_along(layer, _dense_of(name, layer))
            dense.weight.requires_grad_(any(factor.requires_grad for factor in layer.all_factors))
            if layer.bias is not None:
                dense.bias.requires_grad_(layer.bias.requires_grad)
            dense.weight = _tied(
                name, dense.weight, weights.setdefault(id(layer.factors), dense.weight)
            )
            replaced[id(layer)] = dense
    result = _set_modules(copy, replaced)
    attentions = [part for part in result.modules() if isinstance(part, TTMultiheadAttention)]
    joined = {id(part): dense for part in attentions if (dense := _joined(part)) is not None}
    result = _set_modules(result, joined)
    vars(result).pop("trainwright_summary", None)
    return result


def _compiled_parts(model: torch.nn.Module) -> dict[int, torch.nn.Module]:
    """Return the dense copies of the compiled models in a model, by the ``id`` of each."""
    dense_copies: dict[int, torch.nn.Module] = {}
    for part in model.modules():
        if getattr(type(part), "is_compiled_model", False):
            compiled: Any = part
            dense_copies[id(part)] = compiled.to_torch()
    return dense_copies


def _dense_of(name: str, layer: TensorTrain) -> torch.nn.Module:
    """Return a layer's dense counterpart; ``TypeError`` for a forward of the user's own."""
    if "bias" in vars(layer):
        raise RuntimeError(
            f"the bias of layer {name or '(model)'!r} is computed by a hook (pruning): call "
            'torch.nn.utils.prune.remove(layer, "bias") first'
        )
    kind = type(layer)
    changed = "forward" in vars(layer) or kind.forward is not TensorTrain.forward
    if changed and kind.to_dense in _TO_DENSE:
        raise TypeError(
            f"layer {name or '(model)'!r} is a {kind.__name__} with a forward of its own, which no "
            "torch layer has: give the class a method to_dense() that returns its dense counterpart"
        )
    return layer.to_dense()


_TO_DENSE = tuple(counterpart.train.to_dense for counterpart in _COUNTERPARTS.values())


def _tied(name: str, own: torch.nn.Parameter, first: torch.nn.Parameter) -> torch.nn.Parameter:
    """Return the weight of the layer that shares its factors, where the two are the same."""
    if torch.equal(own, first):
        return first
    # The row of padding of an embedding is 0 whatever its factors say.
    warn_user(
        f"to_torch: layer {name or '(model)'!r} shares its factors with another, but has "
        "other values (by padding_idx or numbers): its dense weight is one of its own"
    )
    return own

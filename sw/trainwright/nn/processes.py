"""Warn where the processes of a data-parallel run round with exponents of their own."""

from typing import Any

import torch

from trainwright.nn.untyped import named_modules
from trainwright.support.caution import warn_user

_warned: list[str] = []
"""Name of the layer that this process was warned of: at most one."""


def warn_of_own_exponents(layer: torch.nn.Module, name: str = "", *, compiled: bool) -> None:
    """Warn once a process if the layer's exponents follow this process's part of a batch alone.

    DDP copies buffers, the exponents of torch layers among them, from its first process at each
    forward pass. It cannot copy the exponents of ``compiled`` programs, which are no buffers.
    """
    if _warned or not _are_several():
        return
    untyped: Any = torch.nn.parallel.DistributedDataParallel
    active = untyped._active_ddp_module
    if not compiled and active is not None and active.broadcast_buffers:
        return
    if not name and active is not None:
        name = next((own for own, part in named_modules(active.module) if part is layer), "")
    name = name or type(layer).__name__
    _warned.append(name)
    copied = (
        "" if compiled else "wrap the model in DistributedDataParallel(broadcast_buffers=True), "
    )
    warn_user(
        f"{name}: each process of torch.distributed chooses the exponents of its layers by its own "
        f"samples, so that processes round differently: {copied}freeze the exponents after "
        "a first step (model.eval(); gradients still flow), or train by torchrun with `trainwright "
        "train --micro-batches N`, whose bits do not depend on the processes"
    )


def _are_several() -> bool:
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return False
    return distributed.get_world_size() > 1

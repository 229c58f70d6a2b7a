"""A GPU that is pretended: tensors say they are on ``cuda:0`` and hold numbers of the CPU.

Operations that mix devices fail as on a GPU, a division by a number multiplies by its reciprocal,
integers have no matrix products. What torch's own subclasses wrap cannot be pretended.
"""

from contextlib import contextmanager

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

GPU = torch.device("cuda", 0)
_CPU = torch.device("cpu")
aten = torch.ops.aten
_MIXING = {"aten::copy_", "aten::_to_copy", "aten::index", "aten::index_put_", "aten::index_put"}
_PRODUCTS = ("aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm")


class OnGpu(torch.Tensor):
    """A tensor of the GPU, in truth of the meta device, around one of the CPU."""

    @staticmethod
    def __new__(cls, inner):
        tensor = torch.Tensor._make_wrapper_subclass(
            cls, inner.size(), strides=inner.stride(), storage_offset=inner.storage_offset(),
            dtype=inner.dtype, device="meta",
        )  # fmt: skip
        tensor.inner = inner
        return tensor

    __torch_function__ = torch._C._disabled_torch_function_impl
    device = property(lambda self: GPU)
    is_cuda = property(lambda self: True)
    is_cpu = property(lambda self: False)
    is_meta = property(lambda self: False)

    def cpu(self):
        return aten._to_copy.default(self, device=_CPU)

    def tolist(self):
        return self.cpu().tolist()

    def data_ptr(self):
        raise AssertionError("a kernel of the CPU was given memory of the GPU")

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return _dispatched(func, args, kwargs or {})


def _inner(x):
    return x.inner if isinstance(x, OnGpu) else x


def _computed(func, args, kwargs, on_gpu):
    name = func._schema.name
    if on_gpu and name in _PRODUCTS:
        if not args[0].is_floating_point():
            raise RuntimeError(f'"addmm_cuda" not implemented for {args[0].dtype}')
        if "dtype" in func._overloadname:  # wide results of narrow operands: a GPU's alone
            wide = [x.to(torch.float32) for x in args if isinstance(x, torch.Tensor)]
            return getattr(torch, name.removeprefix("aten::"))(*wide, **kwargs)
    if func is aten.div.Tensor and on_gpu and args[1].dim() == 0 and args[0].is_floating_point():
        return args[0] * (1 / args[1].to(args[0].dtype))
    return func(*args, **kwargs)


def _dispatched(func, args, kwargs):
    tensors = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, torch.Tensor)]
    on_gpu = any(isinstance(x, OnGpu) for x in tensors)
    device, name = kwargs.get("device"), func._schema.name
    if on_gpu and device is None:
        on_cpu = [x for x in tensors if not isinstance(x, OnGpu) and x.dim()]
        first = not isinstance(args[0], OnGpu) and name.startswith("aten::index")
        if first or (on_cpu and name not in _MIXING):
            raise RuntimeError(f"Expected all tensors to be on the same device: {func}")
    inner, named = tree_map(_inner, args), tree_map(_inner, kwargs)
    if device is not None:
        named["device"], on_gpu = _CPU, torch.device(device).type == "cuda"
    out = _computed(func, inner, named, on_gpu)
    if "out" in kwargs:
        return kwargs["out"]
    if inner and isinstance(out, torch.Tensor) and out is inner[0]:
        return args[0]  # in place

    def wrapped(x):
        return OnGpu(x) if on_gpu and type(x) is torch.Tensor else x

    return tree_map(wrapped, out)


class _Everywhere(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return _dispatched(func, args, kwargs or {})


@contextmanager
def pretended():
    """Yield a GPU that tensors can be made on and moved to."""
    initialise, lifted = torch.cuda._lazy_init, torch._C._only_lift_cpu_tensors()
    torch.cuda._lazy_init = lambda: None
    torch._C._set_only_lift_cpu_tensors(True)
    try:
        with _Everywhere():
            yield GPU
    finally:
        torch.cuda._lazy_init = initialise
        torch._C._set_only_lift_cpu_tensors(lifted)

"""Figures of the number libraries and layers on a device: every one a ratio within one run."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from device_timing import Call, measure, rows
from torch import Tensor
from torch.nn import functional

from trainwright import ape, mcf, posit
from trainwright import nn as tnn
from trainwright.ape import cuda, cuda_product
from trainwright.ape.decider import counted_kinds
from trainwright.ape.experiments.speed import RESNET18

Emit = Callable[[str, list[dict[str, Any]]], None]
"""Takes the name of a table and further rows of it, which are written at once."""


@contextmanager
def native_float32() -> Iterator[None]:
    """No TF32 within, in products or convolutions: what float32 is compared with is float32."""
    matmul, convolutions = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(matmul)
        torch.backends.cudnn.allow_tf32 = convolutions


def uniform(*shape: int, seed: int, device: torch.device) -> Tensor:
    """Draw numbers of (0, 1), on the device."""
    return torch.rand(shape, generator=torch.Generator(device).manual_seed(seed), device=device)


def normal(*shape: int, seed: int, device: torch.device) -> Tensor:
    """Draw standard normal numbers, on the device."""
    return torch.randn(shape, generator=torch.Generator(device).manual_seed(seed), device=device)


def _tf32(a: Tensor, b: Tensor) -> Tensor:
    with cuda.precision(tf32=True):
        return a @ b


FORMS = ("fp32-f", "fp32-f4", "fp32-b", "fp32-t", "fp32-m")


def gemm(emit: Emit, device: torch.device, sizes: tuple[int, ...]) -> None:
    """Square products in every type; errors of a sample of rows against float64."""
    for size in sizes:
        a, b = (uniform(size, size, seed=s, device=device) for s in range(2))
        x, y = (normal(size, size, seed=s, device=device) for s in range(2))
        some = range(0, size, max(1, size // 64))
        whole = [
            torch.randint(-32768, 32768, (size, size), device=device).to(torch.int16)
            for _ in range(2)
        ]
        halves = [t.to(torch.float16) for t in (a, b)]
        ways: dict[str, Call] = {"fp32": partial(ape.gemm, a, b, dtype="fp32")}
        ways["tf32"] = partial(_tf32, a, b)
        ways["fp16"] = partial(torch.matmul, *halves)
        for name in FORMS if size <= 8192 else ("fp32-f", "fp32-b", "fp32-t"):
            ways[name] = partial(ape.gemm, a, b, dtype=name)
        if size <= 8192:
            ways["auto"] = partial(ape.gemm, a, b, dtype="auto")
            wide = [t.to(torch.float64) for t in (a, b)]
            ways["fp64"] = partial(torch.matmul, *wide)
        ways["int16"] = partial(ape.gemm, *whole, dtype="int16")
        with native_float32():
            found = rows(
                f"gemm {size}", measure(ways, device, 5 if size > 4096 else 9), "fp32", size=size
            )
            for row in found:
                row["tflops"] = 2 * size**3 / row["ms"] / 1e9
                name = row["way"]
                if name in (*FORMS, "fp32", "auto", "tf32"):
                    row["error_uniform"] = _error(ways[name](), a, b, some)
                    way = (
                        partial(_tf32, x, y)
                        if name == "tf32"
                        else partial(ape.gemm, x, y, dtype=name)
                    )
                    row["error_normal"] = _error(way(), x, y, some)
            emit("gemm", found)


def _error(found: Tensor, a: Tensor, b: Tensor, some: range) -> float:
    """Largest error of some rows against float64, relative to the sum of |a b|."""
    left, right = a[list(some)].to(torch.float64), b.to(torch.float64)
    apart = (found[list(some)].to(torch.float64) - left @ right).abs()
    return float((apart / (left.abs() @ right.abs())).amax())


def chunks(emit: Emit, device: torch.device, size: int) -> None:
    """Time and error of fp32-f by how many terms the tensor cores sum by themselves."""
    a, b = (uniform(size, size, seed=s, device=device) for s in range(2))
    some, before = range(0, size, max(1, size // 64)), cuda_product.CHUNK
    try:
        for chunk in (512, 1024, 2048, 4096, 8192, 1 << 30):
            cuda_product.CHUNK = chunk
            way = partial(ape.gemm, a, b, dtype="fp32-f")
            found = rows(f"gemm {size}", measure({"fp32-f": way}, device, 5), "fp32-f", chunk=chunk)
            found[0]["error_uniform"] = _error(way(), a, b, some)
            emit("chunks", found)
    finally:
        cuda_product.CHUNK = before


def stages(emit: Emit, device: torch.device, sizes: tuple[int, ...]) -> None:
    """Time the stages of fp32-f: splitting, and products of halves with float32 results."""
    form = ape.schemes.SCHEMES["fp32-f"]
    for size in sizes:
        a, b = (uniform(1, size, size, seed=s, device=device) for s in range(2))
        left, _ = cuda_product._arranged(a, form, beside=True, reverse=False)
        right, _ = cuda_product._arranged(b, form, beside=False, reverse=True)
        total = torch.empty(1, size, size, device=device)
        add = cuda_product._add_product

        def split(a: Tensor = a, b: Tensor = b) -> None:
            cuda_product._arranged(a, form, beside=True, reverse=False)
            cuda_product._arranged(b, form, beside=False, reverse=True)

        ways: dict[str, Call] = {
            "whole": partial(ape.gemm, a[0], b[0], dtype="fp32-f"),
            "split": split,
            "hi hi": partial(add, total, left[..., :size], right[:, size:], alpha=1.0, beta=0.0),
            "hi lo + lo hi": partial(add, total, left, right, alpha=1.0, beta=0.0),
            "hi hi added": partial(
                add, total, left[..., :size], right[:, size:], alpha=1.0, beta=1.0
            ),
            "copy": partial(total.copy_, a),
        }
        with native_float32():
            emit("stages", rows(f"stages {size}", measure(ways, device), "whole", size=size))


def graphs(emit: Emit, device: torch.device, sizes: tuple[int, ...]) -> None:
    """Small products replayed from CUDA graphs, which leaves the launches' cost out."""
    if device.type != "cuda":
        return
    for size in sizes:
        a, b = (uniform(size, size, seed=s, device=device) for s in range(2))
        ways: dict[str, Call] = {}
        with native_float32():
            for name in ("fp32", "fp32-f", "fp32-b", "fp32-t"):
                ways[name] = _captured(partial(ape.gemm, a, b, dtype=name)).replay
            emit("graphs", rows(f"gemm {size}", measure(ways, device), "fp32", size=size))


def _captured(call: Call) -> torch.cuda.CUDAGraph:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph


def adapter(emit: Emit, device: torch.device, sizes: tuple[int, ...]) -> None:
    """Time masks and counting, and ``auto`` next to the type that ``auto`` chooses."""
    for size in sizes:
        a, b = (uniform(size, size, seed=s, device=device) + 0.5 for s in range(2))
        choice = ape.Adapter().decide(a, b).choice
        ways: dict[str, Call] = {
            choice: partial(ape.gemm, a, b, dtype=choice),
            "auto": partial(ape.gemm, a, b, dtype="auto"),
            "masks and counts": partial(counted_kinds, a, b, (128, 128, 128)),
            "decision": partial(ape.Adapter().decide, a, b),
        }
        emit("adapter", rows(f"adapter {size}", measure(ways, device), choice, choice=choice))


def convolutions(emit: Emit, device: torch.device, batch: int) -> None:
    """ResNet-18's convolutions, forward."""
    for channels, size, filters, kernel, stride in RESNET18:
        x = uniform(batch, channels, size, size, seed=0, device=device)
        weight = normal(filters, channels, kernel, kernel, seed=1, device=device)
        shape: dict[str, Any] = {"stride": stride, "padding": kernel // 2}
        ways: dict[str, Call] = {"fp32": partial(functional.conv2d, x, weight, **shape)}
        for name in ("fp32-f", "fp32-b"):
            ways[name] = partial(ape.conv2d, x, weight, dtype=name, **shape)
        what = f"{channels}x{size}x{size}, {filters} of {kernel}x{kernel} / {stride}"
        with native_float32():
            found = rows(what, measure(ways, device, 5), "fp32", batch=batch)
            exact = functional.conv2d(x.double(), weight.double(), **shape)
            for row in found:
                apart = ways[row["way"]]().double() - exact
                row["error"] = float(apart.abs().amax() / exact.abs().amax())
        emit("convolutions", found)


def components(emit: Emit, device: torch.device, count: int, sizes: tuple[int, ...]) -> None:
    """Multi-component floats beside float32: operations on elements, and products."""

    def drawn(nc: int, *shape: int, seed: int) -> Any:
        parts = [normal(*shape, seed=seed, device=device) * 2.0 ** (-25.0 * k) for k in range(nc)]
        return mcf.MCTensor.from_components(torch.stack(parts, -1))

    x, y = (normal(count, seed=s, device=device) for s in range(2))
    for name in ("add", "mul", "div"):
        function = getattr(torch, name)
        ways: dict[str, Call] = {"float32": partial(function, x, y)}
        ways["float64"] = partial(function, x.double(), y.double())
        for nc in (2, 3):
            ways[f"{nc} components"] = partial(
                function, drawn(nc, count, seed=2), drawn(nc, count, seed=3)
            )
        emit("mcf", rows(f"{name} {count}", measure(ways, device, 5), "float32"))
    for size in sizes:
        a, b = (normal(size, size, seed=s, device=device) for s in range(2))
        ways = {"float32": partial(torch.matmul, a, b)}
        ways["float64"] = partial(torch.matmul, a.double(), b.double())
        for nc in (2, 3) if size <= 256 else (2,):  # three take launches for each term
            ways[f"{nc} components"] = partial(
                torch.matmul, drawn(nc, size, size, seed=2), drawn(nc, size, size, seed=3)
            )
        with native_float32():
            emit("mcf", rows(f"matmul {size}", measure(ways, device, 3), "float32"))


def posits(emit: Emit, device: torch.device, count: int, sizes: tuple[int, ...]) -> None:
    """posit(16,2) beside float32: rounding, operations, products of matrices."""
    fmt = posit.PositFormat(16, 2)
    x, y = (normal(count, seed=s, device=device) for s in range(2))
    p, q = posit.PositTensor(x, fmt), posit.PositTensor(y, fmt)
    ways: dict[str, Call] = {
        "float32 add": partial(torch.add, x, y),
        "rounding": partial(posit.round_to, x, fmt),
    }
    for name in ("add", "mul", "div"):
        ways[name] = partial(getattr(torch, name), p, q)
    emit("posit", rows(f"{count} elements", measure(ways, device, 5), "float32 add"))
    for size in sizes:
        a, b = (normal(size, size, seed=s, device=device) for s in range(2))
        c, d = (posit.round_to(t, fmt) for t in (a, b))
        ways = {"float32": partial(torch.matmul, a, b)}
        for mode in ("quire", "sequential"):
            ways[mode] = partial(posit.products.matmul, c, d, fmt, mode)
        with native_float32():
            emit("posit", rows(f"matmul {size}", measure(ways, device, 3), "float32"))


def layers(emit: Emit, device: torch.device, batches: tuple[int, ...]) -> None:
    """``TTLinear`` at the sizes of ``fashion`` and 768-wide, beside dense layers and tltorch."""
    for columns, high, rank in ((784, 512, 16), (768, 768, 16), (768, 3072, 16)):
        ours = tnn.TTLinear(columns, high, rank=rank, numbers="float32", device=device)
        made: dict[str, torch.nn.Module] = {
            "nn.Linear": torch.nn.Linear(columns, high, device=device),
            "TTLinear float32": ours,
            "TTLinear fixed": tnn.TTLinear(columns, high, rank=rank, device=device),
            **_peers(ours, device),
        }
        for batch in batches:
            with native_float32():
                for name, backward in (("forward", False), ("forward and backward", True)):
                    ways = {}
                    for key, layer in made.items():
                        size = ours.layer.input_size if key.startswith("tltorch") else columns
                        x = normal(batch, size, seed=batch, device=device).requires_grad_(backward)
                        ways[key] = partial(_pass, layer, x, backward=backward)
                    if device.type == "cuda" and not backward:
                        for key in ("nn.Linear", "TTLinear float32"):
                            ways[f"{key}, graph"] = _captured(ways[key]).replay
                    what = f"{columns} to {high}, rank {rank}, batch {batch}, {name}"
                    emit(
                        "layers",
                        rows(
                            what,
                            measure(ways, device, 5),
                            "nn.Linear",
                            memory=_memory(ways, device),
                        ),
                    )


def _peers(ours: tnn.TTLinear, device: torch.device) -> dict[str, torch.nn.Module]:
    try:
        import tltorch
    except ImportError:
        return {}
    return {
        f"tltorch, {implementation}": tltorch.FactorizedLinear(
            in_tensorized_features=ours.inputs,
            out_tensorized_features=ours.outputs,
            factorization="blocktt",
            rank=(1, *ours.ranks, 1),
            implementation=implementation,
        ).to(device)
        for implementation in ("reconstructed", "factorized")
    }


def _pass(layer: torch.nn.Module, x: Tensor, *, backward: bool) -> Tensor:
    if not backward:
        with torch.no_grad():
            return layer(x)
    layer.zero_grad(set_to_none=True)
    y = layer(x)
    y.backward(y.detach())
    return y


def _memory(ways: dict[str, Call], device: torch.device) -> dict[str, int]:
    """Bytes that a call takes beyond what is there already."""
    if device.type != "cuda":
        return {}
    found = {}
    for name, way in ways.items():
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        way()
        torch.cuda.synchronize()
        found[name] = torch.cuda.max_memory_allocated() - before
    return found


def memory(emit: Emit, device: torch.device, size: int) -> None:
    """Bytes that a product takes beyond its operands, as a multiple of one operand's."""
    if device.type != "cuda":
        return
    a, b = (uniform(size, size, seed=s, device=device) for s in range(2))
    ways: dict[str, Call] = {
        name: partial(ape.gemm, a, b, dtype=name) for name in ("fp32", *FORMS, "auto")
    }
    whole = [(t * 30000).to(torch.int16) for t in (a, b)]
    ways["int16"] = partial(ape.gemm, *whole, dtype="int16")
    taken = _memory(ways, device)
    emit(
        "memory",
        [{"what": f"gemm {size}", "way": n, "operands": v / a.nbytes} for n, v in taken.items()],
    )

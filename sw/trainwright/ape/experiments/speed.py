"""Times and errors of matrix products and convolutions, and of the native types."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from trainwright.ape import cuda
from trainwright.ape.adapter import Adapter
from trainwright.ape.conv import conv2d
from trainwright.ape.decider import counted_kinds
from trainwright.ape.gemm import gemm
from trainwright.support.finding import Finding, Progress, Tell, tracked
from trainwright.support.stopwatch import least_seconds
from trainwright.support.tables import markdown, table

OURS = ("fp32-f", "fp32-f4", "fp32-t", "fp32-b", "fp32-m")
"""Emulated types; ``fp32-m`` is the naive product of two float16 each, four products."""

# (channels, height = width, filters, kernel, stride) of ResNet-18's convolutions
RESNET18 = (
    (3, 224, 64, 7, 2),
    (64, 56, 64, 3, 1),
    (64, 56, 128, 3, 2),
    (64, 56, 128, 1, 2),
    (128, 28, 128, 3, 1),
    (128, 28, 256, 3, 2),
    (128, 28, 256, 1, 2),
    (256, 14, 256, 3, 1),
    (256, 14, 512, 3, 2),
    (256, 14, 512, 1, 2),
    (512, 7, 512, 3, 1),
)


@dataclass(frozen=True)
class ProductTiming:
    """Time and error of one product in one type.

    ``error`` is the largest relative error against float64; convolutions divide by the largest
    element.
    """

    device: str
    what: str
    dtype: str
    seconds: float
    gflops: float
    """Rate of 2 M N K operations, however many native products they take."""
    speedup: float
    """Native float32's seconds divided by ``seconds``."""
    error: float


def _tf32(a: Tensor, b: Tensor) -> Tensor:
    with cuda.precision(tf32=True):
        return a @ b


def gemm_ways(a: Tensor, b: Tensor) -> dict[str, Callable[[], Tensor]]:
    """Return every method to multiply on the device of ``a``, native float32 first."""
    wide = a.to(torch.float64), b.to(torch.float64)
    ways: dict[str, Callable[[], Tensor]] = {"fp32": partial(gemm, a, b, dtype="fp32")}
    for name in OURS:
        ways[name] = partial(gemm, a, b, dtype=name)
    ways["auto"] = partial(gemm, a, b, dtype="auto")
    ways["fp64"] = partial(torch.matmul, *wide)
    if a.is_cuda:  # plain tf32 exists on tensor cores only
        ways["tf32"] = partial(_tf32, a, b)
    return ways


def _rows(
    device: torch.device,
    what: str,
    operations: int,
    ways: dict[str, Callable[[], Tensor]],
    error: Callable[[Tensor], float],
    repeats: int,
) -> list[ProductTiming]:
    native: float | None = None
    rows = []
    for name, way in ways.items():
        seconds = least_seconds(way, device, repeats)
        native = native or seconds
        speed = operations / seconds / 1e9
        rows.append(
            ProductTiming(str(device), what, name, seconds, speed, native / seconds, error(way()))
        )
    return rows


def run_gemm(size: int, device: torch.device, repeats: int) -> list[ProductTiming]:
    """Measure square products of uniform (0, 1) matrices, then of random int16 matrices."""
    random = torch.Generator().manual_seed(0)
    a = torch.rand(size, size, generator=random).to(device)
    b = torch.rand(size, size, generator=random).to(device)
    exact = a.to(torch.float64) @ b.to(torch.float64)

    def error(result: Tensor) -> float:
        return float(((result.to(torch.float64) - exact).abs() / exact).max())

    rows = _rows(device, f"gemm {size}", 2 * size**3, gemm_ways(a, b), error, repeats)
    whole = [
        torch.randint(-32768, 32768, (size, size), dtype=torch.int16, generator=random).to(device)
        for _ in range(2)
    ]
    wanted = torch.matmul(*(x.to(torch.float64) for x in whole))
    ways = {"int16": partial(gemm, *whole, dtype="int16")}
    integer_rows = _rows(
        device, f"gemm {size}", 2 * size**3, ways,
        lambda x: float((x.to(torch.float64) - wanted).abs().max()), repeats,
    )  # fmt: skip
    integer_rows = [
        ProductTiming(**{**vars(row), "speedup": rows[0].seconds / row.seconds})
        for row in integer_rows
    ]
    return rows + integer_rows


def run_adapter(size: int, device: torch.device, repeats: int = 5) -> ProductTiming:
    """Measure masks and counting; ``error`` holds their share of an fp32-f product's time."""
    a, b = (torch.rand(size, size, device=device) + 0.5 for _ in range(2))
    blocks = Adapter().blocks
    decision = least_seconds(lambda: counted_kinds(a, b, blocks), device, repeats)
    product = least_seconds(lambda: gemm(a, b, dtype="fp32-f"), device, repeats)
    return ProductTiming(
        str(device), f"masks {size}", "auto", decision, 0.0, 0.0, decision / product
    )


def run_conv(device: torch.device, progress: Progress) -> list[ProductTiming]:
    """Measure ResNet-18's convolution shapes, forward, with the error against float64."""
    rows = []
    shapes = list(enumerate(RESNET18))
    for number, (channels, size, filters, kernel, stride) in tracked(shapes, progress):
        random = torch.Generator().manual_seed(number)
        x = torch.rand(1, channels, size, size, generator=random).to(device)
        weight = torch.randn(filters, channels, kernel, kernel, generator=random).to(device)
        shape: dict[str, Any] = {"stride": stride, "padding": kernel // 2}
        exact = functional.conv2d(x.to(torch.float64), weight.to(torch.float64), **shape)
        ways: dict[str, Callable[[], Tensor]] = {
            "fp32": partial(functional.conv2d, x, weight, **shape)
        }
        for name in ("fp32-f", "fp32-b"):
            ways[name] = partial(conv2d, x, weight, dtype=name, **shape)
        what = f"conv {channels}x{size}x{size}, {filters} of {kernel}x{kernel} / {stride}"
        operations = 2 * exact.numel() * channels * kernel**2
        largest = exact.abs().max()

        def error(result: Tensor, exact: Tensor = exact, largest: Tensor = largest) -> float:
            return float((result.to(torch.float64) - exact).abs().max() / largest)

        rows += _rows(device, what, operations, ways, error, repeats=1)
    return rows


def bench(options: Any, tell: Tell) -> Finding:
    """Measure products on every device by the options of ``trainwright bench ape``."""
    devices = [torch.device("cpu")]
    if torch.cuda.is_available():
        devices.append(torch.device("cuda"))
    products, masks = [], []
    for device in devices:
        default = (256,) if device.type == "cpu" else (4096, 8192)
        for size in options.size or default:
            products += run_gemm(size, device, options.repeat)
            masks.append(run_adapter(size, device, options.repeat))
        if options.conv:
            products += run_conv(device, progress=tell(f"convolutions, {device}"))
    names = [d.type if d.type == "cpu" else torch.cuda.get_device_name(d) for d in devices]
    head = ("device", "what", "type", "seconds", "GFLOP/s", "times fp32", "error")
    shares = [(row.device, row.what, row.seconds, 100 * row.error) for row in masks]
    adapter = markdown(("device", "what", "seconds", "% of an fp32-f product"), shares)
    text = f"{table(head, products)}\n{adapter}"
    if len(devices) == 1:
        text += "\nNo CUDA device: nothing was measured on tensor cores."
    return Finding({"devices": names, "products": products, "masks": masks}, text)

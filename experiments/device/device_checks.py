"""The CUDA paths of every library against the CPU: the same bits where a result is exact."""

import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from device_cases import Put, Table
from torch import Tensor

from trainwright import ape, mcf, posit, qr, tt
from trainwright import nn as tnn
from trainwright.ape import decider, masks
from trainwright.ape.schemes import SCHEMES
from trainwright.mcf import arithmetic, functions, products
from trainwright.mcf.gelu import gelu

TABLE = Table()
ROOT = Path(__file__).parents[2]
FLOATS = tuple(SCHEMES)
FLOAT_ERROR = 2e-6
"""Products of up to 300 terms: 2^-21 a product, and sums that truncate."""


def generator(seed: int = 0) -> torch.Generator:
    """Return a generator of the CPU, so that both devices compute with the same numbers."""
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Draw standard normal numbers."""
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64).to(dtype)


def spread(*shape: int, low: float, high: float, seed: int = 0) -> Tensor:
    """Draw magnitudes from 2^low to 2^high of both signs."""
    exponents = torch.empty(shape, dtype=torch.float64).uniform_(
        low, high, generator=generator(seed)
    )
    signs = torch.randn(shape, generator=generator(seed + 1)).sign()
    return (torch.exp2(exponents) * signs).to(torch.float32)


def specials() -> Tensor:
    """Return float32 numbers at the ends of ranges and at ties."""
    inf, nan = float("inf"), float("nan")
    values = [
        0.0,
        -0.0,
        inf,
        -inf,
        nan,
        65504.0,
        65519.9,
        65520.0,
        -65520.0,
        2.0**-14,
        2.0**-15,
        2.0**-24,
        2.0**-25,
        2.0**-126,
        2.0**-149,
        3.4028235e38,
        -3.4028235e38,
        3.39e38,
        1 + 2.0**-11,
        1 + 3 * 2.0**-12,
        1 + 2.0**-8,
        65488.0,
        -65488.0,
        1 + 2.0**-23,
    ]
    x = torch.cat([torch.tensor(values), spread(1000, low=-149, high=128, seed=3)])
    return torch.cat([x, normal(1024 - len(x) % 1024, seed=4)]).reshape(-1, 32)


# APE


@TABLE.add("ape", "split and join")
def _split(put: Put) -> Any:
    found = []
    for name in FLOATS:
        parts = ape.split(put(specials()), name)
        found += [*parts, ape.join(parts, name)]
    whole = torch.randint(-32768, 32768, (50, 7), generator=generator()).to(torch.int16)
    parts = ape.split(put(whole), "int16")
    return [*found, *parts, ape.join(parts, "int16")]


@TABLE.add("ape", "parts in the fused kernels' layout")
def _arranged(put: Put) -> Any:
    from trainwright.ape.cuda_product import _arranged

    found = []
    for form in SCHEMES.values():
        x = put(specials())
        for y in (x[None], x.mT[None], x[:, ::2][None], x.reshape(2, -1, 32)):
            for beside in (True, False):
                dim, whole = (-1, y.shape[-1]) if beside else (-2, y.shape[-2])
                for reverse in (True, False):
                    out, size = _arranged(y, form, beside=beside, reverse=reverse)
                    cut = [
                        out.narrow(dim, slot * size, size).narrow(dim, 0, whole)
                        for slot in range(form.parts)
                    ]
                    found += [p[..., : y.shape[-2], : y.shape[-1]] for p in cut]
    return found


@TABLE.add("ape", "levels, masks, extents, decisions")
def _levels(put: Put) -> Any:
    found = []
    for x in (specials(), spread(200, 300, low=-20, high=12), torch.zeros(5, 0)):
        y = put(x)
        for sizes in ((8, 8), (128, 128), (16, 4), (10, 3)):
            for z in (y, y.mT):
                found += _summaries(z, *sizes)
        found.append(masks.element_levels(y))
    a, b = put(spread(70, 90, low=-30, high=12)), put(spread(90, 50, low=-3, high=3))
    c = torch.where(a.abs() > 2.0**10, a * 2.0**60, a)
    for strict in (True, False):
        for left in (a, c, c.mT.contiguous().mT):
            for right in (b, b * 2.0**-70, b * 2.0**66):
                kinds, totals = decider.counted_kinds(left, right, (16, 8, 32), strict=strict)
                found += [kinds, *(totals.get(kind, 0) for kind in decider.ProductKind)]
        counts = decider.decide(a, b, blocks=(16, 16, 16), model=_model(), strict=strict).counts
        found.append([counts[kind] for kind in sorted(counts)])
    return found


def _summaries(x: Tensor, rows: int, columns: int) -> list[Tensor]:
    """Return levels and extents of x and its transpose, by the fused kernels where they are."""
    both = masks.fused_summaries(x, x.mT, (rows, columns, rows))
    if both is None:
        both = tuple(
            (masks.block_levels(z, *sizes), *masks.block_extent(z, *sizes))
            for z, sizes in ((x, (rows, columns)), (x.mT, (columns, rows)))
        )
    found = []
    for levels, least, most in both:
        known = levels < 5  # the block of a NaN has no extent
        found += [levels, torch.where(known, least, 0), torch.where(known, most, 0)]
    return found


def _model() -> ape.PerformanceModel:
    """Return a model that takes the hybrid, on every device."""
    rates = {"fp32-f": 1.0, "fp32-f4": 1.3, "fp32-b": 2.0, "fp32-t4": 3.0, "fp32": 9.0}
    return ape.PerformanceModel("any", {name: (0.0, 0.0, rate) for name, rate in rates.items()})


def _gemm_case(dtype: str) -> None:
    @TABLE.add("ape", f"gemm {dtype}: shapes, transposes, factors, gradients", FLOAT_ERROR)
    def run(put: Put) -> Any:
        found = []
        options: dict[str, Any] = {"dtype": dtype}
        if dtype == "auto":
            options["adapter"] = ape.Adapter(blocks=(32, 32, 32), model=_model())
        for m, k, n in ((1, 1, 1), (3, 21, 4), (17, 33, 9), (64, 300, 48), (130, 147, 64)):
            a, b = put(normal(m, k) + 0.1), put(normal(k, n, seed=1))
            found += [ape.gemm(a, b, **options)]
            found += [ape.gemm(a.mT.contiguous().mT, b.mT.contiguous().mT, **options)]
            found += [
                ape.gemm(a.mT.contiguous(), b.mT, transpose_a=True, transpose_b=True, **options)
            ]
        a, b = put(normal(2, 1, 30, 50)), put(normal(4, 50, 60, seed=2))
        c = put(normal(30, 60, seed=3))
        found += [ape.gemm(a, b, **options), ape.gemm(a[..., ::2], b[..., ::2, ::3], **options)]
        for wide in (c, c.to(torch.float64), c.to(torch.float16), (c * 9).to(torch.int64)):
            found += [ape.gemm(a, b, c=wide, alpha=1.5, beta=-0.25, **options)]
        for m, k, n in ((0, 3, 2), (3, 0, 2), (3, 2, 0)):
            found += [ape.gemm(put(torch.ones(2, m, k)), put(torch.ones(k, n)), **options)]
        a.requires_grad_(), b.requires_grad_()
        (ape.gemm(a, b, **options) * put(normal(2, 4, 30, 60, seed=5))).sum().backward()
        return [*found, a.grad, b.grad]


for _dtype in (*FLOATS, "fp32", "auto"):
    _gemm_case(_dtype)


@TABLE.add("ape", "gemm: ranges, infinities, the hybrid", FLOAT_ERROR)
def _ranges(put: Put) -> Any:
    found = []
    for dtype, low, high in (("fp32-t", -50, 50), ("fp32-b", -50, 50), ("fp32-f", -13, 15)):
        a = spread(40, 60, low=low, high=high) * torch.exp2(torch.arange(40.0) % 7)[:, None]
        a = a.clamp(-60000, 60000) if dtype == "fp32-f" else a
        product = ape.gemm(put(a), put(torch.eye(60)), dtype=dtype)
        found.append(product / put(a))  # every element is right to the type's precision
    a, b = normal(4, 40), normal(40, 3, seed=1)
    a[1, 5], b[7, 2] = torch.inf, torch.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the CPU warns of an infinity, CUDA does not look for it
        for dtype in (*FLOATS, "auto"):
            found.append(torch.nan_to_num(ape.gemm(put(a), put(b), dtype=dtype), 1.0, 1.0, 1.0))
    adapter = ape.Adapter(blocks=(16, 16, 16), model=_model())
    a, b = spread(60, 70, low=-4, high=4), spread(70, 50, low=-4, high=4, seed=2)
    a[20:30, 30:40], b[:5, :7] = 3e5, 2.0**-70
    found += [ape.gemm(put(a), put(b), adapter=adapter)]
    return found


@TABLE.add("ape", "int16 exact")
def _int16(put: Put) -> Any:
    found = []
    random = generator(5)

    def whole(*shape: int) -> Tensor:
        return put(torch.randint(-32768, 32768, shape, generator=random).to(torch.int16))

    for m, k, n in (
        (1, 1, 1),
        (5, 7, 3),
        (17, 300, 9),
        (37, 70001, 9),
        (100, 128, 64),
        (0, 3, 2),
        (2, 0, 3),
    ):
        a, b = whole(m, k), whole(k, n)
        found += [
            ape.gemm(a, b, dtype="int16"),
            ape.gemm(b, a, dtype="int16", transpose_a=True, transpose_b=True),
        ]
    for fill in (-32768, 32767, -1, 255, -256):
        a = torch.full((20, 33025), fill, dtype=torch.int16)
        found += [ape.gemm(put(a), put(a.mT.contiguous()), dtype="int16")]
    a, b = whole(2, 1, 30, 50), whole(4, 60, 50)
    c = put(torch.randint(-9, 9, (30, 60), generator=random))
    found += [ape.gemm(a, b, dtype="int16", transpose_b=True, alpha=-3, c=c, beta=2)]
    return found


@TABLE.add("ape", "fp32-i8, fp64-i8, fp128-i8")
def _residues(put: Put) -> Any:
    found = []
    for m, k, n in ((1, 1, 1), (9, 1100, 5), (40, 70000, 3)):
        a, b = (normal(*shape, seed=k, dtype=torch.float64) for shape in ((m, k), (k, n)))
        wide = a * torch.exp2((normal(m, k, seed=1, dtype=torch.float64) * 20).round())
        found += [ape.gemm(put(x), put(b), dtype="fp64-i8") for x in (a, wide)]
        found += [ape.gemm(put(a.float()), put(b.float()), dtype="fp32-i8")]
        pairs = [torch.stack([x, x * 2.0**-60], -1) for x in (wide, b)]
        found += [ape.gemm(*map(put, pairs), dtype="fp128-i8")]
    return found


@TABLE.add("ape", "one error for an accumulation of the CPU's")
def _accumulation(put: Put) -> Any:
    a = put(torch.rand(8, 8))
    if not a.is_cuda:
        return [True]
    try:
        ape.gemm(a, a, dtype="fp32-f", accumulation=ape.NEAREST)
    except ValueError as error:
        return ["accumulation=None" in str(error)]
    return [False]


@TABLE.add("ape", "conv2d and its gradients", FLOAT_ERROR)
def _conv(put: Put) -> Any:
    found = []
    x, w, bias = (
        put(normal(2, 8, 13, 11)),
        put(normal(16, 4, 3, 3, seed=1)),
        put(normal(16, seed=2)),
    )
    for dtype in ("fp32-f", "fp32-b", "fp32-t", "auto"):
        for shape in (
            {"padding": 1},
            {"stride": 2, "padding": (2, 1)},
            {"dilation": 2, "padding": "same"},
        ):
            leaves = [t.clone().requires_grad_() for t in (x, w, bias)]
            options = {"adapter": ape.Adapter(model=_model())} if dtype == "auto" else {}
            y = ape.conv2d(*leaves, groups=2, dtype=dtype, **options, **shape)
            y.square().sum().backward()
            found += [y, *(t.grad for t in leaves)]
    long = put(normal(2, 130, 4, 4)), put(normal(3, 130, 3, 3, seed=1))  # 1,170 terms: cut
    empty = put(normal(0, 8, 5, 5)), put(normal(16, 8, 3, 3))
    return found + [
        ape.conv2d(*both, dtype=d)
        for both in (long, empty)
        for d in ("fp32-f4", "fp32-b", "fp32-m")
    ]


@TABLE.add("ape", "a transformer and a convolution within enabled()", 2e-5)
def _enabled(put: Put) -> Any:
    torch.manual_seed(0)
    block = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    first = torch.nn.Conv2d(3, 8, 3, padding=1)
    net = torch.nn.Sequential(first, torch.nn.Flatten(), torch.nn.Linear(8 * 36, 10))
    found = []
    for dtype in ("fp32-f", "fp32-b"):
        one, two = put(block), put(net)
        for part in (one, two):
            part.zero_grad()
        with ape.enabled(dtype) as calls:
            y = one(put(normal(2, 7, 32)))
            z = two(put(normal(4, 3, 6, 6)))
            # A sum of squares after the normalisation would not depend on anything.
            ((y * put(normal(2, 7, 32, seed=9))).sum() + z.square().sum()).backward()
        found += [y, z, *(p.grad.clone() for part in (one, two) for p in part.parameters())]
        found += [sum(calls.values()) > 0]
    return found


@TABLE.add("ape", "fp32 and TF32 parts whatever the caller's settings", 2e-6)
def _settings(put: Put) -> Any:
    matmul = torch.backends.cuda.matmul
    a, b = put(normal(128, 256)), put(normal(256, 64, seed=1))
    names = ["fp32_precision", "allow_fp16_accumulation"]
    kept = {name: getattr(matmul, name) for name in names if hasattr(matmul, name)}
    found = []
    try:
        for setting in ("tf32", "ieee"):
            for name in kept:
                setattr(matmul, name, setting if name == "fp32_precision" else setting == "tf32")
            found += [ape.gemm(a, b, dtype=name) for name in ("fp32", "fp32-t", "fp32-f", "fp32-m")]
            found += [
                all(
                    getattr(matmul, name)
                    == (setting if name == "fp32_precision" else setting == "tf32")
                    for name in kept
                )
            ]
    finally:
        for name, value in kept.items():
            setattr(matmul, name, value)
    return found


# Multi-component floats


def components(shape: tuple[int, ...], nc: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    """Draw components (*shape, nc), normalised."""
    digits = {torch.float16: 11, torch.bfloat16: 8, torch.float32: 24, torch.float64: 53}[dtype]
    lead = normal(*shape, seed=seed, dtype=torch.float64)
    parts = [lead * 2.0 ** (-(digits + 1) * k) * (1 - 0.3 * k) for k in range(nc)]
    return mcf.MCTensor.from_components(torch.stack(parts, -1).to(dtype)).components.clone()


NUMBERS = [(dtype, nc) for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)
           for nc in (1, 2, 3, 4)]  # fmt: skip
_DIGITS = {torch.float16: 11, torch.bfloat16: 8, torch.float32: 24, torch.float64: 53}


def _mcf_cases(dtype: torch.dtype, nc: int) -> None:
    what = f"{str(dtype).removeprefix('torch.')} x {nc}"
    close = 2.0 ** -min(_DIGITS[dtype] * nc - 4, 48)

    def operands(put: Put) -> tuple[Tensor, Tensor, Tensor]:
        x, y = components((7, 5), nc, dtype), components((7, 5), nc, dtype, seed=1)
        return put(x), put(y), put(normal(7, 5, seed=2, dtype=dtype))

    @TABLE.add("mcf", f"arithmetic of {what}")
    def arithmetics(put: Put) -> Any:
        x, y, v = operands(put)
        found = [arithmetic.binary(name, x, y) for name in ("add", "mul", "div")]
        found += [arithmetic.binary(name, x, v.unsqueeze(-1)) for name in ("add", "mul", "div")]
        found += [arithmetic.binary(name, v.unsqueeze(-1), x) for name in ("add", "mul", "div")]
        found += [arithmetic.sqrt(arithmetic.absolute(x))]
        found += [arithmetic.power(x, e) for e in (-2, -1, 2, 3, 4)]
        found += [
            arithmetic.binary("div", x[:, :1], y),
            arithmetic.binary("add", x[:, ::2], y[:, 1:4]),
        ]
        return found

    @TABLE.add("mcf", f"operators of {what}")
    def operators(put: Put) -> Any:
        x, y, v = operands(put)
        m, n = (mcf.MCTensor.from_components(t) for t in (x, y))
        found = [
            t.components
            for t in (m + n, m * 3, m / 3, 1 / m, m - 0.1, m * v, m / v, m + 1, m.abs())
        ]
        found += [m < n, m == m, (m > 0.5)]
        found += [
            torch.addcmul(m, n, n, value=0.5).components,
            torch.addcdiv(m, n, m, value=3).components,
        ]
        found += [torch.where(m > n, m, n).components, m.clamp(-0.5, 0.5).components]
        return found

    @TABLE.add("mcf", f"ends of the range of {what}")
    def ends(put: Put) -> Any:
        info = torch.finfo(dtype)
        values = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            info.max,
            -info.max,
            info.tiny,
            info.tiny * 3,
            float("inf"),
            float("-inf"),
            float("nan"),
            info.max / 2,
            info.smallest_normal * 0.5,
        ]
        lead = torch.tensor(values, dtype=torch.float64).to(dtype)
        x = put(torch.stack([lead, *[torch.zeros_like(lead)] * (nc - 1)], -1))
        found = [arithmetic.binary(o, x[:, None], x[None]) for o in ("add", "mul", "div")]
        return [*found, arithmetic.sqrt(x)]

    @TABLE.add("mcf", f"functions of {what}", close)
    def some_functions(put: Put) -> Any:
        x, _, _ = operands(put)
        found = [
            getattr(functions, name)(x)
            for name in ("exp", "expm1", "tanh", "sigmoid", "log_sigmoid", "relu")
        ]
        found += [functions.log(arithmetic.absolute(x)), gelu(x)]
        found += [functions.softmax(x, 1), functions.log_softmax(x, 0)]
        return [*found, arithmetic.total(x, 0)]

    @TABLE.add("mcf", f"products of matrices of {what}", close)
    def matrices(put: Put) -> Any:
        x, y = put(components((9, 20), nc, dtype)), put(components((20, 6), nc, dtype, seed=3))
        v = put(normal(20, 6, seed=4, dtype=dtype)).unsqueeze(-1)
        found = [
            products.matmul(x, y),
            products.matmul(x, v),
            products.matmul(y.transpose(0, 1), x.transpose(0, 1)),
        ]
        found += [
            products.matmul(x, y[:, 0]),
            products.matmul(x, v[:, 0]),
            products.matmul(y[:, 0], y),
        ]
        batch = put(components((2, 3, 20), nc, dtype, seed=5))
        found += [products.matmul(batch, y), products.matmul(batch[:, :, :0], y[:0])]
        return found

    @TABLE.add("mcf", f"layers' functions of {what}", close)
    def layers(put: Put) -> Any:
        x, y = put(components((9, 20), nc, dtype)), put(components((20, 6), nc, dtype, seed=3))
        m, n = mcf.MCTensor.from_components(x), mcf.MCTensor.from_components(y)
        found = [m.sum().components, m.mean(1).components, F.gelu(m).components]
        bias = mcf.MCTensor.from_components(put(components((6,), nc, dtype, seed=6)))
        found += [
            torch.addmm(bias, m, n, beta=2, alpha=0.5).components,
            F.linear(m, n.t(), bias).components,
        ]
        return found

    @TABLE.add(
        "mcf", f"gradients and optimisers of {what}", 2.0**-18 if dtype.itemsize > 2 else 0.1
    )
    def training(put: Put) -> Any:
        from trainwright.mcf import nn as mnn

        found = []
        for make in (
            lambda p: mnn.MCAdam(p, lr=1e-2),
            lambda p: mnn.MCSGD(p, lr=1e-2, momentum=0.9),
        ):
            torch.manual_seed(0)
            layer = mnn.MCLinear(6, 4, nc=nc, dtype=dtype)
            layer = put(layer)
            optimiser = make(layer.parameters())
            x, t = put(normal(8, 6, dtype=dtype)), put(normal(8, 4, seed=1, dtype=dtype))
            for _ in range(2):
                optimiser.zero_grad()
                loss = F.mse_loss(F.gelu(layer(x)), t)
                loss.backward()
                optimiser.step()
            found += [
                p.components if isinstance(p, mcf.MCTensor) else p for p in layer.parameters()
            ]
            found += [p.grad for p in layer.parameters()]
        return found


for _dtype, _nc in NUMBERS:
    _mcf_cases(_dtype, _nc)


# Posits

POSITS = [
    posit.PositFormat(*sizes)
    for sizes in ((8, 0), (8, 2), (16, 1), (16, 2), (32, 2), (6, 1), (24, 2))
]


def _posit_cases(fmt: posit.PositFormat) -> None:
    def codes(put: Put, *shape: int, seed: int = 0) -> Tensor:
        return put(torch.randint(0, 1 << fmt.n, shape, generator=generator(seed)))

    @TABLE.add("posit", f"rounding and codes of {fmt}")
    def rounding(put: Put) -> Any:
        x = put(specials())
        wide = put(
            torch.cat(
                [
                    specials().double().flatten(),
                    spread(500, low=-60, high=60).double() * (1 + 2.0**-40),
                ]
            )
        )
        found = [
            posit.round_to(t, fmt)
            for t in (x, wide, x.half(), x.bfloat16(), put(torch.arange(-500, 500)))
        ]
        every = put(torch.arange(1 << min(fmt.n, 16)))
        found += [posit.decode(every, fmt), posit.encode(posit.decode(every, fmt), fmt)]
        return [
            *found,
            posit.encode(x, fmt),
            posit.encode(wide, fmt),
            posit.round_to(x[::2, ::3].T, fmt),
        ]

    @TABLE.add("posit", f"arithmetic of {fmt}")
    def arithmetics(put: Put) -> Any:
        a, b, c = (codes(put, 60, 70, seed=s) for s in range(3))
        found = [getattr(posit, name)(a, b, fmt) for name in ("add", "sub", "mul", "div")]
        found += [
            posit.sqrt(a, fmt),
            posit.fma(a, b, c, fmt),
            posit.add(a[:1], b, fmt),
            posit.mul(a[:, ::2], b[:, :35], fmt),
        ]
        return found

    @TABLE.add("posit", f"products of matrices of {fmt}")
    def matrices(put: Put) -> Any:
        found = []
        for scale in (1.0, 50.0):
            near = (
                posit.encode(normal(20, 30) * scale, fmt),
                posit.encode(normal(30, 10, seed=1), fmt),
            )
            x, y = map(put, near)
            for mode in ("sequential", "quire"):
                found += [posit.matmul(x, y, fmt, mode), posit.dot(x, y.T[:1], fmt, mode)]
                found += [
                    posit.matmul(x.reshape(2, 10, 30), y, fmt, mode),
                    posit.matmul(x[:, :0], y[:0], fmt, mode),
                ]
        a, b = codes(put, 6, 40), codes(put, 40, 5, seed=1)
        a, b = (
            torch.where(t == fmt.nar, 1, t) for t in (a, b)
        )  # the whole range, cancellation too
        return [*found, *(posit.matmul(a, b, fmt, mode) for mode in ("sequential", "quire"))]

    @TABLE.add("posit", f"a network in {fmt}")
    def network(put: Put) -> Any:
        torch.manual_seed(0)
        net = torch.nn.Sequential(
            torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
            torch.nn.Flatten(), torch.nn.Linear(36, 5),
        )  # fmt: skip
        net = put(posit.convert(net, fmt))
        optimiser = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
        x = posit.PositTensor(put(normal(4, 1, 6, 6)), fmt)
        target = put(torch.tensor([0, 1, 2, 4]))
        found = []
        for _ in range(2):
            optimiser.zero_grad()
            y = net(x)
            F.cross_entropy(y, target).backward()
            optimiser.step()
            found += [y.codes(), *(p.grad.codes() for p in net.parameters())]
        return [*found, *(p.codes() for p in net.parameters())]


for _fmt in POSITS:
    _posit_cases(_fmt)


def _operator_cases() -> None:
    """Register the posit operators' cases of the test suite, which has an oracle for each."""
    sys.path.insert(0, str(ROOT / "tests" / "sw"))
    from posit_operator_bench import Bench
    from posit_operator_cases import CASES

    def register(name: str, function: Any) -> None:
        @TABLE.add("posit", f"operators: {name}")
        def run(put: Put) -> Any:
            fmt = posit.PositFormat(16, 2)
            device = put(torch.zeros(1)).device
            found = []

            class There(Bench):
                def some(self, *shape: int, scale: float = 1.0) -> Tensor:
                    with torch.device("cpu"):
                        codes = super().some(*shape, scale=scale)
                    return put(codes)

            with torch.device(device):
                for got, _ in function(There(fmt, "quire")):
                    found.append(_plain(got))
            return found

    for name, function in CASES.items():
        if name != "random_numbers":  # each device has generators of its own
            register(name, function)


def _plain(found: Any) -> Any:
    """Return posits as codes; what is neither tensor nor number says nothing here."""
    if isinstance(found, posit.PositTensor):
        return found.codes()
    if isinstance(found, Iterable) and not isinstance(found, (Tensor, str)):
        return [_plain(each) for each in found]
    return found if isinstance(found, (Tensor, bool, int, float)) else None


# QR and tensor trains


def _qr_case(name: str, tolerance: float, make: Any) -> None:
    @TABLE.add("qr", name, tolerance)
    def run(put: Put) -> Any:
        found = []
        for a in (
            normal(40, 12, dtype=torch.float64),
            normal(2, 3, 33, 8, dtype=torch.float64),
            normal(36, 16),
        ):
            x = put(a)
            result = make(x)
            q = result.Q
            found += [q.abs(), result.R.abs(), q.double() @ result.R.double() - x.double() + 1]
        return found


for _kind, _make in (
    ("householder", lambda a, **o: qr.householder_qr(a, **o)),
    ("block", lambda a, **o: qr.block_qr(a, block=5, **o)),
    ("tall", lambda a, **o: qr.tsqr(a, levels=1, **o)),
):
    for _high, _bound in (("fp64", 1e-12), ("fp32", 1e-4)):
        _qr_case(f"{_kind} in {_high}", _bound, lambda a, m=_make, h=_high: m(a, high=h))
    for _low, _high, _bound in (
        ("fp16", "fp32", 2e-3),
        ("bf16", "fp32", 2e-2),
        ("tf32", "fp64", 2e-3),
    ):
        for _level in ("end", "block", "inner"):
            if _kind == "householder" or _level != "inner":
                _qr_case(
                    f"{_kind}, {_low} of {_high} at {_level}",
                    _bound,
                    lambda a, m=_make, lo=_low, h=_high, r=_level: m(a, low=lo, high=h, rounding=r),
                )
    _qr_case(f"{_kind} in simulated fp16", 2e-2, lambda a, m=_make: m(a, high="fp16"))


@TABLE.add("tt", "tt_svd, tt_round, balance", 1e-9)
def _trains(put: Put) -> Any:
    w = put(normal(12, 32, dtype=torch.float64))
    factors = tt.tt_svd(w, (3, 4), (4, 8), tolerance=0.3)
    rounded = tt.tt_round(tt.tt_svd(w, (3, 4), (4, 8)), ranks=5)
    single = tt.tt_svd(w.float(), (3, 2, 2), (4, 4, 2), ranks=4)
    found = [tt.to_matrix(f) for f in (factors, rounded, tt.balance(factors))]
    return [
        *found,
        tt.to_matrix(single).float(),
        list(tt.ranks_of(factors)),
        tt.distance(factors, rounded),
    ]


# Layers of tensor trains


def _model_of(numbers: str) -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        tnn.TTConv2d(3, 16, 3, padding=1, rank=6, numbers=numbers), torch.nn.ReLU(),
        torch.nn.AvgPool2d(4), torch.nn.Flatten(), tnn.TTLinear(64, 48, rank=8, numbers=numbers),
        torch.nn.ReLU(), tnn.TTLinear(48, 10, rank="auto", numbers=numbers),
    )  # fmt: skip


def _nn_case(numbers: str, tolerance: float) -> None:
    @TABLE.add("nn", f"training in {numbers}", tolerance)
    def run(put: Put) -> Any:
        net = put(_model_of(numbers)).train()
        optimiser = tnn.Adam(net.parameters(), lr=4e-3)
        x, t = put(normal(8, 3, 8, 8)), put(torch.arange(8) % 10)
        found = []
        for step in range(3):
            loss = F.cross_entropy(net(x), t) + 1e-4 * tnn.rank_prior(net)
            optimiser.zero_grad()
            loss.backward()
            found += [loss, *(p.grad.clone() for p in net.parameters() if step == 0)]
            optimiser.step()
        tnn.cut_ranks(net, 1e-3, optimizer=optimiser)
        found += [net.eval()(x), *(buffer for buffer in net.buffers())]
        state = {key: value for key, value in net.state_dict().items()}
        again = put(_model_of(numbers))
        again.load_state_dict(state)
        found += [
            again.eval()(x),
            tnn.to_torch(net)(x),
            [m.weight for m in net if hasattr(m, "ranks")],
        ]
        return found


for _numbers, _bound in (
    ("float32", 2e-4),
    ("fixed", 2e-2),
    ("activation=posit(8,0),gradient=posit(8,1)c", 2e-2),
):
    _nn_case(_numbers, _bound)


@TABLE.add("nn", "first outputs in fixed point, and embeddings")
def _fixed(put: Put) -> Any:
    found = []
    torch.manual_seed(1)
    layer = put(tnn.TTLinear(64, 32, rank=4))
    table = put(tnn.TTEmbedding(50, 32, rank=4))
    found += [layer(put(normal(5, 64))), layer.weight, *layer.buffers()]
    found += [table(put(torch.tensor([[1, 49], [0, 3]]))), *table.buffers()]
    return found


@TABLE.add("nn", "conversion, half types, autocast, copies", 2e-2)
def _conversions(put: Put) -> Any:
    import copy

    torch.manual_seed(0)
    dense = put(
        torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.Tanh(), torch.nn.Linear(128, 16))
    )
    net = tnn.from_torch(dense, rank=8, numbers="float32")
    x = put(normal(4, 64))
    found = [net(x), copy.deepcopy(net)(x), tnn.to_torch(net)(x)]
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        torch.manual_seed(0)
        made = put(tnn.TTLinear(64, 32, rank=4, numbers="float32", dtype=dtype))
        found += [made(x.to(dtype)).double()]
    torch.manual_seed(0)
    layer = put(tnn.TTLinear(64, 32, rank=4, numbers="float32"))
    with torch.autocast(x.device.type, dtype=torch.bfloat16):
        found += [layer(x).float()]
    return found


@TABLE.add("nn", "layers that round do so alike where TF32 is allowed", 2e-3)
def _rounding_with_tf32(put: Put) -> Any:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        torch.manual_seed(1)
        layer = put(tnn.TTLinear(256, 64, rank=8))
        y = layer(put(normal(64, 256)))
        y.square().sum().backward()
        return [y, *(f.grad for f in layer.factors)]
    finally:
        torch.set_float32_matmul_precision(before)


@TABLE.add("compile", "a program with tensors on the device", 1e-5)
def _compiled(put: Put) -> Any:
    import trainwright

    torch.manual_seed(0)
    net = torch.nn.Sequential(
        tnn.TTLinear(64, 32, rank=4), torch.nn.ReLU(), tnn.TTLinear(32, 10, rank=4)
    )
    model = put(trainwright.compile(net, batch=8))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    x, t = put(normal(8, 64)), put(torch.arange(8) % 10)
    found = []
    for _ in range(2):
        loss = F.cross_entropy(model(x), t)
        optimiser.zero_grad()
        loss.backward()
        found += [loss, *(p.grad.clone() for p in model.parameters())]
        optimiser.step()
    found += [model.eval()(x)]
    state = model.state_dict()
    model.load_state_dict(state)
    return [*found, model(x[:3]), model.to_torch()(x)]


@TABLE.add("streams", "results on a stream that is not the default", 2e-6)
def _streams(put: Put) -> Any:
    def run() -> Any:
        a, b = put(normal(100, 700)), put(normal(700, 90, seed=1))
        whole = put(torch.arange(-900, 900).to(torch.int16).reshape(30, 60))
        fmt = posit.PositFormat(16, 2)
        c = put(posit.encode(normal(20, 30), fmt))
        x = put(components((9, 9), 3, torch.float32))
        layer = put(_layer())
        return [
            *(ape.gemm(a, b, dtype=name) for name in ("fp32-f", "fp32-b", "fp32-t")),
            ape.gemm(whole, whole, dtype="int16", transpose_b=True),
            posit.matmul(c, c.T, fmt), products.matmul(x, x), layer(a[:, :64]),
        ]  # fmt: skip

    if not put(torch.zeros(1)).is_cuda or not torch.cuda.is_available():
        return run()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        found = run()
    torch.cuda.current_stream().wait_stream(stream)
    return found


def _layer() -> torch.nn.Module:
    torch.manual_seed(0)
    return tnn.TTLinear(64, 32, rank=4, numbers="float32")


_operator_cases()

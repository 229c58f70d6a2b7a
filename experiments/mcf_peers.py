"""Time two components of float64 beside other libraries of extended precision, in one run.

    pip install xprec numpy-quaddtype python-flint gmpy2
    python experiments/mcf_peers.py [--repeat 3] [--json]

Peers that are not installed are named and left out. Times are processor seconds of one thread, the
least of the repetitions; bits are the worst of a sample against rational numbers.
"""

import argparse
import importlib
import importlib.util
import json
import math
import platform
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from importlib.metadata import version
from typing import Any

import mpmath
import numpy as np
import torch

from trainwright import mcf
from trainwright.support.tables import markdown

DIGITS = 106
SIZES = {"add": 100_000, "multiply": 100_000, "mv 512": 512, "matmul 64": 64, "matmul 512": 512,
         "solve 64": 64, "svd 24": 24}  # fmt: skip
_SLOW = 64
"""Largest matrix of peers that compute number by number in Python."""


def _parts(shape: tuple[int, ...], seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    high = random.standard_normal(shape)
    return high, high * 2.0**-54 * random.uniform(-1, 1, shape)


def _operands(name: str) -> list[tuple[np.ndarray, np.ndarray]]:
    n = SIZES[name]
    shapes = {"add": [(n,)] * 2, "multiply": [(n,)] * 2, "mv 512": [(n, n), (n,)],
              "svd 24": [(n, n)], "solve 64": [(n, n), (n, 1)]}  # fmt: skip
    return [_parts(s, i) for i, s in enumerate(shapes.get(name, [(n, n)] * 2))]


class Ours:
    """Two components of float64."""

    name = "trainwright.mcf"

    def convert(self, high: np.ndarray, low: np.ndarray) -> Any:
        parts = torch.stack([torch.from_numpy(high), torch.from_numpy(low)], -1)
        return mcf.MCTensor.from_components(parts.movedim(-1, 0).contiguous().movedim(0, -1))

    def call(self, name: str) -> Callable[..., Any] | None:
        calls = {"add": torch.add, "multiply": torch.mul, "solve": torch.linalg.solve,
                 "svd": lambda a: torch.linalg.svd(a).S}  # fmt: skip
        return calls.get(name, torch.matmul)

    def number(self, x: Any, at: tuple[int, ...]) -> Fraction:
        return x[at].exact_item()


class Plain(Ours):
    """float64 of torch."""

    name = "torch float64"

    def convert(self, high: np.ndarray, low: np.ndarray) -> Any:
        return torch.from_numpy(high)

    def number(self, x: Any, at: tuple[int, ...]) -> Fraction:
        return Fraction(float(x[at]))


class Array:
    """A number type of numpy arrays."""

    def __init__(self, name: str, dtype: Any, svd: Callable[..., Any] | None):
        self.name, self.dtype, self.svd = name, dtype, svd

    def convert(self, high: np.ndarray, low: np.ndarray) -> Any:
        return high.astype(self.dtype) + low.astype(self.dtype)

    def call(self, name: str) -> Callable[..., Any] | None:
        calls = {"add": np.add, "multiply": np.multiply, "solve": None, "svd": self.svd}
        return calls.get(name, np.matmul)

    def number(self, x: Any, at: tuple[int, ...]) -> Fraction:
        rest, total = x[at], Fraction(0)
        for _ in range(3):
            part = float(rest)
            total += Fraction(part)
            rest = rest - np.asarray(part).astype(self.dtype)[()]
        return total


class Mpmath:
    """mpmath, whose numbers are gmpy2's where that is installed."""

    name = f"mpmath ({mpmath.libmp.BACKEND})"

    def convert(self, high: np.ndarray, low: np.ndarray) -> Any:
        pairs = zip(high.reshape(len(high), -1).tolist(), low.reshape(len(low), -1).tolist(),
                    strict=True)  # fmt: skip
        return mpmath.matrix([[mpmath.mpf(a) + b for a, b in zip(*pair, strict=True)]
                              for pair in pairs])  # fmt: skip

    def call(self, name: str) -> Callable[..., Any] | None:
        return {"add": lambda a, b: a + b, "solve": mpmath.lu_solve, "matmul": lambda a, b: a * b,
                "mv": lambda a, b: a * b, "multiply": self._products,
                "svd": lambda a: mpmath.svd_r(a, compute_uv=False)}.get(name)  # fmt: skip

    @staticmethod
    def _products(a: Any, b: Any) -> Any:
        return mpmath.matrix([x * y for x, y in zip(a, b, strict=True)])

    def number(self, x: Any, at: tuple[int, ...]) -> Fraction:
        value = x[at if len(at) == 2 else (at[0], 0)]
        return Fraction(int(value.man)) * Fraction(2) ** int(value.exp) * (1 if value >= 0 else -1)


class Flint:
    """Ball arithmetic of python-flint, 113 bits so that operands are exact."""

    name = "python-flint (arb)"

    def __init__(self) -> None:
        self.flint = importlib.import_module("flint")
        self.flint.ctx.prec = 113

    def convert(self, high: np.ndarray, low: np.ndarray) -> Any:
        rows = high.reshape(len(high), -1)
        pairs = zip(high.ravel().tolist(), low.ravel().tolist(), strict=True)
        numbers = [self.flint.arb(a) + self.flint.arb(b) for a, b in pairs]
        return self.flint.arb_mat(*rows.shape, numbers)

    def call(self, name: str) -> Callable[..., Any] | None:
        return {"add": lambda a, b: a + b, "matmul": lambda a, b: a * b, "mv": lambda a, b: a * b,
                "solve": lambda a, b: a.solve(b)}.get(name)  # fmt: skip

    def number(self, x: Any, at: tuple[int, ...]) -> Fraction:
        man, exp = x[at if len(at) == 2 else (at[0], 0)].mid().man_exp()
        return Fraction(int(man)) * Fraction(2) ** int(exp)


PACKAGES = {"xprec": "xprec", "numpy_quaddtype": "numpy-quaddtype", "flint": "python-flint",
            "gmpy2": "gmpy2"}  # fmt: skip
"""Packages of the peers by their modules; mpmath, which comes with torch, uses gmpy2."""


def missing() -> list[str]:
    """List the packages that are not installed."""
    return [name for module, name in PACKAGES.items() if not importlib.util.find_spec(module)]


def peers() -> list[Any]:
    """Return ours and the libraries that are installed."""
    libraries: list[Any] = [Ours(), Plain()]
    if importlib.util.find_spec("xprec"):
        xprec = importlib.import_module("xprec")
        linalg = importlib.import_module("xprec.linalg")
        libraries.append(Array("xprec (double-double)", xprec.ddouble, lambda a: linalg.svd(a)[1]))
    if importlib.util.find_spec("numpy_quaddtype"):
        quad = importlib.import_module("numpy_quaddtype")
        libraries.append(Array("numpy-quaddtype (113 bits)", quad.QuadPrecDType(), None))
    if importlib.util.find_spec("flint"):
        libraries.append(Flint())
    libraries.append(Mpmath())
    return libraries


def seconds(call: Callable[[], Any], repeat: int) -> float:
    """Return the least processor seconds of a call."""
    taken = []
    for _ in range(repeat):
        begin = time.process_time()
        count = 0
        while count == 0 or (time.process_time() - begin < 0.02):
            call()
            count += 1
        taken.append((time.process_time() - begin) / count)
    return min(taken)


def _exact(pair: tuple[np.ndarray, np.ndarray], at: Any) -> list[Fraction]:
    return [Fraction(float(a)) + Fraction(float(b))
            for a, b in zip(np.ravel(pair[0][at]), np.ravel(pair[1][at]), strict=True)]  # fmt: skip


def bits(peer: Any, name: str, operands: list[Any], result: Any) -> float | None:
    """Return -log2 of the worst error of a sample; of products relative to the sum of |a b|."""
    kind = name.split()[0]
    if kind in ("solve", "svd"):
        return None
    worst = Fraction(0)
    for k in range(12):
        i = (k * 37) % SIZES[name]
        at: tuple[int, ...] = (i, (k * 11) % SIZES[name]) if kind == "matmul" else (i,)
        if kind in ("add", "multiply"):
            (a,), (b,) = (_exact(pair, at) for pair in operands)
            wanted = a + b if kind == "add" else a * b
            scale = abs(wanted)
        else:
            columns = (slice(None), at[1]) if kind == "matmul" else slice(None)
            terms = [a * b for a, b in zip(_exact(operands[0], i), _exact(operands[1], columns),
                                           strict=True)]  # fmt: skip
            wanted, scale = sum(terms), sum(map(abs, terms))
        if isinstance(peer, Plain):  # its operands are rounded already
            return None
        worst = max(worst, abs(peer.number(result, at) - wanted) / scale)
    return -math.log2(worst) if worst else math.inf


def measured(repeat: int) -> list[dict[str, Any]]:
    """Measure every operation that each library has."""
    rows = []
    for name, size in SIZES.items():
        operands, ours = _operands(name), None
        for peer in peers():
            call = peer.call(name.split()[0])
            slow = isinstance(peer, Mpmath) and size > _SLOW and name.startswith(("mv", "matmul"))
            if call is None or slow:
                continue
            with mpmath.workprec(DIGITS):
                given = [peer.convert(*pair) for pair in operands]
                taken = seconds(lambda call=call, given=given: call(*given), repeat)
                result = call(*given)
            ours = ours or taken
            worst = bits(peer, name, operands, result)
            rows.append({"operation": name, "library": peer.name, "milliseconds": 1e3 * taken,
                         "times ours": taken / ours, "bits": worst})  # fmt: skip
    return rows


def main() -> None:
    """Print a table, or JSON with the conditions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if missing():
        print(f"left out, as not installed: {', '.join(missing())}", file=sys.stderr)
    rows = measured(args.repeat)
    if args.json:
        packages = ("torch", "mpmath", "xprec", "numpy-quaddtype", "python-flint", "gmpy2")
        versions = {}
        for package in packages:
            try:
                versions[package] = version(package)
            except ImportError:
                continue
        conditions = {"threads": 1, "processor": platform.processor(), "versions": versions,
                      "missing": missing()}  # fmt: skip
        print(json.dumps({**conditions, "rows": rows}))
        return
    print(markdown(tuple(rows[0]), [tuple(row.values()) for row in rows]), end="")


if __name__ == "__main__":
    main()

"""Number libraries next to peers: ``trainwright bench qr``, ``tt``, ``ape``, ``posit``, ``mcf``."""

import re
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from trainwright.cli.command import CommandBody
from trainwright.cli.declare import command
from trainwright.cli.options import JsonOptions, PositOption, ThreadOptions
from trainwright.cli.output import show, teller
from trainwright.support.settings import OneOf, Option, Positive


# -- qr --------------------------------------------------------------------------------------------
def _size(text: str) -> tuple[int, int]:
    sizes = re.fullmatch(r"([0-9]+)x([0-9]+)", text)
    if not sizes or not 1 <= int(sizes[2]) <= int(sizes[1]):
        raise ValueError(f"must be ROWSxCOLUMNS, rows >= columns >= 1, not {text!r}")
    return int(sizes[1]), int(sizes[2])


class QROptions(JsonOptions, ThreadOptions):
    """Factorise a random matrix in every variant of QR and in LAPACK's blocked routines.

    The routines are geqrf and orgqr; geqrt and gemqrt, where scipy is installed. Times are the
    least of several, in processor seconds of one thread.
    """

    size: Annotated[tuple[tuple[int, int], ...], Option(metavar="MxN", parse=_size)] = ()
    """rows and columns (default: 2000x200 and 1024x64)"""
    repeat: Positive = 7
    """measurements of each"""


# -- tt --------------------------------------------------------------------------------------------
class TensorTrainOptions(JsonOptions, ThreadOptions):
    """Round a long tensor train by the library's QR and by torch's: time, error and memory.

    Half of the ranks add a hundredth of the tolerance to the matrix: rounding has to find that, and
    keep the error below the tolerance. Processor seconds of one thread; memory is the maximum that
    is allocated at once in addition to the train.
    """

    cores: Annotated[int, Meta(ge=2)] = 100
    """factors of the train, each of a 2 x 2 matrix"""
    rank: Annotated[int, Meta(ge=2)] = 200
    """rank of every bond"""
    tolerance: Annotated[float, Meta(gt=0, lt=1)] = 1e-4
    """relative error that rounding may make"""


# -- ape -------------------------------------------------------------------------------------------
class ApeOptions(JsonOptions, ThreadOptions):
    """Measure emulated types next to native types, on CPU and CUDA.

    Square matrix products, the costs of the adapter, and with --conv the convolutions of ResNet-18,
    in every type. On the CPU the emulated types are an exact simulation, slower than the native
    type by design; on CUDA they run on the tensor cores. Processor seconds of one thread on the
    CPU, wall time on CUDA.
    """

    size: tuple[Positive, ...] = ()
    """rows of the matrices (default: 256, on CUDA 4096 and 8192 too)"""
    repeat: Positive = 3
    """measurements of each"""
    conv: bool = False
    """measure convolutions too"""


# -- posit -----------------------------------------------------------------------------------------
class PositBenchOptions(JsonOptions, ThreadOptions):
    """Measure posit arithmetic next to SoftPosit's C and float32.

    Additions and products of a million numbers, square matrix products with every operation rounded
    (sequential) and with an exact sum (quire), and a training step of LeNet-5, an image: by the
    native kernels, by torch alone, and in float32. --peer adds how many times faster than the peer
    each of these is, and how many results differ from the peer's. Times are processor seconds of
    one thread, the least of several.
    """

    format: PositOption = "16,2"
    """bits of a word, and of its exponent"""
    peer: Annotated[tuple[str, ...], Option(metavar="softposit=FOLDER")] = ()
    """folder with SoftPosit's C sources, such as the unpacked source distribution of the package
    softposit; for es = 2"""
    count: Positive = 1_000_000
    """elements"""
    size: Positive = 256
    """rows of the matrices"""
    batch: Positive = 32
    """images of a training step"""
    repeat: Positive = 5
    """measurements of each"""


# -- mcf -----------------------------------------------------------------------------------------
OPERATIONS = ("add", "scaling", "multiply", "divide", "dot", "mv", "matmul", "addmm", "bmm")


class McfOptions(JsonOptions, ThreadOptions):
    """Measure multi-component floats next to torch and the published library.

    The operations of tables 4 and 5 of the MCTensor paper, at its sizes: torch in float32 and
    float64, ours with 1 to 3 float32 components, and the published library with 2; large products
    next to torch's in the components' type, and fused expressions next to their operations. Medians
    in processor seconds of one thread. Then the accuracy of every operator: the worst of many
    results, in bits, against mpmath.
    """

    peer: Annotated[Path | None, Option(metavar="FOLDER")] = None
    """checkout of the published library (github.com/ydtydr/MCTensor)"""
    operation: Annotated[tuple[str, ...], OneOf(OPERATIONS)] = ()
    """measure only this operation"""
    size: tuple[Positive, ...] = ()
    """rows of large products, matmul and mv beyond float64's digits (default: 512 and 1024)"""
    results: Annotated[Positive, Option(only=("all operations",))] = 1000
    """results whose worst is the accuracy"""
    repeat: Positive = 5
    """measurements of each"""


def _bench(module: str, kind: type, name: str, help: str) -> CommandBody:
    """Make a command that measures by ``bench`` of a module, which is imported when it runs."""

    def run(options: Any) -> int:
        import torch

        torch.set_num_threads(options.threads)
        measured = import_module(f"trainwright.{module}").bench(options, teller)
        return show(options.json, {"threads": options.threads, **measured.results}, measured.text)

    return command(kind, run, name, help)


COMMANDS = (
    _bench("qr.experiments.speed", QROptions, "qr",
           "QR factorisations next to torch.linalg.qr and LAPACK"),
    _bench("tt.speed", TensorTrainOptions, "tt", "rounding of a long tensor train"),
    _bench("ape.experiments.speed", ApeOptions, "ape",
           "emulated types next to native ones: time and error"),
    _bench("posit.experiments.speed", PositBenchOptions, "posit",
           "posit arithmetic next to SoftPosit's C"),
    _bench("mcf.experiments.bench", McfOptions, "mcf", "multi-component floats next to torch"),
)  # fmt: skip

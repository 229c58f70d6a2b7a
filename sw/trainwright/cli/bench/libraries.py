"""Number libraries next to peers: ``trainwright bench qr``, ``tt``, ``ape``, ``posit``, ``mcf``."""

import re
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from trainwright.cli.declare import command
from trainwright.cli.errors import OptionError
from trainwright.cli.options import JsonOptions, PositOption, ThreadOptions
from trainwright.cli.output import show, teller
from trainwright.support.settings import OneOf, Option, Positive
from trainwright.support.tables import markdown, table

if TYPE_CHECKING:
    from trainwright.posit.experiments.peer import SoftPosit


# -- qr --------------------------------------------------------------------------------------------
def _size(text: str) -> tuple[int, int]:
    sizes = re.fullmatch(r"(\d+)x(\d+)", text)
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


def _blas_threads(count: int) -> AbstractContextManager[Any]:
    """Hold scipy's LAPACK to as many threads as torch; scikit-learn brings the means."""
    if find_spec("threadpoolctl") is None or find_spec("scipy") is None:
        return nullcontext()
    import scipy.linalg  # noqa: F401  the limit holds for what is loaded
    from threadpoolctl import threadpool_limits

    return threadpool_limits(count)


def _qr(options: QROptions) -> int:
    import torch

    from trainwright.qr.experiments import speed

    torch.set_num_threads(options.threads)
    rows = []
    with _blas_threads(options.threads):
        for m, n in options.size or ((2000, 200), (1024, 64)):
            rows += speed.run(m, n, options.repeat, progress=teller(f"bench {m} x {n}"))
    head = ("rows", "columns", "routine", "seconds", "times torch", "residual", "orthogonality")
    content = {"threads": options.threads, "rows": rows}
    return show(options.json, content, table(head, rows))


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


def _tt(options: TensorTrainOptions) -> int:
    import torch

    from trainwright.tt import speed

    torch.set_num_threads(options.threads)
    rows = speed.run(options.cores, options.rank, options.tolerance)
    head = ("way", "seconds", "rank left", "error", "tolerance", "MiB at most", "MiB of the train")
    return show(options.json, {"threads": options.threads, "rows": rows}, table(head, rows))


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


def _ape(options: ApeOptions) -> int:
    import torch

    from trainwright.ape.experiments import speed

    torch.set_num_threads(options.threads)
    devices = [torch.device("cpu")]
    if torch.cuda.is_available():
        devices.append(torch.device("cuda"))
    products, masks = [], []
    for device in devices:
        default = (256,) if device.type == "cpu" else (4096, 8192)
        for size in options.size or default:
            products += speed.run_gemm(size, device, options.repeat)
            masks.append(speed.run_adapter(size, device, options.repeat))
        if options.conv:
            products += speed.run_conv(device, progress=teller(f"convolutions, {device}"))
    names = [d.type if d.type == "cpu" else torch.cuda.get_device_name(d) for d in devices]
    head = ("device", "what", "type", "seconds", "GFLOP/s", "times fp32", "error")
    shares = [(row.device, row.what, row.seconds, 100 * row.error) for row in masks]
    adapter = markdown(("device", "what", "seconds", "% of an fp32-f product"), shares)
    text = f"{table(head, products)}\n{adapter}"
    if len(devices) == 1:
        text += "\nNo CUDA device: nothing was measured on tensor cores."
    rows = {"products": products, "masks": masks}
    return show(options.json, {"devices": names, "threads": options.threads, **rows}, text)


# -- posit -----------------------------------------------------------------------------------------
class PositBenchOptions(JsonOptions, ThreadOptions):
    """Measure posit arithmetic next to SoftPosit's C and float32.

    Additions and products of a million numbers, square matrix products with every operation rounded
    (sequential) and with an exact sum (quire), and a training step of LeNet-5, an image: by the
    native kernels, by torch alone, and in float32. With a peer, how many times faster than it, and
    how many results differ. Processor seconds of one thread, the least of several.
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


def _peer(options: tuple[str, ...]) -> "SoftPosit | None":
    from trainwright.posit.experiments.peer import SoftPosit

    peer = None
    for option in options:
        name, _, folder = option.partition("=")
        if name != "softposit" or not folder:
            raise OptionError(f"--peer must be softposit=FOLDER, not {option!r}")
        peer = SoftPosit(Path(folder))
    return peer


def _posit(options: PositBenchOptions) -> int:
    import torch

    from trainwright.posit.experiments import speed

    torch.set_num_threads(options.threads)
    number_format, repeat, peer = options.format, options.repeat, _peer(options.peer)
    tell = teller("bench posit")
    rows = speed.run(number_format, options.count, options.size, repeat, peer, progress=tell)
    rows += speed.run_edges(number_format, options.count, repeat)
    rows += speed.run_training(number_format, repeat, options.batch)
    content = {
        "format": str(number_format), "threads": options.threads, "repeat": repeat,
        "torch": torch.__version__, "rows": rows,
    }  # fmt: skip
    head = ("what", "way", "seconds", "times the peer", "differing")
    return show(options.json, content, table(head, rows))


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
    results: Positive = 1000
    """results whose worst is the accuracy"""
    repeat: Positive = 5
    """measurements of each"""


def _mcf(options: McfOptions) -> int:
    import torch

    from trainwright.mcf.experiments import accuracy, memory, speed
    from trainwright.mcf.experiments.peer import PeerError, Published

    torch.set_num_threads(options.threads)
    try:
        peer = Published(options.peer) if options.peer else None
    except PeerError as error:
        raise OptionError(f"--peer: {error}") from None
    only = options.operation
    rows = speed.run(options.repeat, peer, only, progress=teller("bench mcf"))
    sizes = options.size or (() if only else (512, 1024))
    products = speed.large(sizes, options.repeat, progress=teller("large products"))
    fused = [] if only else speed.fused(repeat=options.repeat)
    peaks = memory.run(peer) if not only or "bmm" in only else []
    worst = [] if only else accuracy.run(options.results, progress=teller("accuracy"))
    content = {
        "threads": options.threads, "repeat": options.repeat, "torch": torch.__version__,
        "rows": rows, "large": products, "fused": fused, "bmm_memory": peaks,
        "accuracy": worst,
    }  # fmt: skip
    head = ("operation", "way", "seconds", "times the peer", "by float32", "bits")
    text = table(head, rows)
    if products:
        head = ("operation", "components", "nc", "n", "seconds", "by torch")
        text += "\n" + table(head, products)
    if fused:
        head = ("expression", "components", "nc", "elements", "seconds", "times faster fused")
        text += "\n" + table(head, fused)
    for peak in peaks:
        most = f"{peak.mebibytes:.0f} MiB at most beyond its operands"
        text += f"\nmemory of bmm, {peak.way}: {most}\n"
    if worst:
        head = ("operator", "components", "bits", "errors relative to", "results")
        text += "\n" + table(head, worst)
    return show(options.json, content, text)


COMMANDS = (
    command(QROptions, _qr, "qr", "QR factorisations next to torch.linalg.qr and LAPACK"),
    command(TensorTrainOptions, _tt, "tt", "rounding of a long tensor train"),
    command(ApeOptions, _ape, "ape", "emulated types next to native ones: time and error"),
    command(PositBenchOptions, _posit, "posit", "posit arithmetic next to SoftPosit's C"),
    command(McfOptions, _mcf, "mcf", "multi-component floats next to torch"),
)

"""Number libraries next to their peers: ``trainwright bench qr``, ``ape`` and ``posit``."""

import re
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from trainwright.cli.declare import command
from trainwright.cli.errors import OptionError
from trainwright.cli.options import JsonOptions, PositOption, ThreadOptions
from trainwright.support.settings import Option, Positive

if TYPE_CHECKING:
    from trainwright.posit.experiments.peer import SoftPosit


# -- qr --------------------------------------------------------------------------------------------
def _size(text: str) -> tuple[int, int]:
    sizes = re.fullmatch(r"(\d+)x(\d+)", text)
    if not sizes or not 1 <= int(sizes[2]) <= int(sizes[1]):
        raise ValueError(f"must be ROWSxCOLUMNS, rows >= columns >= 1, not {text!r}")
    return int(sizes[1]), int(sizes[2])


@dataclass(frozen=True, kw_only=True)
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

    from trainwright.cli.output import plain, rows_of, show, teller
    from trainwright.qr.experiments import speed
    from trainwright.report.tables import markdown

    torch.set_num_threads(options.threads)
    rows = []
    with _blas_threads(options.threads):
        for m, n in options.size or ((2000, 200), (1024, 64)):
            rows += speed.run(m, n, options.repeat, progress=teller(f"bench {m} x {n}"))
    head = ("rows", "columns", "routine", "seconds", "times torch", "residual", "orthogonality")
    content = {"threads": options.threads, "rows": plain(rows)}
    return show(options.json, content, markdown(head, rows_of(rows)))


# -- ape -------------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
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
    from trainwright.cli.output import plain, rows_of, show, teller
    from trainwright.report.tables import markdown

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
    text = f"{markdown(head, rows_of(products))}\n{adapter}"
    if len(devices) == 1:
        text += "\nNo CUDA device: nothing was measured on tensor cores."
    rows = {"products": plain(products), "masks": plain(masks)}
    return show(options.json, {"devices": names, "threads": options.threads, **rows}, text)


# -- posit -----------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
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

    from trainwright.cli.output import plain, rows_of, show, teller
    from trainwright.posit.experiments import speed
    from trainwright.report.tables import markdown

    torch.set_num_threads(options.threads)
    number_format, repeat, peer = options.format, options.repeat, _peer(options.peer)
    tell = teller("bench posit")
    rows = speed.run(number_format, options.count, options.size, repeat, peer, progress=tell)
    rows += speed.run_edges(number_format, options.count, repeat)
    rows += speed.run_training(number_format, repeat, options.batch)
    content = {
        "format": str(number_format), "threads": options.threads, "repeat": repeat,
        "torch": torch.__version__, "rows": plain(rows),
    }  # fmt: skip
    head = ("what", "way", "seconds", "times the peer", "differing")
    return show(options.json, content, markdown(head, rows_of(rows)))


COMMANDS = (
    command(QROptions, _qr, "qr", "QR factorisations next to torch.linalg.qr and LAPACK"),
    command(ApeOptions, _ape, "ape", "emulated types next to native ones: time and error"),
    command(PositBenchOptions, _posit, "posit", "posit arithmetic next to SoftPosit's C"),
)

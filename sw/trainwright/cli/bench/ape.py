"""``trainwright bench ape``: emulated types beside native ones, on CPU and CUDA."""

import argparse
from dataclasses import asdict

from trainwright.cli.command import SimpleCommand
from trainwright.cli.options import positive


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Square matrix products, what the adapter costs, and with --conv the convolutions of "
        "ResNet-18, in every type. On the CPU the emulated types are an exact simulation, slower "
        "than the native type by design; on CUDA they run on the tensor cores. Processor seconds "
        "of one thread on the CPU, wall time on CUDA."
    )
    parser.add_argument("--size", type=positive, action="append", metavar="N",
                        help="default: 256, on CUDA 4096 and 8192 too (repeatable)")  # fmt: skip
    parser.add_argument("--repeat", type=positive, default=3, metavar="N", help="default: 3")
    parser.add_argument("--conv", action="store_true", help="measure convolutions too")
    parser.add_argument("--json", action="store_true", help="print JSON and no tables")
    parser.add_argument("--threads", type=positive, default=1, metavar="N", help="default: 1")


def _run(args: argparse.Namespace) -> int:
    import torch

    from trainwright.ape.experiments import speed
    from trainwright.cli.output import teller, to_json
    from trainwright.report.tables import markdown

    torch.set_num_threads(args.threads)
    devices = [torch.device("cpu")]
    if torch.cuda.is_available():
        devices.append(torch.device("cuda"))
    products, masks = [], []
    for device in devices:
        default = (256,) if device.type == "cpu" else (4096, 8192)
        for size in args.size or default:
            products += speed.run_gemm(size, device, args.repeat)
            masks.append(speed.run_adapter(size, device, args.repeat))
        if args.conv:
            products += speed.run_conv(device, progress=teller(f"convolutions, {device}"))
    names = [d.type if d.type == "cpu" else torch.cuda.get_device_name(d) for d in devices]
    if args.json:
        rows = {"products": list(map(asdict, products)), "masks": list(map(asdict, masks))}
        print(to_json({"devices": names, "threads": args.threads, **rows}))
        return 0
    head = ("device", "what", "type", "seconds", "GFLOP/s", "times fp32", "error")
    print(markdown(head, [tuple(vars(row).values()) for row in products]))
    shares = [(row.device, row.what, row.seconds, 100 * row.error) for row in masks]
    print(markdown(("device", "what", "seconds", "% of an fp32-f product"), shares), end="")
    if len(devices) == 1:
        print("\nNo CUDA device: nothing was measured on tensor cores.")
    return 0


command = SimpleCommand(
    "ape", "emulated types beside native ones: time and error", _add_arguments, _run
)

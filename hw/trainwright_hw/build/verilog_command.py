"""``trainwright verilog``: the accelerator as one Verilog file."""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from trainwright.cli.declare import add_options
from trainwright.cli.errors import OptionError
from trainwright.cli.options import AcceleratorOptions, accelerator_parameters
from trainwright.support.errors import file_errors
from trainwright.support.files import check_folder, write_whole
from trainwright.support.text import amount

DESCRIPTION = """\
Write the accelerator as one file of Verilog-2005 (module trainwright), for any simulator and
synthesis tool, or of SystemVerilog. Ports are grouped by interface and marked for Vivado's block
designs (X_INTERFACE attributes).
"""

EPILOG = """\
examples:
  trainwright verilog --accelerator lanes=8 --accelerator pe1_rows=4 --out small.v
  trainwright verilog --sv
"""
NAME = "trainwright"
"""Default name of the file, without its suffix."""


def tell(message: str) -> None:
    """Print progress on the standard error."""
    print(message, file=sys.stderr, flush=True)


class VerilogCommand:
    """Options and run of the command that `trainwright_hw.build.cli` registers."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options."""
        parser.description = DESCRIPTION
        parser.epilog = EPILOG
        parser.add_argument(
            "--out",
            type=Path,
            metavar="FILE",
            help="where to (default: trainwright.v, or trainwright.sv)",
        )
        parser.add_argument(
            "--sv",
            action="store_true",
            help="SystemVerilog: decision trees as always_comb, registers as always_ff",
        )
        add_options(parser, AcceleratorOptions)
        parser.add_argument(
            "--json", action="store_true", help="print ports and parameters as one JSON object"
        )

    def run(self, args: argparse.Namespace) -> int:
        """Write the file. Raises ``OptionError`` or ``ConversionError``."""
        parameters = accelerator_parameters(args.accelerator)
        out = args.out or Path(f"{NAME}.{'sv' if args.sv else 'v'}")
        with file_errors(f"--out: cannot write {str(out)!r}"):
            if not out.parent.is_dir():
                raise OptionError(f"--out: there is no folder {str(out.parent)!r}")
            if out.is_dir():
                raise OptionError(f"--out: {str(out)!r} is a folder")
            check_folder(out.parent)

        from trainwright_hw.build.convert import TOP
        from trainwright_hw.build.package import package_verilog, port_list

        text = package_verilog(parameters, system=args.sv, progress=tell)
        with file_errors(f"--out: cannot write {str(out)!r}"):
            write_whole(out, text)
        figures = {
            "file": str(out),
            "language": "SystemVerilog" if args.sv else "Verilog-2005",
            "lines": text.count("\n"),
            "module": TOP,
            "multipliers": parameters.multipliers,
            "fingerprint": parameters.fingerprint,
            "parameters": asdict(parameters),
            "ports": port_list(parameters),
        }
        print(json.dumps(figures) if args.json else summary(figures))
        return 0


def summary(figures: dict) -> str:
    """Put the figures into one line."""
    return (
        f"{figures['file']}: module {figures['module']}, {figures['multipliers']} multipliers, "
        f"{amount(len(figures['ports']), 'port')}, {figures['lines']:,} lines"
    )


command = VerilogCommand()

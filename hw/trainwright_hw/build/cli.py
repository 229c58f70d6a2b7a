"""``trainwright verilog``: the accelerator as one Verilog file."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from trainwright.cli.errors import OptionError
from trainwright.cli.options import accelerator_parameters, add_accelerator_options
from trainwright.support.files import write_whole

DESCRIPTION = """\
Write the accelerator as one file of plain Verilog (module trainwright), for simulators and
synthesis.
"""

EPILOG = """\
example:
  trainwright verilog --accelerator lanes=8 --accelerator pe1_rows=4 --out small.v
"""


class VerilogCommand:
    """The command; it registers under the entry-point group ``trainwright.commands``."""

    name = "verilog"
    help = "write the accelerator as Verilog"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declares the options."""
        parser.description = DESCRIPTION
        parser.epilog = EPILOG
        parser.add_argument(
            "--out",
            type=Path,
            default=Path("trainwright.v"),
            metavar="FILE",
            help="where to (default: trainwright.v)",
        )
        add_accelerator_options(parser)
        parser.add_argument(
            "--json", action="store_true", help="print ports and parameters as one JSON object"
        )

    def run(self, args: argparse.Namespace) -> int:
        """Writes the file. Raises ``OptionError`` or ``ConversionError``."""
        parameters = accelerator_parameters(args.accelerator)
        if not args.out.parent.is_dir():
            raise OptionError(f"--out: there is no folder {str(args.out.parent)!r}")
        if args.out.is_dir():
            raise OptionError(f"--out: {str(args.out)!r} is a folder")

        from trainwright_hw.build.convert import TOP, port_list, to_verilog

        text = to_verilog(parameters)
        try:
            write_whole(args.out, text)
        except OSError as error:
            raise OptionError(f"--out: cannot write {str(args.out)!r}: {error.strerror}") from None
        figures = {
            "file": str(args.out),
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
    """The figures in one line."""
    return (
        f"{figures['file']}: module {figures['module']}, {figures['multipliers']} multipliers, "
        f"{len(figures['ports'])} ports, {figures['lines']} lines"
    )


command = VerilogCommand()

"""``ttforge verilog``: the accelerator as one Verilog file."""

import argparse
import json
import os
import tempfile
from dataclasses import asdict
from pathlib import Path

from ttforge.cli.errors import OptionError
from ttforge.parameters import AcceleratorParameters, parse_overrides

DESCRIPTION = """\
Write the accelerator as one file of plain Verilog (module ttforge), for simulators and synthesis.
"""

EPILOG = """\
example:
  ttforge verilog --set lanes=8 --set pe1_rows=4 --out small.v
"""


class VerilogCommand:
    """The command; it registers under the entry-point group ``ttforge.commands``."""

    name = "verilog"
    help = "write the accelerator as Verilog"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declares the options."""
        parser.description = DESCRIPTION
        parser.epilog = EPILOG
        parser.add_argument(
            "--out",
            type=Path,
            default=Path("ttforge.v"),
            metavar="FILE",
            help="where to (default: ttforge.v)",
        )
        parser.add_argument(
            "--set",
            "--accelerator",
            dest="overrides",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help="a parameter other than its default, such as lanes=8 (repeatable)",
        )
        parser.add_argument(
            "--json", action="store_true", help="print ports and parameters as one JSON object"
        )

    def run(self, args: argparse.Namespace) -> int:
        """Writes the file. Raises ``OptionError`` or ``ConversionError``."""
        try:
            parameters = AcceleratorParameters(**parse_overrides(args.overrides))
        except ValueError as error:
            raise OptionError(f"--set: {error}") from None
        if not args.out.parent.is_dir():
            raise OptionError(f"--out: there is no folder {str(args.out.parent)!r}")
        if args.out.is_dir():
            raise OptionError(f"--out: {str(args.out)!r} is a folder")

        from ttforge_hw.convert import TOP, port_list, to_verilog

        text = to_verilog(parameters)
        try:
            write_atomically(args.out, text)
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


def write_atomically(path: Path, text: str) -> None:
    """Writes a file as a whole or not at all."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", text=True)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


command = VerilogCommand()

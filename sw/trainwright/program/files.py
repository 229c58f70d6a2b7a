"""Program files, next to which a text has the sizes of the accelerator they are compiled for."""

from dataclasses import asdict
from pathlib import Path

from trainwright.parameters import AcceleratorParameters, parse_overrides
from trainwright.program.descriptors import Program
from trainwright.program.encoding import decode, encode
from trainwright.program.errors import ProgramError
from trainwright.support.errors import errors_as, file_errors
from trainwright.support.files import write_whole

SIZES = "accelerator.txt"
"""Text of sizes in a folder of programs, ``NAME=VALUE`` a line: a program file has no more of them
than their fingerprint."""


def save_program(file: Path, program: Program, parameters: AcceleratorParameters) -> None:
    """Write a program, and next to it the sizes it was compiled for. Raises ``OSError``."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, encode(program))
    write_whole(file.with_name(SIZES), "".join(f"{size}\n" for size in _sizes(parameters)))


def _sizes(parameters: AcceleratorParameters) -> list[str]:
    return [
        f"{name}={','.join(value) if isinstance(value, tuple) else int(value)}"
        for name, value in asdict(parameters).items()
    ]


def load_program(file: Path, given: AcceleratorParameters | None) -> Program:
    """Read a program for the accelerator ``given``, by default that of the sizes next to the file.

    Raises ``UserError``, which names sizes that differ from those next to the file.
    """
    with file_errors(f"cannot read program {str(file)!r}"):
        data = file.read_bytes()
    near, known = file.with_name(SIZES), AcceleratorParameters()
    with errors_as(str(near), ProgramError, (OSError, ValueError)):
        if near.exists():
            known = AcceleratorParameters(**parse_overrides(near.read_text().splitlines()))
    with errors_as(str(file), ProgramError, ProgramError):
        if given is not None and data[12:16] == known.fingerprint.to_bytes(4, "little"):
            sizes = [size for size in _sizes(known) if size not in _sizes(given)]
            if sizes:
                raise ProgramError(
                    f"compiled for other accelerator parameters, with {', '.join(sizes)}: omit "
                    "--accelerator and --preset"
                )
        return decode(data, given or known)

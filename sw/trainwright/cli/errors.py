"""Errors that the user can correct: one line and status 2, no traceback."""

import sys

from trainwright.support.text import shortened

MOST_LINE = 1000
"""Characters of a message: no list of choices is longer, but what was read may be."""


class OptionError(ValueError):
    """An option with a value that cannot be, or two that do not go together."""


_EXPECTED = (
    ("trainwright.network", "NetworkError"),
    ("trainwright.accelerator", "AcceleratorError"),
    ("trainwright.program.encoding", "ProgramError"),
    ("trainwright.compiler.base.errors", "CompileError"),
    ("trainwright.data.dataset", "DataError"),
    ("trainwright.train.checkpoint", "CheckpointError"),
    ("trainwright.posit.format", "PositError"),
    ("trainwright.precision.formats", "PrecisionError"),
    ("trainwright.qr.result", "QRError"),
    ("trainwright.tt.trains", "TensorTrainError"),
    ("trainwright.cli.errors", "OptionError"),
)


def is_expected(error: BaseException) -> bool:
    """Whether ``error`` is told in one line. A class whose module was never loaded is not asked."""
    for module, name in _EXPECTED:
        kind = getattr(sys.modules.get(module), name, None)
        if isinstance(kind, type) and isinstance(error, kind):
            return True
    return False


def one_line(error: BaseException) -> str:
    """The message of an error without line breaks, and not longer than a few of them."""
    return shortened(" ".join(str(error).split()), MOST_LINE) or type(error).__name__

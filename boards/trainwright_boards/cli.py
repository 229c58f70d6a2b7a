"""Commands on boards by name and help, so that listing them imports no Amaranth."""

from functools import partial

from trainwright.cli.command import LazyCommand

_lazy = partial(LazyCommand, module="trainwright_boards.commands", needs=("amaranth",))

boards = _lazy("boards", "list boards, and what fits them", attribute="boards")
build_command = _lazy("build", "build a board's bitstream", attribute="build_command")
load_command = _lazy("load", "load a board's bitstream", attribute="load_command")
export_command = _lazy("export", "write files for a vendor's tools", attribute="export_command")
fit_command = _lazy("fit", "find the largest accelerator for a board", attribute="fit_command")

"""Command ``trainwright verilog`` by name and help, so that listing it imports nothing slow."""

from trainwright.cli.command import LazyCommand

command = LazyCommand(
    "verilog",
    "write the accelerator as Verilog",
    "trainwright_hw.build.verilog_command",
    needs=("amaranth",),
)

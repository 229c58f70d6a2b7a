"""Commands on the simulated accelerator by name and help, so that listing them imports little."""

from trainwright.cli.command import LazyCommand

trace = LazyCommand(
    "trace",
    "waveform, cycles and rows of chosen descriptors",
    "trainwright_sim.trace",
)

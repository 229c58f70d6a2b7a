"""trainwright: train tensor-train networks on an FPGA accelerator.

This layer says what is computed, bit by bit: number formats, tensor trains, the planner and
compiler, the golden model, the trainer, the driver interface and the command line. It never imports
Amaranth; higher layers (a simulated accelerator, a board) register with it through the entry points
`trainwright.backends` and `trainwright.commands`.
"""

__version__ = "0.1.0.dev0"

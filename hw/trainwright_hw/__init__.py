"""The accelerator in Amaranth, one package per part of the machine.

``accelerator`` puts the parts together, ``soc`` adds memory and host link. The packages, each of
which builds only on those before it (enforced by a check in CI):

- ``vendor``: primitives of the devices; ``stream``: queues, delay lines, arbiters;
- ``bus``: AXI4 and AXI4-Lite; ``storage``: the scratchpad;
- ``control``: sequencer, program memory, registers, counters;
- ``arith``: number formats, multipliers, requantiser; ``writeback``: results to the scratchpad;
- ``dma``: LOAD and STORE; ``compute``: PE1 and PE2;
- ``link``: the host's serial line; ``external``: memories outside the accelerator;
- ``build``: from Amaranth to RTLIL, Verilog and netlists.

Parameter objects and golden functions come from ``trainwright``; nothing here knows how the design
is simulated or which board carries it.
"""

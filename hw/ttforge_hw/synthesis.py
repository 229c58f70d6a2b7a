"""How yosys synthesises a design for an ECP5: the same passes for boards and for simulation."""

NO_LATCHES = "select -assert-none t:$dlatch t:$adlatch t:$dlatchsr t:$sr"
NO_COLLISIONS = "setparam -set COLLISION_X_MASK 1'1 t:$memrd_v2 r:CLK_ENABLE=1 %i"
"""What is read in the cycle of its write is unspecified (scratchpad, factor stores) or never is
(the other memories), so that block RAM needs no logic to give the old word."""


def ecp5_passes(rtlil: str, top: str) -> str:
    """Script up to the netlist of cells; fails where a latch was inferred."""
    return (
        f"read_rtlil {rtlil}; hierarchy -top {top}; {NO_COLLISIONS}; proc; {NO_LATCHES}; "
        f"synth_ecp5 -top {top}"
    )

"""Multiplier of a Gowin GW5A with its registers."""

from amaranth.hdl import C, Cat, ClockSignal, Instance, Module, Signal, Value, signed

LEFT_WIDTH, RIGHT_WIDTH, RESULT_WIDTH = 27, 18, 48
"""Bits of the operands and of the result of a MULTALU27X18."""

REGISTERS = ("AREG", "BREG", "PREG")
"""Registers in use: those of both operands, and of the product.

OREG, behind the adder, could replace PREG, but apycula 0.32 omits it from the bitstream of a
GW5AST-138C.
"""
BYPASSED = (
    *("DREG", "OREG", "C_IREG", "C_PREG"),
    *(
        f"{name}_{stage}"
        for name in ("ADDSUB0", "ADDSUB1", "CSEL", "CASISEL", "ACCSEL")
        for stage in ("IREG", "PREG")
    ),
    *("PSEL_IREG", "PADDSUB_IREG"),
)
"""Registers that are bypassed."""
SELECTED = ("P_SEL", "P_ADDSUB", "A_SEL", "ADD_SUB_0", "ADD_SUB_1", "C_SEL", "CASI_SEL", "ACC_SEL")
"""Selectors of addends: all are fixed at 0, which adds nothing, and not controlled by an input."""
UNUSED = {
    **{"SIA": 27, "C": 48, "D": 26, "CASI": 48, "ADDSUB": 2, "RESET": 2},
    **dict.fromkeys(("ACCSEL", "PSEL", "ASEL", "PADDSUB", "CSEL", "CASISEL"), 1),
}
"""Inputs that are 0, and their bits."""


def multalu27x18(
    m: Module, name: str, left: Value, right: Value, *, left_enable: Value | None = None
) -> Signal:
    """Build ``arith.multiplier.registered_product`` from a MULTALU27X18: at most 27 and 18 bits."""
    if len(left) > LEFT_WIDTH or len(right) > RIGHT_WIDTH:
        raise ValueError(
            f"operands of {len(left)} and {len(right)} bits exceed {LEFT_WIDTH} and {RIGHT_WIDTH}"
        )
    a, b = Signal(signed(LEFT_WIDTH)), Signal(signed(RIGHT_WIDTH))
    whole = Signal(RESULT_WIDTH, name=f"{name}_whole")
    # Memory words have unsigned shapes but signed contents: extend by the top bit.
    for to, bits in ((a, left), (b, right)):
        m.d.comb += to.eq(Cat(bits, bits[-1].replicate(len(to) - len(bits))))
    # CE0 enables `left`, CE1 is always high.
    enables = dict.fromkeys(REGISTERS, "CE1") | ({} if left_enable is None else {"AREG": "CE0"})
    parameters: dict[str, object] = {
        "p_FB_PREG_EN": "FALSE",
        "p_SOA_PREG_EN": "FALSE",
        "p_MULT_RESET_MODE": "SYNC",
        "p_MULT12X12_EN": "FALSE",
        "p_PRE_LOAD": C(0, RESULT_WIDTH),
    }
    for register in (*REGISTERS, *BYPASSED):
        parameters[f"p_{register}_CLK"] = "CLK0" if register in REGISTERS else "BYPASS"
        parameters[f"p_{register}_CE"] = enables.get(register, "CE0")
        parameters[f"p_{register}_RESET"] = "RESET0"
    for choice in SELECTED:
        parameters |= {f"p_DYN_{choice}": "FALSE", f"p_{choice}": C(0, 1)}
    m.submodules[f"{name}_multiplier"] = Instance(
        "MULTALU27X18",
        **parameters,
        **{f"i_{port}": C(0, width) for port, width in UNUSED.items()},
        i_A=a,
        i_B=b,
        i_CLK=Cat(ClockSignal(), C(0, 1)),
        i_CE=Cat(C(0, 1) if left_enable is None else left_enable, C(1, 1)),
        o_DOUT=whole,
    )
    product = Signal(signed(len(left) + len(right)), name=name)
    m.d.comb += product.eq(whole[: len(product)])
    return product

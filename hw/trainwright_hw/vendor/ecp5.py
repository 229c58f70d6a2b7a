"""Multiplier of an ECP5 with its registers."""

from amaranth.hdl import C, Cat, ClockSignal, Instance, Module, Signal, Value, signed

WIDTH = 18
"""Bits of an operand of a MULT18X18D."""


def mult18x18d(
    m: Module, name: str, left: Value, right: Value, *, left_enable: Value | None = None
) -> Signal:
    """Build ``arith.multiplier.registered_product`` from a MULT18X18D: at most 18 bits each."""
    if max(len(left), len(right)) > WIDTH:
        raise ValueError(f"operands of {len(left)} and {len(right)} bits exceed {WIDTH}")
    # Left-aligned: the primitive's low bits are constant, and the sign is wired only once.
    a = Cat(C(0, WIDTH - len(left)), left)
    b = Cat(C(0, WIDTH - len(right)), right)
    whole = Signal(2 * WIDTH, name=f"{name}_whole")
    # Multipliers of a block share their enables, so all use the same two: CE0 enables `left`, CE3
    # is always high.
    ports = {f"i_A{n}": a[n] for n in range(WIDTH)}
    ports |= {f"i_B{n}": b[n] for n in range(WIDTH)}
    ports |= {f"o_P{n}": whole[n] for n in range(2 * WIDTH)}
    ports |= {"i_SIGNEDA": C(1), "i_SIGNEDB": C(1), "i_SOURCEA": C(0), "i_SOURCEB": C(0)}
    ports |= {"i_CLK0": ClockSignal(), "i_CE3": C(1)}
    if left_enable is not None:
        ports["i_CE0"] = left_enable
    registers = {
        "INPUTA": "CE3" if left_enable is None else "CE0",
        "INPUTB": "CE3",
        "OUTPUT": "CE3",
    }
    parameters = {}
    for register, enable in registers.items():
        parameters[f"p_REG_{register}_CLK"] = "CLK0"
        parameters[f"p_REG_{register}_CE"] = enable
    m.submodules[f"{name}_multiplier"] = Instance("MULT18X18D", **parameters, **ports)
    product = Signal(signed(len(left) + len(right)), name=name)
    m.d.comb += product.eq(whole[2 * WIDTH - len(product) :])
    return product

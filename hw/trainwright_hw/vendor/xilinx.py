"""Two products with a shared operand from one DSP48E2 of an UltraScale+ device."""

from collections.abc import Sequence

from amaranth.hdl import C, Cat, ClockSignal, Instance, Module, Signal, Value, signed

WIDE, NARROW, RESULT = 27, 18, 48
"""Bits of the pre-adder, of the multiplier's other operand, and of the result."""
PARAMETERS: dict[str, object] = {
    # one register each for both operands of the pre-adder, the shared operand and the result
    **{"AREG": 1, "ACASCREG": 1, "DREG": 1, "BREG": 1, "BCASCREG": 1, "PREG": 1},
    **{"ADREG": 0, "CREG": 0, "MREG": 0, "ALUMODEREG": 0, "OPMODEREG": 0, "INMODEREG": 0},
    **{"CARRYINREG": 0, "CARRYINSELREG": 0},
    **{"AMULTSEL": "AD", "BMULTSEL": "B", "PREADDINSEL": "A", "USE_MULT": "MULTIPLY"},
    **{"A_INPUT": "DIRECT", "B_INPUT": "DIRECT", "USE_SIMD": "ONE48"},
}
INMODE, OPMODE = 0b00100, 0b00_011_01_01
"""A + D is multiplied; C is added to the product."""
UNUSED = {
    **{"ACIN": 30, "BCIN": 18, "PCIN": 48, "ALUMODE": 4, "CARRYINSEL": 3},
    **dict.fromkeys(("CARRYIN", "CARRYCASCIN", "MULTSIGNIN", "CEA1", "CEB1", "CEAD", "CEM"), 1),
    **dict.fromkeys(("CEALUMODE", "CEC", "CECARRYIN", "CECTRL", "CEINMODE"), 1),
    **dict.fromkeys(("RSTA", "RSTB", "RSTC", "RSTD", "RSTM", "RSTP", "RSTALLCARRYIN"), 1),
    **dict.fromkeys(("RSTALUMODE", "RSTCTRL", "RSTINMODE"), 1),
}
"""Inputs that are 0, and their bits."""


def pair_fits(own: int, shared: int) -> bool:
    """Return whether ``dsp48e2_pair`` accepts operands of these widths."""
    return 2 * own + shared + 1 <= WIDE and shared <= NARROW


def dsp48e2_pair(
    m: Module, name: str, own: Sequence[Value], shared: Value, *, enable: Value | None = None
) -> list[Signal]:
    """Multiply two signed values of equal width by ``shared``, in ``PRODUCT_CYCLES``.

    The registers of ``own`` load in cycles of ``enable``; None: in every cycle. Raises
    ``ValueError`` if ``pair_fits`` is false.

    With low = own[0], high = own[1], and products of w bits,

        (high 2^w + low) shared + 2^(w-1) = (high shared) 2^w + (low shared + 2^(w-1))

    The last term is in [0, 2^w), so it borrows nothing from the other product; it is the low
    product with the top bit inverted. The pre-adder joins the operands, and the adder behind the
    multiplier adds 2^(w-1). The only LUT is the inverter, which merges with the logic that adds the
    product.
    """
    low, high = own
    if len(low) != len(high) or not pair_fits(len(low), len(shared)):
        raise ValueError(
            f"operands of {len(low)} and {len(high)} bits with a shared one of {len(shared)}: two "
            f"of w bits and one of v need 2 w + v + 1 <= {WIDE}"
        )
    width = len(low) + len(shared)
    whole = Signal(RESULT, name=f"{name}_whole")
    taken = C(1, 1) if enable is None else enable
    m.submodules[f"{name}_multiplier"] = Instance(
        "DSP48E2",
        **{f"p_{parameter}": value for parameter, value in PARAMETERS.items()},
        **{f"i_{port}": C(0, bits) for port, bits in UNUSED.items()},
        i_CLK=ClockSignal(),
        i_A=_extended(Cat(C(0, width), high), WIDE + 3),
        i_D=_extended(low, WIDE),
        i_B=_extended(shared, NARROW),
        i_C=C(1 << (width - 1), RESULT),
        i_INMODE=C(INMODE, 5),
        i_OPMODE=C(OPMODE, 9),
        i_CEA2=taken,
        i_CED=taken,
        i_CEB2=C(1, 1),
        i_CEP=C(1, 1),
        o_P=whole,
    )
    products = [Signal(signed(width), name=f"{name}_{part}") for part in ("low", "high")]
    m.d.comb += [
        products[0].eq(Cat(whole[: width - 1], ~whole[width - 1])),
        products[1].eq(whole[width : 2 * width]),
    ]
    return products


def _extended(bits: Value, width: int) -> Value:
    """Extend a value by its top bit: its shape may be unsigned although its contents are signed."""
    return Cat(bits, bits[-1].replicate(width - len(bits)))

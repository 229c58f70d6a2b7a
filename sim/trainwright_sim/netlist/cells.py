"""Verilog modules of the ECP5's cells, with pins as in a netlist, around models in ``cells.v``."""

from pathlib import Path

MODELS = Path(__file__).with_name("cells.v")
INITIAL = [f"INITVAL_{n:02X}" for n in range(64)]


def _bus(name: str, width: int) -> str:
    """Return the pins of a bus as a Verilog concatenation, highest bit first."""
    return "{" + ", ".join(f"{name}{n}" for n in reversed(range(width))) + "}"


def _pins(**widths: int) -> list[str]:
    return [f"{name}{n}" for name, width in widths.items() for n in range(width)]


def _dp16kd() -> str:
    inputs = _pins(ADA=14, ADB=14, DIA=18, DIB=18, CSA=3, CSB=3)
    inputs += "CLKA CEA OCEA WEA RSTA CLKB CEB OCEB WEB RSTB".split()
    outputs = _pins(DOA=18, DOB=18)
    named = {"DATA_WIDTH_A": 18, "DATA_WIDTH_B": 18}
    texts = (
        "REGMODE_A REGMODE_B RESETMODE ASYNC_RESET_RELEASE CSDECODE_A CSDECODE_B CLKAMUX CLKBMUX"
    )
    texts += " WRITEMODE_A WRITEMODE_B GSR INIT_DATA WID"
    parameters = [f"parameter {name} = {value};" for name, value in named.items()]
    parameters += [f"parameter [319:0] {name} = 0;" for name in INITIAL]
    parameters += [f'parameter {name} = "NORMAL";' for name in texts.split()]
    wires = {"ADA": 14, "ADB": 14, "DIA": 18, "DIB": 18, "DOA": 18, "DOB": 18}
    connections = [f".{name}({_bus(name, width)})" for name, width in wires.items()]
    connections += [
        f".{name}({name})" for name in "CLKA CEA OCEA WEA RSTA CLKB CEB OCEB WEB RSTB".split()
    ]
    return f"""
module DP16KD(input {", ".join(inputs)}, output {", ".join(outputs)});
{chr(10).join(parameters)}
trainwright_dp16kd #(.WIDTH_A(DATA_WIDTH_A), .WIDTH_B(DATA_WIDTH_B), .WRITE_A(WRITEMODE_A),
                 .WRITE_B(WRITEMODE_B), .REG_A(REGMODE_A == "OUTREG"),
                 .REG_B(REGMODE_B == "OUTREG"), .CONTENTS({{{", ".join(reversed(INITIAL))}}}))
  model({", ".join(connections)});
endmodule
"""


def _mult18x18d() -> str:
    inputs = _pins(A=18, B=18, C=18, CLK=4, CE=4, RST=4, SRIA=18, SRIB=18)
    inputs += "SIGNEDA SIGNEDB SOURCEA SOURCEB".split()
    outputs = [*_pins(P=36, SROA=18, SROB=18, ROA=18, ROB=18, ROC=18), "SIGNEDP"]
    parameters = []
    for register in "INPUTA INPUTB INPUTC PIPELINE OUTPUT".split():
        for what, default in (("CLK", "NONE"), ("CE", "CE0"), ("RST", "RST0")):
            parameters.append(f'parameter REG_{register}_{what} = "{default}";')
    for name in "CLK0_DIV CLK1_DIV CLK2_DIV CLK3_DIV HIGHSPEED_CLK GSR CAS_MATCH_REG".split():
        parameters.append(f'parameter {name} = "NONE";')
    for name in "SOURCEB_MODE MULT_BYPASS RESETMODE".split():
        parameters.append(f'parameter {name} = "NONE";')

    def enable(register: str) -> str:
        return (
            "(" + " : ".join(f'REG_{register}_CE == "CE{n}" ? CE{n}' for n in range(3)) + " : CE3)"
        )

    return f"""
module MULT18X18D(input {", ".join(inputs)}, output {", ".join(outputs)});
{chr(10).join(parameters)}
trainwright_mult18x18d #(
  .REG_A(REG_INPUTA_CLK != "NONE"), .REG_B(REG_INPUTB_CLK != "NONE"),
  .REG_P(REG_OUTPUT_CLK != "NONE")
) model(
  .CLK(CLK0), .CE_A({enable("INPUTA")}), .CE_B({enable("INPUTB")}), .CE_P({enable("OUTPUT")}),
  .SIGNEDA(SIGNEDA), .SIGNEDB(SIGNEDB),
  .A({_bus("A", 18)}), .B({_bus("B", 18)}), .P({_bus("P", 36)})
);
endmodule
"""


def verilog() -> str:
    """Return Verilog models of the cells, including DP16KD and MULT18X18D."""
    return MODELS.read_text() + _dp16kd() + _mult18x18d()

// Behaviour of a DSP48E2 as far as trainwright_hw.vendor.xilinx uses it (UG579): the pre-adder, the
// multiplier of 27 x 18 bits, and C or nothing added to the product; a register, or none, of A, B, D
// and P. Whatever else is asked of it gives no number.
module DSP48E2 #(
    parameter ACASCREG = 1, ADREG = 1, ALUMODEREG = 1, AREG = 1, BCASCREG = 1, BREG = 1,
    parameter CARRYINREG = 1, CARRYINSELREG = 1, CREG = 1, DREG = 1, INMODEREG = 1, MREG = 1,
    parameter OPMODEREG = 1, PREG = 1,
    parameter AMULTSEL = "A", BMULTSEL = "B", PREADDINSEL = "A", USE_MULT = "MULTIPLY",
    parameter A_INPUT = "DIRECT", B_INPUT = "DIRECT", USE_SIMD = "ONE48"
) (
    input CLK, CEA1, CEA2, CEAD, CEALUMODE, CEB1, CEB2, CEC, CECARRYIN, CECTRL, CED, CEINMODE, CEM,
    input CEP, RSTA, RSTALLCARRYIN, RSTALUMODE, RSTB, RSTC, RSTCTRL, RSTD, RSTINMODE, RSTM, RSTP,
    input CARRYIN, CARRYCASCIN, MULTSIGNIN,
    input [29:0] A, ACIN,
    input [17:0] B, BCIN,
    input [26:0] D,
    input [47:0] C, PCIN,
    input [3:0] ALUMODE,
    input [4:0] INMODE,
    input [8:0] OPMODE,
    input [2:0] CARRYINSEL,
    output [47:0] P
);
  localparam KNOWN = ADREG == 0 && CREG == 0 && MREG == 0 && ALUMODEREG == 0 && OPMODEREG == 0 &&
    INMODEREG == 0 && CARRYINREG == 0 && CARRYINSELREG == 0 && AREG < 2 && ACASCREG == AREG &&
    BREG < 2 && BCASCREG == BREG && PREADDINSEL == "A" && BMULTSEL == "B" &&
    USE_MULT == "MULTIPLY" && A_INPUT == "DIRECT" && B_INPUT == "DIRECT" && USE_SIMD == "ONE48";
  reg [29:0] a = 0;
  reg [17:0] b = 0;
  reg [26:0] d = 0;
  reg [47:0] p = 0;
  always @(posedge CLK) begin
    if (RSTA) a <= 0; else if (CEA2) a <= A;
    if (RSTB) b <= 0; else if (CEB2) b <= B;
    if (RSTD) d <= 0; else if (CED) d <= D;
    if (RSTP) p <= 0; else if (CEP) p <= sum;
  end
  wire signed [17:0] right = BREG ? b : B;
  wire [26:0] from_a = INMODE[1] ? 27'd0 : AREG ? a[26:0] : A[26:0];
  wire [26:0] from_d = ~INMODE[2] ? 27'd0 : DREG ? d : D;
  wire signed [26:0] left =
    AMULTSEL == "A" ? from_a : INMODE[3] ? from_d - from_a : from_d + from_a;
  wire signed [47:0] product = left * right;
  wire known = KNOWN && ~INMODE[4] && ~INMODE[0] && OPMODE[3:0] == 4'b0101 && OPMODE[8:7] == 0 &&
    (OPMODE[6:4] == 3'b000 || OPMODE[6:4] == 3'b011) && ALUMODE == 0 && CARRYINSEL == 0 && ~CARRYIN;
  wire [47:0] sum = known ? product + (OPMODE[4] ? C : 48'd0) : 48'hx;
  assign P = PREG ? p : sum;
endmodule

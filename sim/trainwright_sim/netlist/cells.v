// Behaviour of the ECP5 cells that yosys has as black boxes, as far as its own mapping and
// trainwright_hw.arith.multiplier use them. `A`, `B` and so on are the pins, gathered by cells.py.

// Two ports of block RAM, 1 to 18 bits wide; 36 bits are written through port A and read through
// port B, the upper half on the other port's pins. Addresses count bits: the lowest that a width
// does not need enable bytes of 9 bits when writing. CONTENTS has a word every 20 bits.
module trainwright_dp16kd #(
    parameter WIDTH_A = 18,
    parameter WIDTH_B = 18,
    parameter WRITE_A = "NORMAL",
    parameter WRITE_B = "NORMAL",
    parameter REG_A = 0,
    parameter REG_B = 0,
    parameter [20479:0] CONTENTS = 0
) (
    input CLKA, CEA, OCEA, WEA, RSTA, CLKB, CEB, OCEB, WEB, RSTB,
    input [13:0] ADA, ADB,
    input [17:0] DIA, DIB,
    output [17:0] DOA, DOB
);
  reg [17:0] memory[0:1023];
  integer n;
  initial
    for (n = 0; n < 1024; n = n + 1)
      memory[n] = CONTENTS[20*n+:18];

  // The part of a word that a narrow access means.
  function [17:0] part(input integer width, input [17:0] word, input [3:0] low);
    case (width)
      1: part = word[9*low[3]+low[2:0]];
      2: part = word[9*low[3]+2*low[2:1]+:2];
      4: part = word[9*low[3]+4*low[2]+:4];
      9: part = word[9*low[3]+:9];
      default: part = word;
    endcase
  endfunction

  function [17:0] merged(input integer width, input [17:0] word, input [17:0] data,
                         input [3:0] low);
    begin
      merged = word;
      case (width)
        1: merged[9*low[3]+low[2:0]] = data[0];
        2: merged[9*low[3]+2*low[2:1]+:2] = data[1:0];
        4: merged[9*low[3]+4*low[2]+:4] = data[3:0];
        9: merged[9*low[3]+:9] = data[8:0];
        default: begin
          if (low[0]) merged[8:0] = data[8:0];
          if (low[1]) merged[17:9] = data[17:9];
        end
      endcase
    end
  endfunction

  reg [17:0] out_a = 0, out_b = 0, out_top = 0;
  wire write_a = CEA & WEA & ~RSTA;
  wire write_b = CEB & WEB & ~RSTB;
  wire [17:0] old_a = memory[ADA[13:4]];
  wire [17:0] old_b = memory[ADB[13:4]];
  wire [17:0] new_a = merged(WIDTH_A, old_a, DIA, ADA[3:0]);
  wire [17:0] new_b = merged(WIDTH_B, old_b, DIB, ADB[3:0]);

  always @(posedge CLKA) begin
    if (write_a) begin
      if (WIDTH_A == 36) begin
        memory[{ADA[13:5], 1'b0}] <= merged(18, memory[{ADA[13:5], 1'b0}], DIA, ADA[3:0]);
        memory[{ADA[13:5], 1'b1}] <= merged(18, memory[{ADA[13:5], 1'b1}], DIB, {2'b0, ADA[3:2]});
      end else memory[ADA[13:4]] <= new_a;
    end
    if (RSTA) out_a <= 0;
    else if (CEA) begin
      if (!WEA || WRITE_A == "READBEFOREWRITE") out_a <= part(WIDTH_A, old_a, ADA[3:0]);
      else if (WRITE_A == "WRITETHROUGH") out_a <= part(WIDTH_A, new_a, ADA[3:0]);
    end
  end

  always @(posedge CLKB) begin
    if (write_b) memory[ADB[13:4]] <= new_b;
    if (RSTB) begin
      out_b <= 0;
      out_top <= 0;
    end else if (CEB) begin
      if (WIDTH_B == 36) begin
        out_b <= memory[{ADB[13:5], 1'b0}];
        out_top <= memory[{ADB[13:5], 1'b1}];
      end else if (!WEB || WRITE_B == "READBEFOREWRITE") out_b <= part(WIDTH_B, old_b, ADB[3:0]);
      else if (WRITE_B == "WRITETHROUGH") out_b <= part(WIDTH_B, new_b, ADB[3:0]);
    end
  end

  // Output registers, behind those of the memory; both belong to port B where that is 36 wide.
  reg [17:0] late_a = 0, late_b = 0, late_top = 0;
  always @(posedge CLKA) if (OCEA) late_a <= RSTA ? 0 : out_a;
  always @(posedge CLKB) if (OCEB) begin
    late_b <= RSTB ? 0 : out_b;
    late_top <= RSTB ? 0 : out_top;
  end
  wire [17:0] now_a = REG_A ? late_a : out_a;
  wire [17:0] now_b = REG_B ? late_b : out_b;

  assign DOA = WIDTH_B == 36 ? now_b : now_a;
  assign DOB = WIDTH_B == 36 ? (REG_B ? late_top : out_top) : now_b;
endmodule

// A multiplier with registers where the parameters name a clock; each register has its enable.
module trainwright_mult18x18d #(
    parameter REG_A = 0,
    parameter REG_B = 0,
    parameter REG_P = 0
) (
    input CLK, CE_A, CE_B, CE_P, SIGNEDA, SIGNEDB,
    input [17:0] A, B,
    output [35:0] P
);
  reg [17:0] a = 0, b = 0;
  reg [35:0] p = 0;
  wire [17:0] a_now = REG_A ? a : A;
  wire [17:0] b_now = REG_B ? b : B;
  wire signed [18:0] left = {SIGNEDA & a_now[17], a_now};
  wire signed [18:0] right = {SIGNEDB & b_now[17], b_now};
  wire signed [37:0] product = left * right;
  always @(posedge CLK) begin
    if (CE_A) a <= A;
    if (CE_B) b <= B;
    if (CE_P) p <= product[35:0];
  end
  assign P = REG_P ? p : product[35:0];
endmodule

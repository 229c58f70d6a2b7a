// Behaviour of the GW5A cells that yosys has as black boxes, as far as its own mapping and
// trainwright_hw.vendor.gowin use them; the cells themselves are in gowin_cells.py.

// Two ports of block RAM: 2,048 bytes of 8 or 9 bits; a port is a part of a byte, a byte, two or
// four bytes wide. Addresses count bits; the lowest enable bytes when two or four are written. What
// is written shows at the output where THROUGH says so. Contents begin as zeros.
module trainwright_bsram #(
    parameter BYTE = 9,
    parameter WIDTH_A = 36,
    parameter WIDTH_B = 36,
    parameter THROUGH_A = 0,
    parameter THROUGH_B = 0
) (
    input CLKA, CEA, WREA, RESETA, CLKB, CEB, WREB, RESETB,
    input [13:0] ADA, ADB,
    input [4*BYTE-1:0] DIA, DIB,
    output reg [4*BYTE-1:0] DOA, DOB
);
  localparam BYTES_A = WIDTH_A < BYTE ? 1 : WIDTH_A / BYTE;
  localparam BYTES_B = WIDTH_B < BYTE ? 1 : WIDTH_B / BYTE;
  reg [BYTE-1:0] memory[0:2047];
  integer n;
  initial begin
    for (n = 0; n < 2048; n = n + 1) memory[n] = 0;
    DOA = 0;
    DOB = 0;
  end

  function [10:0] place(input integer bytes, input [13:0] address, input [1:0] number);
    case (bytes)
      1: place = address[13:3];
      2: place = {address[13:4], number[0]};
      default: place = {address[13:5], number};
    endcase
  endfunction

  // The part of a byte that a narrow access means.
  function [BYTE-1:0] part(input integer width, input [BYTE-1:0] data, input [2:0] low);
    case (width)
      1: part = data[low];
      2: part = data[2*low[2:1]+:2];
      4: part = data[4*low[2]+:4];
      default: part = data;
    endcase
  endfunction

  function [BYTE-1:0] merged(input integer width, input [BYTE-1:0] old, input [BYTE-1:0] data,
                             input [2:0] low);
    begin
      merged = old;
      case (width)
        1: merged[low] = data[0];
        2: merged[2*low[2:1]+:2] = data[1:0];
        4: merged[4*low[2]+:4] = data[3:0];
        default: merged = data;
      endcase
    end
  endfunction

  // A port: what it reads, what it would write, and where.
  genvar i;
  generate
    for (i = 0; i < 4; i = i + 1) begin : lane
      wire [10:0] place_a = place(BYTES_A, ADA, i);
      wire [10:0] place_b = place(BYTES_B, ADB, i);
      wire [BYTE-1:0] old_a = memory[place_a];
      wire [BYTE-1:0] old_b = memory[place_b];
      wire [BYTE-1:0] new_a = merged(WIDTH_A, old_a, DIA[i*BYTE+:BYTE], ADA[2:0]);
      wire [BYTE-1:0] new_b = merged(WIDTH_B, old_b, DIB[i*BYTE+:BYTE], ADB[2:0]);
      wire write_a = CEA & WREA & (i < BYTES_A) & (BYTES_A == 1 | ADA[i]);
      wire write_b = CEB & WREB & (i < BYTES_B) & (BYTES_B == 1 | ADB[i]);
      always @(posedge CLKA) begin
        if (write_a) memory[place_a] <= new_a;
        if (RESETA) DOA[i*BYTE+:BYTE] <= 0;
        else if (CEA & ~WREA) DOA[i*BYTE+:BYTE] <= part(WIDTH_A, old_a, ADA[2:0]);
        else if (CEA & THROUGH_A) DOA[i*BYTE+:BYTE] <= part(WIDTH_A, new_a, ADA[2:0]);
      end
      always @(posedge CLKB) begin
        if (write_b) memory[place_b] <= new_b;
        if (RESETB) DOB[i*BYTE+:BYTE] <= 0;
        else if (CEB & ~WREB) DOB[i*BYTE+:BYTE] <= part(WIDTH_B, old_b, ADB[2:0]);
        else if (CEB & THROUGH_B) DOB[i*BYTE+:BYTE] <= part(WIDTH_B, new_b, ADB[2:0]);
      end
    end
  endgenerate
endmodule

// A signed product with registers where the parameters say so; each has its enable.
module trainwright_mult27x18 #(
    parameter REG_A = 0,
    parameter REG_B = 0,
    parameter REG_P = 0
) (
    input CLK, CE_A, CE_B, CE_P,
    input [26:0] A,
    input [17:0] B,
    output [47:0] P
);
  reg [26:0] a = 0;
  reg [17:0] b = 0;
  reg [47:0] p = 0;
  wire signed [26:0] left = REG_A ? a : A;
  wire signed [17:0] right = REG_B ? b : B;
  wire signed [47:0] product = left * right;
  always @(posedge CLK) begin
    if (CE_A) a <= A;
    if (CE_B) b <= B;
    if (CE_P) p <= product;
  end
  assign P = REG_P ? p : product;
endmodule

// A bench in Verilog-2005 for the packaged accelerator: one run of a program, by any simulator.
//
// +memory=FILE and +result=FILE hold the external memory before and after as beats in hexadecimal;
// +address and +length name the program, +words the 32-bit registers to print from +base on.
// The memory is that of `MemoryModel.ideal()`: a beat each way a cycle, bursts answered in order, a
// read sees what was there when its address was taken, a write is there once it is answered.
`timescale 1ns / 1ps
module bench;
  parameter BEAT = 4;  // bytes
  parameter BEATS = 65536;  // of memory
  parameter READ_LATENCY = 1;
  parameter WRITE_LATENCY = 1;
  parameter OUTSTANDING = 32;
  localparam SLOTS = 64, LONGEST = 256;

  reg clk = 0, rst = 1;
  always #5 clk = ~clk;

  reg [15:0] awaddr, araddr;
  reg [31:0] wdata;
  reg awvalid = 0, wvalid = 0, bready = 0, arvalid = 0, rready = 0;
  wire awready, wready, bvalid, arready, rvalid, irq;
  wire [31:0] rdata;

  wire [31:0] m_awaddr, m_araddr;
  wire [7:0] m_awlen, m_arlen;
  wire m_awvalid, m_arvalid, m_wvalid, m_wlast, m_bready, m_rready;
  wire [8*BEAT-1:0] m_wdata;
  wire [BEAT-1:0] m_wstrb;
  reg m_awready = 0, m_arready = 0, m_wready = 0, m_bvalid = 0, m_rvalid = 0, m_rlast = 0;
  reg [8*BEAT-1:0] m_rdata;

  trainwright dut (
    .clk(clk), .rst(rst), .irq(irq),
    .s_axil_awaddr(awaddr), .s_axil_awprot(3'b0), .s_axil_awvalid(awvalid),
    .s_axil_awready(awready), .s_axil_wdata(wdata), .s_axil_wstrb(4'hF), .s_axil_wvalid(wvalid),
    .s_axil_wready(wready), .s_axil_bvalid(bvalid), .s_axil_bready(bready),
    .s_axil_araddr(araddr), .s_axil_arprot(3'b0), .s_axil_arvalid(arvalid),
    .s_axil_arready(arready), .s_axil_rdata(rdata), .s_axil_rvalid(rvalid),
    .s_axil_rready(rready),
    .m_axi_awaddr(m_awaddr), .m_axi_awlen(m_awlen), .m_axi_awvalid(m_awvalid),
    .m_axi_awready(m_awready), .m_axi_wdata(m_wdata), .m_axi_wstrb(m_wstrb),
    .m_axi_wlast(m_wlast), .m_axi_wvalid(m_wvalid), .m_axi_wready(m_wready), .m_axi_bid(1'b0),
    .m_axi_bresp(2'b0), .m_axi_bvalid(m_bvalid), .m_axi_bready(m_bready),
    .m_axi_araddr(m_araddr), .m_axi_arlen(m_arlen), .m_axi_arvalid(m_arvalid),
    .m_axi_arready(m_arready), .m_axi_rid(1'b0), .m_axi_rdata(m_rdata), .m_axi_rresp(2'b0),
    .m_axi_rlast(m_rlast), .m_axi_rvalid(m_rvalid), .m_axi_rready(m_rready)
  );

  // --- memory ---
  reg [8*BEAT-1:0] memory [0:BEATS-1];
  reg [8*BEAT-1:0] read_data [0:SLOTS*LONGEST-1], write_data [0:SLOTS*LONGEST-1];
  reg [BEAT-1:0] strobes [0:SLOTS*LONGEST-1];
  reg [31:0] read_due [0:SLOTS-1], write_due [0:SLOTS-1], write_beat [0:SLOTS-1];
  reg [7:0] read_length [0:SLOTS-1], write_length [0:SLOTS-1];
  integer now = 0, reads = 0, read = 0, writes = 0, filled = 0, written = 0;
  integer beat_out = 0, beat_in = 0, k, b;
  reg giving, answering;

  always @(posedge clk) if (!rst) begin
    giving = m_rvalid;
    answering = m_bvalid;
    if (m_arvalid && m_arready) begin
      read_due[reads % SLOTS] = now + READ_LATENCY;
      read_length[reads % SLOTS] = m_arlen;
      for (k = 0; k <= m_arlen; k = k + 1)
        read_data[reads % SLOTS * LONGEST + k] = memory[m_araddr / BEAT + k];
      reads = reads + 1;
    end
    if (m_awvalid && m_awready) begin
      write_beat[writes % SLOTS] = m_awaddr / BEAT;
      write_length[writes % SLOTS] = m_awlen;
      writes = writes + 1;
    end
    if (m_wvalid && m_wready) begin
      write_data[filled % SLOTS * LONGEST + beat_in] = m_wdata;
      strobes[filled % SLOTS * LONGEST + beat_in] = m_wstrb;
      if (m_wlast !== (beat_in == write_length[filled % SLOTS])) $display("fault: WLAST");
      beat_in = beat_in + 1;
      if (m_wlast) begin
        write_due[filled % SLOTS] = now + WRITE_LATENCY;
        filled = filled + 1;
        beat_in = 0;
      end
    end
    if (answering && m_bready) begin
      written = written + 1;
      answering = 0;
    end
    if (giving && m_rready) begin
      if (m_rlast) begin
        read = read + 1;
        beat_out = 0;
      end
      giving = 0;
    end
    now = now + 1;
    m_arready <= reads - read < OUTSTANDING;
    m_awready <= writes - written < OUTSTANDING;
    m_wready <= writes > filled;
    if (!giving && reads > read && read_due[read % SLOTS] <= now) begin
      giving = 1;
      m_rdata <= read_data[read % SLOTS * LONGEST + beat_out];
      m_rlast <= beat_out == read_length[read % SLOTS];
      beat_out = beat_out + 1;
    end
    if (!answering && filled > written && write_due[written % SLOTS] <= now) begin
      answering = 1;
      for (k = 0; k <= write_length[written % SLOTS]; k = k + 1)
        for (b = 0; b < BEAT; b = b + 1)
          if (strobes[written % SLOTS * LONGEST + k][b])
            memory[write_beat[written % SLOTS] + k][8*b +: 8] =
              write_data[written % SLOTS * LONGEST + k][8*b +: 8];
    end
    m_rvalid <= giving;
    m_bvalid <= answering;
  end

  // --- host ---
  task write_register(input [15:0] address, input [31:0] value);
    begin
      @(posedge clk);
      awaddr <= address;
      wdata <= value;
      awvalid <= 1;
      wvalid <= 1;
      bready <= 1;
      @(posedge clk);
      while (!(bvalid && bready)) begin
        if (awready) awvalid <= 0;
        if (wready) wvalid <= 0;
        @(posedge clk);
      end
      bready <= 0;
    end
  endtask

  task print_register(input [15:0] address);
    begin
      @(posedge clk);
      araddr <= address;
      arvalid <= 1;
      rready <= 1;
      @(posedge clk);
      while (!(rvalid && rready)) begin
        if (arready) arvalid <= 0;
        @(posedge clk);
      end
      rready <= 0;
      $display("%h %h", address, rdata);
    end
  endtask

  reg [8*256-1:0] file;
  reg [31:0] address, length, words;
  integer n;
  initial begin
    if (!$value$plusargs("memory=%s", file)) $finish;
    $readmemh(file, memory);
    if (!$value$plusargs("address=%d", address)) $finish;
    if (!$value$plusargs("length=%d", length)) $finish;
    if (!$value$plusargs("words=%d", words)) words = 0;
    repeat (8) @(posedge clk);
    rst <= 0;
    @(posedge clk);
    write_register(16'h018, 1);  // INTERRUPT_ENABLE
    write_register(16'h01C, 200000);  // WATCHDOG
    write_register(16'h010, address);
    write_register(16'h014, length);
    write_register(16'h008, 1);  // start
    while (irq !== 1) @(posedge clk);
    print_register(16'h00C);  // STATUS
    for (n = 0; n < 28; n = n + 1) print_register(16'h040 + 4 * n);  // counters
    for (n = 0; n < words; n = n + 1) print_register(16'h1000 + 4 * n);  // statistics
    if ($value$plusargs("result=%s", file)) $writememh(file, memory);
    $finish;
  end
endmodule

"""x"""
import cocotb
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge, Timer

@cocotb.test()
async def test_x(dut):
    dut.rst.value = 1
    dut.valid.value = 0
    dut.configure.value = 0
    await Timer(1, "ns")
    Clock(dut.clk, 10, "ns").start()
    for _ in range(10):
        await RisingEdge(dut.clk)

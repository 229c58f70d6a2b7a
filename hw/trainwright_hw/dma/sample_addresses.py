"""Addresses of the records of SAMPLES: the generator of the order, and index times stride."""

from amaranth.hdl import C, Module, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from trainwright.program.fields import COUNT_WIDTH, ORDER_WIDTH, REGISTER_WIDTH
from trainwright.program.sample_order import EPOCH_STEP, MULTIPLIER
from trainwright.program.samples import Samples
from trainwright_hw.control.engine_ports import (
    TRANSFER_LAYOUT,
    OrderPort,
    command_layout,
    write_bytes,
)

SAMPLES_LAYOUT = command_layout(Samples.layout)


def samples_view(command) -> data.View:
    """View a transfer command's bits as the fields of SAMPLES."""
    return data.View(SAMPLES_LAYOUT, Value.cast(command)[: SAMPLES_LAYOUT.size])


class SampleAddresses(wiring.Component):
    """Generator of the address of each record of a SAMPLES, in order.

    The generator's next value and index * stride are computed together without a multiplier, by
    shift and add: one bit of the index per cycle, up to its highest 1.

    Members: ``start`` begins with ``command``, which must not change while ``busy``; ``address``, a
    stream of byte addresses; ``busy`` rises in the cycle after ``start`` and falls after the last
    address was taken; ``order``, the generator's registers.
    """

    def __init__(self):
        super().__init__(
            {
                "start": In(1),
                "command": In(TRANSFER_LAYOUT),
                "address": Out(stream.Signature(REGISTER_WIDTH)),
                "busy": Out(1),
                "order": Out(OrderPort()),
            }
        )

    def elaborate(self, platform):
        m = Module()
        d, order = samples_view(self.command), self.order
        left = Signal(COUNT_WIDTH)  # samples left, the present one included
        # The loop multiplies the index twice: `after` = index * MULTIPLIER + increment is the next
        # value of the generator, and the address adds index * stride.
        rest, factor, after = (
            Signal(ORDER_WIDTH, name=name) for name in ("rest", "factor", "after")
        )
        index = Signal(ORDER_WIDTH)
        step, address = Signal(REGISTER_WIDTH), Signal(REGISTER_WIDTH)  # step: stride * 2^n
        m.d.comb += [
            index.eq(order.next & d.order_mask),
            self.address.payload.eq(address),
            self.busy.eq(1),
        ]
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += self.busy.eq(0)
                with m.If(self.start):
                    m.d.sync += [left.eq(d.samples), address.eq(d.address), step.eq(d.stride)]
                    m.next = "OFFER"
                    with m.If(d.drawn):
                        m.next = "BEGIN"
            with m.State("BEGIN"):
                m.d.sync += [
                    rest.eq(index),
                    factor.eq(MULTIPLIER),
                    after.eq(order.increment | 1),
                    step.eq(d.stride),
                    address.eq(d.address),
                ]
                m.next = "MULTIPLY"
            with m.State("MULTIPLY"):
                # One bit a cycle is fast enough: a record takes many beats, and addresses run ahead
                # of them.
                m.d.sync += [rest.eq(rest >> 1), factor.eq(factor << 1), step.eq(step << 1)]
                with m.If(rest[0]):
                    m.d.sync += [after.eq(after + factor), address.eq(address + step)]
                with m.If(rest == 0):
                    m.next = "OFFER"
                    # The generator's period is a power of two: numbers past the data set are
                    # skipped.
                    with m.If(index >= d.total):
                        m.d.sync += order.next.eq(after & d.order_mask)
                        m.next = "BEGIN"
            with m.State("OFFER"):
                m.d.comb += self.address.valid.eq(1)
                with m.If(self.address.ready):
                    m.d.sync += [left.eq(left - 1), address.eq(address + step)]
                    with m.If(d.drawn):
                        self._draw(m, d, after)
                        m.next = "BEGIN"
                    with m.If(left == 1):
                        m.next = "IDLE"
        for bit, register in enumerate((order.next, order.increment, order.left)):
            write_bytes(m, order.write[bit], register, order.keep, order.value)
        return m

    def _draw(self, m: Module, d, after) -> None:
        """Advance the generator after a sample, or begin the next epoch."""
        order = self.order
        m.d.sync += [order.next.eq(after & d.order_mask), order.left.eq(order.left - 1)]
        # The order of the next epoch starts at another place with another increment: no table is
        # stored.
        with m.If(order.left == 1):
            m.d.sync += [
                order.next.eq(d.order_first),
                order.increment.eq(order.increment + C(EPOCH_STEP, REGISTER_WIDTH)),
                order.left.eq(d.order_length),
            ]

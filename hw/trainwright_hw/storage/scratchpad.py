"""The scratchpad: banks of rows that all engines read and write."""

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In
from amaranth.utils import exact_log2

from trainwright.parameters import AcceleratorParameters
from trainwright_hw.storage.banks import Banks, granted
from trainwright_hw.storage.ports import (
    ROW_LATENCY,
    ReadPort,
    WritePort,
    bank_and_row,
    banks_asked,
    outside_member,
)
from trainwright_hw.stream.round_robin import RoundRobin

SETTLING = 1
"""Cycles after a write is taken in which a read may still return the old row."""


class Scratchpad(wiring.Component):
    """Banks of one read and one write port, shared by several clients.

    The bank of a row is the top bits of its address; bits above the address range are ignored. Each
    bank serves one reader and one writer per cycle, chosen round robin among its requesters, so
    clients in different banks never wait for each other. A client's rows come in the order of its
    requests, exactly ``ROW_LATENCY`` cycles after each was taken. If a row's write was taken in the
    cycle of its read, or up to ``SETTLING`` cycles before, it is unspecified whether the old or the
    new row is read.

    Requests to a bank, its output, and each client's row are registered: the path from the arbiters
    to the block RAM, which covers much of a device, takes a cycle, as does the block RAM itself,
    and as does the path back to the clients. Written data follows its address by a cycle, with the
    grants in registers, because each grant selects a whole row.

    Members: ``read``, an array of ``readers`` ports; ``write``, an array of ``writers`` ports; with
    ``address_checks``, ``outside``, high for a cycle after each request beyond the address range.
    """

    def __init__(self, parameters: AcceleratorParameters, *, readers: int = 4, writers: int = 3):
        self.parameters = parameters
        super().__init__(
            {
                "read": In(ReadPort(parameters)).array(readers),
                "write": In(WritePort(parameters)).array(writers),
                **outside_member(parameters),
            }
        )

    def _arbitrate(self, m: Module, name: str, requests: list, asked: list) -> list[Value]:
        """Build an arbiter per bank; return the grants, one bit per client, and set ``ready``.

        ``asked`` has one bit per bank for each client.
        """
        grants = []
        # An arbiter a bank: engines that work in different banks never delay each other, which is
        # why the compiler spreads operands over banks.
        for bank in range(self.parameters.scratchpad_banks):
            m.submodules[f"{name}_arbiter{bank}"] = arbiter = RoundRobin(len(requests))
            m.d.comb += arbiter.requests.eq(Cat(banks[bank] for banks in asked))
            grants.append(arbiter.grant)
        for client, request in enumerate(requests):
            # A client asks for one bank at a time, so any grant is its grant.
            m.d.comb += request.ready.eq(Cat(grant[client] for grant in grants).any())
        return grants

    def elaborate(self, platform):
        m = Module()
        m.submodules.banks = banks = Banks(
            self.parameters, readers=len(self.read), writers=len(self.write)
        )
        self._write_side(m, banks)
        self._read_side(m, banks)
        if self.parameters.address_checks:
            requests = [port.request for port in (*self.read, *self.write)]
            rows = exact_log2(self.parameters.scratchpad_rows)
            # Sticky errors are kept by the sequencer: here a cycle of the fault is enough.
            m.d.sync += self.outside.eq(
                Cat(r.valid & r.ready & r.payload[rows:].any() for r in requests).any()
            )
        return m

    def _write_side(self, m: Module, banks: Banks) -> None:
        requests = [port.request for port in self.write]
        grants = self._arbitrate(m, "write", requests, [port.banks for port in self.write])
        for client, port in enumerate(self.write):
            _, place = bank_and_row(self.parameters, port.request.payload)
            register = Signal.like(place, name=f"write_place{client}", reset_less=True)
            m.d.sync += register.eq(place)
            m.d.comb += [
                getattr(banks, f"write_place{client}").eq(register),
                getattr(banks, f"write_row{client}").eq(port.row),
            ]
        for bank, grant in enumerate(grants):
            # The grant waits in a register for its row, which follows the address by a cycle.
            chosen = Signal.like(grant, name=f"write_grant{bank}")
            m.d.sync += chosen.eq(grant)
            m.d.comb += banks.granted[bank].eq(chosen)

    def _read_side(self, m: Module, banks: Banks) -> None:
        requests = [port.request for port in self.read]
        asked = [banks_asked(self.parameters, r.valid, r.payload) for r in requests]
        grants = self._arbitrate(m, "read", requests, asked)
        places = [bank_and_row(self.parameters, request.payload) for request in requests]
        rows = [row for _, row in places]
        for bank, grant in enumerate(grants):
            enable = Signal(name=f"read_enable{bank}")
            # Registered before the block RAM: the arbiters end late, and their fan-out covers the
            # banks.
            to = banks.read_place[bank]
            address = Signal.like(to, name=f"read_address{bank}", reset_less=True)
            m.d.sync += [enable.eq(grant.any()), address.eq(granted(grant, rows))]
            m.d.comb += [banks.read[bank].eq(enable), to.eq(address)]
        for client, reader in enumerate(self.read):
            bank, _ = places[client]
            # One stage per register on the way: the bank's request, its block RAM, its row, and the
            # client's row.
            valid: Value = reader.request.ready
            source: Value = bank
            for stage in range(ROW_LATENCY - 1):
                was_valid, was_source = valid, source
                valid = Signal(name=f"valid{client}_{stage}")
                source = Signal(len(bank), name=f"source{client}_{stage}", reset_less=True)
                m.d.sync += [valid.eq(was_valid), source.eq(was_source)]
            m.d.sync += reader.valid.eq(valid)
            m.d.comb += [
                getattr(banks, f"source{client}").eq(source),
                reader.row.eq(getattr(banks, f"row{client}")),
            ]

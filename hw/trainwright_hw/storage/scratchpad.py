"""The scratchpad: banks of rows that all engines read and write."""

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In
from amaranth.utils import exact_log2

from trainwright.parameters import AcceleratorParameters
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
"""Cycles after that in which a write is taken, in which a read may still get the old row."""


class Scratchpad(wiring.Component):
    """Banks of one read and one write port, shared by several clients.

    The bank of a row is the top bits of its address; bits above the address range are ignored.
    Each bank serves one reader and one writer a cycle, chosen round robin among those that ask for
    it, so that clients in different banks never wait for each other. A client's rows come in the
    order of its requests, exactly ``ROW_LATENCY`` cycles after each was taken. Of a row whose
    write was taken in the cycle of its read, or ``SETTLING`` cycles before, it is unspecified
    whether the old or the new one is read.

    What a bank is asked for is in registers of its own, for reads and writes alike, and so is what
    it gives, and what a client gets: the way from the arbiters to the block RAM, which covers much
    of a device, is a cycle by itself, so is that of the block RAM, and the way from there to the
    clients. What is written follows its address by a cycle, with the grants in registers: each of
    these chooses a whole row.

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
        """Grants of every bank, one bit a client, and the clients' ``ready``.

        ``asked`` has one bit a bank for each client.
        """
        grants = []
        for bank in range(self.parameters.scratchpad_banks):
            m.submodules[f"{name}_arbiter{bank}"] = arbiter = RoundRobin(len(requests))
            m.d.comb += arbiter.requests.eq(Cat(banks[bank] for banks in asked))
            grants.append(arbiter.grant)
        for client, request in enumerate(requests):
            m.d.comb += request.ready.eq(Cat(grant[client] for grant in grants).any())
        return grants

    def elaborate(self, platform):
        m = Module()
        width = self.parameters.lanes * self.parameters.word_width
        memories = [
            Memory(shape=width, depth=self.parameters.bank_rows, init=[])
            for _ in range(self.parameters.scratchpad_banks)
        ]
        for bank, memory in enumerate(memories):
            m.submodules[f"bank{bank}"] = memory
        self._write_side(m, memories)
        self._read_side(m, memories)
        if self.parameters.address_checks:
            requests = [port.request for port in (*self.read, *self.write)]
            rows = exact_log2(self.parameters.scratchpad_rows)
            m.d.sync += self.outside.eq(
                Cat(r.valid & r.ready & r.payload[rows:].any() for r in requests).any()
            )
        return m

    def _write_side(self, m: Module, memories: list[Memory]) -> None:
        requests = [port.request for port in self.write]
        grants = self._arbitrate(m, "write", requests, [port.banks for port in self.write])
        rows = [port.row.as_value() for port in self.write]
        places = []
        for client, request in enumerate(requests):
            _, place = bank_and_row(self.parameters, request.payload)
            register = Signal.like(place, name=f"write_place{client}", reset_less=True)
            m.d.sync += register.eq(place)
            places.append(register)
        for bank, (memory, grant) in enumerate(zip(memories, grants, strict=True)):
            port = memory.write_port()
            chosen = Signal.like(grant, name=f"write_grant{bank}")
            enable = Signal(name=f"write_enable{bank}")
            address = Signal.like(port.addr, name=f"write_address{bank}", reset_less=True)
            row = Signal.like(port.data, name=f"write_row{bank}", reset_less=True)
            m.d.sync += [
                chosen.eq(grant),
                enable.eq(chosen.any()),
                address.eq(granted(chosen, places)),
                row.eq(granted(chosen, rows)),
            ]
            m.d.comb += [port.en.eq(enable), port.addr.eq(address), port.data.eq(row)]

    def _read_side(self, m: Module, memories: list[Memory]) -> None:
        requests = [port.request for port in self.read]
        asked = [banks_asked(self.parameters, r.valid, r.payload) for r in requests]
        grants = self._arbitrate(m, "read", requests, asked)
        ports = [memory.read_port() for memory in memories]
        given = [
            Signal.like(port.data, name=f"given{bank}", reset_less=True)
            for bank, port in enumerate(ports)
        ]
        m.d.sync += [row.eq(port.data) for row, port in zip(given, ports, strict=True)]
        places = [bank_and_row(self.parameters, request.payload) for request in requests]
        rows = [row for _, row in places]
        for bank, (port, grant) in enumerate(zip(ports, grants, strict=True)):
            enable = Signal(name=f"read_enable{bank}")
            address = Signal.like(port.addr, name=f"read_address{bank}", reset_less=True)
            m.d.sync += [enable.eq(grant.any()), address.eq(granted(grant, rows))]
            m.d.comb += [port.en.eq(enable), port.addr.eq(address)]
        for client, reader in enumerate(self.read):
            bank, _ = places[client]
            # of the request that a bank's registers hold, its block RAM, its row's register, and
            # that of the client
            valid: Value = reader.request.ready
            source: Value = bank
            for stage in range(ROW_LATENCY - 1):
                was_valid, was_source = valid, source
                valid = Signal(name=f"valid{client}_{stage}")
                source = Signal(len(bank), name=f"source{client}_{stage}", reset_less=True)
                m.d.sync += [valid.eq(was_valid), source.eq(was_source)]
            taken = Signal.like(reader.row, name=f"taken{client}", reset_less=True)
            m.d.sync += reader.valid.eq(valid)
            m.d.comb += reader.row.eq(taken)
            with m.Switch(source):
                for number, row in enumerate(given):
                    with m.Case(number):
                        m.d.sync += taken.eq(row)


def granted(grant: Value, values: list[Value]) -> Value:
    """That of ``values`` whose bit of ``grant`` is set, 0 if none is; at most one may be."""
    chosen = [value & bit.replicate(len(value)) for value, bit in zip(values, grant, strict=True)]
    while len(chosen) > 1:
        chosen = [
            *(a | b for a, b in zip(chosen[::2], chosen[1::2], strict=False)),
            *(chosen[-1:] if len(chosen) % 2 else []),
        ]
    return chosen[0]

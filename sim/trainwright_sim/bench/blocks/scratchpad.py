"""Scratchpad: contents, latency, order, and who waits for whom."""

from collections import deque

import cocotb

from trainwright.parameters import AcceleratorParameters
from trainwright.program.fields import LOCAL_WIDTH
from trainwright_hw.storage.ports import ROW_LATENCY
from trainwright_hw.storage.scratchpad import SETTLING
from trainwright_sim.bench.streams import StreamSource
from trainwright_sim.bench.testbench import STALLS, TestBench, pack

READERS, WRITERS = 4, 3


class WriteSource(StreamSource):
    """Sends write requests: addresses, and in ``banks`` one bit for the bank of the one offered."""

    def __init__(self, tb: TestBench, name: str, *, stall: str):
        super().__init__(tb, f"{name}_request", stall=stall)
        self._parameters = tb.parameters
        self._banks = tb.handle(f"{name}_banks")
        self._banks.value = 0

    def cycle(self) -> None:
        super().cycle()
        self._banks.value = 1 << bank_of(self._parameters, self.items[0]) if self.offered else 0


def bank_of(p: AcceleratorParameters, address: int) -> int:
    """Return the bank of an address, ignoring bits above the range of rows."""
    return address % p.scratchpad_rows // p.bank_rows


class ScratchpadBench(TestBench):
    """Random requests at every port; a model looks at each cycle."""

    def __init__(self, dut, seed: object, stall: str):
        super().__init__(dut, seed)
        p = self.parameters
        self.model: list[int | None] = [None] * p.scratchpad_rows
        self.reads = [StreamSource(self, f"read_{n}_request", stall=stall) for n in range(READERS)]
        self.writes = [WriteSource(self, f"write_{n}", stall=stall) for n in range(WRITERS)]
        self._rows = [self.handle(f"write_{n}_row") for n in range(WRITERS)]
        self._due: list[deque[set[int | None] | None]] = [
            deque([None] * ROW_LATENCY) for _ in range(READERS)
        ]
        self._settling: deque[dict[int, int | None]] = deque([{}] * SETTLING, maxlen=SETTLING)
        self._waited = {f"{kind}_{n}": 0 for kind in ("read", "write") for n in range(READERS)}
        self.answers = 0
        self.agents.append(self)

    def cycle(self) -> None:
        """Model one cycle: rows that are due, then what was accepted."""
        p = self.parameters
        for n in range(READERS):
            due = self._due[n].popleft()
            assert bool(self.get(f"read_{n}_valid")) == (due is not None)
            if due is not None:
                assert None in due or self.get(f"read_{n}_row") in due
                self.answers += 1
        written = {}
        for n, address in self._accepted("write", WRITERS):
            words = [self.random.getrandbits(p.word_width) for _ in range(p.lanes)]
            row = pack(words, p.word_width)
            written[address % p.scratchpad_rows] = row
            self._rows[n].value = row  # of the next cycle
        taken = dict(self._accepted("read", READERS))
        for n in range(READERS):
            due = None
            if n in taken:
                row = taken[n] % p.scratchpad_rows
                due = {self.model[row], written.get(row, self.model[row])}
                due |= {earlier[row] for earlier in self._settling if row in earlier}
            self._due[n].append(due)
        self._settling.append({row: self.model[row] for row in written})
        for row, bits in written.items():
            self.model[row] = bits

    def _accepted(self, kind: str, clients: int) -> list[tuple[int, int]]:
        """List (client, payload) of this cycle's grants, checking that the arbitration is fair."""
        asking: dict[int, list[tuple[int, int, bool]]] = {}
        for n in range(clients):
            if self.get(f"{kind}_{n}_request_valid"):
                bits = self.get(f"{kind}_{n}_request_payload")
                bank = bank_of(self.parameters, bits)
                granted = bool(self.get(f"{kind}_{n}_request_ready"))
                asking.setdefault(bank, []).append((n, bits, granted))
        accepted = []
        for requests in asking.values():
            granted = [(n, bits) for n, bits, is_granted in requests if is_granted]
            assert len(granted) == 1, "each bank serves one of those that ask for it"
            accepted += granted
            for n, _, is_granted in requests:
                waited = 0 if is_granted else self._waited[f"{kind}_{n}"] + 1
                assert waited < clients, f"{kind} {n} starves"
                self._waited[f"{kind}_{n}"] = waited
        return accepted

    def address(self, row: int) -> int:
        """Return an address of ``row``, sometimes with bits above the range."""
        above = self.random.getrandbits(LOCAL_WIDTH) // self.parameters.scratchpad_rows
        return row + self.random.choice((0, above * self.parameters.scratchpad_rows))

    @property
    def idle(self) -> bool:
        return all(source.idle for source in (*self.reads, *self.writes))


@cocotb.test()
@cocotb.parametrize(seed=range(2), stall=STALLS)
async def random_requests(dut, seed: int, stall: str):
    """Use all ports at once on few rows, so that requests meet in banks and in rows."""
    tb = ScratchpadBench(dut, f"{seed} {stall}", stall)
    p = tb.parameters
    rows = [bank * p.bank_rows + n for bank in range(p.scratchpad_banks) for n in range(3)]
    rows += [(bank + 1) * p.bank_rows - 1 for bank in range(p.scratchpad_banks)]
    await tb.start()
    tb.writes[0].items.extend(rows)
    await tb.until(lambda: tb.idle)
    await tb.run(2)
    for source in tb.writes:
        source.items.extend(tb.address(tb.random.choice(rows)) for _ in range(150))
    for source in tb.reads:
        source.items.extend(tb.address(tb.random.choice(rows)) for _ in range(200))
    await tb.until(lambda: tb.idle)
    await tb.run(ROW_LATENCY + 1)
    assert tb.answers == READERS * 200


@cocotb.test()
async def all_rows(dut):
    """Write every row, then check that each kept its contents."""
    tb = ScratchpadBench(dut, "all rows", "none")
    await tb.start()
    rows = list(range(tb.parameters.scratchpad_rows))
    tb.random.shuffle(rows)
    for n, row in enumerate(rows):
        tb.writes[n % WRITERS].items.append(row)
    await tb.until(lambda: tb.idle)
    await tb.run(SETTLING)
    for n, row in enumerate(rows):
        tb.reads[n % READERS].items.append(row)
    await tb.until(lambda: tb.idle)
    await tb.run(ROW_LATENCY + 1)
    assert tb.answers == len(rows) and None not in tb.model


@cocotb.test()
@cocotb.parametrize(one_bank=(False, True))
async def throughput(dut, one_bank: bool):
    """Check that clients in different banks never wait, and that one bank is shared evenly."""
    tb = ScratchpadBench(dut, "throughput", "none")
    await tb.start()
    before, count = tb.cycles, 100
    for n in range(READERS):
        bank = 0 if one_bank else n % tb.parameters.scratchpad_banks
        tb.reads[n].items.extend([bank * tb.parameters.bank_rows + n] * count)
    await tb.until(lambda: tb.idle)
    await tb.run(ROW_LATENCY + 1)
    assert tb.cycles - before <= count * (READERS if one_bank else 1) + 6

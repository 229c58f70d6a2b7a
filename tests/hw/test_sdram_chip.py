"""The model of a chip notices what a controller must not do; cycles are no less than times."""

from dataclasses import replace

import pytest
from folded import each

from trainwright_hw.external.sdram.request import request_layout
from trainwright_hw.external.sdram.timing import SdramTiming
from trainwright_sim.sdram import PINS, SdramChip

CLOCK_HZ = 100e6
CODES = {"nop": 7, "activate": 3, "read": 5, "write": 4, "precharge": 2, "refresh": 1, "mode": 0}
ALL, CL2_BL4 = 1 << 10, 0x22


class Script:
    """Commands one by one, with cycles of nothing before each."""

    def __init__(self, clock_hz: float = CLOCK_HZ, power_up_ns: float = 100.0):
        self.chip = SdramChip(clock_hz, power_up_ns=power_up_ns)

    def step(self, command: str = "nop", **pins: int) -> int:
        code = CODES[command]
        values = {"ras_n": code >> 2, "cas_n": code >> 1 & 1, "we_n": code & 1, "cke": 1} | pins
        return self.chip.step([values.get(name, 0) for name in PINS])

    def wait(self, cycles: int) -> list[int]:
        return [self.step() for _ in range(cycles)]

    def power_up(self, refreshes: int = 8, mode: int = CL2_BL4) -> "Script":
        self.wait(10)
        self.step("precharge", a=ALL)
        self.wait(1)
        for _ in range(refreshes):
            self.step("refresh") if self.wait(7) else None
        self.wait(7)
        self.step("mode", a=mode)
        self.wait(2)
        return self


def test_sdram_chip_returns_written_words_after_latency():
    script = Script().power_up()
    script.step("activate", ba=2, a=77)
    script.wait(2)
    script.step("write", ba=2, a=8, dq_o=1, dq_oe=1)
    script.step(dq_o=2, dq_oe=1, dqm=1)
    script.step(dq_o=3, dq_oe=1, dqm=3)
    script.step(dq_o=0x104, dq_oe=1, dqm=2)
    script.wait(3)
    script.step("read", ba=2, a=8)
    words = script.wait(6)
    assert script.chip.fault == ""
    assert words[:4] == [1, 0, 0, 4]
    at = ((77 * 4 + 2) * 512 + 8) * 2
    assert bytes(script.chip.memory[at : at + 8]) == bytes([1, 0, 0, 0, 0, 0, 4, 0])


def opened() -> Script:
    script = Script().power_up()
    script.step("activate", ba=1, a=5)
    return script


def written() -> Script:
    script = opened()
    script.wait(5)
    script.step("write", ba=1, dq_oe=1)
    for _ in range(3):
        script.step(dq_oe=1)
    return script


FAULTS = {
    "before the end of power-up": lambda: [(Script(), "precharge", {"a": ALL})],
    "REFRESH: before PRECHARGE of all": lambda: [(Script(), "refresh", {})],
    "LOAD MODE: too few refreshes": lambda: [(Script().power_up(refreshes=7), "nop", {})],
    "LOAD MODE: a mode": lambda: [(Script().power_up(mode=0x227), "nop", {})],
    "too fast for the CAS latency": lambda: [(Script(120e6, 50.0).power_up(), "nop", {})],
    "ACTIVATE: before LOAD MODE": lambda: [(Script(), "activate", {})],
    "READ: no row is open": lambda: [(Script().power_up(), "read", {})],
    "READ: tRCD": lambda: [(opened(), "read", {"ba": 1})],
    "ACTIVATE: the bank has an open row": lambda: [(opened(), 4, {}), ("activate", {"ba": 1})],
    "ACTIVATE: tRRD": lambda: [(opened(), "activate", {"ba": 2})],
    "PRECHARGE: tRAS": lambda: [(opened(), 2, {}), ("precharge", {"ba": 1})],
    "ACTIVATE: tRP": lambda: [(opened(), 5, {}), ("precharge", {"ba": 1}), ("activate", {"ba": 1})],
    "READ: with automatic": lambda: [(opened(), 3, {}), ("read", {"ba": 1, "a": ALL})],
    "READ: the burst would wrap": lambda: [(opened(), 3, {}), ("read", {"ba": 1, "a": 2})],
    "READ: cuts a burst": lambda: [
        (opened(), 3, {}),
        ("read", {"ba": 1}),
        (2, {}),
        ("read", {"ba": 1}),
    ],
    "PRECHARGE: cuts a burst": lambda: [
        (opened(), 3, {}),
        ("read", {"ba": 1}),
        (1, {}),
        ("precharge", {"ba": 1}),
    ],
    "READ: masked": lambda: [(opened(), 3, {}), ("read", {"ba": 1}), ("nop", {"dqm": 1})],
    "data: driven from both sides": lambda: [
        (opened(), 3, {}),
        ("read", {"ba": 1}),
        ("nop", {"dq_oe": 1}),
    ],
    "WRITE: its data is not driven": lambda: [(opened(), 3, {}), ("write", {"ba": 1})],
    "PRECHARGE: tWR": lambda: [(written(), "precharge", {"ba": 1})],
    "REFRESH: a row is open": lambda: [(opened(), 9, {}), ("refresh", {})],
    "ACTIVATE: tRFC": lambda: [(Script().power_up(), "refresh", {}), (5, {}), ("activate", {})],
    "REFRESH: too late": lambda: [(Script().power_up(), 9 * 782, {})],
    "CKE: low": lambda: [(Script().power_up(), "nop", {"cke": 0})],
}


@pytest.mark.parametrize("message", FAULTS)
def test_sdram_chip_names_protocol_breach(message):
    """The last command of each script, and none before, is one too many."""
    (script, *first), *later = FAULTS[message]()
    steps = [tuple(first), *later]
    for n, (command, pins) in enumerate(steps):
        assert n == 0 or script.chip.fault == ""
        if isinstance(command, int):
            script.wait(command)
        else:
            script.step(command, **pins)
    assert message in script.chip.fault


@pytest.mark.parametrize(
    "clock_hz", [25e6, 45e6, 54e6, 66e6, 75e6, 80e6, 90e6, 100e6, 120e6, 133e6]
)
def test_cycles_are_no_less_than_the_times(clock_hz):
    timing = SdramTiming()
    cycles = timing.cycles(clock_hz)
    period = 1e9 / clock_hz
    for name in ("trcd", "trp", "tras", "trc", "trfc", "twr", "tmrd", "power_up"):
        count, least = getattr(cycles, name), getattr(timing, f"{name}_ns")
        assert count * period >= least - 1e-3
        assert (count - 1) * period < least or count <= 2
    assert cycles.trefi * period <= timing.trefi_ns < (cycles.trefi + 1) * period
    assert cycles.cas_latency == (2 if clock_hz <= 100e6 else 3)


@each("clock_hz", range(25_000_000, 101_000_000, 1_000_000))
def test_read_data_is_taken_well_within_its_time(clock_hz):
    timing = SdramTiming()
    margins = timing.capture_margins(clock_hz)
    assert max(margins) > 1.2
    lead = timing.cycles(clock_hz).late_capture
    assert margins[lead] == max(margins)


def test_sdram_timing_rejects_fast_clock_and_wide_beat():
    with pytest.raises(ValueError, match="at most 133 MHz, not 150 MHz"):
        SdramTiming().cycles(150e6)
    with pytest.raises(ValueError, match="a beat must be 2, 4 or 8 words of 32 bits, not 32 bits"):
        request_layout(replace(SdramTiming(), data_width=32), 32)

"""Races are seen: hardware or a scheduler that leaves out a wait differs from the golden model."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import pywellen
from accelerators import ALONE

from trainwright.accelerator import Run
from trainwright.check.comparison import carrying_signal
from trainwright.check.hazards import check_hazards
from trainwright.check.step import check_step
from trainwright.compiler.base import hazards as scheduler
from trainwright.network import load_network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Descriptor, Halt, Program
from trainwright.program.engines import ENGINE_OF
from trainwright.program.fields import Engine
from trainwright.support.native.cache import Cache
from trainwright_sim.backend import RtlAccelerator
from trainwright_sim.design import kept_rtlil
from trainwright_sim.memory import MemoryModel
from trainwright_sim.waves import CYCLE, Waveform, design_names


class Impatient(RtlAccelerator):
    """The hardware with a sequencer that does not wait for the engines in its masks."""

    wait = wait_older = Engine.NONE

    def _hasty(self, d: Descriptor) -> Descriptor:
        if isinstance(d, Halt):
            return d
        return replace(d, wait=d.wait & ~self.wait, wait_older=d.wait_older & ~self.wait_older)

    def without_latency(self) -> Iterator[str]:
        """Run programs once, in place of ``timings``: commands are closest without latency."""
        given = self.memory
        try:
            self.memory = MemoryModel.ideal()
            yield "ideal"
        finally:
            self.memory = given

    def run(self, program: Program, address: int, *, trace: bool = False) -> Run:
        descriptors = tuple(map(self._hasty, program.descriptors))
        return super().run(replace(program, descriptors=descriptors), address, trace=trace)


@pytest.fixture(scope="module")
def opened() -> Iterator[Impatient]:
    with Impatient(AcceleratorParameters(), memory_bytes=1 << 24) as accelerator:
        yield accelerator


@pytest.fixture
def rtl(opened: Impatient) -> Impatient:
    opened.wait = opened.wait_older = Engine.NONE
    return opened


def test_hazard_programs_on_right_hardware_agree(rtl):
    given = rtl.memory
    comparison = check_hazards(rtl)
    assert comparison.mismatches == {} and comparison.values > 1_000_000
    assert rtl.memory == given


@pytest.mark.parametrize("name", ["LOAD", "STORE", "PE1", "PE2"])
def test_hazard_programs_without_wait_for_engine_differ(rtl, name):
    """A STORE that is not waited for was seen by no step of digits or fashion."""
    rtl.wait = Engine[name]
    comparison = check_hazards(rtl)
    assert comparison.differing > 0
    first = comparison.first_mismatch
    assert first is not None and name in first.tensor and first.wanted != first.actual
    assert first.descriptor is not None and first.cycles is not None
    assert 0 < first.cycles[0] < first.cycles[1]
    wrong = "m_axi_wdata" if first.operation == "STORE" else f".[{first.lane}]"
    assert first.signal is not None and first.signal.endswith(wrong)


@pytest.fixture
def once(rtl: Impatient, monkeypatch) -> Impatient:
    """Let half of the runs of hazards find a fault."""
    monkeypatch.setattr(rtl, "timings", rtl.without_latency)
    return rtl


@pytest.mark.parametrize("name", ["PE1", "PE2"])
def test_hazard_programs_without_wait_for_older_commands_differ(once, name):
    once.wait_older = Engine[name]
    assert check_hazards(once).differing > 0


def test_carrying_signals_of_every_operation_are_in_the_design():
    names = set(design_names(kept_rtlil(ALONE, trace=True, cache=Cache())[0]))
    for operation in ENGINE_OF:
        for lane in (None, 0, ALONE.lanes - 1):
            signal = carrying_signal(operation, lane)
            assert names & {f"top.simulated.inner.{scope}{signal}" for scope in ("", "design.")}


@pytest.mark.slow
def test_carrying_signal_of_first_mismatch_has_found_value_in_its_cycles(tmp_path):
    """A sequencer that ignores waits of PE1; the waveform of the descriptor found."""
    p, path = AcceleratorParameters(), tmp_path / "x.fst"
    with Impatient(p, memory_bytes=1 << 24, engine="waves", trace=True) as waving:
        waving.wait = Engine.PE1
        first = check_step(load_network("digits"), 16, waving).comparison.first_mismatch
        assert first is not None and first.program == "backward"  # whose waveform stays
        assert None not in (first.descriptor, first.signal, first.cycles)
        waving.waveform = Waveform(path, first.descriptor, first.descriptor, (first.signal,))
        again = check_step(load_network("digits"), 16, waving).comparison.first_mismatch
    assert again == first
    wave = pywellen.Waveform(str(path), stream_only=True)
    (signal,) = (v for v in wave.all_vars() if v.full_name.endswith(f"design.{first.signal}"))
    seen = []
    wave.stream_changes(lambda time, _, value: seen.append((time // CYCLE, int(value))), [signal])
    begin, end = first.cycles
    assert first.actual is not None
    assert any(begin <= cycle <= end and value == first.actual % (1 << 16) for cycle, value in seen)


def test_check_step_at_default_batch_sees_ignored_wait_older(rtl):
    rtl.wait_older = Engine.ALL
    assert check_step(load_network("digits"), 64, rtl).comparison.differing > 0


def _without(reads_after_writes: bool, writes_after_reads: bool, writes_after_writes: bool):
    def conflict(touched, pending):
        return any(
            a.meets(b)
            for a in touched
            for b in pending
            if (b.write and not a.write and not reads_after_writes)
            or (a.write and not b.write and not writes_after_reads)
            or (a.write and b.write and not writes_after_writes)
        )

    return conflict


MUTANTS = {
    "reads after writes": {"conflict": _without(True, False, False)},
    "writes after reads": {"conflict": _without(False, True, False)},
    "writes after writes": {"conflict": _without(False, False, True)},
    "reads of an engine's own results": {"reads": lambda touched, pending: False},
    "last row": {
        "conflict": lambda touched, pending: any(
            (a.write or b.write) and a.space == b.space
            and a.start < b.stop - 9 and b.start < a.stop
            for a in touched for b in pending
        )
    },
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_hazard_programs_of_scheduler_that_forgets_differ(once, monkeypatch, name):
    right = scheduler.Hazards.waits

    def forgetful(self, engine, touched):
        return right(replace(self, **MUTANTS[name]), engine, touched)

    monkeypatch.setattr(scheduler.Hazards, "waits", forgetful)
    assert check_hazards(once).differing > 0


def test_hazard_programs_of_scheduler_that_forgets_older_commands_differ(once, monkeypatch):
    right = scheduler.Hazards.waits

    def forgetful(self, engine, touched):
        return right(self, engine, touched)._replace(wait_older=Engine.NONE)

    monkeypatch.setattr(scheduler.Hazards, "waits", forgetful)
    assert check_hazards(once).differing > 0


@pytest.fixture(scope="module")
def alone() -> Iterator[Impatient]:
    with Impatient(ALONE, memory_bytes=1 << 24) as accelerator:
        yield accelerator


def _seen(accelerator: Impatient, wait: Engine, wait_older: Engine) -> set[str]:
    """Return the kinds of commands among those of hazards that differ."""
    accelerator.wait, accelerator.wait_older = wait, wait_older
    comparison = check_hazards(accelerator)
    return {word.strip(",:") for name in comparison.mismatches for word in name.split()}


@pytest.mark.slow
def test_hazard_programs_of_vector_engine_and_samples_see_ignored_waits(alone):
    assert _seen(alone, Engine.NONE, Engine.NONE) == set()
    assert {"VECTOR", "SAMPLES"} <= _seen(alone, Engine.ALL, Engine.NONE)
    assert {"VECTOR", "SAMPLES"} <= _seen(alone, Engine.NONE, Engine.ALL)

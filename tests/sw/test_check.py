"""The check of bit-exactness: finds one wrong bit anywhere, counts it and names its tensor."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from trainwright.accelerator import AcceleratorError
from trainwright.check.comparison import Mismatch, carrying_signal
from trainwright.check.hazards import check_hazards
from trainwright.check.product import check_product
from trainwright.check.step import check_step, summary
from trainwright.check.training import check_training
from trainwright.compiler import compile_step
from trainwright.golden import interpreter
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import load_network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.fields import Operation

P = AcceleratorParameters()
DIGITS = load_network("digits")


@cache
def compiled():
    return compile_step(DIGITS, 4, P)


class Wrong(GoldenAccelerator):
    """The golden model, but ``spoil`` changes what its n-th run leaves behind."""

    def __init__(self, at: int, spoil):
        super().__init__(P, memory_bytes=compiled().memory_bytes)
        self._at, self._spoil, self._runs = at, spoil, 0

    def run(self, program, address, *, trace=False):
        done = super().run(program, address, trace=trace)
        self._runs += 1
        return self._spoil(self, done) if self._runs == self._at else done


def check(at: int, spoil):
    return check_step(DIGITS, 4, Wrong(at, spoil)).comparison


def traced(engine: str, change):
    """Return a function that spoils one engine's trace."""

    def spoil(_, run):
        trace = run.traces[engine]
        addresses, rows = change(trace.addresses.copy(), trace.rows.copy())
        return replace(
            run, traces=run.traces | {engine: replace(trace, addresses=addresses, rows=rows)}
        )

    return spoil


@cache
def labels(at: int, engine: str) -> list[str]:
    """Return the tensor of each row that an engine of the golden model writes."""
    names = []

    def look(_, run):
        names.extend(name for name, count in run.traces[engine].labels for _ in range(count))
        return run

    check(at, look)
    return names


def tensor_at(at: int, engine: str, row: int) -> str:
    """Return the tensor that the golden model writes at a row of a trace."""
    return labels(at, engine)[row]


def test_check_golden_model_agrees_with_itself():
    done = check_step(DIGITS, 4, GoldenAccelerator(P, memory_bytes=compiled().memory_bytes))
    assert done.comparison.differing == 0 and done.comparison.first is None
    assert done.comparison.mismatches == {}
    for name in ("l1.G2.x", "l2.a", "l2.dx", "l1.dG1", "l1.db in memory", "l1.y statistics"):
        assert done.comparison.tensors[name] > 0
    assert done.comparison.values == sum(done.comparison.tensors.values()) > 10_000
    assert done.step.macs == compiled().macs


@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.parametrize("engine", ["load", "pe1", "pe2"])
@pytest.mark.parametrize("row", [0, 7, -1])
def test_check_finds_wrong_bit_in_a_row(at, engine, row):
    def flip(addresses, rows):
        rows[row, 3] ^= 0x10
        return addresses, rows

    comparison = check(at, traced(engine, flip))
    assert comparison.mismatches == {tensor_at(at, engine, row): 1}
    assert comparison.first == tensor_at(at, engine, row)


@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.parametrize("engine", ["load", "pe1", "pe2"])
@pytest.mark.parametrize("row", [0, 7, -1])
def test_first_mismatch_of_a_flipped_bit_names_value_and_descriptor(at, engine, row):
    seen = {}

    def flip(addresses, rows):
        seen["wanted"], seen["address"] = int(rows[row, 3]), int(addresses[row])
        rows[row, 3] ^= 0x10
        return addresses, rows

    comparison = check(at, traced(engine, flip))
    first = comparison.first_mismatch
    assert first is not None
    assert (first.wanted, first.address) == (seen["wanted"], seen["address"])
    assert first.actual == first.wanted ^ 0x10 and first.lane == 3
    names = labels(at, engine)
    before = names[: range(len(names))[row]].count(first.tensor)
    assert first.row == before and first.program == ("forward", "backward")[at - 1]
    program = (compiled().forward, compiled().backward)[at - 1]
    assert first.descriptor is not None
    d = program.descriptors[first.descriptor]
    assert d.tensor == first.tensor == names[row]
    assert first.operation == d.operation.name and first.cycles is None


def test_first_mismatch_in_memory_names_address_and_store():
    def flip(accelerator, run):
        address = compiled().buffers["l1.dG1"].address + 5
        accelerator.write(address, accelerator.read(address, 1) ^ 4)
        return run

    first = check(2, flip).first_mismatch
    assert first is not None and first.descriptor is not None
    size = compiled().buffers["l1.dG1"].element_bytes
    assert first.address == compiled().buffers["l1.dG1"].address + 5 // size * size
    assert (first.program, first.operation) == ("backward", "STORE")
    assert compiled().backward.descriptors[first.descriptor].tensor == "l1.dG1"


def test_first_mismatch_of_a_moved_row_names_both_addresses():
    def move(addresses, rows):
        addresses[5] += 1
        return addresses, rows

    first = check(1, traced("pe1", move)).first_mismatch
    assert first is not None and first.what == "address"
    assert first.actual == first.wanted + 1


def test_check_finds_row_at_other_address():
    def move(addresses, rows):
        addresses[5] += 1
        return addresses, rows

    comparison = check(1, traced("pe1", move))
    assert comparison.mismatches == {tensor_at(1, "pe1", 5): P.lanes}


def test_rows_that_are_missing():
    comparison = check(1, traced("pe2", lambda addresses, rows: (addresses[:-2], rows[:-2])))
    assert comparison.mismatches == {"l2.a": 2 * P.lanes}


def test_rows_that_are_too_many():
    def repeat(addresses, rows):
        return np.append(addresses, addresses[-1:]), np.append(rows, rows[-1:], axis=0)

    comparison = check(1, traced("pe2", repeat))
    assert comparison.mismatches == {"rows written beyond the last tensor": P.lanes}


def test_no_rows_at_all():
    comparison = check(2, traced("pe1", lambda addresses, rows: (addresses[:0], rows[:0])))
    assert comparison.differing > 1000
    assert comparison.first in labels(2, "pe1")


@pytest.mark.parametrize("name", ["l1.dG1", "l2.db", "l1.a", "x", "l2.G1.x"])
def test_check_finds_wrong_bit_in_memory(name):
    def flip(accelerator, run):
        buffer = compiled().buffers[name]
        byte = accelerator.read(buffer.address + 5, 1)
        accelerator.write(buffer.address + 5, byte ^ 4)
        return run

    comparison = check(2, flip)
    assert comparison.mismatches == {f"{name} in memory": 1}


@pytest.mark.parametrize("counted", ["sums", "saturations", "underflows", "clips"])
def test_check_finds_wrong_statistic(counted):
    def spoil(_, run):
        values = getattr(run, counted).copy()
        values[1] += 1
        return replace(run, **{counted: values})

    assert check(1, spoil).mismatches == {"l1.y statistics": 1}


def test_check_error_spreads_and_its_origin_is_named_first():
    """A wrong activation in memory: the backward program reads it, and all that follows differs."""

    def flip(accelerator, run):
        address = compiled().buffers["l1.a"].address
        accelerator.write(address, accelerator.read(address, 64) ^ 1)
        return run

    comparison = check(1, flip)
    assert comparison.first == "l1.a"
    assert {"l2.dG1", "l2.dG1 in memory"} <= set(comparison.mismatches)


def test_figures_and_summary():
    done = check_step(DIGITS, 4, GoldenAccelerator(P, memory_bytes=compiled().memory_bytes))
    figures = done.to_dict()
    assert figures["network"] == "digits" and figures["batch"] == 4
    assert figures["mismatches"] == 0 and figures["first_mismatch"] is None
    assert figures["cycles"] is None and figures["mac_utilisation"] is None
    assert "values, the back end against the golden model: 0 mismatches" in summary(figures)
    first = Mismatch(tensor="l1.z1", row=3, lane=4, wanted=5, actual=-6, descriptor=7,
                     operation="PE4", program="forward", cycles=(8, 1009),
                     signal=carrying_signal(Operation.PE4, 4))  # fmt: skip
    figures |= {"mismatches": 3, "first_mismatch": first.to_dict()}
    assert summary(figures).splitlines()[-1] == (
        "first mismatch: l1.z1, row 3, lane 4: wanted 5, found -6, by descriptor 7 (PE4) of the "
        "forward program, which ran in cycles 8 to 1,009, on signal write_back.z__row.[4]"
    )


def test_check_golden_model_is_held_to_its_interpreter(monkeypatch):
    """A wrong shift of the interpreter alone is found, and what is compared is said."""
    accelerator = GoldenAccelerator(P, memory_bytes=compiled().memory_bytes)
    if accelerator.interpreted:
        pytest.skip("there is no compiler for the kernel")
    right = check_step(DIGITS, 4, accelerator)
    assert right.comparison.values > 0 and right.comparison.differing == 0
    assert "C kernel against its interpreter: 0" in summary(right.to_dict(), right.compared)
    before = interpreter.compute

    def wrong(d, state, p):
        return before(replace(d, shift=d.shift + 1) if d.tensor == "l2.y" else d, state, p)

    monkeypatch.setattr(interpreter, "compute", wrong)
    assert check_step(DIGITS, 4, accelerator).comparison.first == "l2.y"


def test_check_interpreter_is_not_compared_with_itself():
    accelerator = GoldenAccelerator(P, memory_bytes=compiled().memory_bytes, interpreted=True)
    with pytest.raises(AcceleratorError, match=r"no C compiler: .*--backend rtl"):
        check_step(DIGITS, 4, accelerator)


def test_figures_of_a_back_end_that_counts():
    done = check_step(DIGITS, 4, GoldenAccelerator(P, memory_bytes=compiled().memory_bytes))
    counted = replace(done, counters=replace(done.counters, cycles=10_000), seconds=2.0)
    figures = counted.to_dict()
    assert figures["sim_cycles_per_second"] == 5000
    assert figures["mac_utilisation"] == compiled().macs / 2_560_000
    assert "10,000 cycles" in summary(figures)


def test_another_seed_is_another_step():
    values = []
    for seed in (0, 1):
        accelerator = GoldenAccelerator(P, memory_bytes=compiled().memory_bytes)
        check_step(DIGITS, 4, accelerator, seed=seed)
        values.append(accelerator.read(0, compiled().memory_bytes))
    assert not np.array_equal(*values)


@pytest.mark.parametrize("check", [check_step, check_training])
@pytest.mark.parametrize(
    ("seed", "error", "message"),
    [
        ("1", TypeError, "seed must be an integer, not '1'"),
        (True, TypeError, "seed must be an integer, not True"),
        (-1, ValueError, "seed must be from 0 to"),
        (1 << 63, ValueError, "seed must be from 0 to"),
    ],
)
def test_check_with_a_seed_that_is_none_is_one_error(check, seed, error, message):
    with pytest.raises(error, match=message):
        check(DIGITS, 4, GoldenAccelerator(P, memory_bytes=1 << 16), seed=seed)


def test_check_of_hazards_and_products_refuse_a_seed_that_is_text():
    accelerator = GoldenAccelerator(P, memory_bytes=1 << 16)
    for check in (
        lambda: check_hazards(accelerator, seed="1"),
        lambda: check_product("float32", (2, 2, 2), accelerator, seed="1"),
    ):
        with pytest.raises(TypeError, match="seed must be an integer, not '1'"):
            check()

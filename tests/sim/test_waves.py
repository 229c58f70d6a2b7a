"""Waveforms: their window, signals and values, as a reader of other people sees them."""

import re
import shlex
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import pywellen

from trainwright.accelerator import AcceleratorError
from trainwright.check.parts import RandomStep
from trainwright.check.step import random_inputs
from trainwright.cli import core, main
from trainwright.cli.errors import OptionError
from trainwright.cli.options import accelerator_parameters
from trainwright.compiler.base.compiled import AUTO
from trainwright.driver import Driver
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import load_network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import (
    End,
    Halt,
    Loop,
    Program,
    Set,
    Transfer,
    is_skipped,
)
from trainwright.program.fields import Operation
from trainwright.program.vector import Vector
from trainwright_sim import copier
from trainwright_sim.backend import RtlAccelerator
from trainwright_sim.trace import _check_rows, commands_within, first_step, parse_range, stopped
from trainwright_sim.waves import CYCLE, Waveform, design_names, selected, signal_names

ADDRESS = 0x2000
NAMES = [
    f"top.simulated.{name}"
    for name in ("clk", *(f"inner.design.{n}" for n in (
        "reset", "pe1.busy", "pe1.fetch.row", "pe1.fetch.ready", "pe1.array.sum", "pe2.busy",
        "pe2.array.sum", "pe2.array.lane.sum",
    )))
]  # fmt: skip


@pytest.fixture(scope="module")
def waving(parameters):
    with RtlAccelerator(
        parameters, memory_bytes=1 << 18, engine="waves", design=copier.to_rtlil
    ) as accelerator:
        yield accelerator


def values_of(path, name):
    """Return the times and values of a signal's changes."""
    wave = pywellen.Waveform(str(path), stream_only=True)
    variables = [v for v in wave.all_vars() if v.full_name == name]
    changes = []
    wave.stream_changes(lambda time, _, value: changes.append((time, int(value))), variables)
    return changes


def test_waveform_of_descriptors_has_their_cycles(waving, parameters, make_program, tmp_path):
    path = tmp_path / "x.fst"
    waving.waveform = Waveform(path, 3, 4)
    run = waving.run(make_program(parameters, 10), ADDRESS, trace=True)
    spans = {c.number: (c.start, c.end) for c in run.commands}
    times = [time for time, _ in values_of(path, "top.simulated.inner.clk")]
    assert times[0] == CYCLE * spans[3][0]
    assert spans[4][1] < times[-1] / CYCLE <= spans[4][1] + 5
    numbers = values_of(path, "top.simulated.inner.trace_number")
    assert [value for _, value in numbers][:2] == [3, 4]


def test_waveform_of_whole_program_has_values_of_traced_rows(
    waving, parameters, make_program, tmp_path
):
    path = tmp_path / "x.fst"
    program = make_program(parameters, 10)
    waving.waveform = Waveform(path, 0, 9)
    run = waving.run(program, ADDRESS, trace=True)
    changes = values_of(path, "top.simulated.inner.trace_load_row")
    rows = [int.from_bytes(row.tobytes(), "little") for row in run.traces["load"].rows]
    assert len(rows) == 80
    # beats of zeros, and beats equal to the one before, are no changes
    distinct = [row for before, row in zip([0, *rows], rows, strict=False) if row != before]
    assert [value for _, value in changes if value][: len(distinct)] == [r for r in distinct if r]


def test_waveform_window_beyond_last_execution_ends_with_run(
    waving, parameters, make_program, tmp_path
):
    path = tmp_path / "x.fst"
    waving.waveform = Waveform(path, 8, 9)
    run = waving.run(make_program(parameters, 10), ADDRESS, trace=True)
    last = max(c.end for c in run.commands)
    assert values_of(path, "top.simulated.inner.clk")[-1][0] // CYCLE >= last - 1


def test_waveform_of_chosen_signals_has_no_others(waving, parameters, make_program, tmp_path):
    path = tmp_path / "x.fst"
    waving.waveform = Waveform(path, 0, 0, ("m_axi__araddr", "buffer.*_rdy"))
    waving.run(make_program(parameters, 4), ADDRESS, trace=True)
    names = {name.rsplit(".", 1)[1] for name in signal_names(path)}
    assert names == {"m_axi__araddr", "r_rdy", "w_rdy", "inner_r_rdy"}


def test_waveform_does_not_change_run(waving, copying, parameters, make_program, tmp_path):
    program = make_program(parameters, 10)
    waving.waveform = Waveform(tmp_path / "x.fst", 2, 6, ("*",))
    seen = waving.run(program, ADDRESS, trace=True)
    plain = copying.run(program, ADDRESS, trace=True)
    assert seen.counters == plain.counters
    assert np.array_equal(seen.traces["load"].rows, plain.traces["load"].rows)


def test_waveform_of_other_engine_is_refused(copying, parameters, make_program, tmp_path):
    copying.waveform = Waveform(tmp_path / "x.fst", 0, 0)
    try:
        with pytest.raises(AcceleratorError, match="engine='waves'"):
            copying.run(make_program(parameters, 4), ADDRESS, trace=True)
    finally:
        copying.waveform = None


def test_selected_signals_by_default_leave_lanes_out():
    chosen = selected(NAMES, ())
    root = "top.simulated.inner.design."
    assert chosen == [f"{root}pe1.busy", f"{root}pe1.fetch", f"{root}pe2.busy", f"{root}reset"]


def test_selected_signals_of_whole_block_are_one_scope():
    assert selected(NAMES, ("pe2.*",)) == ["top.simulated.inner.design.pe2"]
    assert selected(NAMES, ("*",)) == ["top.simulated.inner"]
    assert selected(NAMES, ("pe1.*.row",)) == ["top.simulated.inner.design.pe1.fetch.row"]


def test_selected_signals_without_match_name_blocks():
    refused = r"'pe3\.\*' matches no signal; blocks are pe1, pe2 .*; did you mean 'pe2\.\*'"
    with pytest.raises(ValueError, match=refused):
        selected(NAMES, ("pe1.busy", "pe3.*"))


@pytest.mark.parametrize(
    ("pattern", "close"),
    [("pe1", "pe1.*"), ("pe1.bsy", "pe1.busy"), ("PE2.array.sum", "pe2.array.sum")],
)
def test_selected_signals_misspelt_are_refused_with_closest_name(pattern, close):
    with pytest.raises(ValueError, match=f"did you mean {re.escape(repr(close))}"):
        selected(NAMES, (pattern,))


def test_selected_signals_of_memory_have_the_indices_of_verilator():
    root = "top.simulated.inner.load"
    names = [f"{root}.storage.[{row}]" for row in range(12)]
    signals = ["top.simulated.clk", f"{root}.busy", *names]
    assert selected(signals, ("load.storage.[11]",)) == [f"{root}.storage[11]"]
    rows = sorted(f"{root}.storage[{row}]" for row in range(12))
    assert selected(signals, ("load.storage.*",)) == rows
    assert selected(signals, ("load.*",)) == ["top.simulated.inner"]


def test_design_names_of_converted_design_are_those_of_a_file(waving, parameters, tmp_path):
    waving._wave_simulator().signals(path := tmp_path / "x.fst")
    inside = {name for name in signal_names(path) if name.startswith("top.simulated.inner.")}
    named = set(design_names(copier.to_rtlil(parameters, trace=True)))
    assert inside <= named
    assert len(named - inside) < len(inside) / 50  # Verilator replaces few by others of their value


def test_parse_range_reads_number_and_span_and_refuses_others():
    assert (parse_range("7"), parse_range("7..9")) == ((7, 7), (7, 9))
    for text in ("٣", "1..３"):
        with pytest.raises(ValueError, match="must be a number such as 12"):
            parse_range(text)
    for text in ("", "x", "-1", "3..", "9..7", "1...2", "1.5"):
        with pytest.raises(ValueError, match=r"must (be|begin)"):
            parse_range(text)


def test_commands_within_a_range_are_its_first_and_last_of_an_engine():
    load = Transfer(operation=Operation.LOAD, address=0, local=0, beats=1)
    program = (Set(values=()), load, load, Set(values=()), Set(values=()), load, Halt())
    assert commands_within(program, (0, 3)) == (1, 2)
    assert commands_within(program, (2, 5)) == (2, 5)
    for number, near in ((3, 2), (4, 5), (6, 5)):
        with pytest.raises(OptionError, match=f"the nearest command of an engine is {near}$"):
            commands_within(program, (number, number))
    with pytest.raises(OptionError, match="--descriptor 7: the program has descriptors 0 to 6"):
        commands_within(program, (6, 7))


def test_first_step_executes_most_of_the_descriptors():
    load = Transfer(operation=Operation.LOAD, address=0, local=0, beats=1)
    rare = [replace(load, eighth=n) for n in range(1, 16)]
    program = (load, *rare)
    for begin in (0, 5, 7):
        for first, last in ((0, 0), (3, 3), (8, 8), (2, 4), (1, 15), (9, 12)):
            step = first_step(program, (first, last), begin)
            executed = [
                sum(not is_skipped(d, n) for d in program[first : last + 1])
                for n in range(begin, begin + 8)
            ]
            assert step - begin == executed.index(max(executed))


def test_rows_of_a_trace_are_as_many_as_memory_has_room_for(parameters):
    plain = SimpleNamespace(parameters=parameters)
    size = parameters.lanes * parameters.word_width // 8
    _check_rows((4, 8), range(4096, 4096 + 5 * size), plain)
    with pytest.raises(OptionError, match="room for 5 rows behind"):
        _check_rows((4, 9), range(4096, 4096 + 5 * size), plain)


def test_stopped_program_inside_loop_names_its_end(parameters):
    class Plain:
        pass

    accelerator = Plain()
    accelerator.parameters = parameters
    loop = Program(
        (Loop(iterations=2), Loop(iterations=2), End(steps=()), End(steps=()), Halt()),
        parameters.fingerprint,
    )
    with pytest.raises(ValueError, match="at descriptor 3"):
        stopped(loop, 1, (0, 1), 4096, accelerator)
    kept = stopped(loop, 3, (5, 8), 4096, accelerator)
    assert kept.descriptors[:4] == loop.descriptors[:4]
    store, halt = kept.descriptors[4:]
    assert (store.local, store.address, store.beats) == (5, 4096, 8)
    assert isinstance(halt, Halt)


def rows_printed(capsys):
    """Return the rows that a command printed, by number."""
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    return {int(line[1]): [int(word) for word in line[2:]] for line in lines if line[0] == "row"}


@pytest.mark.parametrize(("part", "number"), [("forward", 6), ("backward", 9)])
def test_trace_command_at_breakpoint_prints_rows_written_so_far(part, number, capsys):
    network = load_network("digits")
    with GoldenAccelerator(AcceleratorParameters(), memory_bytes=1 << 26) as golden:
        driver = Driver(golden, network, 64, trace=True)
        given = random_inputs(network, driver, 0)
        run = driver.forward(given.inputs, given.model, given.scales).run
        if part == "backward":
            run = driver.backward(given.gradient, given.scales).run
    check_rows_at_breakpoint(run, f"--part {part} --descriptor {number}", number, capsys)


@pytest.mark.parametrize("rare", [False, True])
def test_trace_command_on_chip_at_breakpoint_prints_rows_so_far(rare, capsys):
    """The last pass of a step is the update of a part; the prior renews in one of eight steps."""
    network = load_network("digits")
    p = accelerator_parameters((), network, alone=True)
    with GoldenAccelerator(p, memory_bytes=1 << 26) as golden:
        ready = RandomStep(network, 16, golden, "alone", plan=AUTO).prepared("step")
        descriptors = ready.program.descriptors
        passes = [n for n, d in enumerate(descriptors) if isinstance(d, Vector)]
        number = [n for n in passes if bool(descriptors[n].eighth) == rare][-1]
        first = 7 + [is_skipped(descriptors[number], step) for step in range(7, 15)].index(False)
        run = golden.repeat(ready.program, 1, address=ready.address, step=first, trace=True)
    line = f"--batch 16 --update chip --part step --descriptor {number}"
    check_rows_at_breakpoint(run, line, number, capsys)


def check_rows_at_breakpoint(run, options, number, capsys):
    """Work out the rows after descriptor ``number`` from the trace of a whole run; compare."""
    engines = run.traces.values()
    executions = sorted(
        (n, engine, sum(count for _, count in trace.labels[:place]), count)
        for engine, trace in enumerate(engines)
        for place, (n, (_, count)) in enumerate(zip(trace.numbers, trace.labels, strict=True))
    )
    pad = {}
    for n, engine, start, count in executions:
        trace = list(engines)[engine]
        if n <= number:
            span = slice(start, start + count)
            pad |= zip(trace.addresses[span].tolist(), trace.rows[span].tolist(), strict=True)
            last = trace.addresses[span].tolist()
    first = min(last)
    count = next((n for n in range(1, 40) if first + n not in pad), 40)
    rows = f"{first}..{first + count - 1}"
    line = f"trace digits --backend golden {options} --rows {rows}"
    assert main(line.split()) == 0
    assert rows_printed(capsys) == {first + n: pad[first + n] for n in range(count)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--descriptor 3 --signals x", "--signals is for a waveform"),
        ("--descriptor 3 --signals pe1 --out x.fst", "did you mean 'pe1.*'"),
        ("--descriptor 3 --out x.fst --backend golden", "--out is for the simulated hardware"),
        ("--descriptor 3 --out x.fst --engine leaves", "--engine leaves writes no waveforms"),
        ("--descriptor 3 --out x.vcd", "--out must end in .fst, not 'x.vcd'"),
        ("--descriptor 3 --out /proc/x.fst", "--out: cannot write '/proc/x.fst'"),
        ("--descriptor 500", "--descriptor 500: the program has descriptors 0 to"),
        ("--descriptor 3 --part step", "has the programs forward, backward; add --update chip"),
        ("--descriptor 3 --rows 16384", "the scratchpad has rows 0 to 16383"),
        ("--descriptor 3 --rows 16000 --backend golden", "row 16000 was never written"),
    ],
)
def test_trace_command_with_impossible_option_is_refused_before_simulator_is_built(
    options, message, capsys, monkeypatch
):
    monkeypatch.setattr(RtlAccelerator, "__init__", lambda *_, **__: pytest.fail("was built"))
    assert main(f"trace digits {options}".split()) == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_trace_command_on_hardware_writes_small_waveform_and_listing(tmp_path, capsys):
    out = tmp_path / "x.fst"
    assert main(["trace", "fashion", "--descriptor", "21", "--out", str(out)]) == 0
    assert "PE4   l1.G1.G2.x" in capsys.readouterr().out
    assert out.stat().st_size < 5_000_000
    start = values_of(out, "top.simulated.inner.design.clk")[0][0] // CYCLE
    line = next(
        line for line in out.with_suffix(".txt").read_text().splitlines() if "  21  " in line
    )
    assert line.split("..")[0].strip() == str(start)


def guide_blocks():
    return (Path(__file__).parents[2] / "docs/guide/look-inside.md").read_text().split("```")[1::2]


def test_guide_to_look_inside_has_commands_and_python_that_run(capsys):
    lines = [line for block in guide_blocks() for line in block.splitlines()]
    commands = [shlex.split(line)[1:] for line in lines if line.startswith("trainwright ")]
    assert len(commands) == 5
    parser = core._parser(core._commands("trace"), "trace")
    for words in commands:
        parser.parse_args(words)
        if "golden" in words:
            assert main(words) == 0
    python = [block.removeprefix("python") for block in guide_blocks() if block[:7] == "python\n"]
    assert len(python) == 2
    capsys.readouterr()
    exec("".join(python), {})
    assert "6" in capsys.readouterr().out.splitlines()

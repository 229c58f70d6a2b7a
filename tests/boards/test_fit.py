"""Find the largest accelerator for a board: which candidate is chosen, and what is told of it."""

import json
from dataclasses import replace

import pytest

from trainwright.cli.core import Parser
from trainwright.cli.errors import OptionError
from trainwright.compiler import CompileError
from trainwright.compiler.base.errors import DoesNotFitError
from trainwright.parameters import PRESETS, preset
from trainwright_boards import commands as cli
from trainwright_boards import fit
from trainwright_boards.report import RoomError
from trainwright_boards.tools import BuildError


def run(*arguments: str) -> int:
    parser = Parser()
    cli.fit_command.add_arguments(parser)
    return cli.fit_command.run(parser.parse_args(arguments))


def test_presets_are_tried_from_the_largest_array_down():
    candidates = fit.presets_for("block")
    assert sorted(c.name for c in candidates) == sorted(PRESETS)
    sizes = [(c.parameters.multipliers, c.parameters.scratchpad_rows) for c in candidates]
    assert sizes[0][0] == max(preset(name).multipliers for name in PRESETS)
    assert [n for n, _ in sizes] == sorted((n for n, _ in sizes), reverse=True)


@pytest.mark.parametrize(
    "board, memory, chosen",
    [
        ("ulx3s-12f", "sdram", "lfe5u-25f"),
        ("ulx3s-85f", "block", "ecp5-85f"),
        ("tang-mega-138k", "block", "lfe5u-45f-alone"),
        ("pynq-z2", "processor", "lfe5u-85f"),
    ],
)
def test_largest_preset_by_count_of_a_board_is_chosen(board, memory, chosen, tmp_path):
    candidates = fit.presets_for(memory)
    result = fit.find(fit.target_of(board), candidates, tmp_path, print, synthesise=False)
    assert result.chosen is not None and result.resources == {}
    size = result.chosen.size
    assert result.chosen.parameters.multipliers == preset(chosen).multipliers
    larger = [c.name for c in candidates if c.size > size]
    assert set(larger) <= set(result.rejected), "each larger one has its reason"


def test_candidate_whose_netlist_has_no_room_gives_way_to_the_next(tmp_path):
    target, counted = fit.target_of("ulx3s-85f"), []

    def count(candidate, folder, progress):
        counted.append(candidate.name)
        if len(counted) == 1:
            raise RoomError("the netlist does not fit: it has 80000 LUTs")
        return {"luts": {"used": 7, "available": 9}}

    result = fit.find(replace(target, count=count), fit.presets_for("block"), tmp_path, print)
    assert result.chosen is not None and result.chosen.name == counted[1]
    assert "80000 LUTs" in result.rejected[counted[0]]
    assert result.resources["luts"]["used"] == 7

    def failing(candidate, folder, progress):
        raise BuildError("yosys failed")

    with pytest.raises(BuildError, match="yosys failed"):
        fit.find(replace(target, count=failing), fit.presets_for("block"), tmp_path, print)


def test_batch_is_halved_until_the_memory_holds_the_step(monkeypatch):
    asked = []

    class Step:
        def __init__(self, batch):
            self.memory_bytes = 1000 * batch

        def cycles_with(self, timing):
            return 5 * self.memory_bytes

    def compile_step(network, batch, parameters):
        asked.append(batch)
        return Step(batch)

    monkeypatch.setattr(fit, "compile_step", compile_step)
    candidate = fit.presets_for("block")[-1]
    step = fit.largest_step(candidate, 9000, "digits", 64)
    assert asked == [64, 32, 16, 8]
    expected = {"network": "digits", "batch": 8, "memory_bytes": 8000, "cycles": 40000}
    assert step == expected
    none = fit.largest_step(candidate, 900, "digits", 2)
    assert none["batch"] is None and "1000 bytes, the memory has 900" in none["reason"]


def test_batch_is_halved_until_the_scratchpad_holds_the_step(monkeypatch):
    asked = []

    class Step:
        memory_bytes = 100

        def cycles_with(self, timing):
            return 7

    def compile_step(network, batch, parameters):
        asked.append(batch)
        if batch > 16:
            raise DoesNotFitError(f"{batch} samples need more rows", "use fewer")
        return Step()

    monkeypatch.setattr(fit, "compile_step", compile_step)
    candidate = fit.presets_for("block")[-1]
    assert fit.largest_step(candidate, 9000, "digits", 64)["batch"] == 16
    assert asked == [64, 32, 16]

    def refuse(error):
        def compile_step(network, batch, parameters):
            asked.append(batch)
            raise error(f"batch {batch}", "use fewer") if error is DoesNotFitError else error("no")

        return compile_step

    asked.clear()
    monkeypatch.setattr(fit, "compile_step", refuse(DoesNotFitError))
    none = fit.largest_step(candidate, 9000, "digits", 4)
    assert asked == [4, 2, 1]
    assert none == {"network": "digits", "batch": None, "reason": "batch 4; use fewer"}
    asked.clear()
    monkeypatch.setattr(fit, "compile_step", refuse(CompileError))  # what no batch changes
    assert fit.largest_step(candidate, 9000, "digits", 4)["reason"] == "no"
    assert asked == [4]


def test_own_sizes_that_do_not_fit_exit_with_1_and_their_reason(capsys):
    sizes = ("--accelerator", "preset=lfe5u-25f", "--accelerator", "scratchpad_rows=16384")
    assert run("ulx3s-12f", "--by-count", "--json", *sizes) == 1
    figures = json.loads(capsys.readouterr().out)
    assert figures["preset"] is None and figures["networks"] == []
    assert "block RAMs, it has 56" in figures["too_large"]["own-sizes"]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["ulx3s12f"], "no board 'ulx3s12f'.*did you mean 'ulx3s-12f'"),
        (["kv26"], "did you mean 'kv260'"),
        (["ulx3s-85f", "--memory", "sdran"], "no 'sdran', but block and sdram.*'sdram'"),
        (["ulx3s-12f", "--network", "digit"], "unknown network"),
        (["ulx3s-12f", "--accelerator", "lanes=5"], "lanes must be 4, 8 or 16, not 5"),
        (["ulx3s-12f", "--out", "netlists"], "--out is for netlists, which --by-count"),
    ],
)
def test_fit_of_bad_options_is_one_error_with_the_remedy(arguments, message, monkeypatch):
    monkeypatch.setattr(fit, "find", lambda *_, **__: pytest.fail("searched"))
    with pytest.raises((OptionError, BuildError, ValueError), match=message):
        run(*arguments, "--by-count")

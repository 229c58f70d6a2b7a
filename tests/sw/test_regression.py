"""The golden model computes what it computed when its digests were recorded.

Where a change of bits is meant, ``python tests/sw/step_record.py`` records them anew.
"""

import copy

import pytest
import step_record
from step_record import CASES, check, compute, differences, load

DIGITS = CASES[0]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_regression_bits_are_as_recorded(case):
    changes = check(case)
    assert not changes, f"{case.name}: {len(changes)} differ, first: {changes[0]}"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_calibration_as_recorded(case):
    recorded = load(case)
    exponents = compute(case)["exponents"]
    moved = [name for name, e in recorded["exponents"].items() if exponents.get(name) != e]
    assert not moved, f"first exponent that differs: {moved[0]}"


def test_records_are_whole():
    for case in CASES:
        recorded = load(case)
        count = len(case.ranks)
        for layer in range(1, count + 1):
            assert f"pe2 l{layer}.a" in recorded["tensors"]["forward"]
            assert {f"pe1 l{layer}.y", f"pe2 l{layer}.y"} & set(recorded["tensors"]["forward"])
            written = {name.split()[1] for name in recorded["tensors"]["backward"]}
            orders = range(1, len(case.ranks[layer - 1]) + 2)
            assert {f"l{layer}.dG{n}" for n in orders} | {f"l{layer}.db"} <= written
        assert set(recorded["exponents"]) == {
            name for program in recorded["statistics"].values() for name in program
        }


def test_regression_first_tensor_that_differs_is_named():
    recorded = load(DIGITS)
    changed = copy.deepcopy(recorded)
    changed["memory"]["l1.dG1"] = changed["programs"]["forward"] = "0"
    assert differences(changed, recorded) == ["memory of l1.dG1", "forward program"]
    changed["tensors"]["backward"]["pe1 l1.dG1"] = "0"
    changed["statistics"]["forward"]["l2.y"] = "sum 0, saturated 0"
    assert differences(changed, recorded)[:2] == [
        "forward: statistics of l2.y",
        "backward: tensor pe1 l1.dG1",
    ]
    del changed["tensors"]["forward"]["pe1 l1.G1.G2"]
    changed["tensors"]["forward"]["pe1 gone"] = "0"
    changes = differences(changed, recorded)
    assert changes[0] == "forward: tensor pe1 l1.G1.G2"
    assert changes[-1] == "forward: tensor pe1 gone"


def test_regression_change_of_arithmetic_is_traced_to_its_tensor():
    recorded = load(DIGITS)
    exponents = recorded["exponents"] | {"l2.y": recorded["exponents"]["l2.y"] + 1}
    changes = differences(recorded, compute(DIGITS, exponents))
    assert changes[0] == "forward: tensor pe2 l2.y"
    assert not any("l1." in name for name in changes if name.startswith("forward: tensor"))


def test_operands_do_not_depend_on_torch():
    """Raw words of PCG64, whose stream NumPy guarantees."""
    words = step_record.Words(1)
    assert words.signed((6,), 4).tolist() == [0, 7, -6, 7, -4, -2]
    assert words.bells((3,), 0).tolist() == [-1483.0, 348.0, -845.0]


def test_check_and_record_commands(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(step_record, "CASES", CASES[1:2])
    monkeypatch.setattr(step_record, "FOLDER", tmp_path / "records")
    assert step_record.main([]) == 0
    path = CASES[1].path
    assert path.parent == tmp_path / "records"
    assert step_record.main(["--check"]) == 0
    assert capsys.readouterr().out.endswith("digits-cut: as recorded\n")
    text = path.read_text()
    tensors = load(CASES[1])["tensors"]["forward"]
    name = next(name for name in tensors if name.endswith(" l1.y"))
    path.write_text(text.replace(tensors[name], "0" * 16))
    assert step_record.main(["--check"]) == 1
    assert f"1 differ, first: forward: tensor {name}" in capsys.readouterr().out

"""Energy by toggles: liberty files, multipliers in their cells, and operands of a step."""

import numpy as np
import pytest

from trainwright.check.operands import multiplied
from trainwright.check.stepping import stepper_of
from trainwright.cli import main
from trainwright.formats.rounding import requantise
from trainwright.golden.compute import first_operands
from trainwright.golden.stepper import Stepper
from trainwright.network import load_network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.engines import contraction_of
from trainwright_sim.gates import LibertyError, Library, Multiplier, evaluated

TINY = r"""
library (tiny) {
  /* made for a test */
  nom_voltage : 1.0;
  voltage_unit : "1V";
  capacitive_load_unit (1, ff);
  cell (BUF) { area : 6; pin (A) { direction : input; capacitance : 2; }
    pin (Y) { direction : output; function : "A"; } }
  cell (INV) { area : 1;
    pin (A) { direction : input; capacitance : 2; }
    pin (Y) { direction : output; function : "!A";
      internal_power () { related_pin : "A"; rise_power (scalar) { values ("1.0"); }
        fall_power (scalar) { values ("3.0"); } } } }
  cell (NAND2) { area : 2;
    pin (A) { direction : input; capacitance : 2; }
    pin (B) { direction : input; capacitance : 2; }
    pin (Y) { direction : output; function : "(A B)'";
      internal_power () { related_pin : "A B"; rise_power (t) { values ("2.0, 2.5", \
         "2.0, 3.0"); } fall_power (t) { values ("2.0, 2.0", "2.0, 2.0"); } } } }
  cell (XOR2) { area : 4;
    pin (A) { direction : input; capacitance : 3; }
    pin (B) { direction : input; capacitance : 3; }
    pin (Y) { direction : output; function : "A ^ B";
      internal_power () { power (scalar) { values ("5.0"); } } } }
  cell (DFF) { ff (IQ, IQN) { clocked_on : "C"; next_state : "D"; }
    pin (C) { direction : input; clock : true; capacitance : 1; }
    pin (D) { direction : input; capacitance : 1; }
    pin (Q) { direction : output; function : "IQ"; } }
}
"""
"""Cells with round figures: no process has them."""
FEMTO = 1e-15


@pytest.fixture(scope="module")
def liberty(tmp_path_factory):
    path = tmp_path_factory.mktemp("liberty") / "tiny.lib"
    path.write_text(TINY)
    return path


def value_of(values, nets):
    """Return the signed number of each moment on some nets, the lowest bit first."""
    bits = [[values[net] >> moment & 1 for net in nets] for moment in range(256)]
    return [sum(bit << n for n, bit in enumerate(row)) - (row[-1] << len(row)) for row in bits]


def test_multiplier_in_cells_of_a_liberty_file_multiplies_all_pairs(liberty):
    multiplier = Multiplier.of(liberty, 4)
    left, right = (words.ravel() for words in np.meshgrid(np.arange(-8, 8), np.arange(-8, 8)))
    values = multiplier.waves(left, right)
    assert value_of(values, multiplier.ports["y"]) == (left * right).tolist()
    assert multiplier.energy(left * 0 + 5, right * 0 - 3) == (0.0, 0.0)
    low, high = multiplier.energy(left, right)
    assert 0 < multiplier.energy(left // 4, right)[0] < low < high


def test_energy_of_cells_is_toggles_times_internal_energy_and_load():
    library = Library.read(TINY)
    assert set(library.cells) == {"BUF", "INV", "NAND2", "XOR2"}
    cells = library.cells
    # y = !(a ^ b): 0110 and 0011 differ in 0101, which toggles 3 times, as its inverse does
    gates = [(cells["XOR2"], {"A": 2, "B": 3, "Y": 4}), (cells["INV"], {"A": 4, "Y": 5})]
    multiplier = Multiplier(library, 1, {"a": [2], "b": [3], "y": [5]}, gates)
    low, high = multiplier.energy(np.array([0, 1, 1, 0]), np.array([0, 0, 1, 1]))
    load = 2 * FEMTO * 1.0**2 / 2  # the pin of INV, charged or discharged
    assert low == pytest.approx(3 * (5 * FEMTO + load + 1 * FEMTO) / 3)
    assert high == pytest.approx(3 * (5 * FEMTO + load + 3 * FEMTO) / 3)


@pytest.mark.parametrize(
    ("function", "meaning"),
    [
        ("(A B)'", lambda a, b, c: 1 - (a & b)),
        ("!A+B*C", lambda a, b, c: 1 - a | b & c),
        ("A ^ B C", lambda a, b, c: (a ^ b) & c),
        ("A' & B | !(C)", lambda a, b, c: (1 - a) & b | 1 - c),
        ("((A+B) (C'))'", lambda a, b, c: 1 - ((a | b) & (1 - c))),
        ("1 ^ A", lambda a, b, c: 1 - a),
    ],
)
def test_liberty_function_has_value_of_its_truth_table(function, meaning):
    pins = {"A": 0b00001111, "B": 0b00110011, "C": 0b01010101}
    value = evaluated(function, pins, 0b11111111)
    for moment in range(8):
        a, b, c = (pins[name] >> moment & 1 for name in "ABC")
        assert value >> moment & 1 == meaning(a, b, c)


def test_first_operands_of_contraction_sum_to_its_first_result():
    network, p = load_network("digits"), AcceleratorParameters()
    whole = stepper_of(network, 4, parameters=p, memory_bytes=1 << 20)
    memory = whole.state.memory.copy()
    numbers = [step.number for step in whole]
    stepper, seen = Stepper(whole.program, memory, p), set()
    for number in numbers:
        d = whole.program.descriptors[number]
        array = contraction_of(d.operation)
        if array is None:
            next(stepper)
            continue
        left, right = first_operands(d, stepper.state, p)
        terms = int(np.prod([level.count for level in d.reduction])) * array.depth(p)
        rows = next(stepper).rows
        expected, _ = requantise(np.array([left[:terms] @ right[:terms]]), d.shift, d.out_width)
        assert expected[0] == rows[0][0]
        seen.add(array.engine)
    assert len(seen) == 2
    pairs = multiplied(network, 4, seed=0, plan="auto", parameters=p)
    assert len(pairs) == 2 and all(left.shape == right.shape for left, right in pairs)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "is no liberty file"),
        (TINY.rstrip()[:-1], "is no liberty file"),
        (TINY.replace("nom_voltage : 1.0;", ""), "has no nom_voltage"),
        (TINY.replace("(1, ff)", "(1, furlong)"), "capacitive_load_unit other than ff and pf"),
        (TINY.replace("capacitance : 2;", "capacitance : two;"), "a value that cannot be read"),
        (TINY.replace("internal_power", "leakage_power"), "gives no energies"),
        (TINY.replace("cell (BUF)", "module (BUF)"), "needs a buffer, an inverter and a NAND"),
    ],
)
def test_liberty_file_without_prices_is_one_error(tmp_path, text, error):
    path = tmp_path / "bad.lib"
    path.write_text(text)
    with pytest.raises(LibertyError, match=error) as raised:
        Multiplier.of(path, 2)
    assert str(path) in str(raised.value)


def test_profile_with_liberty_prices_multiplications_by_toggles(liberty, capsys):
    words = ["profile", "digits", "--batch", "4", "--energy", "--liberty", str(liberty)]
    assert main(words) == 0
    assert f"{liberty}, multiply: " in capsys.readouterr().out
    assert main([*words, "--backend", "golden"]) == 2
    assert "--liberty is for --energy with --backend rtl" in capsys.readouterr().err
    assert main([*words[:-1], str(liberty.parent / "none.lib")]) == 2
    assert "cannot read" in capsys.readouterr().err

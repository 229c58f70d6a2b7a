"""Energy by toggles: liberty files, multipliers in their cells, and operands of a step."""

import re

import numpy as np
import pytest
from accelerators import NARROW, NARROW_SIZES

from trainwright.check.operands import multiplied
from trainwright.check.stepping import stepper_of
from trainwright.cli import main
from trainwright.formats.rounding import requantise
from trainwright.golden.compute import first_operands
from trainwright.golden.stepper import Stepper
from trainwright.network import load_network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.engines import contraction_of
from trainwright_sim.gates import LibertyError, Library, Multiplier

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
      internal_power () { related_pin : "A"; rise_power (t) { values ("1.0, 2.0"); }
        fall_power (t) { values ("2.0, 3.0"); } } } }
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
WIDTH = NARROW.operand_width
"""Bits of a multiplier that the profile below builds, too: one simulator for both."""
PAIRS = 4096


@pytest.fixture(scope="module")
def liberty(tmp_path_factory):
    path = tmp_path_factory.mktemp("liberty") / "tiny.lib"
    path.write_text(TINY)
    return path


FUNCTIONS = {
    "BUF": lambda a: a,
    "INV": lambda a: ~a,
    "NAND2": lambda a, b: ~(a & b),
    "XOR2": lambda a, b: a ^ b,
}


def evaluated(rtlil, inputs):
    """Evaluate the cells of a design; return the values of each cell's output.

    ``inputs`` has the values of each bit of a and b, by its name in the RTLIL.
    """
    # The top module is the first; a connection is a signal or a constant bit.
    top = rtlil[: rtlil.index("\nend\n")]
    cells = {
        name: (kind, re.findall(r"connect \\[AB] (.+)", body), re.findall(r"\\Y (.+)", body)[0])
        for kind, name, body in re.findall(r"cell \\(\w+) \\(\w+)\n(.*?)\n  end", top, re.S)
    }
    values, waiting = dict(inputs), dict(cells)
    while waiting:
        ready = [name for name, (_, pins, _) in waiting.items() if all(p in values for p in pins)]
        for name in ready:
            kind, pins, net = waiting.pop(name)
            values[net] = FUNCTIONS[kind](*(values[pin] for pin in pins))
        assert ready
    return {name: values[net] for name, (_, _, net) in cells.items()}


def bits(words, port, width):
    return {f"\\{port} [{n}]": words >> n & 1 == 1 for n in range(width)}


def toggles_of(values):
    return int((values[1:] != values[:-1]).sum())


@pytest.mark.parametrize("start", (0, 255))
def test_toggles_of_saif_equal_those_of_evaluated_cells(liberty, start):
    multiplier = Multiplier.of(liberty, WIDTH)
    pairs = np.random.default_rng(0).permutation(1 << 2 * WIDTH)[:PAIRS]
    pairs = np.roll(pairs, start)  # the first pair differs
    half = 1 << WIDTH - 1
    left, right = pairs // (2 * half) - half, pairs % (2 * half) - half
    toggles, saif = multiplier.toggles(left, right)
    cells = evaluated(multiplier.rtlil, bits(left, "a", WIDTH) | bits(right, "b", WIDTH))
    assert {name: toggles[name, "Y"] for name in cells} == {
        name: toggles_of(output) for name, output in cells.items()
    }
    assert set(cells) == set(multiplier.gates) and len(cells) > 60
    for n in range(2 * WIDTH):
        assert toggles["inner", rf"y\[{n}\]"] == toggles_of(left * right >> n & 1)
    assert f"(DURATION {PAIRS})" in saif and '(PROGRAM_NAME "Verilator")' in saif


def test_energy_of_multiplier_grows_with_the_bits_that_change(liberty):
    multiplier, half = Multiplier.of(liberty, WIDTH), 1 << WIDTH - 1
    words = np.arange(-half, half, 5)
    left, right = (grid.ravel() for grid in np.meshgrid(words, words))
    assert multiplier.energy(left * 0 + 5, right * 0 - 3)[:2] == (0.0, 0.0)
    low, high, _ = multiplier.energy(left, right)
    assert 0 < multiplier.energy(left // 4, right)[0] < low < high


def test_energy_of_cells_is_toggles_times_internal_energy_and_load():
    library = Library.read(TINY)
    assert set(library.cells) == {"BUF", "INV", "NAND2", "XOR2"}
    cells = library.cells
    # 0110 and 0011 differ in 0101, which toggles 3 times, as its inverse does
    gates = {
        "g1": (cells["XOR2"], {"A": 2, "B": 3, "Y": 4}),
        "g2": (cells["INV"], {"A": 4, "Y": 5}),
    }

    class Counted(Multiplier):
        """Gates whose outputs toggle as often as the operands say: no simulator is built."""

        def toggles(self, left, right):
            toggled = toggles_of(left != right)
            return {("g1", "Y"): toggled, ("g2", "Y"): toggled}, ""

    multiplier = Counted(library, 1, gates, "")
    low, high, _ = multiplier.energy(np.array([0, 1, 1, 0]), np.array([0, 0, 1, 1]))
    load = 2 * 1.0**2 / 2  # the pin of INV, charged or discharged
    assert low / FEMTO == pytest.approx(3 * (5 + load + 1.5) / 3)
    assert high / FEMTO == pytest.approx(3 * (5 + load + 2.5) / 3)


SPELLED = r"""
library ("spelled") {
  define (drive, cell, "float");
  capacitive_load_unit\
    ("0.5", "pF");
  voltage_unit : "100mV";
  nom_voltage : "7.0"
  default_input_pin_cap : 4;
  leakage_power_unit : 1nW;
  wire_load (small) { fanout_length (1, 2.5); }
  cell ("ADDH") {
    area : 0.0437
    pg_pin (VDD) { voltage_name : VDD; pg_type : "primary_power"; }
    leakage_power () { value : "3.5"; when : "!A B"; }
    statetable_free : true;
    pin ("A", "B") { direction : "input"; rise_capacitance : 9; }
    bundle (X) { members (X0, X1); }
    pin (S) { direction : output; function : "A ^ B"
      internal_power () { related_pg_pin : VDD; related_pin : "A"; when : "B";
        rise_power (t) { index_1 ("1, 2"); values ("9.0, 90.0", \ 
          "8.0,80.0"); }
        fall_power (t) { values ("-7.0 -88.0", "-6.0, -78.0"); } }
      internal_power () { related_pg_pin : VSS; related_pin : "A"; when : "B";
        rise_power (scalar) { values ("1.0"); } }
    }
    pin (CO) { direction : output; function : "A B"; power_down_function : "!VDD";
      internal_power () { power (scalar) { values (3); } } }
    test_cell () { pin (A) { function : "B"; } }
  }
  cell (LATCHED) { latch ("Q", "QN") { enable : "G"; data_in : "D"; } pin (Q) { function : "Q"; } }
}
"""
"""Cell in other ways of writing than TINY's, each found in a published file."""


def test_liberty_file_in_another_style_has_the_same_meaning():
    library = Library.read(SPELLED.replace("\n", "\r\n"))
    (name, cell), *rest = library.cells.items()
    assert (name, rest, library.volts) == ("ADDH", [], pytest.approx(0.7))
    assert cell.functions == {"S": "A ^ B", "CO": "A B"}
    assert cell.farads["A"] == cell.farads["B"] == pytest.approx(2e-12, abs=0)
    joules = {pin: [end / (0.5e-12 * 0.1**2) for end in cell.joules[pin]] for pin in ("S", "CO")}
    # A rise and a fall take (9 - 7 + 1) / 2 or (8 - 6 + 1) / 2; the load's part cancels.
    assert joules["S"] == pytest.approx([1.5, 1.5])
    assert joules["CO"] == pytest.approx([3, 3])


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
        (TINY.replace('"2.0, 2.0", "2.0, 2.0"', '"2.0, 2.0"'), "a value that cannot be read"),
        (TINY.replace('"1V"', '"1 kV"'), "a voltage_unit other than V and mV"),
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
    sizes = [f"--accelerator={name}={value}" for name, value in NARROW_SIZES.items()]
    words = ["profile", "digits", "--batch", "4", *sizes, "--energy", "--liberty", str(liberty)]
    out = liberty.parent / "profile"
    assert main([*words, "--out", str(out)]) == 0
    assert {path.name for path in out.glob("*.saif")} == {"multiplier1.saif", "multiplier2.saif"}
    assert f"{liberty}, multiply: " in capsys.readouterr().out
    assert main([*words, "--backend", "golden"]) == 2
    assert "--liberty is for --energy with --backend rtl" in capsys.readouterr().err
    assert main([*words[:-1], str(liberty.parent / "none.lib")]) == 2
    assert "cannot read" in capsys.readouterr().err

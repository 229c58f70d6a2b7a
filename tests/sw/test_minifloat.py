"""Minifloats: sizes, known types, and what overflow, underflow and exponents do."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from format_kinds import KINDS

from trainwright.data import load_data_set
from trainwright.driver import Driver
from trainwright.fixed.quantise import fitting_exponent, quantise
from trainwright.fixed.scale import Scales, TensorClass, TensorStatistics
from trainwright.formats import UNDERFLOWS, Format, FormatError, Minifloat, parse_format
from trainwright.formats.minifloat import FRACTION_BITS
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import NetworkError, load_network
from trainwright.parameters import AcceleratorParameters
from trainwright.train.host_engine import HostEngine
from trainwright.train.initial import fresh_exponent
from trainwright.train.settings import TrainSettings
from trainwright.train.state import initial_state
from trainwright.train.trainer import Trainer

ROOT = Path(__file__).parents[2]
NAMED = {"float(4,3)": (240, 18), "float(3,2)": (28, 10), "float(2,3)": (7.5, 7),
         "float(2,1)": (6, 5),
         "float(3,3)": (30, 11), "float(4,2)": (448, 18)}  # fmt: skip
"""Largest value and bits of the integers."""
TYPES = {
    "float(4,3)": "float8_e4m3", "float(3,4)": "float8_e3m4", "float(3,2)": "float6_e3m2fn",
    "float(2,3)": "float6_e2m3fn", "float(2,1)": "float4_e2m1fn",
}  # fmt: skip
"""Types of ml_dtypes with the same numbers, infinities and NaN left out."""
EVERY = [Minifloat(e, m) for e, most in FRACTION_BITS.items() for m in range(most + 1)]


@pytest.mark.parametrize("name", NAMED)
def test_named_minifloats_have_published_ranges_and_widths(name: str) -> None:
    fmt, (largest, bits) = parse_format(name), NAMED[name]
    top, smallest = fmt.decode([fmt.largest, 1]).tolist()
    assert top / 2**fmt.scale == largest
    assert smallest == 1
    assert fmt.decoded_width == bits == top.bit_length() + 1


@pytest.mark.parametrize("name", TYPES)
def test_minifloat_values_and_rounding_are_those_of_ml_dtypes(name: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    fmt, dtype = parse_format(name), getattr(ml_dtypes, TYPES[name])
    codes = np.arange(1 << (fmt.width - 1), dtype=np.uint8)
    values = codes.view(dtype).astype(np.float64)
    finite = np.isfinite(values)
    assert finite.sum() == fmt.largest + 1
    assert (fmt.decode(codes[finite]) == values[finite] * 2**fmt.scale).all()
    # rounding, below the largest number: beyond it ml_dtypes has infinities
    x = np.random.default_rng(1).standard_normal(4000) * 2.0 ** np.random.default_rng(2).integers(
        -fmt.scale - 3, 3, 4000
    )
    x = np.concatenate([x, (values[finite][1:] + values[finite][:-1]) / 2])
    x = x[np.abs(x) <= values[finite].max()]
    rounded = x.astype(np.float32).astype(dtype).astype(np.float64)
    words = quantise(torch.from_numpy(x.astype(np.float32)), -fmt.scale, fmt).numpy()
    assert (fmt.decode(words) == rounded * 2**fmt.scale).all()


@pytest.mark.parametrize("fmt", EVERY, ids=str)
def test_minifloats_of_all_sizes_are_monotone_and_fit(fmt: Minifloat) -> None:
    integers = fmt.decode(fmt.words())
    assert (np.diff(integers) > 0).all()
    assert fmt.fits(18) and int(integers.max()).bit_length() + 1 == fmt.decoded_width
    assert fmt.width == 1 + fmt.exponent_bits + fmt.fraction_bits <= 16
    words, saturated, underflow = fmt.encode(integers, 0)
    assert (words == fmt.words()).all() and not saturated.any() and not underflow.any()


@pytest.mark.parametrize("name", NAMED)
def test_overflow_saturates_and_is_counted_beyond_the_largest(name: str) -> None:
    fmt = parse_format(name)
    top = int(fmt.decode(fmt.largest))
    words, saturated, _ = fmt.encode([top, top + 1, -top - 1, 1 << 40], 0)
    assert words.tolist() == [fmt.largest, fmt.largest, -fmt.largest, fmt.largest]
    assert saturated.tolist() == [False, True, True, True]


@pytest.mark.parametrize("underflow", UNDERFLOWS)
@pytest.mark.parametrize("name", NAMED)
def test_underflow_goes_to_the_nearest_whatever_the_rule(name: str, underflow: str) -> None:
    fmt = parse_format(name)
    words, _, counted = fmt.encode([0, 1, 2, 3, -3, 4, 5], 2, underflow=underflow)
    assert words.tolist() == [0, 0, 0, 1, -1, 1, 1]  # 2 is the tie of 0 and the smallest number
    assert counted.tolist() == [False, True, True, True, True, False, False]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("float(5,2)", "integers of 33"),
        ("float(4,4)", "integers of 19"),
        ("float(2,14)", "words of 17 bits"),
        ("float(999999999,1)", "about 2^999999999"),
        ("float(1,3)", "E = 1 and M = 3"),
    ],
)
def test_minifloat_too_wide_is_refused_with_the_widths_that_fit(text: str, reason: str) -> None:
    with pytest.raises(FormatError, match=re.escape(reason)) as error:
        parse_format(text)
    assert repr(text) in str(error.value)
    for e, most in FRACTION_BITS.items():
        assert f"M from 0 to {most} with E = {e}" in str(error.value)
    with pytest.raises(NetworkError, match=r"formats: activation: no number format"):
        load_network("digits").with_formats(f"activation={text}")


def test_accelerator_with_minifloats_refuses_stochastic_rounding() -> None:
    with pytest.raises(ValueError, match=r"stochastic_rounding is for fixed point only.*float\(4"):
        AcceleratorParameters(formats="float(4,3)", stochastic_rounding=1)


@pytest.mark.parametrize("name", NAMED)
def test_exponents_of_minifloats_use_the_whole_range(name: str) -> None:
    fmt = parse_format(name)
    top = int(fmt.decode(fmt.largest))
    for greatest in (1.0, 0.75, 6.0, 3e-5):
        exponent = fitting_exponent(torch.tensor([greatest, -greatest / 2]), fmt)
        assert top / 2 < greatest * 2.0**-exponent <= top
    word = quantise(torch.ones(1), fmt.input_exponent, fmt)
    assert int(fmt.decode(word.numpy())[0]) == 1 << (top.bit_length() - 1)
    low, high = fmt.mean_range or (0, 0)
    assert 0 < low < high / 2 < 0.5


@pytest.mark.parametrize(
    ("words", "saturations", "once", "jumped"),
    [
        (40, 0, 0, 0),
        (12, 0, -1, -1),
        (12, 1, -1, 0),  # an eighth of one in 64 is 1.95 of 1,000
        (12, 2, 0, 0),
        (40, 15, 0, 0),
        (40, 16, 1, 1),
        (90, 0, 1, 1),
        (119, 900, 1, 4),
        (0, 0, -1, -8),
    ],
)
def test_minifloat_exponent_moves_by_means_and_saturations(
    words: int, saturations: int, once: int, jumped: int
) -> None:
    """Means from 16 to 80 of 128 stay, and with them up to one saturated value in 64."""
    s = TensorStatistics(
        TensorClass.GRADIENT, Minifloat(4, 3), -3, -20, 1000, 1000 * words, saturations
    )
    for move, step in (("update", once), ("jump", jumped)):
        scales = Scales()
        getattr(scales, move)({"t": s})
        assert scales.exponents["t"] - s.exponent == step


def test_minifloats_of_another_bias_train_to_the_same_bits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A bias changes ``scale`` alone; exponents of tensors absorb it."""
    network = load_network("digits").with_formats(KINDS[Minifloat].training)
    names = tuple(dict.fromkeys(str(fmt) for _, fmt in network.coded_used))
    p = AcceleratorParameters(formats=names, accumulator_width=44)
    digits, digests = load_data_set("digits"), []
    for scale in (Minifloat.scale, property(lambda self: 99)):
        monkeypatch.setattr(Minifloat, "scale", scale)
        golden = GoldenAccelerator(p, memory_bytes=1 << 22)
        state = initial_state(network, TrainSettings(steps=6, prior=None))
        Trainer(state, digits, HostEngine(lambda given, g=golden: Driver(g, given, 64))).run()
        digests.append(state.model.digest())
    assert digests[0] == digests[1]


def test_guide_example_prints_its_comment(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs/guide/number-formats.md").read_text()
    code = page.split("```python\n")[1].split("```")[0]
    names: dict[str, Any] = {"__name__": "guide"}
    exec(code, names)
    comment = code.rpartition("  # ")[2]
    assert capsys.readouterr().out == comment
    six, known = names["fmt"], Minifloat(3, 2)
    assert (six.decode(six.words()) == known.decode(known.words())).all()
    sums = np.arange(-2000, 2000)
    for shift in (0, 2):
        pairs = zip(six.encode(sums, shift), known.encode(sums, shift), strict=True)
        assert all((ours == theirs).all() for ours, theirs in pairs)
    members = ("step", "input_exponent", "scale", "width", "largest", "most", "decoded_width")
    members += ("mean_range", "most_saturated")
    assert all(getattr(six, name) == getattr(known, name) for name in members)


@pytest.mark.parametrize(
    ("left_out", "message"),
    [
        (r"    @property\n    def mean_range\b.*\n.*\n", "abstract class SixBits with.*mean_range"),
        (
            r"    @property\n    def most_saturated\b.*\n.*\n",
            "abstract class SixBits with.*most_saturated",
        ),
        (r"    allowed = .*\n", "SixBits: give `allowed`, a description of its spellings"),
    ],
)
def test_guide_example_without_a_member_is_refused_by_its_name(
    left_out: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fixed point's range of means suits evenly spaced words: the same integers trained worse."""
    monkeypatch.setattr(Format, "kinds", [*Format.kinds])
    page = (ROOT / "docs/guide/number-formats.md").read_text()
    code = page.split("```python\n")[1].split("```")[0]
    rest = re.sub(left_out, "", code)
    assert rest != code
    with pytest.raises(TypeError, match=message):
        exec(rest, {"__name__": "guide"})


def test_guide_lists_every_file_that_names_minifloats() -> None:
    page = (ROOT / "docs/guide/number-formats.md").read_text()
    listed = set(re.findall(r"^\| `([\w./]+)` \|", page.split("## Files")[1], flags=re.M))
    named = {
        str(path.relative_to(ROOT))
        for folder in ("sw", "hw", "sim", "boards", "tests", "docs")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".h", ".c", ".md", ".toml"}
        and not {".venv", "_build", "__pycache__", "results", "decisions"} & set(path.parts)
        and "minifloat" in path.read_text(encoding="utf-8").lower()
    }
    assert named - {"docs/guide/number-formats.md"} == listed - {"CHANGELOG.md"}
    assert "minifloat" in (ROOT / "CHANGELOG.md").read_text().lower()


@pytest.mark.parametrize("step", [0.0, -1.0, float("inf"), float("nan")])
def test_step_of_a_format_that_no_exponent_follows_is_refused(monkeypatch, step):
    monkeypatch.setattr(Minifloat, "step", step)
    with pytest.raises(FormatError, match=rf"float\(3,2\): step is {step}, which must be above 0"):
        fresh_exponent(0.1, Minifloat(3, 2))

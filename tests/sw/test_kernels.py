"""Kernels: the golden vector engine executes lowered text as numpy evaluates the text."""

import re
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from folded import each

from trainwright.golden import vector as golden
from trainwright.golden.state import MachineState
from trainwright.kernels import Body, KernelError, Register, Value, evaluate, lower, trace, where
from trainwright.kernels.execute import execute
from trainwright.kernels.slots import Slot
from trainwright.parameters import AcceleratorParameters
from trainwright.program.vector import Kind, Rounding, ShiftBy, Stream

PARAMETERS = AcceleratorParameters(vector_engine=1, scratchpad_rows=1 << 12)
LANES, STREAM = 16, 1234
ROWS = 19
KEPT = Register(5, -(1 << 20), (1 << 20) - 1)


def executed(kernel, rows: dict[str, np.ndarray], registers=None, count: int = ROWS, **options):
    """Run a lowered kernel on the golden engine; give rows, registers and totals it leaves."""
    code = lower(kernel, **options)
    state = MachineState.fresh(np.zeros(0, np.uint8), PARAMETERS)
    state.stream, state.code = STREAM, dict(enumerate(code.instructions))
    state.vector = {(n, t): words[t] for n, words in (registers or {}).items() for t in range(8)}
    streams = {name: Stream(n * ROWS, 0, 1) for n, name in enumerate(code.streams)}
    for name in code.streams:
        words = rows.get(name, np.zeros((0, LANES)))
        state.write(streams[name].base + np.arange(len(words)), words.astype(np.int16))
    result = golden.vector(code.vector(streams, outer=1, inner=count, key=3), state, PARAMETERS)
    written = {
        name: state.pad[at.base : at.base + count].astype(np.int64)
        for n, (name, at) in enumerate(streams.items())
        if code.writes >> n & 1
    }
    return code, written, state.vector, (result.total, result.saturations)


def random_bits(count: int = ROWS) -> list[np.ndarray]:
    """Draw the bytes of both random streams as the engine draws them for `executed`."""
    from trainwright.fixed.random_bits import KEYS_A_ROW, STREAM_STEP, UNITS, mixed, unit_bytes

    keys = KEYS_A_ROW * (3 + np.arange(count))
    return [unit_bytes(mixed(STREAM + n * STREAM_STEP, keys), UNITS) for n in range(2)]


def random_kernel(k: Body, seed: int) -> None:
    """Compute with random operators, shifts, conditions and widths."""
    random = Random(seed)
    k.preserve(KEPT)
    values: list[Value] = [k.read("a"), k.read("b"), k.lane()]
    if random.random() < 0.5:
        values.append(k.held(KEPT))

    def pick() -> Value:
        return random.choice(values[-5:])

    for _ in range(random.randint(3, 14)):
        v = pick()
        match random.randrange(12):
            case 0:
                new = v + pick()
            case 1:
                new = v - pick()
            case 2:
                new = v.times_low(random.choice([pick(), random.randint(-9000, 9000)]))
            case 3:
                new = v.clip(random.randint(2, 20)) + random.randint(-70000, 70000)
            case 4:
                new = v.rounded(random.randint(0, 20), random.choice(list(Rounding)))
            case 5:
                new = v.clip(20) >> pick()
            case 6:
                new = where(random.choice([v.positive, v.negative, v.zero]), pick(), pick())
            case 7:
                new = where(random.choice([v.positive, v.zero]), v * 3 if _small(v) else 0, v)
            case 8:
                new = random.choice([v.at_least, v.at_most])(random.choice([pick(), 77]))
            case 9:
                new = random.choice([v.clip(20).sum_lanes(), v.greatest_lane(), v.length()])
            case 10:
                new = v.lookup(random.choice(list(Slot)))
            case _:
                new = v.wrap(random.randint(2, 18)) & random.randint(0, 65535)
        values.append(new.clip(random.choice([18, 24, 30])))
        if random.random() < 0.15:
            k.total(values[-1])
    k.write("out", values[-1])
    k.write("b", values[-2])
    if random.random() < 0.5:
        k.keep(KEPT, random.choice(values[-4:]).clip(21))
    if random.random() < 0.5:
        k.count(values[-3])


def _small(v: Value) -> bool:
    return -(1 << 17) <= v.low <= v.high < 1 << 17


@each("seed", range(120))
def test_lowered_kernel_gives_bits_of_evaluation(seed: int) -> None:
    words = np.random.default_rng(seed)
    rows = {name: words.integers(-(1 << 15), 1 << 15, (ROWS, LANES)) for name in "ab"}
    rows["a"][::3] = words.integers(-2, 3, (7, LANES))
    registers = {KEPT.number: words.integers(-(1 << 20), 1 << 20, (8, LANES))}
    try:
        _, written, held, totals = executed(random_kernel, rows, registers, seed=seed)
    except KernelError as error:
        assert "at the same time" in str(error) or "constants" in str(error)
        return
    wanted = evaluate(
        trace(random_kernel, seed=seed), rows, count=ROWS, registers=registers,
        random=random_bits(), checks=True,
    )  # fmt: skip
    assert set(written) == set(wanted.rows)
    for name, expected in wanted.rows.items():
        assert np.array_equal(written[name], expected), name
    for thread in range(8):
        assert np.array_equal(held[KEPT.number, thread], wanted.registers[KEPT.number][thread])
    assert totals == (wanted.total % (1 << 48), wanted.count % (1 << 32))


def leaky_relu(k: Body) -> None:
    """Pass a negative word on as an eighth of it."""
    x = k.read("x")
    k.write("y", where(x.negative, x >> 3, x))


def test_execute_leaky_relu_on_golden_gives_floor_of_eighths() -> None:
    x = np.random.default_rng(0).integers(-(1 << 15), 1 << 15, (21, LANES))
    assert np.array_equal(execute(leaky_relu, {"x": x}).rows["y"], np.where(x < 0, x // 8, x))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({}, "reads x, of which no rows"),
        ({"x": np.zeros((3, 8), int)}, "every stream has rows"),
        ({"x": np.full((1, LANES), 40000)}, "words of x have 16 bits, not values from 0 to 40000"),
        ({"x": np.zeros((0, LANES), int)}, "at least one row"),
        ({"x": np.full((1, LANES), 0.9)}, "rows of x are float64: .* whole numbers"),
    ],
)
def test_execute_rows_out_of_shape_are_rejected(rows, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        execute(leaky_relu, rows)


def test_evaluate_rows_with_fractions_are_rejected() -> None:
    with pytest.raises(ValueError, match=r"rows of x are float64: .* whole numbers"):
        evaluate(trace(leaky_relu), {"x": np.full((1, LANES), 0.9)})


def test_execute_partial_kernel_on_rows_of_torch_gives_floor_of_quarters() -> None:
    def shifted(k: Body, n: int) -> None:
        k.write("y", k.read("x") >> n)

    x: Any = torch.arange(-LANES, LANES).reshape(2, LANES)
    written = execute(partial(shifted, n=2), {"x": x}).rows["y"]
    assert np.array_equal(written, x.numpy() // 4)


def _wide_product(k: Body) -> None:
    k.write("y", (k.read("x") * 8) * k.read("z"))


def _wide_sum(k: Body) -> None:
    x = k.read("x")
    k.write("y", (x * (1 << 16)) * 4 + (x * (1 << 16)).times_low(3))


def _many_constants(k: Body) -> None:
    x = k.read("x")
    for n in range(9):
        x = x.at_least(n)
    k.write("y", x)


def _many_registers(k: Body) -> None:
    values = [k.read(f"s{n}") for n in range(8)]
    products = [values[n] * values[(n + 1) % 8] for n in range(8)]
    k.write("s0", values[0] + sum(products[1:], products[0]))


def _many_instructions(k: Body) -> None:
    x = k.read("x")
    for _ in range(40):
        x = (x * 3 >> 1).clip(16) & 7
    k.write("y", x)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (_wide_product, r"test_kernels.py:\d+: a factor of a product reaches from -262144"),
        (_wide_sum, r"test_kernels.py:\d+: a factor of a product reaches from"),
        (_many_constants, "9 constants; the engine has 8"),
        (_many_registers, "more than 8 values are needed at the same time"),
        (_many_instructions, "instructions; a pass has at most 63"),
    ],
)
def test_lower_kernel_beyond_the_engine_names_the_limit(kernel, message: str) -> None:
    with pytest.raises(KernelError, match=message):
        lower(kernel)


def test_evaluate_value_beyond_its_stated_range_is_rejected() -> None:
    def kernel(k: Body) -> None:
        k.write("y", k.read("x").within(0, 10) + 1)

    with pytest.raises(KernelError, match=r"values from 3 to 11, where the kernel states 0 to 10"):
        evaluate(trace(kernel), {"x": np.array([[3, 11]])})


def _promised(k: Body) -> None:
    k.write("y", k.read("x", 0, 10) + 1)


def _stated(k: Body) -> None:
    k.write("y", (k.read("x") >> 1).within(0, 10) + 1)


@pytest.mark.parametrize("kernel", [_promised, _stated])
def test_execute_word_beyond_a_promise_names_line_and_values(kernel) -> None:
    fine, beyond = (np.full((2, LANES), n) for n in (10, 30))
    assert (execute(kernel, {"x": fine}).rows["y"] == (11 if kernel is _promised else 6)).all()
    for compute in (partial(execute, kernel), partial(evaluate, trace(kernel))):
        with pytest.raises(KernelError, match=r"test_kernels.py:\d+: .* states 0 to 10"):
            compute({"x": beyond})


@pytest.mark.parametrize(
    "text",
    [
        'k.read("x", 10, 0)', 'k.read("x", 0, 1 << 15)', 'k.read("x", 0, 0.5)', "k.read(5)",
        "Register(8)", "Register(0, 5, 2)", "Register(0, 0, 1 << 35)",
        'k.read("x").within(10, 0)',
    ],
)  # fmt: skip
def test_trace_promise_of_no_range_names_its_line(text: str) -> None:
    with pytest.raises(KernelError, match=r"<string>:1: "):
        eval(text, {"k": Body(), "Register": Register})


def test_evaluate_operand_that_is_missing_or_beyond_its_range_names_it() -> None:
    def kernel(k: Body) -> None:
        k.write("y", k.read("x") + k.held(Register(2, 0, 7)) + k.given(0, 0, 5))

    body, rows, held = trace(kernel), {"x": np.zeros((1, 4), int)}, {2: np.full((8, 4), 7)}
    assert (evaluate(body, rows, registers=held, constants=(5,)).rows["y"] == 12).all()
    for given, message in (
        ({"registers": held}, r"constants= lacks k.given\(0"),
        ({"constants": (5,)}, "registers= lacks register 2"),
        ({"registers": {2: held[2] + 1}, "constants": (5,)}, "register 2 .* states 0 to 7"),
        ({"registers": held, "constants": (6,)}, "constant 0 is 6, where .* 0 to 5"),
    ):
        with pytest.raises(ValueError, match=message):
            evaluate(body, rows, **given)
    with pytest.raises(ValueError, match="the same n, not"):
        evaluate(trace(_two_streams), {"x": np.zeros((2, 4), int), "z": np.zeros((1, 4), int)})
    with pytest.raises(ValueError, match="reads z, of which no rows"):
        evaluate(trace(_two_streams), {"x": np.zeros((2, 4), int)})
    with pytest.raises(ValueError, match=r"execute has no k\.given"):
        execute(
            lambda k: k.write("y", k.read("x") + k.given(0, 0, 5)), {"x": np.zeros((1, 16), int)}
        )


def _two_streams(k: Body) -> None:
    k.write("y", k.read("x") + k.read("z"))


def test_lower_read_after_merge_needs_one_instruction_a_step() -> None:
    def kernel(k: Body) -> None:
        x = k.read("x")
        k.write("y", (x * 5 + k.lane()).rounded(3, Rounding.EVEN).clip(8))

    code = lower(kernel).instructions
    assert [instruction.kind for instruction in code] == [
        Kind.LANE,
        Kind.PRODUCT,
        Kind.PASS,
    ]  # reads, writes
    assert code[1].shift == 3 and code[1].shift_by is ShiftBy.FIELD and code[1].width == 8


def test_guide_example_prints_its_comment(capsys) -> None:
    page = Path(__file__).parents[2] / "docs/guide/vector-kernels.md"
    (example,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    exec(example, {"__name__": "example"})
    assert capsys.readouterr().out.strip() == example.rsplit("# ", 1)[1].strip()


OTHER = Body().read("other")
MISTAKES = {
    "added bool": lambda body, x: x + True,
    "subtracted bool": lambda body, x: x - True,
    "subtracted from bool": lambda body, x: True - x,
    "shift of a float": lambda body, x: x >> 1.5,
    "negative shift": lambda body, x: x >> -1,
    "shift past the word": lambda body, x: x >> 64,
    "rounding by name": lambda body, x: x.rounded(1, "even"),
    "mask of a float": lambda body, x: x & 1.5,
    "mask of None": lambda body, x: x & None,
    "clip to a float": lambda body, x: x.clip(2.5),
    "clip to nothing": lambda body, x: x.clip(0),
    "wrap to more bits": lambda body, x: x.wrap(64),
    "empty range": lambda body, x: x.within(5, 1),
    "range of floats": lambda body, x: x.within(0.5, 1.5),
    "float constant": lambda body, x: body.constant(0.0),
    "constant None": lambda body, x: body.constant(None),
    "chosen float": lambda body, x: where(x.zero, 1.5, x),
    "old float": lambda body, x: where(x.zero, x, 3.0),
    "written number": lambda body, x: body.write("y", 3),
    "kept number": lambda body, x: body.keep(KEPT, 3),
    "total of a number": lambda body, x: body.total(3),
    "counted None": lambda body, x: body.count(None),
    "stored number": lambda body, x: body.stored("y", 3),
    "scaled number": lambda body, x: body.scaled(3, 2),
    "sum with another body": lambda body, x: x + OTHER,
    "written of another body": lambda body, x: body.write("y", OTHER),
    "chosen of another body": lambda body, x: where(x.zero, OTHER, x),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_body_with_a_wrong_operand_is_one_error_that_names_the_line(mistake):
    body = Body()
    x = body.read("x")
    with pytest.raises(KernelError, match=r"^test_kernels\.py:\d+: .* (not|another|no) "):
        MISTAKES[mistake](body, x)

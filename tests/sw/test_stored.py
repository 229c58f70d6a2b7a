"""Compiled steps in the user's cache folder."""

import os
import pickle
import re
import subprocess
import sys
from copy import deepcopy
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
import torch
from function_networks import kernels_dropped, two_layers

import trainwright
import trainwright.nn as tnn
from trainwright.compiler.base.errors import CompileError, DoesNotFitError
from trainwright.compiler.step import lower as lower_module
from trainwright.compiler.step import stored
from trainwright.compiler.step.compile import StepPrograms
from trainwright.compiler.step.stored import SWITCH, StepCache, cached_step
from trainwright.formats import base, parse_format
from trainwright.kernels import KernelError
from trainwright.network import Widths, load_network
from trainwright.parameters import AcceleratorParameters
from trainwright.support.waiting import waiting

P = AcceleratorParameters()
DIGITS = load_network("digits")


@pytest.fixture(scope="module")
def digits() -> StepPrograms:
    return stored.compile_network(DIGITS, 4, P)


@pytest.fixture
def compiled(monkeypatch, tmp_path, digits):
    """Record arguments of every call of the compiler, with an empty user's cache folder."""
    monkeypatch.setenv("TRAINWRIGHT_CACHE", str(tmp_path))
    monkeypatch.delenv(SWITCH, raising=False)
    calls = []

    def compile_step(*args, **options):
        calls.append((*args, *options.values()))
        return digits

    monkeypatch.setattr(stored, "compile_network", compile_step)
    return calls


def test_second_run_of_the_same_arguments_compiles_nothing(compiled, digits):
    again = [cached_step(DIGITS, 4, P) for _ in range(2)][1]
    assert len(compiled) == 1
    assert again is not digits
    for program, other in ((again.forward, digits.forward), (again.backward, digits.backward)):
        assert program.descriptors == other.descriptors
    assert again.cycles == digits.cycles


@pytest.mark.parametrize(
    "change",
    [
        {"network": replace(DIGITS, name="other")},
        {"batch": 5},
        {"p": replace(P, scratchpad_rows=8192)},
        {"plan": "small"},
        {"inputs": True},
        {"plan": "in-rows"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_changed_argument_compiles_another_step(compiled, change):
    asked = {"network": DIGITS, "batch": 4, "p": P}
    cached_step(**asked)
    cached_step(**asked | change)
    assert len(compiled) == 2


def test_changed_compiler_source_compiles_again(compiled, monkeypatch):
    cached_step(DIGITS, 4, P)
    monkeypatch.setattr(stored, "_code", lambda: b"another compiler")
    cached_step(DIGITS, 4, P)
    assert len(compiled) == 2


def test_switched_off_cache_writes_nothing(compiled, monkeypatch, tmp_path):
    monkeypatch.setenv(SWITCH, "0")
    cached_step(DIGITS, 4, P)
    cached_step(DIGITS, 4, P)
    assert len(compiled) == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[: len(data) // 2],
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:],
    ],
    ids=["empty", "truncated", "last byte", "inner byte"],
)
def test_damaged_entry_is_compiled_and_written_again(tmp_path, digits, damage):
    cache, calls = StepCache(tmp_path), []
    make = lambda: calls.append(1) or digits  # noqa: E731
    cache.step("a", make)
    whole = cache.path("a").read_bytes()
    cache.path("a").write_bytes(damage(whole))
    assert cache.step("a", make).cycles == digits.cycles
    assert len(calls) == 2
    assert cache.path("a").read_bytes() == whole


def test_refusal_is_cached_with_its_reason_and_remedy(tmp_path):
    cache, calls = StepCache(tmp_path), []

    def make():
        calls.append(1)
        raise DoesNotFitError("no room", "use a batch of 2")

    for _ in range(2):
        with pytest.raises(DoesNotFitError, match="no room; use a batch of 2") as caught:
            cache.step("a", make)
        assert (caught.value.reason, caught.value.remedy) == ("no room", "use a batch of 2")
    assert len(calls) == 1


@pytest.mark.parametrize(
    "error", [CompileError("a reason"), DoesNotFitError("a reason", "a remedy")]
)
def test_compile_error_survives_pickling(error):
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (type(error), str(error))
    assert (again.reason, again.remedy) == (error.reason, error.remedy)


def test_full_folder_loses_the_least_recently_used_entry(tmp_path, digits):
    StepCache(tmp_path).step("a", lambda: digits)
    size = StepCache(tmp_path).path("a").stat().st_size
    cache = StepCache(tmp_path, most_bytes=2 * size)
    for age, key in ((300, "b"), (200, "a")):
        cache.step(key, lambda: digits)
        os.utime(cache.path(key), (1e9 - age, 1e9 - age))
    cache.step("b", lambda: digits)  # used again: now the most recent one
    cache.step("c", lambda: digits)
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["b", "c"]


def test_folder_that_cannot_be_made_only_compiles(tmp_path, digits):
    (tmp_path / "file").write_text("")
    assert StepCache(tmp_path / "file" / "programs").step("a", lambda: digits) is digits


def test_real_digits_step_is_the_same_in_another_process_without_torch(tmp_path):
    program = (
        "import sys\n"
        "from trainwright.compiler import compile_step\n"
        "from trainwright.network import load_network\n"
        "from trainwright.parameters import AcceleratorParameters\n"
        "step = compile_step(load_network('digits'), 4, AcceleratorParameters())\n"
        "assert 'torch' not in sys.modules\n"  # 1.6 of the 1.9 s of an import
        "print(hash((step.forward.descriptors, step.backward.descriptors)))\n"
    )
    environment = os.environ | {"TRAINWRIGHT_CACHE": str(tmp_path), "PYTHONHASHSEED": "0"}
    environment.pop(SWITCH)
    first, again = (
        subprocess.run(
            [sys.executable, "-c", program],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for _ in range(2)
    )
    assert first == again
    assert len(list((tmp_path / "programs").iterdir())) == 1


def test_stored_long_compilation_reports_its_phase_on_standard_error(monkeypatch, capsys):
    monkeypatch.setenv(SWITCH, "0")
    monkeypatch.setattr(stored, "waiting", partial(waiting, first_seconds=0.01))
    cached_step(load_network("fashion"), 64, P)
    out, err = capsys.readouterr()
    assert out == ""
    first, *_ = err.splitlines()
    says = "trainwright: compiling fashion for a batch of 64: 0 s so far"
    assert re.fullmatch(rf"{says}(; forward program: .*)?", first)


def test_phases_name_both_programs_of_a_step_in_order(monkeypatch):
    phases: list[str] = []
    monkeypatch.setattr(lower_module, "enter_phase", phases.append)
    stored.compile_network(DIGITS, 4, P)
    assert [text.split()[0] for text in phases if "search" in text] == ["forward", "backward"]
    assert re.fullmatch(r"backward program: draft \d of at most \d placed and timed", phases[-1])


# -- kernels and formats of users ------------------------------------------------------------------
@pytest.fixture
def registered():
    """Drop the kernels that a test registers."""
    with kernels_dropped():
        yield


def own_kernel(shift=1, back=1, reads=False, **options):
    """Register a kernel as a file does that was edited: always the same name and line."""

    def gradient(k, upper):
        return upper >> back

    def reading(k, upper, x):
        return upper >> back

    options = {"gradient": reading if reads else gradient} | options

    @trainwright.kernel(name="own", **options)
    def own(k, x):
        return x >> shift

    return own


@pytest.mark.parametrize(
    "change",
    [
        {"shift": 2}, {"back": 2}, {"reads": True}, {"gradient": "straight-through"},
        {"whole_bits": 1}, {"over": "features"},
    ],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_changed_kernel_of_the_same_name_and_line_compiles_again(compiled, registered, change):
    networks = []
    for options in ({}, change, {}):
        own_kernel(**options)
        networks.append(two_layers("own"))
        cached_step(networks[-1], 4, P)
    assert len(compiled) == 2  # the first one is found again
    place = re.compile(r", group=\d+")
    assert len({place.sub("", repr(network)) for network in networks}) == 1


def test_changed_operand_of_a_gradient_of_the_same_text_compiles_again(compiled, registered):
    for gradient in (lambda k, upper, x: upper, lambda k, upper, result: upper):
        own_kernel(gradient=gradient)
        cached_step(two_layers("own"), 4, P)
    assert len(compiled) == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("width", 7), ("scale", 5), ("zero_only", False), ("words", lambda fmt: np.arange(-3, 4)),
        ("knot", lambda fmt, place: Fraction(1 << place)),
    ],
)  # fmt: skip
def test_changed_format_of_the_same_name_compiles_again(compiled, monkeypatch, name, value):
    network = DIGITS.with_formats("activation=float(3,2)")
    monkeypatch.setattr(base, "LIBRARY", "elsewhere.")  # so that the format counts as a user's
    for _ in range(2):
        cached_step(network, 4, P)
    monkeypatch.setattr(type(parse_format("float(3,2)")), name, value)
    cached_step(network, 4, P)
    assert len(compiled) == 2


def outputs_with(function, layers, x):
    """Return what a compiled model makes of ``x`` with a function between two layers."""
    model = torch.nn.Sequential(layers[0], function.module(), layers[1])
    model = trainwright.compile(model, batch=16)
    for _ in range(4):
        y = model(x)
        y.square().mean().backward()
    assert len(model.chains) == 1  # the function is in the program
    return y.detach()


@pytest.fixture
def linear(monkeypatch, tmp_path):
    """Return two layers without a bias and a batch, with programs stored in an empty folder."""
    monkeypatch.setenv("TRAINWRIGHT_CACHE", str(tmp_path))
    monkeypatch.delenv(SWITCH, raising=False)
    torch.manual_seed(0)
    layers = (
        tnn.TTLinear(32, n, rank=4, bias=False, numbers=Widths(activation=16)) for n in (32, 16)
    )
    return list(layers), torch.randn(16, 32)


def test_edited_kernel_under_its_name_gives_outputs_of_the_new_text(linear, registered):
    layers, x = linear
    # All else is linear: shifts by 1 and by 3 make outputs that differ by a factor of 4.
    half, eighth = (outputs_with(own_kernel(shift), layers, x) for shift in (1, 3))
    assert torch.linalg.norm(half - 4 * eighth) < 0.01 * torch.linalg.norm(half)


def test_kernel_reading_a_changed_name_is_refused_until_it_is_defined_again(linear, registered):
    layers, x = linear
    shift = [1]

    def shifted(k, value):
        return value >> shift[0]

    first = trainwright.kernel(gradient="straight-through")(shifted)
    half = outputs_with(first, layers, x)
    shift[0] = 3
    with pytest.raises(KernelError, match="reads a value of Python that has changed: make"):
        outputs_with(first, layers, x)
    second = trainwright.kernel(gradient="straight-through")(shifted)
    eighth = outputs_with(second, layers, x)
    assert torch.linalg.norm(half - 4 * eighth) < 0.01 * torch.linalg.norm(half)


def test_copied_model_keeps_its_kernel_when_another_one_takes_the_name(registered):
    module = own_kernel(1).module()
    own_kernel(3)
    x = torch.tensor([1.0, -0.5])
    assert deepcopy(module)(x).tolist() == module(x).tolist() == [0.5, -0.25]

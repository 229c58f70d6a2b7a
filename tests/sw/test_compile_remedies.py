"""Errors of networks that do not fit: remedies that were compiled, names that users know."""

import pickle
import re
from dataclasses import replace

import pytest
import torch
from sequence_networks import classifier

import trainwright.nn as tnn
from trainwright import compile
from trainwright.cli import main
from trainwright.compiler.base.compiled import AUTO, IN_ROWS
from trainwright.compiler.base.errors import CompileError, DoesNotFitError, ResourceError
from trainwright.compiler.base.progress import CompileProgress, count, followed, is_spent
from trainwright.compiler.base.tuning import TUNING
from trainwright.compiler.step import blocks
from trainwright.compiler.step.compile import compile_network
from trainwright.compiler.step.stored import (
    SWITCH,
    cached_step,
    with_remedies,
)
from trainwright.graph import order
from trainwright.network import UserNames, load_network, network_from_dict
from trainwright.parameters import AcceleratorParameters

P = AcceleratorParameters(scratchpad_rows=256)
ENGINE = AcceleratorParameters(vector_engine=1, exponents=64)
NETWORK = network_from_dict({
    "name": "small", "classes": 4, "image": [8, 8],
    "layers": [
        {"name": "first", "outputs": [4, 4], "inputs": [8, 8], "ranks": [4], "relu": True},
        {"name": "head", "outputs": [2, 2], "inputs": [4, 4], "ranks": [2]},
    ],
})  # fmt: skip


@pytest.fixture(autouse=True)
def uncached(monkeypatch):
    monkeypatch.setenv(SWITCH, "0")


@pytest.mark.usefixtures("first_program")
def test_error_of_a_network_names_its_layer_and_remedies_that_compile():
    with pytest.raises(DoesNotFitError) as caught:
        cached_step(NETWORK, 64, P, effort=2_000)
    message = str(caught.value)
    assert message.startswith(("first: ", "head: "))
    batch = re.search(r"batch of (\d+), which fits", message)
    rows = re.search(r"scratchpad_rows=(\d+) fits", message)
    assert batch or rows
    if batch:
        compile_network(NETWORK, int(batch[1]), P)
    if rows:
        compile_network(NETWORK, 64, replace(P, scratchpad_rows=int(rows[1])))


def test_remedies_are_the_first_trials_that_do_not_raise():
    def fits(batch, p):
        if batch > 24 and p.scratchpad_rows < 512:
            raise DoesNotFitError("too large", "")

    error = with_remedies(DoesNotFitError("l1.x is large", "guessed"), 96, P, fits)
    assert error.reason == "l1.x is large" and error.batch == 24
    assert pickle.loads(pickle.dumps(error)).batch == 24
    assert error.remedy == (
        "use a batch of 24, which fits; an accelerator with scratchpad_rows=512 fits; "
        "preset zu3eg fits"
    )


@pytest.mark.parametrize(("batch", "part"), [(64, 16), (72, 18), (70, 17)])
def test_training_that_does_not_fit_names_micro_batches_that_were_compiled(
    monkeypatch, tmp_path, capsys, batch, part
):
    def fits(network, samples, p, **_):
        if samples > 18 or p.scratchpad_rows > 2048:
            raise DoesNotFitError("too large", "")

    monkeypatch.setattr("trainwright.compiler.step.stored.compile_network", fits)
    sizes = ["--accelerator", "scratchpad_rows=2048"]
    argv = ["train", "--network", "digits", "--batch", str(batch), "--out", str(tmp_path / "run")]
    assert main([*argv, *sizes]) == 2
    remedy = f"use a batch of {part}, which fits"
    if batch % part == 0:
        remedy += f"; --micro-batches 4 trains the batch of {batch} in parts of {part}"
    assert capsys.readouterr().err.splitlines()[-1].endswith(f"too large; {remedy}")


@pytest.mark.parametrize("network", (classifier(), NETWORK))
def test_remedies_of_programs_in_rows_are_batches_of_any_size(monkeypatch, network):

    def fits(network, samples, p, **_):
        if samples > 4:
            raise DoesNotFitError("too large", "")

    monkeypatch.setattr("trainwright.compiler.step.stored.compile_network", fits)
    with pytest.raises(DoesNotFitError, match="use a batch of 4,"):
        cached_step(network, 64, P, plan=IN_ROWS[AUTO])


def test_remedies_that_all_fail_promise_nothing_after_bounded_trials():
    tried = []

    def never(batch, p):
        tried.append((batch, p.scratchpad_rows))
        raise DoesNotFitError("too large", "")

    error = with_remedies(DoesNotFitError("l1.x is large", "guessed"), 4096, P, never)
    assert "scratchpad_rows" not in error.remedy
    assert [batch for batch, _ in tried if batch < 4096] == [64, 1]
    assert len(tried) == 2 + 1 + TUNING.effort.trial_presets


def test_remedies_of_a_large_batch_are_tried_from_a_single_sample_upwards():
    def fits(batch, p):
        if batch > 8:
            raise DoesNotFitError("too large", "")

    error = with_remedies(DoesNotFitError("l1.x is large", ""), 1024, P, fits)
    assert error.remedy == "use a batch of 4, which fits"


def test_remedies_of_every_kind_are_tried_before_any_is_improved():
    def costly(batch, p):
        count("states", 100 if batch in {4096, 64} else 1000)
        if 64 < batch < 4096:
            raise DoesNotFitError("too large", "")

    # A larger batch takes all effort, and does not fit: as `fashion` on 2,048 rows.
    with followed(most=1200):
        error = with_remedies(DoesNotFitError("l1.x is large", ""), 4096, P, costly)
    assert error.remedy == (
        "use a batch of 64, which fits (larger ones were not tried); "
        "an accelerator with scratchpad_rows=32768 fits; preset zu3eg fits"
    )


def test_remedies_out_of_effort_try_no_more():
    def costly(batch, p):
        count("states", 60)
        raise DoesNotFitError("too large", "")

    with followed(most=100) as progress:
        error = with_remedies(DoesNotFitError("l1.x is large", ""), 1024, P, costly)
    assert progress.effort == 120
    assert error.remedy.startswith("try a smaller batch") and "out of effort" in error.remedy


def test_remedies_try_each_batch_once():
    tried = []

    def never(batch, p):
        tried.append((batch, p))
        raise DoesNotFitError("too large", "")

    error = with_remedies(DoesNotFitError("l1.x is large", ""), 16, P, never)
    assert len(set(tried)) == len(tried)
    assert error.remedy.startswith("use smaller layers or ranks")


def test_search_without_any_program_ends_soon_after_it_is_hopeless():
    with followed(hopeless=2_000) as progress, pytest.raises(DoesNotFitError):
        compile_network(load_network("tagger-64"), 512, ENGINE)
    assert progress.effort < 50_000


def test_remedies_of_the_largest_preset_name_no_other():
    def fits(batch, p):
        if batch == 64:
            raise DoesNotFitError("too large", "")

    error = with_remedies(DoesNotFitError("l1.x is large", ""), 64, AcceleratorParameters(), fits)
    assert error.remedy == "use a batch of 16, which fits"


def test_blocks_without_an_array_for_an_operation_leave_programs_of_all_samples(monkeypatch):
    def fails(*_):
        raise DoesNotFitError("l1.y can be computed by neither array", "use other sizes or ranks")

    best = compile_network(NETWORK, 80, AcceleratorParameters())
    monkeypatch.setattr(blocks, "choose", fails)
    assert compile_network(NETWORK, 80, AcceleratorParameters()).cycles >= best.cycles


def test_effort_of_a_compiled_module_bounds_the_search_of_its_programs():
    model = torch.nn.Sequential(tnn.TTLinear(64, 48, rank=4))
    with followed() as best:
        compile(model, batch=20).report()
    with followed() as least:
        compile(model, batch=20, effort=1).report()
    assert least.effort < best.effort
    with pytest.raises(CompileError, match="effort must be an integer of at least 1, not 0"):
        compile(model, effort=0)


def test_named_error_keeps_names_and_kind_when_pickled():
    error = DoesNotFitError("l2.x needs 320 rows", "use less").named(UserNames({"l2": "net.fc"}))
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, DoesNotFitError)
    assert str(again) == str(error) == "net.fc: input needs 320 rows; use less"
    plain = ResourceError("the forward program needs 9 descriptors", "use less")
    assert str(plain.named(UserNames({"l2": "net.fc"}))) == str(plain)


def test_effort_ends_a_search_with_a_program_that_is_whole():
    p = AcceleratorParameters()
    with followed() as unbounded:
        best = compile_network(NETWORK, 64, p)
    with followed() as bounded:
        first = compile_network(NETWORK, 64, p, effort=1)
    assert bounded.effort < unbounded.effort
    assert {op.out for op in first.graph.whole.ops} >= set(best.graph.whole.results)
    assert best.cycles <= first.cycles


def test_progress_within_another_counts_on_and_has_a_bound_of_its_own():
    with followed() as outer:
        count("states", 10)
        with followed(most=5) as inner:
            assert inner is outer
            assert not is_spent()
            count("placed", 5)
            assert is_spent()
        assert not is_spent()
    assert outer.counts == {"states": 10, "placed": 5}
    assert not is_spent()
    assert CompileProgress().effort == 0


def test_equal_layers_are_searched_once(monkeypatch):
    searched = []
    families = order._families
    monkeypatch.setattr(order, "_FOUND", {})
    monkeypatch.setattr(order, "_families", lambda site: searched.append(site) or families(site))
    layer = {"outputs": [4, 4], "inputs": [4, 4], "ranks": [3], "relu": True}
    layers = [*[layer] * 3, {**layer, "relu": False}]
    network = network_from_dict({"classes": 4, "image": [4, 4], "layers": layers})
    compile_network(network, 16, AcceleratorParameters())
    # The first layer makes no gradient of its input, and the last has no ReLU behind it.
    assert len(searched) <= 3

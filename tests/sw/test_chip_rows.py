"""Programs of a step for a loop on the chip: they read and write the rows of the state."""

from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
import torch
from test_chip_step import DIGITS, FASHION, Other, P
from test_onchip_training import SETTINGS, same
from test_resident_training import EPOCH, settings, trainer

from trainwright.check.training import check_training, random_state
from trainwright.compiler import CompileError, compile_step
from trainwright.compiler.base.compiled import AUTO, IN_ROWS
from trainwright.compiler.base.errors import DoesNotFitError
from trainwright.compiler.base.memory import Region
from trainwright.compiler.chip import beside
from trainwright.compiler.chip.memory import ChipMemory, gradient_of
from trainwright.compiler.chip.update import update_program
from trainwright.compiler.step.rows import require_chip
from trainwright.data import load_data_set
from trainwright.driver import Driver
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import Layer, load_network
from trainwright.onchip.layout import LANES
from trainwright.parameters import AcceleratorParameters
from trainwright.train.host_engine import HostEngine
from trainwright.train.settings import ChipSettings
from trainwright.train.state import initial_state
from trainwright.train.trainer import Trainer

pytestmark = pytest.mark.usefixtures("programs_once", "first_programs")
CHOSEN = [settings(steps=EPOCH + 3), replace(SETTINGS, steps=EPOCH + 3)]


@pytest.fixture(scope="module")
def data():
    return load_data_set("digits")


def odd():
    """Return a network with sizes that fill no row and a layer without a bias."""
    layers = (
        Layer((3, 5), (5, 7), (6,), relu=True, bias=False),
        Layer((2, 5), (5, 3), (4,), relu=False),
    )
    return replace(DIGITS, layers=layers, image=(5, 7), padded=(5, 7))


def wide(outputs, classes):
    """Return a network of digits with more outputs than a row has lanes."""
    layers = (*DIGITS.layers[:1], Layer((4, outputs // 4), DIGITS.layers[1].inputs, (4,)))
    return replace(DIGITS, layers=layers, classes=classes)


WIDE = wide(128, 128)


@pytest.mark.parametrize(
    ("network", "batch"),
    [
        (DIGITS.with_ranks(((5,), (7,))), 16),
        (odd(), 48),
        (FASHION.with_ranks(((3, 13, 2), (5,))), 16),
        pytest.param(FASHION, 32, marks=pytest.mark.slow),
    ],
)
def test_two_steps_are_those_of_the_definitions(network, batch):
    """Loss, state, factors, and what the second step's programs read."""
    outcome = check_training(network, batch, Other(P, 1 << 21), seed=batch, steps=2)
    assert outcome.comparison.mismatches == {} and outcome.step.plan == IN_ROWS[AUTO]
    compared = {name for name in outcome.comparison.tensors if name.endswith(", defined")}
    assert {"state, defined", "factors, defined", "loss and correct samples, defined"} <= compared


def test_step_moves_rows_of_the_state():
    """Each gradient, and each factor, in the order of the layout; both orders of the inputs."""
    state = random_state(FASHION.with_ranks(((3, 13, 2), (5,))), 0)
    step = compile_step(state.layout.network, 16, P, plan=IN_ROWS[AUTO])
    images = {
        (image.layer, image.index): image for image in step.backward.images if image.is_factor
    }
    for part in state.layout.parts:
        values = np.arange(part.size) % 100 + 1
        rows = np.zeros(part.rows * LANES, np.int64)
        rows[part.places - part.row * LANES] = values
        shape = part.shape if part.index < 0 else part.shape[: 3 + (part.shape[3] > 1)]
        assert (step.buffers[gradient_of(part)].pack(torch.from_numpy(values.reshape(shape)))
                == rows.astype("<i2").view(np.uint8)).all()  # fmt: skip
        if part.index >= 0:
            image = next(image for image in step.backward.images + step.forward.images
                         if (image.layer, image.index) == (part.layer, part.index))  # fmt: skip
            packed = image.pack(torch.from_numpy(values.reshape(part.shape)))
            assert (packed == rows.astype(np.int8).view(np.uint8)).all()
    assert images and step.aliases["x"] == ("x.i", "x.s")
    assert step.memory_bytes >= max(buffer.stop for buffer in step.buffers.values())


@pytest.mark.parametrize(
    ("network", "plan"),
    [
        *zip((DIGITS.with_ranks(((5,), (7,))), odd()), IN_ROWS, strict=True),
        pytest.param(WIDE, AUTO, marks=pytest.mark.slow),
        (wide(256, 100), AUTO),  # outputs of no class
    ],
    ids=("digits-auto", "odd-small", "wide-auto", "wider-auto"),
)
def test_steps_by_one_start_are_those_of_the_interpreter(network, plan):
    """With a prior, cuts, samples of a data set, and a test set behind them."""
    golden = GoldenAccelerator(P, memory_bytes=1 << 20)
    result = check_training(network, 16, golden, steps=3, plan=plan)
    assert result.step.plan == IN_ROWS[plan]
    assert result.comparison.mismatches == {} and result.host_writes == 0 < result.columns_cut


def test_parts_may_have_the_rows_of_those_before(data, monkeypatch):
    """In a short scratchpad the update has as few rows as possible."""
    fewer = []

    def short(*arguments, **options):
        avoid = options["avoid"]

        def program(first, *, shared):
            rest = Region("rest", first, P.scratchpad_rows - first)
            taken = {n: [*regions, rest] for n, regions in avoid.items()}
            return update_program(*arguments, **options | {"avoid": taken, "reuse": shared})

        if not options["reuse"]:
            raise DoesNotFitError("asked for first", "ask again")
        for rows in range(64, P.scratchpad_rows, 8):
            with suppress(DoesNotFitError):
                update = program(rows, shared=True)
                try:
                    program(rows, shared=False)
                except DoesNotFitError:
                    fewer.append(rows)
                return update
        raise AssertionError

    monkeypatch.setattr(beside, "update_program", short)
    _assert_defined(data, CHOSEN[1], AUTO)
    assert fewer


@pytest.mark.parametrize(("chosen", "plan"), [*zip(CHOSEN, reversed(IN_ROWS), strict=True)])
def test_chip_rows_run_has_the_bits_of_the_definitions(data, chosen, plan):
    """Host computes loss and update for steps by the same plan, with cuts."""
    _assert_defined(data, chosen, plan)


@pytest.mark.parametrize("loss", ["cross-entropy", "squared-error"])
def test_chip_rows_run_of_many_outputs_alone_has_the_bits_of_the_definitions(data, loss):
    """Labels of samples and of the test set are fetched as numbers."""
    chosen = replace(settings(steps=EPOCH + 3), batch=48, chip=ChipSettings(loss=loss))
    _assert_defined(data, chosen, AUTO, network=wide(40, 37))


def _assert_defined(data, chosen, plan, network=None):
    network = network or load_network("digits")
    ours, theirs = initial_state(network, chosen), initial_state(network, chosen)

    def by_host(network):
        golden = GoldenAccelerator(AcceleratorParameters(), memory_bytes=1 << 20)
        return Driver(golden, network, chosen.batch, plan=IN_ROWS[plan])

    Trainer(ours, data, HostEngine(by_host)).run()
    run = trainer(theirs, data, plan=plan)
    run.run()
    assert run.engine.driver.step.plan == IN_ROWS[plan]
    assert same(ours, theirs) and ours.history.evaluations == theirs.history.evaluations
    ranks = {record.ranks for record in ours.history.steps}
    assert (len(ranks) > 1) == (chosen.prior is not None)


CODED = replace(P, formats=("float(3,8)",), factor_width=16)


@pytest.mark.parametrize(
    ("network", "p", "batch", "message"),
    [
        (
            replace(DIGITS, widths=replace(DIGITS.widths, factor=11)),
            replace(P, factor_width=16), 16, "take factors of up to 10 bits, not 11; use --upd",
        ),
        (DIGITS.with_formats({"factor": "float(3,8)"}), CODED, 16, "take factors of up to 10 bits"),
    ],
)  # fmt: skip
def test_rows_plan_rejects_unsupported_networks(network, p, batch, message):
    with pytest.raises(CompileError) as error:
        compile_step(network, batch, p, plan=IN_ROWS[AUTO])
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("formats", "message"),
    [
        ("factor=fixed(3)", "take factors of 4 bits or more, not 3; use --upd"),
        ("factor=fixed(5),l1.G1=float(3,2)", "one format of all factors, not others of l1.G1"),
    ],
)
def test_accelerator_alone_rejects_formats_of_factors_it_cannot_update(formats, message):
    with pytest.raises(CompileError, match=message):
        require_chip(DIGITS.with_formats(formats), P)


def test_programs_for_the_host_are_refused():
    """Programs laid out for a host that writes them are rejected."""
    step = compile_step(DIGITS, 16, P, plan=AUTO)
    with pytest.raises(CompileError, match="do not go with plan auto; use --update chip"):
        ChipMemory.of(step, random_state(DIGITS, 0).layout)

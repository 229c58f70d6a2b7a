"""The order of a resident step's commands: their waits, their bits, their cycles."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from chip_models import model_of, place_data
from hazards import HazardError, check_waits
from test_resident import DIGITS, Case, same
from test_resident_samples import SMALL, S, Set

import trainwright.compiler.chip.resident as resident
from trainwright.compiler.base.hazards import Hazards
from trainwright.compiler.chip.memory import STATE
from trainwright.compiler.chip.prior import CutRule
from trainwright.compiler.chip.update import UpdateRule
from trainwright.compiler.schedule import weave
from trainwright.compiler.schedule.weave import EXPONENTS, _ordering
from trainwright.driver.resident import ResidentDriver, ResidentRun
from trainwright.golden.backend import GoldenAccelerator
from trainwright.onchip.schedule import Entry, RateTable
from trainwright.program.descriptors import Set as SetRegisters
from trainwright.program.descriptors import is_skipped
from trainwright.program.exponents import Scalar, ScalarKind
from trainwright.program.fields import Engine
from trainwright.program.vector import Code, Vector
from trainwright.timing import predict
from trainwright.timing.timeline import EngineModel

pytestmark = pytest.mark.usefixtures("programs_once")
MEMORY = 1 << 21
TABLE = RateTable((Entry(11, 5, 200, -13), Entry(9, 3, 160, -11)), steps=2)
STEPS = (0, 3, 7)
"""A step that renews the prior's coefficients, one that takes its sums, and an ordinary one."""


def driver_of(network, batch, accelerator, case=None, cuts=None):
    given = Set(2 * batch + 5, network.layers[0].input_size, 4)
    case = case or Case(network, batch, 3)
    data = place_data(accelerator, given.records, batch, case.seed, 4)
    test = place_data(
        accelerator,
        np.pad(given.records, ((0, -len(given.records) % batch), (0, 0))),
        batch,
        case.seed,
        4,
        before=data.address,
    )
    driver = ResidentDriver(
        accelerator, case.state.layout, batch, ResidentRun(
            UpdateRule(TABLE, pulled=True, cut_rule=cuts), case.seed, case.scales.ranges, data, test
        ),
    )  # fmt: skip
    return driver, case


CASES = {
    "digits": (DIGITS, 16, CutRule(interval=16, distance=5)),
    "fashion": (SMALL, 16, CutRule(interval=10, distance=5)),
    "no cuts": (DIGITS, 16, None),
}


@pytest.fixture(
    scope="module",
    params=["digits", pytest.param("fashion", marks=pytest.mark.slow), "no cuts"],
)
def woven(request):
    """Return the driver of a step with samples and a prior."""
    network, batch, cuts = CASES[request.param]
    with GoldenAccelerator(S, memory_bytes=MEMORY) as golden:
        return driver_of(network, batch, golden, cuts=cuts)[0]


def test_weave_puts_rare_descriptors_in_fewest_steps():
    for interval, slot in ((16, 8), (12, 4), (10, 2)):
        with GoldenAccelerator(S, memory_bytes=MEMORY) as golden:
            driver, _ = driver_of(DIGITS, 16, golden, cuts=CutRule(interval, 5))
        slots = {getattr(d, "eighth", 0) for d in driver.resident.program.descriptors}
        assert slots == {0, slot, 2 * slot - 1, 8}  # coefficients are renewed every eight steps


def test_weave_keeps_a_pass_behind_the_exponents_that_its_scalars_take():
    d = Vector(
        entry=0, length=1, outer=1, inner=1, streams=(), reads=0, writes=0,
        scalars=(Scalar(ScalarKind.SHIFT, 0, plus=3, minus=300), Scalar(ScalarKind.VALUE, 0, 7)),
    )  # fmt: skip
    taken = [(t.start, t.stop, t.write) for t in _ordering(d) if t.space == EXPONENTS]
    assert taken == [(3, 4, False), (7, 8, False), (300, 301, False)]


@pytest.mark.parametrize("step", STEPS)
def test_waits_are_enough_in_every_step(woven, step):
    descriptors = woven.resident.program.descriptors
    assert check_waits(descriptors, S, MEMORY, step) == sum(
        not is_skipped(d, step) and hasattr(d, "tensor") for d in descriptors
    )


def test_waits_of_the_test_set_are_enough(woven):
    program = woven.evaluation
    assert program is not None
    assert check_waits(program.descriptors, S, MEMORY) > 10


def test_no_wait_for_another_engine_is_idle(woven):
    """Dropping a command's waits lets some step read too early, for most commands.

    Some waits are idle all the same, since spans of rows are wider than the rows.
    """
    descriptors = woven.resident.program.descriptors
    needed = waits = 0
    waiting = [n for n, d in enumerate(descriptors) if hasattr(d, "tensor") and d.wait]
    for number in waiting[:: max(1, len(waiting) // 12)]:
        d = replace(descriptors[number], wait=Engine.NONE, wait_older=Engine.NONE)
        changed = (*descriptors[:number], d, *descriptors[number + 1 :])
        waits += 1
        try:
            for step in STEPS:
                check_waits(changed, S, MEMORY, step)
        except HazardError:
            needed += 1
    assert needed > waits / 2


def one_after_the_other(phases, p):
    """Return the commands of all phases, each behind all before it."""
    descriptors = []
    for phase in phases:
        for d in phase.descriptors:
            descriptors += [phase.stream] if isinstance(d, Vector) and phase.stream else []
            waits = {"wait": Engine.ALL, "wait_older": Engine.NONE} if hasattr(d, "wait") else {}
            descriptors.append(replace(d, **waits))
    return descriptors


def in_order(monkeypatch, network, batch, accelerator, case=None, cuts=None):
    """Return a driver of the same phases one after the other."""
    with monkeypatch.context() as patch:
        patch.setattr(resident, "woven", one_after_the_other)
        return driver_of(network, batch, accelerator, case, cuts)[0]


def commands(driver):
    """Return executed commands without waits, and without descriptors that set the stream."""
    return sorted(
        str(replace(d, wait=Engine.NONE, wait_older=Engine.NONE))
        for d in driver.resident.program.descriptors
        if not isinstance(d, SetRegisters)
    )


def test_weave_same_commands_in_fewer_cycles(woven, request, monkeypatch):
    network, batch, cuts = CASES[request.node.callspec.params["woven"]]
    with GoldenAccelerator(S, memory_bytes=MEMORY) as golden:
        driver = in_order(monkeypatch, network, batch, golden, cuts=cuts)
    assert commands(driver) == commands(woven)
    cycles = [predict(built.resident.program.descriptors, S).cycles for built in (woven, driver)]
    assert cycles[0] < cycles[1]


MOST = {"issue": 4_250, "wait_for_change": 13_500, "waits": 17_000}
"""Predictions of commands, changes and waits that the order of a step of `digits` may take.

At most a seventh above the counts of today. 5,156 commands were predicted before a prediction ended
at the first delay, and began with what the one before was made of.
"""


def test_order_of_a_step_is_predicted_by_a_bounded_number_of_commands(monkeypatch):
    counts: Counter[str] = Counter()
    every, ordered = list[Counter[str]](), resident.woven

    def counting(owner, name):
        method = getattr(owner, name)

        def counted(*args):
            counts[name] += 1
            return method(*args)

        monkeypatch.setattr(owner, name, counted)

    def of_one_order(phases, p):
        counts.clear()
        descriptors = ordered(phases, p)
        every.append(counts.copy())
        return descriptors

    counting(EngineModel, "issue")
    counting(EngineModel, "wait_for_change")
    counting(Hazards, "waits")
    monkeypatch.setattr(resident, "woven", of_one_order)
    with GoldenAccelerator(S, memory_bytes=MEMORY) as golden:
        driver_of(DIGITS, 16, golden, cuts=CutRule(interval=16, distance=5))
    most = {name: max(of_one[name] for of_one in every) for name in MOST}
    assert all(0 < most[name] <= MOST[name] for name in MOST), most


def test_prediction_used_again_is_of_the_present_state(monkeypatch):
    checked, step = [], weave._Weaver._step

    def stepped(weaver):
        if weaver._begin is not None:
            checked.append(weaver._begin == weaver._begins(None))
        step(weaver)

    monkeypatch.setattr(weave._Weaver, "_step", stepped)
    with GoldenAccelerator(S, memory_bytes=MEMORY) as golden:
        driver_of(DIGITS, 16, golden, cuts=CutRule(interval=16, distance=5))
    assert len(checked) > 10 and all(checked)


def test_instructions_are_in_the_engine_in_every_step(woven):
    """Also where the passes before are left out."""
    for step in STEPS:
        held = {}
        for d in woven.resident.program.descriptors:
            if is_skipped(d, step):
                continue
            if isinstance(d, Code):
                held |= dict.fromkeys(range(d.first, d.first + len(d.instructions)))
            elif isinstance(d, Vector):
                assert held.keys() >= set(range(d.entry, d.entry + d.length))


@pytest.mark.parametrize("cuts", [None, CutRule(4, 3)])
def test_in_one_order_or_another_the_bits_are_the_same(cuts, monkeypatch):
    """Nine steps: renewed, summed up, renewed."""
    case, drivers, tests = Case(DIGITS, 16, 3), [], []
    with (
        GoldenAccelerator(S, memory_bytes=MEMORY) as golden,
        GoldenAccelerator(S, memory_bytes=MEMORY) as other,
    ):
        for driver in (
            driver_of(DIGITS, 16, golden, case, cuts)[0],
            in_order(monkeypatch, DIGITS, 16, other, case, cuts),
        ):
            driver.put(case.state, model_of(case.state))
            driver.begin(case.scales, case.state, 0)
            driver.run_steps(8, step=0)
            driver.run_steps(1, step=8)
            tests.append(driver.evaluate())
            drivers.append(driver)
        same(*drivers)
        assert tests[0] == tests[1]
        assert drivers[0].exponents() == drivers[1].exponents()
        assert [driver.moments() for driver in drivers] == [drivers[0].moments()] * 2
        pulls = [driver.pulls() for driver in drivers]
        assert (pulls[0].coefficients == pulls[1].coefficients).all()
        assert pulls[0].coefficients.any()
        assert golden.order == other.order


def test_samples_are_fetched_again_after_other_inputs():
    """A forward pass of the host's inputs takes the place of the next step's."""
    runs = []
    for disturbed in (False, True):
        case = Case(DIGITS, 16, 3)
        with GoldenAccelerator(S, memory_bytes=MEMORY) as golden:
            driver, _ = driver_of(DIGITS, 16, golden, case)
            driver.put(case.state, model_of(case.state))
            driver.begin(case.scales, case.state, 0)
            driver.run_steps(2, step=0)
            assert driver.primed
            if disturbed:
                moments = np.array(driver.moments(), np.int64)
                case.state.take(driver.rows(STATE), driver.factors(), moments)
                driver.forward(case.inputs, model_of(case.state), case.scales)
                assert not driver.primed
                driver.prime(2)
            driver.run_steps(2, step=2)
            runs.append((driver.rows(STATE).tolist(), driver.exponents(), golden.order))
    assert runs[0] == runs[1]

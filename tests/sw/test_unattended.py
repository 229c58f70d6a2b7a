"""A board that trains on when its host does not, and a host that finds it again.

The board is the golden model, whose memory outlives the host; ``tests/sim/test_board_epochs.py``
has the real link.
"""

from dataclasses import replace

import numpy as np
import pytest
from test_onchip_training import SETTINGS, same

from trainwright.accelerator import AcceleratorError, AcceleratorReset
from trainwright.accelerator.counted import counted
from trainwright.data import load_data_set
from trainwright.driver.card import PAGE, Card, card_address, end_of_start, read_card, write_card
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import load_network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.exponents import MoveScales
from trainwright.train.checkpoint import load_checkpoint, save_checkpoint
from trainwright.train.resident import ResidentEngine
from trainwright.train.settings import ChipSettings, PriorSettings
from trainwright.train.state import initial_state
from trainwright.train.trainer import Trainer

pytestmark = pytest.mark.usefixtures("first_programs", "programs_once")
P = AcceleratorParameters(vector_engine=1, exponents=64, sample_loads=1)
MEMORY = 1 << 20
EPOCH = 22
RECORD_BYTES = 80
PLAIN = replace(SETTINGS, prior=None, steps=2 * EPOCH + 3)


class HostDied(Exception):
    """The host's process ended."""


class Board(GoldenAccelerator):
    """Board whose memory begins as noise, and which fails at chosen starts.

    The host ends at start ``dies`` (from 1), the board is reset at start ``resets``. ``every``
    counts all starts, not those of training steps alone.
    """

    def __init__(self, *, dies=0, resets=0, every=False):
        super().__init__(P, memory_bytes=MEMORY)
        self.noise()
        self.dies, self.reset_at, self._every = dies, resets, every
        self.starts = self.resets = 0
        self.sizes = []  # of what was written
        self.kept = False
        self._last = None

    def noise(self):
        """Return the memory's contents after a reset."""
        super().write(0, np.random.default_rng(1).integers(0, 256, MEMORY, np.uint8))

    def write(self, address, data):
        self.sizes.append(data.size)
        super().write(address, data)

    def run(self, program, address, *, trace=False):
        self._last, self.kept = None, True
        return super().run(program, address, trace=trace)

    def repeat(self, program, times, *, address=0, step=0, trace=False):
        counts = self._every or any(isinstance(d, MoveScales) for d in program.descriptors)
        self.starts += counts
        if counts and self.starts == self.reset_at:
            self.noise()
            self.kept, self._last = False, None
            self.resets += 1
            raise AcceleratorReset("the board was reset")
        run = super().repeat(program, times, address=address, step=step, trace=trace)
        self._last, self.kept = ((address, len(program.descriptors), times, step), run), True
        if counts and self.starts == self.dies:
            raise HostDied
        return run

    def attend(self, program, times, *, address, step=0, trace=False):
        wanted = address, len(program.descriptors), times, step
        return self._last[1] if self._last and self._last[0] == wanted else None


@pytest.fixture(scope="module")
def data():
    return load_data_set("digits")


def host(board, state, data, path, **options):
    to = counted(board)
    assert hasattr(to, "attend")
    return Trainer(
        state, data, ResidentEngine(to),
        save=lambda saved_state: save_checkpoint(path, saved_state), save_seconds=1e9, **options,
    )  # fmt: skip


def history(state):
    """Return records without times."""
    steps = [replace(record, seconds=0.0) for record in state.history.steps]
    return steps, state.history.evaluations


KEPT = replace(SETTINGS, steps=45)
WITH_CUTS = replace(KEPT, chip=ChipSettings(cut_programs="fitted"))


@pytest.mark.parametrize(
    ("chosen", "dies"),
    [
        (PLAIN, 1),
        (KEPT, 2),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in ((PLAIN, 2), (PLAIN, 3), (WITH_CUTS, 1), (WITH_CUTS, 4), (WITH_CUTS, 6))
        ),
    ],
)
def test_unattended_host_that_dies_loses_nothing(data, tmp_path, chosen, dies):
    """The next one finds the steps done, and neither starts them again nor writes the data set."""
    whole = initial_state(load_network("digits"), chosen)
    undisturbed = Board()
    host(undisturbed, whole, data, tmp_path / "whole").run()
    board, path = Board(dies=dies), tmp_path / "c.safetensors"
    with pytest.raises(HostDied):
        host(board, initial_state(load_network("digits"), chosen), data, path).run()
    board.dies = 0
    resumed = load_checkpoint(path).state
    run = host(board, resumed, data, path)
    assert run.run()
    assert same(whole, resumed) and history(resumed) == history(whole)
    assert board.starts == undisturbed.starts
    assert board.sizes.count(len(data.train) * RECORD_BYTES) == 1


def test_unattended_state_is_saved_before_each_start(data, tmp_path):
    board, path = Board(), tmp_path / "c.safetensors"
    state, saved = initial_state(load_network("digits"), PLAIN), []
    run = host(board, state, data, path)
    run._save = lambda saved_state: saved.append((saved_state.step, board.starts))
    run.run()
    assert saved == [(0, 0), (22, 1), (22, 1), (44, 2), (44, 2), (47, 3)]


@pytest.mark.parametrize(
    ("what", "start"),
    [
        ("dies", 3),
        ("resets", 1),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (("dies", 1), ("dies", 4), ("resets", 3))
        ),
    ],
)
def test_unattended_host_resumes_at_any_step(data, tmp_path, what, start):
    """Also where it fetches the first samples, or classifies the test set."""
    whole = initial_state(load_network("digits"), KEPT)
    host(Board(), whole, data, tmp_path / "whole").run()
    board, path = Board(every=True, **{what: start}), tmp_path / "c.safetensors"
    resumed = initial_state(load_network("digits"), KEPT)
    try:
        host(board, resumed, data, path).run()
        assert what == "resets" and board.resets == 1
    except HostDied:
        board.dies = 0
        if path.exists():  # not where it dies before the first step
            resumed = load_checkpoint(path).state
        host(board, resumed, data, path).run()
    assert same(whole, resumed) and history(resumed) == history(whole)


@pytest.mark.parametrize("chosen", [PLAIN, pytest.param(WITH_CUTS, marks=pytest.mark.slow)])
def test_unattended_reset_under_a_run_changes_nothing(data, tmp_path, chosen):
    whole, interrupted = (initial_state(load_network("digits"), chosen) for _ in range(2))
    host(Board(), whole, data, tmp_path / "whole").run()
    board = Board(resets=2)
    host(board, interrupted, data, tmp_path / "c").run()
    assert same(whole, interrupted) and history(interrupted) == history(whole)
    assert board.resets == 1


def test_unattended_reset_between_two_runs_is_seen(data, tmp_path):
    """While the test set is classified: what the next start needs is written again."""
    whole, interrupted = (initial_state(load_network("digits"), PLAIN) for _ in range(2))
    host(Board(), whole, data, tmp_path / "whole").run()
    board = Board()
    run = host(board, interrupted, data, tmp_path / "c")
    run.step()
    board.noise()
    board.resets += 1
    run.run()
    assert same(whole, interrupted)


def test_another_run_is_not_taken_over(data, tmp_path):
    """Other settings, another data set, an earlier checkpoint, a board that was reset."""
    board, path = Board(dies=2), tmp_path / "c.safetensors"
    state = initial_state(load_network("digits"), PLAIN)
    with pytest.raises(HostDied):
        host(board, state, data, path).run()
    assert board.starts == 2

    def attends(chosen, given=data, step=EPOCH):
        other = initial_state(load_network("digits"), chosen)
        engine = host(board, other, given, path).engine
        return engine.attend(step)

    assert not attends(replace(PLAIN, learning_rate=0.5))
    assert not attends(replace(PLAIN, seed=1))
    fewer = replace(data, train=data.train.first(1400))
    assert not attends(PLAIN, fewer, 21)
    images = data.train.images.copy()
    images[100, 3, 3] ^= 8
    assert not attends(PLAIN, replace(data, train=replace(data.train, images=images)))
    assert not attends(PLAIN, step=0) and not attends(PLAIN, step=2 * EPOCH)
    assert attends(PLAIN)
    board.kept = False
    assert not attends(PLAIN)


def test_ends_of_starts():
    assert [end_of_start(step, 22, 47, 0) for step in (0, 7, 22, 44, 46)] == [22, 22, 44, 47, 47]
    assert [end_of_start(step, 22, 47, 10) for step in (0, 9, 10, 20, 22)] == [10, 10, 20, 22, 30]


def test_cards_are_read_as_written():
    with GoldenAccelerator(P, memory_bytes=2 * PAGE) as board:
        assert read_card(board) is None
        names = {f"l{n // 32}.G{n % 8}.G{n % 32}.x.da": n for n in range(1024)}
        card = Card(data="d", run="r", network="digits", ranks=[[3], [4]], exponents=names)
        write_card(board, card)
        assert read_card(board) == card and not board.read(0, PAGE).any()
        for place, value in ((20, 0), (card_address(board) - PAGE, 255), (PAGE - 1, 7)):
            data = board.read(card_address(board), PAGE)
            data[place] = value
            board.write(card_address(board), data)
            assert read_card(board) is None
        words = np.random.default_rng(1).bytes(2 * PAGE).hex()
        with pytest.raises(AcceleratorError, match="of 1 tensor, 4095 fit; give layers shorter"):
            write_card(board, replace(card, exponents={words: 1}))
            write_card(board, card)
        write_card(board, None)
        assert read_card(board) is None
    with GoldenAccelerator(P, memory_bytes=1024) as small:
        assert read_card(small) is None


def test_without_a_board_nothing_changes(data, tmp_path):
    """No card is written and no more checkpoints than were asked for."""
    saved = []
    to = counted(GoldenAccelerator(P, memory_bytes=MEMORY))
    state = initial_state(load_network("digits"), replace(PLAIN, steps=3))
    run = Trainer(state, data, ResidentEngine(to), save=saved.append, save_seconds=1e9)
    run.run()
    assert not saved and not to.read(MEMORY - PAGE, PAGE).any()


def test_unattended_prior_of_no_cuts(data, tmp_path):
    """Attended runs bring the prior's coefficients, too."""
    chosen = replace(SETTINGS, prior=PriorSettings(threshold=1e-6), steps=31)
    whole = initial_state(load_network("digits"), chosen)
    host(Board(), whole, data, tmp_path / "whole").run()
    board, path = Board(dies=2), tmp_path / "c.safetensors"
    with pytest.raises(HostDied):
        host(board, initial_state(load_network("digits"), chosen), data, path).run()
    resumed = load_checkpoint(path).state
    host(board, resumed, data, path).run()
    assert same(whole, resumed)
    with pytest.raises(AcceleratorError, match="use --pixels 4"):
        Trainer(
            initial_state(load_network("digits"), PLAIN), data,
            ResidentEngine(GoldenAccelerator(P, memory_bytes=1437 * RECORD_BYTES)),
        )  # fmt: skip

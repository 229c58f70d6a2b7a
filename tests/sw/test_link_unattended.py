"""Runs that go on without their host, as the host's side of the link sees them."""

import json
from dataclasses import replace

import numpy as np
import pytest
from link_board import Board

from trainwright.accelerator import AcceleratorError, AcceleratorReset, registers
from trainwright.cli import main
from trainwright.driver.card import Card, write_card
from trainwright.driver.look import look
from trainwright.link import watch
from trainwright.link.backend import LinkAccelerator
from trainwright.link.host import LinkError
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Halt, Program, Set
from trainwright.program.encoding import encode_descriptors

P = AcceleratorParameters(exponents=16)
PROGRAM = Program((Set(values=()), Halt()), P.fingerprint)
AT = 4096


@pytest.fixture
def board() -> Board:
    return Board(P)


def host(board, **options):
    return LinkAccelerator(P, board, patience=1e-3, attempts=2, **options)


def started(board, *, times=5, step=7, busy=4):
    """Return a run that another host has started."""
    given = {registers.PROGRAM_ADDRESS: AT, registers.PROGRAM_LENGTH: 2, registers.TIMES: times}
    board.registers |= given | {registers.STEP: step}
    board.begin(busy)


def attend(board, times=5, step=7, **options):
    with host(board, **options) as board_host:
        return board_host.attend(PROGRAM, times, address=AT, step=step)


def test_link_unattended_run_of_another_host_is_awaited(board):
    started(board)
    board.registers[registers.STATISTICS_BASE + 16] = 77
    run = attend(board)
    assert run is not None and run.sums[1] == 77
    assert board.starts == 0 and not board.registers[registers.STATUS] & registers.STATUS_BUSY


def test_link_unattended_run_that_is_over_is_taken_until_the_next_start(board):
    with host(board) as first:
        board.memory[AT : AT + 256] = np.frombuffer(encode_descriptors(PROGRAM), np.uint8)
        first.repeat(PROGRAM, 5, address=AT, step=7)
    assert board.starts == 1
    for _ in range(2):
        assert attend(board) is not None
    with host(board) as second:
        second.run(PROGRAM, AT)
    assert attend(board, times=1, step=0) is None  # what a run left is taken at once


@pytest.mark.parametrize(
    "change",
    [
        {registers.PROGRAM_ADDRESS: 0},
        {registers.PROGRAM_LENGTH: 3},
        {registers.TIMES: 4},
        {registers.STEP: 6},
        {registers.STEP: 13},
        {registers.STATUS: 0},
    ],
)
def test_another_run_is_not_taken(board, change):
    started(board)
    board.registers |= change
    assert attend(board) is None


@pytest.mark.parametrize("step", [7, 11])
def test_link_unattended_run_that_is_done_is_at_its_end(board, step):
    started(board, step=step)
    board.registers[registers.STATUS] = registers.STATUS_DONE
    assert attend(board) is None
    board.registers[registers.STEP] = 12
    assert attend(board) is not None


def test_link_unattended_error_is_told(board):
    started(board, step=9)
    board.registers[registers.STATUS] = registers.STATUS_ERROR | 4 << 8 | 1 << 16
    with pytest.raises(AcceleratorError, match=r"descriptor 1 .* the memory answered a read"):
        attend(board)


def test_nothing_is_written_under_a_run(board):
    """Neither memory nor what a run reads; when it is over all is as ever."""
    started(board, step=42, busy=9)
    with host(board) as other:
        for use in (
            lambda: other.write(0, np.zeros(4, np.uint8)),
            lambda: other.run(PROGRAM, AT),
            lambda: other.repeat(PROGRAM, 2, address=AT),
            lambda: setattr(other, "exponents", [0] * 16),
        ):
            with pytest.raises(AcceleratorError, match=r"at step 42 of a run that another.*resume"):
                use()
        assert other.read(0, 8).tolist() == [0] * 8 and board.starts == 0
        board.looks_left = 0
        other.write(0, np.arange(4, dtype=np.uint8))
        assert board.memory[:4].tolist() == [0, 1, 2, 3]
    with pytest.raises(AcceleratorError, match="step 42"):
        started(board, step=42)
        no_samples = replace(P, sample_loads=1)
        with LinkAccelerator(no_samples, Board(no_samples), patience=1e-3) as other:
            other._under_way, other._link._line = True, board
            board.registers[registers.STEP] = 42
            other.order = other.order


def test_link_unattended_line_that_is_gone_for_a_while_loses_nothing(board):
    started(board)
    board.at_look = lambda: setattr(board, "gone", 3 if board.looks_left == 2 else 0)
    with host(board, lost_seconds=30) as board_host:
        assert board_host.attend(PROGRAM, 5, address=AT, step=7) is not None
        assert board.reopened == 3 and board_host.resets == 0


def test_each_time_that_a_line_is_gone_counts_by_itself(board, monkeypatch):
    clock, answers = [0.0], iter([LinkError("no line"), True, LinkError("no line"), True, False])

    class Clock:
        perf_counter = staticmethod(lambda: clock[0])

        @staticmethod
        def sleep(seconds):
            assert seconds <= 1

    def is_busy():
        clock[0] += 40
        answer = next(answers)
        if isinstance(answer, LinkError):
            raise answer
        return answer

    monkeypatch.setattr(watch, "time", Clock)
    with host(board) as board_host:
        watch.await_run(board_host.link, is_busy, seconds=1e3, lost_seconds=60)
        with pytest.raises(AcceleratorError, match="not done after 50 s"):
            watch.await_run(board_host.link, lambda: clock.append(clock.pop() + 30) or True,
                            seconds=50, lost_seconds=60)  # fmt: skip


def test_link_unattended_line_that_stays_away_is_an_error_and_the_run_goes_on(board):
    started(board, busy=10**6)
    with host(board, lost_seconds=0.05) as board_host:
        with pytest.raises(LinkError, match=r"out of reach for .*without its host.*--resume"):
            board.refuses_to_open = True
            board.at_look = lambda: setattr(board, "gone", 10**6 * (board.looks_left < 10**6 - 2))
            board_host.attend(PROGRAM, 5, address=AT, step=7)
        assert board.reopened > 1
    board.gone, board.looks_left = 0, 2
    board.at_look = lambda: None
    assert attend(board) is not None and board.starts == 0


def test_link_unattended_reset_under_a_run_is_no_lost_line(board):
    started(board)
    with host(board) as board_host:
        assert board_host.kept
        board.at_look = lambda: board.reset() if board.looks_left == 2 else None
        with pytest.raises(AcceleratorReset):
            board_host.attend(PROGRAM, 5, address=AT, step=7)
        assert board_host.resets == 1 and not board_host.kept


CARD = Card(
    data="d", run="r", network="digits", ranks=[[5], [7]], batch=16, epoch=10, total=25,
    interval=0, address=AT, loss_slot=3, exponents={"l1.y": 2, "l2.y": 5},
)  # fmt: skip


def looked(board, card: Card | None = CARD):
    with host(board) as board_host:
        if card is not None:
            under_way, board_host._under_way = board_host._under_way, False
            write_card(board_host, card)
            board_host._under_way = under_way
        return look(board_host)


def test_link_unattended_look_says_where_a_board_is(board):
    started(board, times=8, step=14, busy=99)  # from 12 to the epoch's end
    slot = registers.STATISTICS_BASE + 16 * 3
    board.registers |= {slot: 5 << 16, slot + 4: 0, slot + 8: 17, registers.EXPONENTS_BASE + 8: 3}
    board.registers[registers.EXPONENTS_BASE + 20] = 0xFFFFFFFC
    view = looked(board)
    assert (view.state, view.step, view.epoch, view.total) == ("running", 14, 2, 25)
    assert view.samples == 2 * 16 and view.correct == 17
    assert view.loss == pytest.approx(5 * np.log(2) / 32)
    assert view.exponents == {"l1.y": 3, "l2.y": -4}
    assert list(map(list, view.ranks)) == [[5], [7]]
    board.looks_left = 0
    view = looked(board)
    assert (view.state, view.step, view.epoch, view.samples) == ("done", 22, 3, 8 * 16)
    board.registers[registers.STATUS] = registers.STATUS_ERROR
    assert looked(board).state == "failed"


def test_link_unattended_look_of_words_divides_by_words(board):
    started(board, times=8, step=14, busy=99)  # two steps of 16 lines with 2.5 words each
    slot = registers.STATISTICS_BASE + 16 * 3
    board.registers |= {slot: 5 << 16, slot + 4: 0, slot + 8: 17}
    view = looked(board, replace(CARD, labels=2.5))
    assert (view.samples, view.correct) == (80, 17)
    assert view.loss == pytest.approx(5 * np.log(2) / 80)


@pytest.mark.parametrize("change", [{registers.STATUS: 0}, {registers.PROGRAM_ADDRESS: 0}])
def test_link_unattended_idle_board_is_at_no_step(board, change):
    started(board)
    board.registers |= change
    view = looked(board)
    assert (view.state, view.step, view.loss) == ("idle", None, None)


def test_link_unattended_board_without_run_is_told(board):
    for card in (None, replace(CARD, run="")):
        with pytest.raises(AcceleratorError, match="no run is on this board: begin one"):
            looked(board, card)


def test_link_unattended_command_prints_state(board, monkeypatch, capsys):
    monkeypatch.setattr("trainwright.link.backend.SerialLine", lambda port, *, baud: board)
    started(board, times=8, step=14, busy=99)
    looked(board)
    command = ["look", "--backend", "serial:/dev/ttyUSB0", "--accelerator", "exponents=16"]
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["step"] == 14
    assert main(command) == 0
    assert "running: step 14/25, epoch 2" in capsys.readouterr().out
    board.registers[registers.STATUS] = 0
    assert main(command) == 0
    assert "idle; 25 steps in all" in capsys.readouterr().out
    for backend, message in (("golden", "ends with its host"), ("nothing", "must be one of")):
        assert main(["look", "--backend", backend]) == 2
        assert message in capsys.readouterr().err

"""Lines about long steps: none for a short one, then now and then, with what a log says."""

import threading
import time

import pytest

from trainwright.support.waiting import last_line, waiting


def wait_for(lines: list[str], count: int) -> None:
    """Wait until there are ``count`` lines."""
    end = time.monotonic() + 30
    while len(lines) < count and time.monotonic() < end:
        time.sleep(0.005)


def test_waiting_for_a_short_step_says_nothing():
    lines: list[str] = []
    with waiting(lines.append, "short"):
        pass
    assert lines == []


def test_waiting_for_a_long_step_names_step_and_seconds():
    lines: list[str] = []
    with waiting(lines.append, "yosys", detail=lambda: "pass 3", first_seconds=0.01):
        wait_for(lines, 1)
    assert lines == ["yosys: 0 s so far; pass 3"]


def test_waiting_ends_with_its_block_even_by_an_error():
    threads = threading.active_count()
    with pytest.raises(KeyError), waiting(lambda _: None, "failing"):
        raise KeyError
    assert threading.active_count() == threads


@pytest.mark.parametrize(
    "text, line",
    [("", ""), ("\n\n", ""), ("a\nbc  \n\n", "bc"), ("x\r\n", "x"), ("y" * 9000, "y" * 100)],
)
def test_last_line_of_a_log_is_its_last_that_is_not_blank(text, line, tmp_path):
    (tmp_path / "log").write_text(text)
    assert last_line(tmp_path / "log") == line


def test_last_line_of_a_log_that_is_not_there_is_empty(tmp_path):
    assert last_line(tmp_path / "log") == ""

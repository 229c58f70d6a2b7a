"""Signals that end a training after its step."""

import os
import signal
import subprocess
import sys

import pytest

CATCH = """
import os, signal, sys
from trainwright.train.interrupts import Interrupts
number = int(sys.argv[1])
with Interrupts() as interrupts:
    os.kill(os.getpid(), number)
    print(interrupts.requested(), interrupts.exit_status)
"""


def caught(number, *, ignored=()):
    """Return what a process prints that gets a signal while it trains."""

    def begin():
        for other in ignored:
            signal.signal(other, signal.SIG_IGN)

    argv = [sys.executable, "-c", CATCH, str(int(number))]
    return subprocess.run(argv, capture_output=True, text=True, preexec_fn=begin).stdout.split()


@pytest.mark.skipif(os.name != "posix", reason="sends SIGHUP, which Windows lacks")
def test_interrupts_catch_a_closed_terminal_unless_nohup_ignores_it():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        assert caught(number) == ["True", str(128 + number)]
    assert caught(signal.SIGHUP, ignored=[signal.SIGHUP]) == ["False", "130"]
    assert caught(signal.SIGTERM, ignored=[signal.SIGTERM]) == ["True", "143"]

"""Processes that a killed Python leaves behind: none."""

import os
import signal
import subprocess
import sys
import time

import pytest

from trainwright.support.children import ended_with_this

pytestmark = pytest.mark.skipif(
    not os.path.isdir("/proc"), reason="/proc tells which processes run"
)

PARENT = """
import subprocess, sys, time
from trainwright.support.children import ended_with_this
tool = subprocess.Popen(["/bin/sh", "-c", "sleep 60 & echo $!; wait"], stdout=subprocess.PIPE,
                        text=True, process_group=0)
other = subprocess.Popen(["sleep", "60"])
ended = subprocess.Popen(["true"], process_group=0)
with ended_with_this(tool), ended_with_this(other):
    with ended_with_this(ended):
        ended.wait()
    print(tool.pid, tool.stdout.readline().strip(), other.pid, flush=True)
    time.sleep(60)
"""


def is_running(process):
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def test_processes_of_a_killed_python_and_of_their_group_end_with_it():
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    children = parent.stdout.readline().split()
    assert len(children) == 3 and all(map(is_running, children))
    parent.kill()
    parent.communicate()
    end = time.monotonic() + 10
    while any(map(is_running, children)) and time.monotonic() < end:
        time.sleep(0.01)
    assert not any(map(is_running, children))


def test_exit_of_python_ends_no_process_that_outlasts_the_block():
    code = (
        "import os, subprocess, time\n"
        "from trainwright.support.children import ended_with_this\n"
        "process = subprocess.Popen(['sleep', '60'], stdout=subprocess.DEVNULL)\n"
        "with ended_with_this(process): pass\n"
        "fork = os.fork()\n"  # holds the pipe to the shell
        "if not fork: os.close(1), time.sleep(60)\n"
        "print(process.pid, fork, flush=True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, timeout=30
    )
    left = done.stdout.split()
    assert done.returncode == 0 and len(left) == 2 and all(map(is_running, left))
    for process in left:
        os.kill(int(process), signal.SIGKILL)


def test_process_in_the_block_gives_its_status():
    with subprocess.Popen(["false"]) as process, ended_with_this(process):
        assert process.wait() == 1

"""Child processes in which faults are tried."""

import os
import signal
import time


def awaited(child: int, seconds: float, pause: float = 0.02) -> tuple[int, float]:
    """Return the exit code and the processor time of a child process.

    The child leads a process group, which is killed after ``seconds`` (0: never).
    """
    began = time.monotonic()
    while True:
        done, status, usage = os.wait4(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime
        if seconds and time.monotonic() - began > seconds:
            os.killpg(child, signal.SIGKILL)
        time.sleep(pause)

"""The reference driver of exported jobs, compiled, with a platform in Python."""

import ctypes
import hashlib
import json
import os
import subprocess
from collections.abc import Callable
from ctypes import CFUNCTYPE, POINTER, byref, c_int, c_int32, c_uint8, c_uint32, c_uint64, c_void_p
from itertools import product
from pathlib import Path

import numpy as np

from trainwright.support.native.tools import compiler

STRICT = ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Werror")
GLUE = """
#include "trainwright_job.h"

const trainwright_job *job(void);
const trainwright_job *job(void) { return &trainwright_the_job; }

int32_t value(const trainwright_platform *platform, uint32_t tensor, const uint32_t *index);
int32_t value(const trainwright_platform *platform, uint32_t tensor, const uint32_t *index) {
    return trainwright_read_value(platform, &trainwright_the_job.tensor[tensor], index);
}
"""
Read = CFUNCTYPE(c_uint32, c_void_p, c_uint32)
Write = CFUNCTYPE(None, c_void_p, c_uint32, c_uint32)
Move = CFUNCTYPE(None, c_void_p, c_uint32, POINTER(c_uint8), c_uint32)
Idle = CFUNCTYPE(None, c_void_p)
Report = CFUNCTYPE(None, c_void_p, c_void_p, POINTER(c_uint64))


class Platform(ctypes.Structure):
    _fields_ = (
        ("context", c_void_p),
        ("read_register", Read),
        ("write_register", Write),
        ("read_memory", Move),
        ("write_memory", Move),
        ("idle", Idle),
    )


class Failure(ctypes.Structure):
    _fields_ = tuple((name, c_uint32) for name in ("action", "code", "descriptor", "hung"))


class CDriver:
    """Job in a folder, driven by its own C on registers and memory that Python reaches."""

    def __init__(
        self,
        folder: Path,
        build: Path,
        read: Callable[[int], int],
        write: Callable[[int, int], None],
        get: Callable[[int, int], np.ndarray],
        put: Callable[[int, np.ndarray], None],
        idle: Callable[[], None] = lambda: None,
    ):
        self.map = json.loads((folder / "job.json").read_text())
        self.contents = bytearray((folder / "contents.bin").read_bytes())
        self._library = ctypes.CDLL(str(compiled(folder, build)))
        self._library.job.restype = c_void_p
        self._library.value.argtypes = (POINTER(Platform), c_uint32, POINTER(c_uint32))
        self._library.value.restype = c_int32

        def read_memory(_, address, data, count):
            for n, byte in enumerate(get(address, count).tolist()):
                data[n] = byte

        def write_memory(_, address, data, count):
            put(address, np.ctypeslib.as_array(data, (count,)).copy())

        self.platform = Platform(
            None, Read(lambda _, offset: read(offset)),
            Write(lambda _, offset, value: write(offset, value)), Move(read_memory),
            Move(write_memory), Idle(lambda _: idle()),
        )  # fmt: skip
        self.failure = Failure()
        self.losses: list[int] = []

    def run(self) -> int:
        """Do the job, and return its result."""
        self.losses.clear()
        report = Report(lambda _, action, statistics: self.losses.append(statistics[0]))
        contents = (c_uint8 * len(self.contents)).from_buffer(self.contents)
        run = self._library.trainwright_run
        run.restype = c_int
        run.argtypes = (
            POINTER(Platform), c_void_p, c_void_p, c_uint32, Report, POINTER(Failure)
        )  # fmt: skip
        return run(
            byref(self.platform), self._library.job(), ctypes.addressof(contents), len(contents),
            report, byref(self.failure),
        )  # fmt: skip

    def digest(self) -> str:
        """Return the digest of the factors in memory, every value read by the driver."""
        whole = hashlib.sha256()
        for number, tensor in enumerate(self.map["factors"]):
            if len(tensor["shape"]) != 4:  # a bias
                continue
            values = [
                self._library.value(byref(self.platform), number, (c_uint32 * 4)(*index))
                for index in product(*map(range, tensor["shape"]))
            ]
            whole.update(f"{tensor['shape']} 2^{tensor['exponent']}\n".encode())
            whole.update(np.array(values, "<i2").tobytes())
        return whole.hexdigest()


def compiled(folder: Path, build: Path) -> Path:
    """Compile the driver and the job's tables to a library."""
    (build / "glue.c").write_text(GLUE)
    library = build / "driver.so"
    sources = [str(folder / "trainwright_driver.c"), str(build / "glue.c")]
    compile_strictly(folder, "-O1", "-fPIC", "-shared", *sources, "-o", str(library))
    return library


def compile_strictly(folder: Path, *arguments: str) -> None:
    """Compile C that includes a job's headers, with all warnings as errors."""
    tool = compiler("C")
    command = [*tool.command, *STRICT, "-I", str(folder), *arguments]
    subprocess.run(command, check=True, env=os.environ | tool.environment)

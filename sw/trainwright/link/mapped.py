"""The accelerator on this processor's own bus: back ends ``mmio:REGISTERS,MEMORY`` and ``pynq``."""

import mmap
import os
import re
import time
from contextlib import suppress
from typing import Protocol

import numpy as np
import numpy.typing as npt

from trainwright.accelerator import AcceleratorError
from trainwright.accelerator.register_files import SIZE as REGISTER_BYTES
from trainwright.link.backend import HostedAccelerator
from trainwright.link.protocol import WORD_BYTES, Request
from trainwright.parameters import AcceleratorParameters
from trainwright.support.text import read_integer

Words = npt.NDArray[np.uint32]
PHYSICAL = "/dev/mem"
"""File of the physical addresses of Linux."""
EXAMPLE = "mmio:/dev/mem@0xA0000000,@0x60000000+0x4000000"
_PLACE = re.compile(r"(?P<file>[^@]*)(@(?P<offset>\w+)(\+(?P<size>\w+))?)?")
_REGISTERS = (Request.READ_REGISTERS, Request.WRITE_REGISTERS)


class WordWindow(Protocol):
    """Words of 32 bits from address 0 on, as a processor reaches them."""

    def read(self, address: int, count: int, /) -> Words:
        """Read words from a byte address on."""
        ...

    def write(self, address: int, words: Words, /) -> None:
        """Write words from a byte address on."""
        ...

    def close(self) -> None:
        """Give the window back; idempotent."""
        ...


class FileWindow:
    """WordWindow on a part of a file: a device such as ``/dev/mem`` or ``/dev/uio0``.

    Raises ``AcceleratorError`` where the file cannot be opened or mapped.
    """

    def __init__(self, file: str, offset: int, size: int):
        begin = offset - offset % mmap.ALLOCATIONGRANULARITY  # where a mapping may begin
        try:
            # O_SYNC maps physical memory without a cache, as the accelerator sees none.
            handle = os.open(file, os.O_RDWR | getattr(os, "O_SYNC", 0))
            try:
                self._map = mmap.mmap(handle, size + offset - begin, offset=begin)
            finally:
                os.close(handle)
        except (OSError, ValueError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise AcceleratorError(
                f"cannot map {size:#x} bytes of {file} at {offset:#x}: {reason}"
            ) from error
        self._words: Words | None = np.frombuffer(self._map, np.uint32, size // WORD_BYTES,
                                                  offset - begin)  # fmt: skip

    def read(self, address: int, count: int) -> Words:
        """See ``WordWindow``."""
        assert self._words is not None
        return self._words[address // WORD_BYTES :][:count].copy()

    def write(self, address: int, words: Words) -> None:
        """See ``WordWindow``."""
        assert self._words is not None
        self._words[address // WORD_BYTES :][: len(words)] = words

    def close(self) -> None:
        """See ``WordWindow``."""
        self._words = None
        with suppress(BufferError):  # an array of the words is alive; the map ends with it
            self._map.close()


class MappedLink:
    """Registers and memory in windows (``trainwright.link.backend.HostLink``)."""

    clock_hz = 0
    """Clock in Hz; 0 stands for unknown, as no register has it."""

    def __init__(self, name: str, registers: WordWindow, memory: WordWindow, memory_bytes: int):
        self.name, self.memory_bytes = name, memory_bytes
        self._registers, self._memory = registers, memory

    def hello(self) -> None:
        """Do nothing: a bus has no session."""

    def drain(self) -> None:
        """Do nothing: a bus keeps no answers."""

    def reopen(self) -> None:
        """Do nothing: a bus does not fail for a while."""

    def read(self, request: Request, address: int, count: int) -> Words:
        """Read words; registers one access each, as AXI4-Lite has no wider ones."""
        if request not in _REGISTERS:
            return self._memory.read(address, count)
        parts = [self._registers.read(address + WORD_BYTES * n, 1) for n in range(count)]
        return np.concatenate(parts) if parts else np.zeros(0, np.uint32)

    def write(self, request: Request, address: int, words: Words) -> None:
        """Write words; registers one access each."""
        if request not in _REGISTERS:
            self._memory.write(address, words)
            return
        for number in range(len(words)):
            self._registers.write(address + WORD_BYTES * number, words[number : number + 1])

    def rest(self, seconds: float) -> None:
        """Pass time without traffic on the bus."""
        time.sleep(seconds)

    def close(self) -> None:
        """Close both windows; idempotent."""
        self._registers.close()
        self._memory.close()


def parse_place(text: str, file: str, size: int) -> tuple[str, int, int]:
    """Return file, offset and size of ``FILE@OFFSET+SIZE``.

    Parts that are left out are ``file``, 0 and ``size``. Raises ``ValueError``.
    """
    match = _PLACE.fullmatch(text)
    try:
        if match is None:
            raise ValueError
        offset = read_integer(match["offset"] or "0", 0)
        given = size if match["size"] is None else read_integer(match["size"], 0)
        if not given:
            raise ValueError
    except ValueError:
        raise ValueError(f"{text!r} is no FILE@OFFSET+SIZE, as in {EXAMPLE}") from None
    place = match["file"] or file, offset, given
    if not place[0] or place[1] % WORD_BYTES or place[2] % WORD_BYTES:
        raise ValueError(f"{text!r} names no file, or no multiple of {WORD_BYTES}: {EXAMPLE}")
    return place


class MappedAccelerator(HostedAccelerator):
    """The accelerator on the bus of this processor, a Zynq's: back end ``mmio:REGISTERS,MEMORY``.

    ``target`` names two places, each ``FILE@OFFSET+SIZE``: ``/dev/mem`` with physical addresses, or
    a UIO device and a buffer. A second place without a file is in the first file, and without a
    size has ``memory_bytes``. The memory has to be the accelerator's alone: Linux must not use it.
    """

    def __init__(
        self, parameters: AcceleratorParameters, *, memory_bytes: int, target: str = ""
    ):  # fmt: skip
        first, comma, second = target.partition(",")
        if not first or not comma:
            raise ValueError(f"name the places of registers and memory, as in {EXAMPLE}")
        file, offset, size = parse_place(first, "", REGISTER_BYTES)
        if size < REGISTER_BYTES:
            raise ValueError(f"registers take {REGISTER_BYTES:#x} bytes, {first!r} names fewer")
        memory_file, memory_offset, memory_size = parse_place(second, file, memory_bytes)
        registers = FileWindow(file, offset, size)
        try:
            memory = FileWindow(memory_file, memory_offset, memory_size)
        except AcceleratorError:
            registers.close()
            raise
        super().__init__(parameters, MappedLink(f"mmio:{target}", registers, memory, memory_size))


def open_overlay(
    parameters: AcceleratorParameters, *, memory_bytes: int, target: str = ""
) -> MappedAccelerator:
    """Load a bitstream by PYNQ, and open the accelerator in it: back end ``pynq:FILE,MEMORY``.

    The overlay gives the place of the registers, ``MEMORY`` is the second place of
    ``MappedAccelerator``. Raises ``AcceleratorError`` without PYNQ, and for an overlay without an
    accelerator.
    """
    overlay_file, comma, memory = target.partition(",")
    if not overlay_file or not comma:
        raise ValueError("name bitstream and memory, as in pynq:system.bit,@0x60000000+0x4000000")
    try:
        from pynq import Overlay  # type: ignore[import-not-found] # from PYNQ's own images
    except ModuleNotFoundError as error:
        raise AcceleratorError(
            f"{overlay_file} needs the package pynq of PYNQ's images: run on such a board, or load "
            "the bitstream yourself and name its addresses, --backend mmio:REGISTERS,MEMORY"
        ) from error
    try:
        cores = Overlay(overlay_file).ip_dict
    except OSError as error:
        raise AcceleratorError(f"PYNQ cannot load {overlay_file}: {error}") from error
    for core in cores.values():
        if "trainwright" in core["type"]:
            place = f"{PHYSICAL}@{core['phys_addr']:#x}"
            return MappedAccelerator(
                parameters, memory_bytes=memory_bytes, target=f"{place},{memory}"
            )
    raise AcceleratorError(f"{overlay_file} has no core trainwright, but {', '.join(cores)}")

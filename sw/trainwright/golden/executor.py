"""Execution of programs by a C kernel, with the bits of ``trainwright.golden.interpreter``."""

import ctypes
import weakref
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from trainwright.accelerator import Counters, Run, Trace
from trainwright.formats import UNDERFLOWS, FormatError
from trainwright.golden.flat import Flat, engine_of, executed
from trainwright.golden.state import Bytes
from trainwright.golden.tables import Table, table
from trainwright.kernels.slots import table_words
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Program, is_skipped
from trainwright.program.engines import SPEC_OF, TRACED, tile_rows
from trainwright.program.errors import ProgramError
from trainwright.program.exponents import ExponentFile, MoveScales
from trainwright.program.fields import EIGHTH, Operation
from trainwright.program.footprint import rows_written
from trainwright.program.records import HEADER, OPERATIONS, digest
from trainwright.program.sample_order import SampleOrder
from trainwright.program.table import name_of
from trainwright.program.validation import check_program
from trainwright.program.vector import Vector
from trainwright.support import native
from trainwright.support.errors import errors_as

# One translation unit includes all headers: the compiler inlines across them.
SOURCE = Path(__file__).parent / "native" / "execute.c"
MOST_FLAT = 8
"""Programs whose flat form (validated integers) is cached."""
# Names and order of the fields of the C structures. Keep them equal to the C side: an additional
# field on one side shifts all later fields.
_SIZES = (
    "lanes", "pad_rows", "slots", "memory_bytes", "formats",
    "wide_tensors", "most_alignment", "tracing",
)  # fmt: skip
_STATISTICS = ("sums", "saturations", "underflows", "clips")
_ARRAYS = ("memory", "pad", *_STATISTICS, "exponents", "above")
_WRONG = ("word", "format", "descriptor", "exponent", "entry")
_BUFFERS = 9


class _Number(ctypes.Structure):
    """``Number`` of ``native/numbers.h``."""

    _fields_ = (
        ("integers", ctypes.c_void_p),
        ("starts", ctypes.c_void_p * len(UNDERFLOWS)),
        ("cuts", ctypes.c_void_p),
        ("places", ctypes.c_int64),
        ("greatest", ctypes.c_int64),
        ("largest", ctypes.c_double),
        ("registers", ctypes.c_void_p),
        ("upper", ctypes.c_void_p),
    )

    @classmethod
    def of(cls, t: Table) -> "_Number":
        """Return the C structure of a table, which points into it: the caller keeps the table."""
        starts = (ctypes.c_void_p * len(UNDERFLOWS))(*(rule.ctypes.data for rule in t.starts))
        narrow = (None if array is None else array.ctypes.data for array in (t.registers, t.upper))
        sizes = (len(t.cuts), t.greatest, t.largest)
        return cls(t.integers.ctypes.data, starts, t.cuts.ctypes.data, *sizes, *narrow)


class _Machine(ctypes.Structure):
    """``Machine`` of ``native/machine.h``."""

    _fields_ = (
        ("tile_rows", ctypes.c_int64 * OPERATIONS),
        *((name, ctypes.c_int64) for name in _SIZES),
        *((name, ctypes.c_void_p) for name in _ARRAYS),
        ("numbers", ctypes.c_void_p),
        ("tables", ctypes.c_void_p),
        ("bytes_read", ctypes.c_int64),
        ("bytes_written", ctypes.c_int64),
        ("trace_addresses", ctypes.c_void_p * len(TRACED)),
        ("trace_rows", ctypes.c_void_p * len(TRACED)),
        ("traced", ctypes.c_int64 * len(TRACED)),
        *((f"order_{name}", ctypes.c_int64) for name in ("next", "increment", "left")),
        ("short_of_memory", ctypes.c_int64),
        *((f"wrong_{name}", ctypes.c_int64) for name in _WRONG),
        ("buffers", ctypes.c_void_p * (2 * _BUFFERS)),
    )


@cache
def _typed(library: ctypes.CDLL) -> ctypes.CDLL:
    machine, pointer = ctypes.POINTER(_Machine), ctypes.c_void_p
    times = ctypes.c_int64, ctypes.c_uint32
    library.trainwright_execute.argtypes = [machine, pointer, *times]
    library.trainwright_validate.argtypes = [machine, pointer, pointer, pointer]
    library.trainwright_release.argtypes = [machine]
    library.trainwright_release.restype = None
    library.trainwright_isa.restype = ctypes.c_uint32
    if library.trainwright_isa() != digest():
        # With another layout the kernel would read wrong fields, without any error.
        raise RuntimeError(
            f"{HEADER} is not that of the instruction set's table; write it again: "
            "python -m trainwright.program.records"
        )
    return library


def _labels(
    flat: Flat, p: AcceleratorParameters, engine: str, step: int
) -> list[tuple[int, str, int]]:
    """Return number, tensor and rows of every descriptor whose execution writes to the scratchpad.

    Only descriptors of ``engine`` that are executed in step number ``step`` are listed.
    """
    labels = []
    for number, d in executed(flat.descriptors):
        if engine_of(d) == engine and not is_skipped(d, step):
            if isinstance(d, Vector):
                labels.append((number, d.tensor, d.rows * len(d.users(d.writes))))
                continue
            if count := rows_written(d, p):
                labels.append((number, d.tensor, count))
    return labels


class Executor:
    """Executor of programs on one external memory."""

    def __init__(self, library: ctypes.CDLL, p: AcceleratorParameters, memory: Bytes):
        self._library = _typed(library)
        self.parameters = p
        self._statistics = np.zeros((len(_STATISTICS), p.statistics_depth), np.int64)
        self._arrays: dict[str, npt.NDArray[np.generic]] = {
            "memory": memory,
            "pad": np.zeros((p.scratchpad_rows, p.lanes), np.int16),
            **dict(zip(_STATISTICS, self._statistics, strict=True)),
            "exponents": np.zeros(max(p.exponents, 1), np.int64),
            "above": np.zeros(max(p.exponents, 1), np.int64),
        }
        sizes = (
            p.lanes, p.scratchpad_rows, p.statistics_depth, memory.size,
            len(p.formats), int(p.wide_tensors), p.most_alignment, 0,
        )  # fmt: skip
        addresses = (self._arrays[name].ctypes.data for name in _ARRAYS)
        coded = (_Number.of(table(fmt)) for fmt in p.coded_formats)
        self._numbers = (_Number * (len(p.formats) + 1))(_Number(), *coded)
        self._tables = np.array(table_words(), np.int64)
        pointers = ctypes.addressof(self._numbers), self._tables.ctypes.data
        rows = (tile_rows(Operation(o), p) if o in SPEC_OF else 0 for o in range(OPERATIONS))
        tiles = (ctypes.c_int64 * OPERATIONS)(*rows)
        self._machine = _Machine(tiles, *sizes, *addresses, *pointers)
        # The kernel keeps buffers from run to run, which grow with the programs.
        weakref.finalize(self, self._library.trainwright_release, self._machine)
        self._flats: list[Flat] = []

    @classmethod
    def open(cls, p: AcceleratorParameters, memory: Bytes) -> "Executor | None":
        """Open an executor; ``None`` if there is no C compiler."""
        library = native.load(SOURCE)
        return None if library is None else cls(library, p, memory)

    @property
    def order(self) -> SampleOrder:
        """Order in which samples are drawn."""
        m = self._machine
        return SampleOrder(m.order_next, m.order_increment, m.order_left)

    @order.setter
    def order(self, order: SampleOrder) -> None:
        m = self._machine
        m.order_next, m.order_increment, m.order_left = order.next, order.increment, order.left

    def flattened(self, program: Program) -> Flat:
        """Return the program as validated integers, from a cache of the last programs.

        Raises ``ProgramError`` for a program that ``trainwright.program.validation`` refuses.
        """
        # Steps alternate between a few programs: forward, backward, update, evaluation. If only
        # shifts differ, `become` changes a cached program, which need not be validated again.
        for index, flat in enumerate(self._flats):
            if flat.become(program.descriptors, self.parameters):
                if index:
                    self._flats.insert(0, self._flats.pop(index))
                return flat
        p, memory = self.parameters, self._arrays["memory"]
        check_program(program, p, memory_bytes=memory.nbytes)
        flat = Flat.of(program.descriptors)
        self._validate(flat)
        self._flats = [flat, *self._flats[: MOST_FLAT - 1]]
        return flat

    def _validate(self, flat: Flat) -> None:
        # Two counts of 64 bits for each row, and a byte for its width.
        scratch = np.zeros(17 * self.parameters.scratchpad_rows, np.uint8)
        status = self._library.trainwright_validate(
            self._machine, flat.words.ctypes.data, scratch.ctypes.data, flat.rows.ctypes.data
        )
        self._check_memory(status)
        flat.valid = status == 0

    def _check_memory(self, status: int) -> None:
        if status < 0:
            self._machine.short_of_memory = 0
            raise MemoryError("too little memory for the golden model's operands")

    # The kernel only records word, format and descriptor, so that Python makes every message.
    def _check_words(self, flat: Flat) -> None:
        """Raise ``ProgramError`` if an operand had a word that stands for no number."""
        machine = self._machine
        if number := machine.wrong_format:
            machine.wrong_format = 0
            d = flat.descriptors[machine.wrong_descriptor]
            assert isinstance(d, Compute)
            with errors_as(name_of(d), ProgramError, FormatError):
                self.parameters.number_formats[number].decode([machine.wrong_word])

    def _check_exponents(self, flat: Flat, file: ExponentFile) -> None:
        """Raise the ``ProgramError`` of a descriptor that the exponent file refuses."""
        machine, p = self._machine, self.parameters
        if not machine.wrong_exponent:
            return
        machine.wrong_exponent = 0
        d = flat.descriptors[machine.wrong_descriptor]
        if isinstance(d, MoveScales):
            entry = d.entries[machine.wrong_entry]
            file.move(entry, int(self._statistics[0, entry.statistics]))
        elif isinstance(d, Vector):
            file.scalars(d)
        else:
            assert isinstance(d, Compute)
            file.shifts(d, p.most_alignment)
        # Kernel and `ExponentFile` have the same rules, so one of these calls must have raised.
        raise AssertionError(f"{d} is refused by the kernel alone")

    def _exchange(self, file: ExponentFile, *, back: bool) -> None:
        """Copy ``file`` to the kernel's arrays, or ``back``."""
        exponents, above = self._arrays["exponents"], self._arrays["above"]
        if back and self.parameters.exponents:
            file.exponents, file.above = exponents.tolist(), above.astype(np.bool_).tolist()
        elif self.parameters.exponents:
            exponents[:], above[:] = file.exponents, file.above

    def run(
        self, program: Program, *, trace: bool, file: ExponentFile, times: int = 1, step: int = 0
    ) -> Run | None:
        """Execute a program ``times`` times, the first as step number ``step``.

        Moves the exponents of ``file``. Returns ``None``, without any effect, if the program reads
        rows, or registers of the vector engine, that were never written: the interpreter then names
        them. Raises ``ProgramError`` for a word of an operand that stands for no number, and for a
        descriptor that ``file`` refuses.
        """
        flat = self.flattened(program)
        if not flat.valid:
            return None
        machine = self._machine
        # A program of several segments uses more slots than the accelerator has. Hardware runs the
        # segments one by one; the model runs the whole program, with as many slots as it needs.
        self._count(max(self.parameters.statistics_depth, len(program.slots)))
        machine.bytes_read = machine.bytes_written = 0
        traces = self._traced(flat, times, step) if trace else None
        self._exchange(file, back=False)
        # The step number is a 32-bit register.
        status = self._library.trainwright_execute(
            machine, flat.words.ctypes.data, times, step % (1 << 32)
        )
        self._exchange(file, back=True)
        machine.tracing = 0
        # Check causes before the status: a word that is no number also ends the run with -1.
        self._check_words(flat)
        self._check_exponents(flat, file)
        self._check_memory(status)
        return Run(
            **dict(zip(_STATISTICS, self._statistics.copy(), strict=True)),
            counters=Counters(bytes_read=machine.bytes_read, bytes_written=machine.bytes_written),
            traces=traces,
        )

    def _count(self, slots: int) -> None:
        """Set all counts to 0, in arrays of ``slots`` slots."""
        # The C side holds addresses of the arrays: replace all of them together.
        if slots != self._statistics.shape[1]:
            self._statistics = np.zeros((len(_STATISTICS), slots), np.int64)
            self._machine.slots = slots
            for name, counts in zip(_STATISTICS, self._statistics, strict=True):
                setattr(self._machine, name, counts.ctypes.data)
        self._statistics.fill(0)

    def _traced(self, flat: Flat, times: int, step: int) -> dict[str, Trace]:
        """Make arrays for the rows that engines write in ``times`` executions from ``step`` on."""
        traces = {}
        for index, engine in enumerate(TRACED):
            # Some descriptors run only in every second, fourth or eighth step, so that labels
            # repeat every EIGHTH steps: compute them once for each kind of step.
            runs = [(step + n) % EIGHTH for n in range(times)]
            labels_of = {n: _labels(flat, self.parameters, engine, n) for n in set(runs)}
            labels = [label for key in runs for label in labels_of[key]]
            count = sum(rows for *_, rows in labels)
            addresses = np.zeros(count, np.int64)
            rows = np.zeros((count, self.parameters.lanes), np.int16)
            self._machine.trace_addresses[index] = addresses.ctypes.data
            self._machine.trace_rows[index] = rows.ctypes.data
            self._machine.traced[index] = 0
            traces[engine] = Trace(
                addresses,
                rows,
                tuple((tensor, count) for _, tensor, count in labels),
                tuple(number for number, *_ in labels),
            )
        self._machine.tracing = 1
        return traces

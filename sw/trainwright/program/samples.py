"""SAMPLES: a load of records of a data set, in an order that the accelerator draws."""

from collections.abc import Iterator
from dataclasses import dataclass

from trainwright.parameters import AcceleratorParameters
from trainwright.program.errors import ProgramError
from trainwright.program.fields import (
    COUNT_WIDTH,
    LOCAL_WIDTH,
    ORDER_WIDTH,
    REGISTER_WIDTH,
    REGISTERS,
    Engine,
    Operation,
)

PIXEL_WIDTHS = (4, 8)


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Load ``samples`` records of a data set from external memory to the scratchpad.

    Record n of the set lies at byte ``address + n * stride``: ``beats`` beats of pixels of
    ``pixels`` bits, unsigned, the first in the lowest bits, then a beat of *targets*, a signed byte
    a lane (1 at the label, 0 at other classes, -1 where there is none). The s-th sample of the
    descriptor goes to rows ``local + s * local_step`` and following, and to row ``targets + s``.

    A pixel becomes a word of ``input_bits`` bits, its sign 0: its own bits, repeated from the top,
    as far as they fit. A beat of pixels gives ``8 / pixels`` rows.

    With ``drawn`` the accelerator's ``SampleOrder`` gives n, below ``total``, and goes on: an epoch
    is of ``order_length`` samples, the next one begins at ``order_first``. Without, n is 0, 1, ...
    """

    address: int
    local: int
    targets: int
    samples: int
    beats: int
    stride: int
    local_step: int
    total: int
    pixels: int = 8
    input_bits: int = 7
    drawn: bool = False
    order_first: int = 0
    order_length: int = 1
    address_register: int = 0
    local_register: int = 0
    wait: Engine = Engine.NONE
    wait_older: Engine = Engine.NONE
    tensor: str = ""
    """Name of the tensor moved; for people and tests, not encoded."""

    @property
    def operation(self) -> Operation:
        return Operation.SAMPLES

    @property
    def record_beats(self) -> int:
        """Beats of a record that are read."""
        return self.beats + 1

    @property
    def rows(self) -> int:
        """Rows of a sample's pixels."""
        return self.beats * (8 // self.pixels)


Limited = tuple[str, int, tuple[int, int]]
_LOCAL = (0, (1 << LOCAL_WIDTH) - 1)
_COUNT = (1, (1 << COUNT_WIDTH) - 1)
_ADDRESS = (0, (1 << REGISTER_WIDTH) - 1)
_REGISTER = (0, REGISTERS - 1)


def samples_ranges(d: Samples, p: AcceleratorParameters) -> Iterator[Limited]:
    """Every field of a SAMPLES with its value and what it may be."""
    yield "samples", d.samples, _COUNT
    yield "beats", d.beats, (1, _COUNT[1] - 1)
    yield "input_bits", d.input_bits, (1, p.word_width - 1)
    yield "address", d.address, _ADDRESS
    yield "stride", d.stride, _ADDRESS
    yield "address_register", d.address_register, _REGISTER
    yield "local", d.local, _LOCAL
    yield "local_register", d.local_register, _REGISTER
    yield "local_step", d.local_step, (-(1 << (LOCAL_WIDTH - 1)), (1 << (LOCAL_WIDTH - 1)) - 1)
    yield "targets", d.targets, _LOCAL
    yield "total", d.total, (1, (1 << ORDER_WIDTH) - 1)
    yield "order_first", d.order_first, (0, (1 << ORDER_WIDTH) - 1)
    yield "order_length", d.order_length, (1, (1 << ORDER_WIDTH) - 1)


def check_samples(d: Samples, p: AcceleratorParameters) -> None:
    """Raise ``ProgramError`` for what no accelerator of these parameters fetches."""
    name = d.tensor or d.operation.name
    if not p.sample_loads:
        raise ProgramError(
            f"{name} fetches samples by address, which this accelerator cannot; use one with "
            "sample_loads=1"
        )
    if d.pixels not in PIXEL_WIDTHS:
        raise ProgramError(f"{name}: pixels of {d.pixels} bits; store 4 or 8")
    if d.stride % p.beat_bytes or d.address % p.beat_bytes:
        raise ProgramError(
            f"{name}: records at byte {d.address}, {d.stride} bytes apart, do not all begin with a "
            f"beat of {p.beat_bytes} bytes; fill them up"
        )
    if d.stride < d.record_beats * p.beat_bytes:
        raise ProgramError(
            f"{name}: records of {d.record_beats * p.beat_bytes} bytes are {d.stride} bytes apart; "
            "give them room"
        )
    if not d.drawn and d.samples > d.total:
        raise ProgramError(
            f"{name}: sample {d.samples - 1} is beyond a set of {d.total}; load fewer"
        )
    if d.drawn and d.order_length > d.total:
        raise ProgramError(
            f"{name}: an epoch of {d.order_length} samples of a set of {d.total}; draw each once"
        )

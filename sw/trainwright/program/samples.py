"""SAMPLES: a load of records of a data set, in an order that the accelerator draws."""

from trainwright.parameters import AcceleratorParameters
from trainwright.program.errors import ProgramError
from trainwright.program.fields import (
    COUNT_WIDTH,
    LOCAL_WIDTH,
    ORDER_WIDTH,
    Operation,
    Target,
)
from trainwright.program.sample_order import order_mask
from trainwright.program.table import Header, bits, derived, name_of, only, unencoded
from trainwright.support.text import amount

PIXEL_WIDTHS = (4, 8)


class Samples(Header):
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

    operation: Operation = only(Operation.SAMPLES)
    # the fields as far as ``local_step`` have the places of ``Transfer``'s
    target: Target = only(
        Target.SCRATCHPAD, 2, "0 scratchpad; 3 program memory, for the sequencer's own loads"
    )
    pixels: int = bits(2, "bytes of a pixel: 1, or 0 where it has 4 bits", name="pixel_bytes",
                       codes=PIXEL_WIDTHS, default=8)  # fmt: skip
    address: int = bits(32, "byte address outside", register="address_register")
    address_register: int = bits(3, "register added to `address`", default=0)
    local: int = bits(LOCAL_WIDTH, "row inside", register="local_register")
    local_register: int = bits(3, "register added to `local`", default=0)
    beats: int = bits(COUNT_WIDTH, "beats of a record: those of its pixels, and one of targets",
                      name="record_beats", plus=1, least=1)  # fmt: skip
    samples: int = bits(COUNT_WIDTH, "records that are loaded", least=1)
    stride: int = bits(32, "bytes from one record of the set to the next")
    local_step: int = bits(LOCAL_WIDTH, "rows from one sample to the next, signed", signed=True)
    targets: int = bits(LOCAL_WIDTH, "row of the first sample's targets")
    input_bits: int = bits(4, "bits of an input, its sign left out", least=1, default=7,
                           most=lambda _, m: m.parameters.word_width - 1)  # fmt: skip
    drawn: bool = bits(1, "the generator gives the records; else they are 0, 1, ...", default=False)
    total: int = bits(ORDER_WIDTH, "records of the set", least=1)

    @derived(ORDER_WIDTH, "2^k - 1, k the bits of a record's number, at least 2", checked=True)
    def order_mask(self) -> int:
        return order_mask(self.total)

    order_first: int = bits(ORDER_WIDTH, "the generator's value at the begin of an epoch",
                            default=0)  # fmt: skip
    order_length: int = bits(ORDER_WIDTH, "samples of an epoch", least=1, default=1)
    tensor: str = unencoded(default="")
    """Name of the tensor moved; for people and tests."""

    @property
    def record_beats(self) -> int:
        """Beats of a record that are read."""
        return self.beats + 1

    @property
    def rows(self) -> int:
        """Rows of a sample's pixels."""
        return self.beats * (8 // self.pixels)


def check_samples(d: Samples, p: AcceleratorParameters) -> None:
    """Raise ``ProgramError`` for what no accelerator of these parameters fetches."""
    name = name_of(d)
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
            f"{name}: an epoch of {amount(d.order_length, 'sample')} of a set of {d.total}; "
            "draw each once"
        )

"""Cards: a page at the end of an accelerator's memory that describes the run under way.

A host that finds a board at work knows from its card whether the run is its own, and any host can
tell how far the run is: registers have the step, the exponents and the sums of the loss.
"""

import hashlib
import json
import lzma
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from trainwright.accelerator import Accelerator, AcceleratorError
from trainwright.support.plain import NONSENSE, of_plain
from trainwright.support.text import amount

PAGE = 4096
"""Bytes of a card."""
MAGIC = b"trainwright run\n"


def identity(*parts: bytes | str) -> str:
    """Return a name for the contents of ``parts`` together: 32 digits of SHA-256."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        # Lengths keep ("ab", "c") and ("a", "bc") apart.
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:32]


@dataclass(frozen=True, kw_only=True)
class Card:
    """A run, as the host that began it wrote it down."""

    data: str
    """Identity of the data set in memory."""
    run: str = ""
    """Identity of program, schedule and settings; empty where only the data set is there."""
    network: str = ""
    ranks: Sequence[Sequence[int]] = ()
    """Remaining ranks of each layer."""
    batch: int = 0
    labels: float = 1.0
    """Labels of a sample, on average of the training samples: more than 1 where words have them."""
    epoch: int = 0
    """Steps of an epoch."""
    total: int = 0
    """Steps of the run."""
    interval: int = 0
    """Steps between two looks at the ranks, for which the host is needed; 0: none."""
    address: int = 0
    """Byte address of the program."""
    loss_slot: int = 0
    """Statistics slot of losses and correct samples."""
    exponents: Mapping[str, int] = field(default_factory=dict)
    """Slot of the exponent file of each tensor."""

    def end(self, step: int) -> int:
        """Return the step at which a start at ``step`` ends."""
        return end_of_start(step, self.epoch, self.total, self.interval)


def end_of_start(step: int, epoch: int, total: int, interval: int) -> int:
    """Return the step at which an accelerator that starts at ``step`` waits for the host.

    It is the end of the epoch, of the run, or the next look at the ranks.
    """
    ends = [step - step % epoch + epoch, total]
    if interval:
        ends.append(step - step % interval + interval)
    return min(ends)


def card_address(accelerator: Accelerator) -> int:
    """Return the byte address of the last page."""
    return accelerator.memory_bytes - PAGE


def write_card(accelerator: Accelerator, card: Card | None) -> None:
    """Write ``card`` to the last page; None erases the page, and the memory belongs to no run.

    Raises ``AcceleratorError`` where the names of tensors are too long for a page.
    """
    # Names of 1,000 tensors take 19 KiB as they are, 5 by zlib and 3.5 by lzma: most begin alike.
    text = b"" if card is None else MAGIC + lzma.compress(json.dumps(asdict(card)).encode())
    if card and len(text) >= PAGE:
        raise AcceleratorError(
            f"the card of the run takes {amount(len(text), 'byte')} with the names of "
            f"{amount(len(card.exponents), 'tensor')}, {PAGE - 1} fit; give layers shorter names"
        )
    page = np.zeros(PAGE if card else len(MAGIC), np.uint8)
    page[: len(text)] = np.frombuffer(text, np.uint8)
    accelerator.write(card_address(accelerator), page)


def read_card(accelerator: Accelerator) -> Card | None:
    """Read the card; None where there is no sound card."""
    if accelerator.memory_bytes < PAGE:
        return None
    place = card_address(accelerator)
    if accelerator.read(place, len(MAGIC)).tobytes() != MAGIC:
        return None
    stream = lzma.LZMADecompressor()
    try:
        text = stream.decompress(accelerator.read(place, PAGE).tobytes()[len(MAGIC) :])
        is_whole = stream.eof and not any(stream.unused_data)
        return of_plain(Card, json.loads(text)) if is_whole else None
    except (*NONSENSE, lzma.LZMAError):
        return None

"""The order in which the accelerator draws samples of a data set: a generator of full period."""

from dataclasses import dataclass

from trainwright.program.fields import ORDER_WIDTH, REGISTER_WIDTH

MULTIPLIER = 1664525
"""Multiplier of the generator: 1 more than a multiple of 4, as a full period needs."""
EPOCH_STEP = 0x9E3779B8
"""Growth of the increment with every epoch; even, so that the increment stays odd."""


def order_mask(total: int) -> int:
    """Return 2^k - 1, k the bits of an index below ``total``, at least 2: the period less 1.

    Unsigned, of ``ORDER_WIDTH`` bits for up to 2^ORDER_WIDTH samples.
    """
    return (1 << max(2, (total - 1).bit_length())) - 1


@dataclass(frozen=True)
class SampleOrder:
    """State of the generator: registers of the accelerator, so that a checkpoint holds them.

    All unsigned: ``next``, ``left`` of ``ORDER_WIDTH`` bits, ``increment`` of ``REGISTER_WIDTH``.
    """

    next: int = 0
    """Value that is looked at next; a value that is no sample's index is skipped."""
    increment: int = 1
    """Increment in this epoch; its lowest bit counts as 1."""
    left: int = 0
    """Samples that this epoch has yet to draw; 0 counts as 2^ORDER_WIDTH."""

    def draw(self, total: int, first: int, length: int) -> "tuple[int, SampleOrder]":
        """Return the next index below ``total``, and the generator's state after it.

        x <- (MULTIPLIER x + increment) mod 2^k visits all of 0 .. 2^k - 1; values of ``total`` and
        more are skipped. With the last sample of an epoch of ``length`` the next one begins, at
        ``first``, its increment ``EPOCH_STEP`` more.
        """
        mask, increment = order_mask(total), self.increment | 1
        index, after = self.next & mask, self.next
        while True:
            after = (MULTIPLIER * index + increment) & mask
            if index < total:
                break
            index = after
        if self.left == 1:
            step = (self.increment + EPOCH_STEP) % (1 << REGISTER_WIDTH)
            return index, SampleOrder(first, step, length)
        return index, SampleOrder(after, self.increment, (self.left - 1) % (1 << ORDER_WIDTH))

"""Integers of few bits as bytes of external memory, and back."""

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]


def unpack(data: Bytes, width: int, storage: int) -> npt.NDArray[np.int64]:
    """Signed ``width``-bit integers from ``storage``-bit fields (4, 8 or 16), lowest first.

    ``data`` (..., bytes) gives (..., elements).
    """
    if storage == 4:
        fields = np.stack([data & 15, data >> 4], axis=-1).reshape(*data.shape[:-1], -1)
    else:
        fields = np.ascontiguousarray(data).view(np.uint8 if storage == 8 else "<u2")
    wide = fields.astype(np.int64) & ((1 << width) - 1)
    return wide - ((wide >> (width - 1)) << width)


def pack(values: npt.NDArray[np.int64], width: int, storage: int) -> Bytes:
    """Inverse of ``unpack``: signed ``width``-bit integers, a whole number of bytes for each last
    row."""
    masked = values & ((1 << width) - 1)
    if storage == 4:
        pairs = masked.reshape(*values.shape[:-1], -1, 2)
        return (pairs[..., 0] | pairs[..., 1] << 4).astype(np.uint8)
    return masked.astype(np.uint8 if storage == 8 else "<u2", order="C").view(np.uint8)

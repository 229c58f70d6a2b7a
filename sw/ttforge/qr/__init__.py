"""Householder QR in any precision: by columns, in blocks, tall and skinny (``docs/qr.md``)."""

from ttforge.qr.apriori import Bound
from ttforge.qr.bounds import BoundError
from ttforge.qr.householder import BlockQR, HouseholderQR, block_qr, householder_qr
from ttforge.qr.result import QR, Errors, QRError
from ttforge.qr.tall import TallQR, tsqr

__all__ = [
    "QR",
    "BlockQR",
    "Bound",
    "BoundError",
    "Errors",
    "HouseholderQR",
    "QRError",
    "TallQR",
    "block_qr",
    "householder_qr",
    "tsqr",
]

"""Householder QR in any precision: by columns, by blocks, tall skinny (docs/reference/qr.md)."""

from trainwright.qr.apriori import ErrorBound
from trainwright.qr.bounds import BoundError
from trainwright.qr.householder import BlockQR, HouseholderQR, block_qr, householder_qr
from trainwright.qr.leastsquares import LeastSquares, lstsq
from trainwright.qr.pivoted import PivotedQR, pivoted_qr
from trainwright.qr.result import QR, Errors, QRError
from trainwright.qr.tall import TallQR, tsqr

__all__ = [
    "QR",
    "BlockQR",
    "BoundError",
    "ErrorBound",
    "Errors",
    "HouseholderQR",
    "LeastSquares",
    "PivotedQR",
    "QRError",
    "TallQR",
    "block_qr",
    "householder_qr",
    "lstsq",
    "pivoted_qr",
    "tsqr",
]

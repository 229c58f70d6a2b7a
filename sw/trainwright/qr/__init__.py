"""Householder QR in any precision: by columns, by blocks, tall skinny (docs/reference/qr.md)."""

from trainwright.qr.apriori import ErrorBound
from trainwright.qr.bounds import BoundError
from trainwright.qr.householder import BlockQR, HouseholderQR, block_qr, householder_qr
from trainwright.qr.leastsquares import LeastSquares, lstsq
from trainwright.qr.pivoted import PivotedQR, pivoted_qr
from trainwright.qr.ranks import RankedQR, Ranks, tsqr_over_ranks
from trainwright.qr.result import QR, Errors, QRError
from trainwright.qr.sketched import SketchedQR, sketched_qr
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
    "RankedQR",
    "Ranks",
    "SketchedQR",
    "TallQR",
    "block_qr",
    "householder_qr",
    "lstsq",
    "pivoted_qr",
    "sketched_qr",
    "tsqr",
    "tsqr_over_ranks",
]

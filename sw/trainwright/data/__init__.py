"""Data sets: images as unsigned bytes with labels, split into train and test."""

from trainwright.data.dataset import DataError, DataSet, Split
from trainwright.data.own import OwnOptions, OwnSamples, load_samples
from trainwright.data.registry import DATA_SETS, is_npz, load_data_set, own_data

__all__ = [
    "DATA_SETS",
    "DataError",
    "DataSet",
    "OwnOptions",
    "OwnSamples",
    "Split",
    "is_npz",
    "load_data_set",
    "load_samples",
    "own_data",
]

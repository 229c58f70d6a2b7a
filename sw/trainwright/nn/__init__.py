"""Tensor-train layers for PyTorch: ordinary modules, quantisation-aware as the accelerator is.

>>> import torch, trainwright.nn as tnn
>>> model = torch.nn.Sequential(tnn.TTLinear(64, 32), torch.nn.ReLU(), tnn.TTLinear(32, 10))
>>> model(torch.rand(8, 64)).shape
torch.Size([8, 10])
"""

from trainwright.nn.adam import Adam
from trainwright.nn.attention import TokenAttention
from trainwright.nn.conversion import ConversionSummary, LayerConversion, from_torch, to_torch
from trainwright.nn.folding import fold_batch_norm
from trainwright.nn.layers import TTConv2d, TTEmbedding, TTLayerNorm, TTLinear
from trainwright.nn.model import cut_ranks, from_network, load, rank_prior
from trainwright.nn.multihead import TTMultiheadAttention
from trainwright.nn.tensor_train import TensorTrain

__all__ = [
    "Adam",
    "ConversionSummary",
    "LayerConversion",
    "TTConv2d",
    "TTEmbedding",
    "TTLayerNorm",
    "TTLinear",
    "TTMultiheadAttention",
    "TensorTrain",
    "TokenAttention",
    "cut_ranks",
    "fold_batch_norm",
    "from_network",
    "from_torch",
    "load",
    "rank_prior",
    "to_torch",
]

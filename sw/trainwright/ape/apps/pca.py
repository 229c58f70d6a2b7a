"""Principal component analysis: covariance by a product, eigenvectors, projection."""

import torch
from torch import Tensor


def pca(x: Tensor, components: int) -> tuple[Tensor, Tensor]:
    """Return (variances (components,), largest first, axes (components, D)) of samples x (N, D)."""
    centred = x - x.mean(0)
    covariance = centred.T @ centred / (len(x) - 1)  # (D, D)
    values, vectors = torch.linalg.eigh(covariance)
    return values.flip(0)[:components], vectors.flip(1)[:, :components].T


def project(x: Tensor, axes: Tensor) -> Tensor:
    """Project samples (N, D) onto the axes (components, D): (N, components)."""
    return (x - x.mean(0)) @ axes.T

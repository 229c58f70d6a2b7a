"""Losses on the host, in float64, between forward and backward pass."""

import torch

from trainwright.network import Network


def heads_loss(
    network: Network, logits: torch.Tensor, labels: torch.Tensor
) -> tuple[float, torch.Tensor]:
    """Return the sum of the losses of a network's heads, and its derivative.

    ``logits`` float64 (batch, outputs of all heads). Means over words and over sequences weigh the
    same.
    """
    parts = [
        head_loss(
            head_logits(network, name, logits), network.labels_of(name, labels),
            network.classes_of(name),
        )
        for name in network.heads
    ]  # fmt: skip
    # A head's derivative depends on its own logits alone.
    return sum(mean for mean, _ in parts), torch.cat([gradient for _, gradient in parts], 1)


def head_loss(
    logits: torch.Tensor, labels: torch.Tensor, classes: int
) -> tuple[float, torch.Tensor]:
    """Return the mean loss of a head, and its derivative.

    ``logits`` float64 (batch, outputs). Labels (batch, tokens) are those of words: the loss is the
    mean over the words.
    """
    if labels.dim() == 2:
        return words_loss(logits, labels, classes)
    if labels.is_floating_point():
        return squared_error(logits, labels)
    return cross_entropy(logits, labels, classes)


def cross_entropy(
    logits: torch.Tensor, labels: torch.Tensor, classes: int
) -> tuple[float, torch.Tensor]:
    """Return the mean cross-entropy over the first ``classes`` outputs, and its derivative.

    ``logits`` float64 (batch, outputs), ``labels`` int64 (batch,). The derivative has the shape of
    ``logits`` and includes the mean's division; it is 0 at the outputs beyond the classes.
    """
    batch = len(labels)
    kept = logits[:, :classes]
    # Through logsumexp: exp of a large logit would overflow, its logarithm does not.
    log_probabilities = kept - torch.logsumexp(kept, 1, keepdim=True)
    rows = torch.arange(batch)
    loss = -log_probabilities[rows, labels].mean()
    gradient = torch.zeros_like(logits)
    # The derivative of the mean cross-entropy is (p - 1 at the label) / batch.
    gradient[:, :classes] = log_probabilities.exp()
    gradient[rows, labels] -= 1
    return loss.item(), gradient / batch


def head_logits(network: Network, name: str, logits: torch.Tensor) -> torch.Tensor:
    """Return the logits of a head (batch, its outputs) of those of all heads."""
    return logits.split(list(network.head_sizes), 1)[network.heads.index(name)]


def words_of(logits: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the logits of a head (batch, tokens, outputs) and which tokens are words."""
    return logits.reshape(*labels.shape, -1), labels >= 0


def words_loss(
    logits: torch.Tensor, labels: torch.Tensor, classes: int
) -> tuple[float, torch.Tensor]:
    """Return the mean cross-entropy over all words of a batch, and its derivative.

    ``logits`` float64 (batch, tokens x outputs); ``labels`` int64 (batch, tokens), below 0 where a
    sequence has no word: the derivative is 0 there.
    """
    every, kept = words_of(logits, labels)
    mean, gradient = cross_entropy(every[kept], labels[kept], classes)
    whole = torch.zeros_like(every)
    whole[kept] = gradient
    return mean, whole.reshape(logits.shape)


def squared_error(outputs: torch.Tensor, targets: torch.Tensor) -> tuple[float, torch.Tensor]:
    """Return the mean of half the squared errors of the first output, and its derivative.

    ``outputs`` float64 (batch, outputs), ``targets`` float64 (batch,). The derivative has the shape
    of ``outputs``, and is 0 beyond the first.
    """
    error = outputs[:, 0] - targets
    gradient = torch.zeros_like(outputs)
    gradient[:, 0] = error / len(targets)
    return (error**2).mean().item() / 2, gradient

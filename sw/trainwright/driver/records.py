"""Make the records of a data set from the tensors that the host would write in a step."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch

from trainwright.compiler import CompiledStep
from trainwright.compiler.base.names import SAMPLES_OUTSIDE
from trainwright.compiler.chip.memory import classes_in_rows, label_kinds
from trainwright.compiler.chip.samples import RecordFormat
from trainwright.driver.tokens import NO_MASKS, token_words
from trainwright.network import Input, Network
from trainwright.onchip.choices import label_bytes, no_label
from trainwright.onchip.samples import require_labels, target_beats


def input_view(network: Network, name: str, images: torch.Tensor) -> torch.Tensor:
    """Return a view of the rows and columns of images (batch, values) that an input reads.

    Writing to the view changes ``images``.
    """
    pixels = images.reshape(-1, *network.padded)
    node = next((node for node in network.nodes if node.name == name), None)
    if not isinstance(node, Input):
        return pixels
    return pixels[:, slice(*node.rows), slice(*node.columns)]


def written_words(
    network: Network,
    names: Sequence[str],
    inputs: torch.Tensor,
    attended: Mapping[str, torch.Tensor] = NO_MASKS,
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors that the host writes for ``inputs`` (batch, I), except masks of dropout.

    ``names`` are the names of the network's inputs, ``attended`` masks as in ``ForwardOperands``.
    """
    for name in names:
        yield name, input_view(network, name, inputs).flatten(1)
    yield from token_words(network, inputs, attended).items()


def sample_records(
    step: CompiledStep, inputs: torch.Tensor, labels: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint8]:
    """Return records of samples, uint8 (samples, bytes), in the step's ``RecordFormat``.

    ``inputs`` are int64 (samples, I), labels those of all heads (``Network.labels_of``).
    Raises ``ValueError`` for labels that are no classes.
    """
    require_labels(labels, step.network.classes)
    network, batch, form = step.network, step.batch, RecordFormat.of(step)
    lanes = step.parameters.lanes
    result = np.zeros((len(inputs), (form.beats + 1) * lanes), np.uint8)
    for start in range(0, len(inputs), batch):
        batch_inputs = inputs[start : start + batch]
        # The last samples are filled up with zeros, as buffers have the size of a batch.
        filled = torch.nn.functional.pad(batch_inputs, (0, 0, 0, batch - len(batch_inputs)))
        words = dict(written_words(network, step.inputs, filled))
        for content in form.contents:
            place = slice(lanes * content.first, lanes * (content.first + content.beats))
            if content.packed:
                data = content.packed.pack(words[content.tensor].to(torch.int32))
                result[start : start + batch, place] = data.reshape(batch, -1)[: len(batch_inputs)]
            else:
                size = label_bytes(network.classes)
                data = np.full((len(batch_inputs), lanes * content.beats // size), -1, f"<i{size}")
                numbers = network.labels_of(network.main, labels)[start : start + batch]
                data[:, : numbers.shape[1]] = numbers
                result[start : start + batch, place] = data.view(np.uint8)
    if kind := label_kinds(network).get(1):
        targets = network.labels_of(network.sequence_head, labels)
        numbered = classes_in_rows(network, lanes)
        result[:, -lanes:] = target_beats(targets, kind.classes, numbered=numbered, beat=lanes)
    return result


def filled_records(step: CompiledStep, records: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Fill records up to whole batches with blank records, which have no label."""
    network, lanes = step.network, step.parameters.lanes
    shape = (1, network.labels) if network.labels > 1 else 1
    none = np.full(shape, no_label(network.classes))
    if SAMPLES_OUTSIDE in step.buffers:
        blank = np.zeros((1, records.shape[1]), np.uint8)
        numbered = classes_in_rows(network, lanes)
        beats = target_beats(none, network.classes, numbered=numbered, beat=lanes)
        blank[:, -lanes:] = beats
    else:
        blank = sample_records(step, torch.zeros(1, network.input_size), none)
    return np.concatenate([records, blank.repeat(-len(records) % step.batch, 0)])

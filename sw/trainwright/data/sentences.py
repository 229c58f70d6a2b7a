"""Lines of text with a label each, as the numbers of their words: samples of networks of tokens.

A file has a label, a tab and a text in each line. A folder has ``train.txt`` and ``test.txt``, or
``train`` and ``test`` with the words of each line in ``seq.in`` and its label in ``label``, as data
of intent detection are published; ``seq.out`` may have a label for each word (slot filling). Words
are separated by spaces; capital letters and punctuation around a word do not count.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import punctuation
from typing import Any

import numpy as np
import numpy.typing as npt

from trainwright.data.cells import lines_of
from trainwright.data.dataset import MOST_CLASSES, DataError, DataSet, Split, label_type
from trainwright.data.npz import cut_off_test
from trainwright.support.text import amount

TEXT = ".txt"
TRAIN, TEST = PARTS = ("train", "test")
PADDING, UNKNOWN, FIRST_WORD = 0, 1, 2
"""Numbers of no token, of a word outside the vocabulary, and of the most frequent word."""
OTHER = "UNK"
"""Name of a class for labels of the test split that no training line has."""
OUTSIDE = "O"
"""Label of a word that belongs to no span."""
NO_TAG = -1
"""Class at places of a line that have no word."""


@dataclass(frozen=True)
class Sentences:
    """Words of each line, and its label where the lines have labels."""

    path: Path
    words: list[list[str]]
    labels: list[str] | None
    tags: list[list[str]] | None = None
    """Label of each word of each line, where words have labels."""


def words_of(text: str) -> list[str]:
    """Split a line into words, in small letters and without punctuation around them."""
    return [word.strip(punctuation) or word for word in text.lower().split()]


def is_text_folder(root: Path) -> bool:
    """Return whether a folder has a training split of lines of text."""
    return (root / TRAIN / "seq.in").is_file() or (root / f"{TRAIN}{TEXT}").is_file()


def read_sentences(path: Path, part: str = TEST) -> Sentences:
    """Read a file of lines, or one part of a folder. Raises ``DataError``."""
    tags = None
    if path.is_dir():
        if (path / f"{TRAIN}{TEXT}").is_file():
            return read_sentences(path / f"{part}{TEXT}")
        folder = path / part if (path / part).is_dir() else path
        # A blank line still counts as a sample: if it were dropped, texts would get the next label.
        texts, labels = _lines(folder / "seq.in"), _lines(folder / "label")
        if len(texts) != len(labels):
            raise DataError(
                f"{folder}: seq.in has {amount(len(texts), 'line')}, label has {len(labels):,}: "
                "give both one line for each sample"
            )
        if (folder / "seq.out").is_file():
            tags = _tags(folder, texts)
    else:
        # Lines without a single tab have no labels: eval predicts them.
        pairs = [line.partition("\t") for line in _lines(path) if line.strip()]
        labels = [label.strip() for label, _, _ in pairs]
        texts = [text for _, _, text in pairs]
        if not any(tab for _, tab, _ in pairs):
            labels, texts = None, labels
    for number, words in enumerate(texts, 1):
        if not words.strip() or (labels and not labels[number - 1].strip()):
            raise DataError(
                f"{path}: sample {number} lacks its text or its label: each line is a label, a "
                "tab and a text"
            )
    return Sentences(path, list(map(words_of, texts)), labels, tags)


def _tags(folder: Path, texts: Sequence[str]) -> list[list[str]]:
    """Read the labels of words. Raises ``DataError`` unless each word of each line has one."""
    tags = [line.split() for line in _lines(folder / "seq.out")]
    if len(tags) != len(texts):
        raise DataError(
            f"{folder}: seq.in has {amount(len(texts), 'line')}, seq.out has {len(tags):,}: "
            "give both one line for each sample"
        )
    for number, (text, names) in enumerate(zip(texts, tags, strict=True), 1):
        if len(text.split()) != len(names):
            raise DataError(
                f"{folder}: line {number} of seq.in has {amount(len(text.split()), 'word')}, "
                f"seq.out has {amount(len(names), 'label')}: give each word one"
            )
    return tags


def _lines(path: Path) -> list[str]:
    """Return the lines of a file up to the last that is not blank."""
    lines = lines_of(path)
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise DataError(f"{path} is empty")
    return lines


def load_sentences(path: Path) -> DataSet:
    """Read training data and fit its vocabulary and classes. Raises ``DataError``."""
    if path.is_dir():
        train, test = (read_sentences(path, part) for part in PARTS)
    else:
        whole = read_sentences(path)
        parts = cut_off_test(path, len(whole.words))
        train, test = (_chosen(whole, part) for part in parts)
    if train.labels is None or test.labels is None:
        raise DataError(f"{path} has no labels: each line is a label, a tab and a text")
    counts = Counter(word for words in train.words for word in words)
    vocabulary = sorted(counts, key=lambda word: (-counts[word], word))
    classes, known = sorted(set(train.labels)), set(train.labels)
    if not 2 <= len(classes) < MOST_CLASSES:
        raise DataError(
            f"{path} has {amount(len(classes), 'different label')}, from 2 to "
            f"{MOST_CLASSES - 1:,} are classes: correct the labels"
        )
    longest = max(map(len, (*train.words, *test.words)))
    notes = [
        f"{path}: {amount(len(train.words), 'line')} to train on and {len(test.words):,} to test, "
        f"of up to {amount(longest, 'word')}; {amount(len(vocabulary), 'different word')}, "
        f"{amount(len(classes), 'label')}"
    ]
    if unseen := [label for label in test.labels if label not in known]:
        notes.append(
            f"labels of {amount(len(unseen), 'test line')} are in no training line, such as "
            f"{unseen[0]!r}: class {OTHER}"
        )
        classes += [OTHER] * (OTHER not in classes)
    preparation = {"kind": "text", "words": vocabulary, "classes": classes, "longest": longest}
    preparation |= _tag_classes(train, test, notes)
    return DataSet(
        "text",
        _split(train, preparation),
        _split(test, preparation),
        len(vocabulary) + FIRST_WORD - 1,
        tuple(classes),
        preparation=preparation,
        notes=tuple(notes),
        tag_names=tuple(preparation.get("tags", ())),
    )


def _tag_classes(train: Sentences, test: Sentences, notes: list[str]) -> dict[str, list[str]]:
    """Return the classes of words, where the words of both splits have labels."""
    if train.tags is None or test.tags is None:
        return {}
    known = {tag for line in train.tags for tag in line}
    tags = sorted(known)
    if len(tags) >= MOST_CLASSES:
        raise DataError(
            f"{train.path}: words have {amount(len(tags), 'different label')}, at most "
            f"{MOST_CLASSES - 1:,} can be classes: correct seq.out"
        )
    unseen = [tag for line in test.tags for tag in line if tag not in known]
    notes.append(
        f"words have {amount(len(tags), 'label')}"
        + (f"; others of {amount(len(unseen), 'test word')} are class {OTHER}" if unseen else "")
    )
    if OUTSIDE not in tags:
        notes.append(
            f"no word has the label {OUTSIDE!r}, which marks words outside all spans: every word "
            "counts as part of a span"
        )
    return {"tags": tags + [OTHER] * (bool(unseen) and OTHER not in tags)}


def load_sentence_samples(
    path: Path, preparation: Mapping[str, Any]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[Any] | None, npt.NDArray[np.int16] | None]:
    """Read the lines of a file, or the test part of a folder, by a model's vocabulary.

    Returns numbers of words, labels of lines and labels of words.
    """
    lines = read_sentences(path)
    return (
        _numbers(lines, preparation),
        _labels(lines, preparation),
        _word_labels(lines, preparation),
    )


def _split(lines: Sentences, preparation: Mapping[str, Any]) -> Split:
    labels = _labels(lines, preparation)
    assert labels is not None
    return Split(_numbers(lines, preparation), labels, _word_labels(lines, preparation))


def _word_labels(lines: Sentences, preparation: Mapping[str, Any]) -> npt.NDArray[np.int16] | None:
    """Return the class of each word (lines, most words of a line), ``NO_TAG`` behind the last."""
    if lines.tags is None or "tags" not in preparation:
        return None
    places = {name: n for n, name in enumerate(preparation["tags"])}
    labels = np.full((len(lines.tags), max(map(len, lines.tags))), NO_TAG, np.int16)
    for row, names in zip(labels, lines.tags, strict=True):
        for n, name in enumerate(names):
            known = name if name in places else OTHER
            if known not in places:
                raise DataError(
                    f"{lines.path}: label {name!r} of a word is no class of the model: "
                    f"{', '.join(preparation['tags'][:20])}"
                )
            row[n] = places[known]
    return labels


def _chosen(whole: Sentences, places: npt.NDArray[np.int64]) -> Sentences:
    labels = whole.labels and [whole.labels[n] for n in places]
    return Sentences(whole.path, [whole.words[n] for n in places], labels)


def _numbers(lines: Sentences, preparation: Mapping[str, Any]) -> npt.NDArray[np.int32]:
    """Return the numbers of the words, (lines, 1, most words of a line)."""
    places = {word: n for n, word in enumerate(preparation["words"], FIRST_WORD)}
    longest = max(preparation["longest"], *map(len, lines.words))
    numbers = np.full((len(lines.words), 1, longest), PADDING, np.int32)
    for row, words in zip(numbers[:, 0], lines.words, strict=True):
        row[: len(words)] = [places.get(word, UNKNOWN) for word in words]
    return numbers


def _labels(lines: Sentences, preparation: Mapping[str, Any]) -> npt.NDArray[Any] | None:
    """Return the class of each line; of a label that the model does not know, `OTHER`."""
    if lines.labels is None or "classes" not in preparation:
        return None
    classes: Sequence[str] = preparation["classes"]
    places = {name: n for n, name in enumerate(classes)}
    for label in lines.labels:
        if label not in places and OTHER not in places:
            raise DataError(
                f"{lines.path}: label {label!r} is no class of the model: {', '.join(classes[:20])}"
            )
    numbers = [places[x if x in places else OTHER] for x in lines.labels]
    return np.array(numbers, label_type(len(classes)))

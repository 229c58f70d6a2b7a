"""Spans of words by their labels, as slot filling is scored: B-NAME begins one, I-NAME goes on."""

from collections.abc import Iterator, Sequence

from trainwright.data.sentences import OUTSIDE

Span = tuple[int, int, str]
"""First word, word after the last, and name."""


def spans(labels: Sequence[str]) -> Iterator[Span]:
    """Yield the spans of a line, by the rules of the CoNLL evaluation.

    An I-NAME without a span of its name before begins a span; a label without a prefix is a span of
    its own name. S-NAME is a span of one word and E-NAME the last word of one, as in BIOES.
    """
    begin, name, last = 0, "", ""
    for place, label in enumerate((*labels, OUTSIDE)):
        prefix, dash, kind = label.partition("-")
        if not dash:
            prefix, kind = "", "" if label == OUTSIDE else label
        goes_on = kind == name and prefix not in ("B", "S") and last not in ("E", "S")
        if name and not goes_on:
            yield begin, place, name
        if not goes_on:
            begin, name = place, kind
        last = prefix


def f1(predicted: Sequence[Sequence[str]], true: Sequence[Sequence[str]]) -> float:
    """Return the F1 score of the spans of lines: a span counts if its ends and name are right.

    The score is 1 where no line has a span and none is predicted.
    """
    right = wrong = missed = 0
    for ours, theirs in zip(predicted, true, strict=True):
        own, wanted = set(spans(ours)), set(spans(theirs))
        right += len(own & wanted)
        wrong += len(own - wanted)
        missed += len(wanted - own)
    return 2 * right / (2 * right + wrong + missed) if right + wrong + missed else 1.0

"""Rows of a finished run: the loss since the best epoch, one class for all samples."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from trainwright.report.summary import Summary, summary_rows
from trainwright.train.evaluate import Evaluation


def summary(**values: Any) -> Summary:
    empty: dict[str, Any] = dict.fromkeys((field.name for field in fields(Summary)), 0)
    empty |= {"digest": "", "first_mismatch": None, "step_cost": None, "ranks": ((4,),)}
    empty |= {"test_f1": None, "test_line_accuracy": None, "initial_ranks": ((8,),)}
    return Summary(**empty | values)


@pytest.mark.parametrize("train_accuracy", (0.5, None))
def test_rows_of_a_run_that_lost_accuracy_after_cuts_name_the_prior(train_accuracy):
    run = summary(train_accuracy=train_accuracy, best_test_accuracy=0.66, test_accuracy=0.26)
    row = dict(summary_rows(run))["lost since then"]
    assert row.startswith("0.4000 of R2" if train_accuracy is None else "40.0% of the samples")
    assert "--prior-weight" in row and "--no-prior" in row


@pytest.mark.parametrize(
    "values", ({"test_accuracy": 0.57}, {"test_accuracy": 0.26, "initial_ranks": ((4,),)})
)
def test_rows_of_a_run_that_kept_its_accuracy_or_ranks_name_no_loss(values):
    run = summary(train_accuracy=0.5, best_test_accuracy=0.66, **values)
    assert "lost since then" not in dict(summary_rows(run))


@pytest.mark.parametrize(
    ("predictions", "labels", "expected"),
    (([2, 2, 2], [2, 2, 0], True), ([2, 0, 2], [2, 2, 0], False), ([2, 2], [2, 2], False)),
)
def test_evaluation_of_equal_predictions_says_so_among_several_classes(
    predictions, labels, expected
):
    evaluation = Evaluation(np.array(predictions), np.array(labels), counters=None, seconds=0.0)
    assert evaluation.predicts_one_class is expected


@pytest.mark.parametrize("expected", (True, False))
def test_rows_of_a_run_with_one_predicted_class_explain_the_accuracy(expected):
    run = summary(train_accuracy=0.96, test_accuracy=0.966, predicts_one_class=expected)
    assert ("share of that class" in dict(summary_rows(run)).get("predictions", "")) is expected
